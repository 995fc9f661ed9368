"""The training loop: every step is a function of configuration, seed and step number.

Resuming is exact because nothing else is carried over: batches and learning rates follow from the step, and weights,
optimizer and random state come from the checkpoint, bit for bit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from boosted_attention.analysis.dynamics import PROBE_LENGTH, RoundDynamics, dynamics_probe
from boosted_attention.analysis.survey import rounded
from boosted_attention.attention.trace import traced_layers
from boosted_attention.data.batches import batch_hash
from boosted_attention.files import write_atomically, write_json
from boosted_attention.model.loss import IGNORED
from boosted_attention.records import to_json
from boosted_attention.train import checkpoint
from boosted_attention.train.evaluation import Evaluation, autocast, evaluate
from boosted_attention.train.folder import differences, load_weights
from boosted_attention.train.metrics import Metrics, NoMetrics
from boosted_attention.train.parallel import Trained, job
from boosted_attention.train.probe import leakage_probe
from boosted_attention.train.signals import STOPS, Stopped
from boosted_attention.validation import InputError, require

if TYPE_CHECKING:
    from boosted_attention.train.trainer import Trainer

BETA1 = 0.9
MOMENTS = ("exp_avg", "exp_avg_sq")  # AdamW's, one of each per parameter
DYNAMICS_ROWS = 4  # of validation text, at every evaluation


class TrainingError(RuntimeError):
    """Training cannot go on; the message names step and batch."""


class Training:
    """One process's part of a run, from its start or a checkpoint to its end."""

    def __init__(self, trainer: Trainer, resume: bool, stop: Callable[[], int | None]):
        self.trainer, self.training, self.observer = trainer, trainer.training, trainer.observer
        self.folder, self.total, self.stop = trainer.folder, trainer.total, stop
        self.parallel = trainer.parallel
        self.checkpoints = self.folder / "checkpoints"
        how = {
            "parallel": self.parallel.kind,
            "checkpoint_every": trainer.checkpoint_every,
            "checkpoint_activations": trainer.checkpoint_activations,
        }
        self.parallel.require_same({**self._config(), **how}, differences)
        found = self._from_main(lambda: self._find_checkpoint(resume))
        torch.manual_seed(self.training.seed)
        self.model = trainer.config.model.build()
        if self.training.precision == "float64":
            self.model.double()
        if found is not None:
            self.parallel.agree(lambda: load_weights(self.model, found))
        self.device = torch.device(trainer.device)
        if not self.parallel.shards:  # else no device may have room for the whole
            self.model.to(self.device)
        self.probe = leakage_probe(self.model)
        self.loss = self.parallel.distribute(
            self.model, self.device, checkpointing=trainer.checkpoint_activations, compiled=self.training.compile
        )
        self.trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.AdamW(
            self.trained.values(),
            lr=torch.tensor(0.0) if self.training.compile else 0.0,
            betas=(BETA1, self.training.beta2),
            weight_decay=self.training.weight_decay,
            fused=True,
        )
        path = self.folder / "metrics.jsonl"
        self.metrics = Metrics(path, tensorboard=trainer.tensorboard) if self.parallel.main else NoMetrics()
        self.done, self.tokens, self.seconds = 0, 0, 0.0
        self.best: dict[str, Any] | None = None
        self.found = found

    def _from_main(self, look: Callable[[], checkpoint.Checkpoint | None]) -> checkpoint.Checkpoint | None:
        """What one process finds, known to all."""
        found = self.parallel.agree(lambda: look() if self.parallel.main else None)
        return self.parallel.gathered(found)[0]

    def _find_checkpoint(self, resume: bool) -> checkpoint.Checkpoint | None:
        used = (self.folder / "config.json").exists()
        require(
            resume or not used,
            f"--out {self.folder} holds a run already; --resume continues it, or give another folder",
        )
        if not used:
            return None
        try:
            theirs = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise InputError(f"{self.folder}/config.json is damaged; give another --out") from None
        require(isinstance(theirs, dict), f"{self.folder}/config.json is damaged; give another --out")
        self._require_same(theirs)
        found, problems = checkpoint.latest(self.checkpoints, "step")
        for problem in problems:
            use = "starting anew" if found is None else f"going on from {found.folder.name}"
            self.observer.remark(f"{problem}; {use}")
        if found is not None:
            self._require_same(found.state["config"])
        checkpoint.clear(self.checkpoints, 0 if found is None else found.step)
        return found

    def _require_same(self, theirs: dict[str, Any]) -> None:
        """The same settings and the same text; where that text lies does not matter."""
        ours = self._config()
        if ours["fingerprint"] == theirs.get("fingerprint"):
            ours, theirs = ({**config, "data": None} for config in (ours, theirs))
        differing = differences(ours, theirs)
        require(not differing, f"--resume: {self.folder} was made with other settings: {'; '.join(differing)}")

    def _config(self) -> dict[str, Any]:
        """What is written down of the run: everything that decides what comes out."""
        return {**self.trainer.config.to_dict(), "fingerprint": self.trainer.data.fingerprint}

    def _begin(self) -> None:
        """A new run: its configuration, its tokenizer, and its first evaluation."""
        self.metrics.cut(0)
        if self.parallel.main:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            self.trainer.data.tokenizer.save(self.folder / "tokenizer.json")
            write_json(self.folder / "config.json", self._config())
        self._evaluate()

    def _restore(self, found: checkpoint.Checkpoint) -> None:
        held = self.parallel.agree(lambda: found.tensors("optimizer"))
        for name, p in self.trained.items():
            moments = {key: self.parallel.like(held[f"{key}.{name}"], p) for key in MOMENTS}
            self.optimizer.state[p] = {"step": held["step"].to(self.device, copy=True), **moments}
        torch.set_rng_state(held["rng.cpu"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(held["rng.cuda"], self.device)
        self.done, self.tokens, self.seconds = found.step, found.state["tokens"], found.state["seconds"]
        self.best = found.state["best"]
        if self.metrics.cut(self.done) < self.done:
            self.observer.remark(f"{self.folder}/metrics.jsonl lacks steps before {found.folder.name}; they are lost")

    def finish(self) -> dict[str, Any]:
        try:
            if self.found is None:
                self._begin()
            else:
                self._restore(self.found)
            if self.parallel.main and (self.found is None or not (self.folder / "probe.json").exists()):
                write_json(self.folder / "probe.json", self.probe)
            if self.parallel.main and (name := job()) is not None:
                write_atomically(self.folder / ".job", name)
            self.observer.start(self.done, self.total)
            self.model.train()
            while self.done < self.total:
                stopped = self._step()
                if self.training.evaluates_at(self.done, self.total, self.trainer.batches.steps_per_epoch):
                    self._evaluate()
                every = self.trainer.checkpoint_every
                if self.done == self.total or stopped or (every and self.done % every == 0):
                    self._save()
                if stopped and self.done < self.total:
                    raise Stopped(stopped, self.done)
        finally:
            self.metrics.close()
        return self._result()

    def _step(self) -> int:
        """One update; the number of a signal that asks for the end, or 0."""
        started = time.monotonic()
        ids, targets = self.trainer.batches(self.done)
        name = batch_hash(ids)
        lr = self.training.lr_at(self.done, self.total)
        for group in self.optimizer.param_groups:
            group["lr"] = torch.tensor(lr) if self.training.compile else lr
        self.parallel.seed_step(self.training.seed, self.done)
        share = accumulate_gradients(
            self.loss,
            self.parallel.rows(ids).to(self.device),
            self.parallel.rows(targets).to(self.device),
            int((targets != IGNORED).sum()),
            self.parallel.micro_batches(self.training.accumulate),
            self.training.precision,
        )
        signals = [float(self.stop() == number) for number in STOPS]
        loss, *signalled = self.parallel.sums(share, *signals)
        limit = self.training.clip or float("inf")
        norm = float(self.parallel.whole(torch.nn.utils.clip_grad_norm_(self.trained.values(), limit)))
        if not (abs(loss) < float("inf") and norm < float("inf")):
            raise TrainingError(
                f"step {self.done + 1}, batch {name}: loss {loss}, gradient norm {norm}; nothing was updated and the "
                f"last checkpoint is as it was; a smaller --lr or a longer --warmup may help"
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.done += 1
        self.tokens += targets.numel()
        self.seconds += time.monotonic() - started
        row = {"step": self.done, "loss": loss, "lr": lr, "grad_norm": norm, "tokens": self.tokens, "batch": name}
        self.metrics.write(row)
        self.observer.step(row)
        return next((number for number, count in zip(STOPS, signalled, strict=True) if count), 0)

    def _evaluate(self) -> None:
        found = self._evaluation("validation")
        row = {
            "step": self.done,
            "validation_loss": found.loss,
            "validation_perplexity": found.perplexity,
            "validation_bits_per_byte": found.bits_per_byte,
            "seconds": round(self.seconds, 3),
        }
        self.metrics.write({**row, "rounds": to_json(self._dynamics())})
        self.observer.evaluated(row)
        if self.done and (self.best is None or found.loss < self.best["validation_loss"]):
            self.best = row
            self._require_finite()
            self._write("best", {"model": self.model.state_dict()})

    def _dynamics(self) -> list[RoundDynamics]:
        """What the rounds do to a few rows of validation text; nothing in a model without our layers."""
        if not traced_layers(self.model):
            return []
        length = min(self.trainer.config.model.max_len, PROBE_LENGTH)
        tokens = self.trainer.data.splits["validation"][: DYNAMICS_ROWS * length]
        rows = tokens[: len(tokens) // length * length] if len(tokens) >= length else tokens
        ids = torch.from_numpy(rows.astype("int64")).view(-1, min(length, len(rows)))
        return rounded(dynamics_probe(self.model, ids.to(self.device)))

    def _require_finite(self) -> None:
        """Nothing that is not a number reaches a checkpoint."""
        wrong = [name for name, p in self.trained.items() if not bool(own_part(p).isfinite().all())]
        for found in self.parallel.gathered(wrong):
            if found:
                raise TrainingError(
                    f"step {self.done}: the update made {found[0]} infinite or NaN; the last checkpoint is as it was; "
                    "a smaller --lr may help"
                )

    def _evaluation(self, split: str) -> Evaluation:
        return evaluate(
            self.model,
            self.trainer.data.splits[split],
            byte_lengths=self.trainer.data.tokenizer.byte_lengths(),
            batch_size=self.training.batch_size,
            protocol=self.training.protocol,
            precision=self.training.precision,
            parallel=self.parallel,
        )

    def _state(self) -> dict[str, Any]:
        return {"config": self._config(), "tokens": self.tokens, "seconds": self.seconds, "best": self.best}

    def _save(self) -> None:
        self._require_finite()
        held: dict[str, Tensor] = {"rng.cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            held["rng.cuda"] = torch.cuda.get_rng_state(self.device)
        for name, p in self.trained.items():
            state = self.optimizer.state[p]
            held |= {"step": state["step"], **{f"{key}.{name}": state[key] for key in MOMENTS}}
        self.metrics.flush()
        self._write("step", {"model": self.model.state_dict(), "optimizer": held})

    def _write(self, kind: str, tensors: dict[str, dict[str, Tensor]]) -> None:
        """All processes put the tensors together, one writes them."""
        self.parallel.agree(
            lambda: checkpoint.save(
                self.checkpoints,
                kind,
                self.done,
                tensors,
                self._state(),
                whole=self.parallel.whole,
                write=self.parallel.main,
            )
        )

    def _result(self) -> dict[str, Any]:
        """Test the best checkpoint and write down what came out."""
        best = self._from_main(lambda: checkpoint.latest(self.checkpoints, "best")[0])
        if best is not None:
            self._load(best)
        tested = self._evaluation("test")
        config = self.trainer.config
        result = {
            "test": {**asdict(tested), "perplexity": tested.perplexity},
            "best": self.best,
            "steps": self.done,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 3),
            "parameters": config.model.num_params(),
            "trained_parameters": sum(p.numel() for p in self.trained.values()),
            "flops_per_token": config.model.flops(),
            "data": self.trainer.data.fingerprint,
            "probe": json.loads((self.folder / "probe.json").read_text()),
        }
        if self.parallel.main:
            write_json(self.folder / "result.json", result)
        return result

    def _load(self, found: checkpoint.Checkpoint) -> None:
        """The weights of a checkpoint, into parameters that may be divided."""
        held, state = self.parallel.agree(lambda: found.tensors("model")), self.model.state_dict()
        with torch.no_grad():
            for name, t in state.items():
                t.copy_(self.parallel.like(held[name], t))


def accumulate_gradients(
    trained: Trained, ids: Tensor, targets: Tensor, counted: int, parts: int, precision: str = "float32"
) -> float:
    """Gradients of the loss of these rows over ``counted`` tokens, in ``parts`` micro-batches; that loss."""
    total = torch.zeros((), dtype=torch.float64)
    pieces = list(zip(ids.chunk(parts), targets.chunk(parts), strict=True))
    for i, (some_ids, some_targets) in enumerate(pieces):
        with trained.synchronised(i == len(pieces) - 1):
            with autocast(ids.device, precision):
                share = trained.loss(some_ids, some_targets, reduction="sum") / counted
            (share * trained.scale).backward()
        total += share.detach().double().cpu()
    return float(total)


def own_part(t: Tensor) -> Tensor:
    """What of a tensor lies on this process."""
    return t.to_local() if hasattr(t, "to_local") else t  # type: ignore[operator]
