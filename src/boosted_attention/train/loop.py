"""The training loop: every step is a function of configuration, seed and step number.

Resuming is exact because nothing else is carried over: batches, learning rates and dropout follow from the step, and
weights and optimizer come from the checkpoint, bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any, cast

import torch
from torch import nn

from boosted_attention.analysis.dynamics import PROBE_LENGTH, RoundDynamics, dynamics_probe
from boosted_attention.analysis.survey import rounded
from boosted_attention.attention.dropout import has_own_dropout, seed_from
from boosted_attention.attention.trace import traced_layers
from boosted_attention.data.batches import batch_hash
from boosted_attention.model.loss import IGNORED
from boosted_attention.records import to_json
from boosted_attention.storage.documents import DamagedError, typed
from boosted_attention.storage.sealing import listing, write_sealed
from boosted_attention.storage.writing import write_atomically
from boosted_attention.train import checkpoint
from boosted_attention.train.evaluation import Evaluation, evaluate
from boosted_attention.train.folder import load_weights
from boosted_attention.train.gradients import accumulate_gradients
from boosted_attention.train.groups import has_frozen_corrections, trained_parameters
from boosted_attention.train.metrics import METRICS, RESULT, Metrics, NoMetrics
from boosted_attention.train.optim import TrainingOptimizer
from boosted_attention.train.parallel import job, own_part
from boosted_attention.train.phases import Phase, phase_of
from boosted_attention.train.probe import leakage_probe, packing_probe
from boosted_attention.train.results import EvaluationRow, RunResult, RunState, SplitScore, StepRow, ValidationRow
from boosted_attention.train.resume import best_to_test, find_checkpoint
from boosted_attention.train.settings import (
    CONFIG,
    TOKENIZER,
    differences,
    read_settings,
    settings_differ,
    write_settings,
)
from boosted_attention.train.setup import TrainingSetup
from boosted_attention.train.signals import STOPS, Stopped
from boosted_attention.train.sinks import Copies
from boosted_attention.validation import InputError, require

DYNAMICS_ROWS = 4  # of validation text, at every evaluation


class TrainingError(RuntimeError):
    """Training cannot go on; the message names step and batch."""


class TrainingLoop:
    """One process's part of a run, from its start or a checkpoint to its end.

    Args:
        setup: the parts of the run.
        resume: whether a run that is in the folder already may go on.
        stop: returns the number of a signal that asks for the end, or None.
    """

    def __init__(self, setup: TrainingSetup, resume: bool, stop: Callable[[], int | None]):
        self.setup, self.training, self.observer = setup, setup.training, setup.observer
        self.folder, self.total, self.stop = setup.folder, setup.total, stop
        self.parallel = setup.parallel
        self.checkpoints = self.folder / "checkpoints"
        how = {
            "parallel": self.parallel.strategy,
            "checkpoint_every": setup.checkpoint_every,
            "checkpoint_activations": setup.checkpoint_activations,
        }
        self.parallel.require_same({**self._config(), **how}, differences)
        found = self._from_main(
            lambda: find_checkpoint(self.folder, self._config(), resume, remark=self.observer.remark)
        )
        torch.manual_seed(self.training.seed)
        self.model = setup.config.model.build()
        if self.training.precision == "float64":
            self.model.to(torch.float64)
        if found is not None:
            self.parallel.agree(lambda: load_weights(self.model, found))
        self.device = torch.device(setup.device)
        if not self.parallel.shards:  # else no device may have room for the whole
            self.model.to(self.device)
        self.probe = leakage_probe(self.model)
        if "documents" in (self.training.pack, self.training.protocol):
            self.parallel.agree(lambda: packing_probe(self.model))
        self.loss = self.parallel.distribute(
            self.model, self.device, checkpointing=setup.checkpoint_activations, compiled=self.training.compile
        )
        self.trainable = trained_parameters(self.model)
        self.frozen = has_frozen_corrections(self.model)
        self._enter(phase_of(setup.phases, 0 if found is None else max(0, found.step - 1)))  # whose state it holds
        self.metrics = self._metrics() if self.parallel.main else NoMetrics()
        self.done, self.tokens, self.seconds = 0, 0, 0.0
        self.best: ValidationRow | None = None
        self.found = found

    def _from_main(self, look: Callable[[], Any]) -> Any:
        """Tell all processes what the main one finds."""
        found = self.parallel.agree(lambda: look() if self.parallel.main else None)
        return self.parallel.gathered(found)[0]

    def _enter(self, phase: Phase) -> None:
        """Begin a phase: freeze what it does not train, leave out later rounds, and start an optimizer of its own."""
        self.phase = phase
        phase.leave_out_later_rounds(self.model)
        trained = {name: p for name, p in self.trainable.items() if phase.trains(p.round)}
        for name, parameter in self.trainable.items():
            parameter.value.requires_grad_(name in trained)
        self.optimizer = TrainingOptimizer(self.training, self.model, trained)
        self.trained = self.optimizer.parameters

    def _config(self) -> dict[str, Any]:
        """Return everything that decides what comes out, as config.json holds it."""
        return {**self.setup.config.to_dict(), "fingerprint": self.setup.data.fingerprint}

    def _metrics(self) -> Metrics:
        """Return what writes metrics.jsonl and its copies."""
        copies = Copies(self.setup.log_to, self.folder, self._config(), self.observer.remark)
        return Metrics(self.folder / METRICS, copies)

    def finish(self) -> RunResult:
        """Train to the end, test the best checkpoint and write result.json."""
        try:
            if self.found is None:
                self._begin()
            else:
                self._restore(self.found)
            if self.parallel.main and (name := job()) is not None:
                write_atomically(self.folder / ".job", name)
            self.observer.start(self.done, self.total)
            if self.frozen:
                self.observer.remark("the corrections are frozen: everything that is trained is outside of them")
            self.model.train()
            while self.done < self.total:
                stopped = self._step()
                if self.training.evaluates_at(self.done, self.total, self.setup.batches.steps_per_epoch):
                    self._evaluate()
                every = self.setup.checkpoint_every
                if self.done == self.total or stopped or (every and self.done % every == 0):
                    self._save()
                if stopped and self.done < self.total:
                    raise Stopped(stopped, self.done)
        finally:
            self.metrics.close()
        return self._result()

    def _begin(self) -> None:
        """Start a new run: write its configuration and tokenizer, and evaluate it once."""
        self.metrics.cut(0, None)
        if self.parallel.main:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            self.setup.data.tokenizer.save(self.folder / TOKENIZER)
            write_settings(self.folder, self._config())
        self._evaluate()

    def _restore(self, found: checkpoint.Checkpoint) -> None:
        """Take optimizer and counters from a checkpoint; the weights are loaded already."""
        held = self.parallel.agree(lambda: found.tensors("optimizer"))
        self.optimizer.load_state(held, self.parallel)
        held_state = {f.name: found.state.get(f.name) for f in fields(RunState)}
        state = typed(RunState, held_state, found.folder / checkpoint.STATE)
        self.done, self.tokens, self.seconds = found.step, state.tokens, state.seconds
        self.best, self.probe = state.best, state.probe
        for problem in self.metrics.cut(self.done, state.metrics):
            self.observer.remark(problem)

    def _step(self) -> int:
        """Make one update; return the number of a signal that asks for the end, or 0."""
        started = time.monotonic()
        if (phase := phase_of(self.setup.phases, self.done)) != self.phase:
            self._enter(phase)
        ids, targets, documents = self.setup.batches(self.done)
        name, counted = batch_hash(ids, documents), int((targets != IGNORED).sum())
        step, length, part = self.done - phase.first, phase.length, phase.length / self.total
        lr = self.training.lr_at(step, length, share=part)
        self.optimizer.set_rates(step, length, part)
        share = accumulate_gradients(
            self.loss,
            self.parallel.rows(ids).to(self.device),
            self.parallel.rows(targets).to(self.device),
            counted,
            self.parallel.micro_batches(self.training.accumulate),
            self.training.precision,
            documents=None if documents is None else self.parallel.rows(documents).to(self.device),
            seed=seed_from(self.training.seed, self.done),
            first_row=self.parallel.first_row(len(ids)),
            by_rows=self.model.drops_by_rows and not has_own_dropout(self.device),
        )
        signals = [float(self.stop() == number) for number in STOPS]
        loss, *signalled = self.parallel.sums(share, *signals)
        limit = self.training.clip or float("inf")
        norm = float(self.parallel.whole(torch.nn.utils.clip_grad_norm_(self.trained.values(), limit)))
        if not (abs(loss) < float("inf") and norm < float("inf")):
            raise TrainingError(
                f"step {self.done + 1}, batch {name}: loss {loss}, gradient norm {norm}; nothing was updated and the "
                f"last checkpoint is as it was; a smaller lr= or a longer warmup= may help"
            )
        self.optimizer.step()
        self.done += 1
        self.tokens += counted
        self.seconds += time.monotonic() - started
        row = StepRow(step=self.done, loss=loss, lr=lr, grad_norm=norm, tokens=self.tokens, batch=name)
        self.metrics.write(row)
        self.observer.step(row)
        return next((number for number, count in zip(STOPS, signalled, strict=True) if count), 0)

    def _evaluate(self) -> None:
        """Measure the validation loss, and keep the weights if all rounds run and they are the best so far."""
        found = self._evaluation("validation")
        row = ValidationRow(
            step=self.done,
            validation_loss=found.loss,
            validation_perplexity=found.perplexity,
            validation_bits_per_byte=found.bits_per_byte,
            seconds=round(self.seconds, 3),
        )
        self.metrics.write(EvaluationRow(**vars(row), rounds=self._dynamics()))
        self.observer.evaluated(row)
        if self.done and self.phase.round is None and (self.best is None or found.loss < self.best.validation_loss):
            self.best = row
            self._require_finite()
            self._write("best", {"model": self.model.state_dict()})

    def _dynamics(self) -> list[RoundDynamics]:
        """Measure what the rounds do to a few rows of validation text; an empty list without layers of ours."""
        module = cast(nn.Module, self.model)
        if not traced_layers(module):
            return []
        length = min(self.setup.config.model.max_len, PROBE_LENGTH)
        tokens = self.setup.data.splits["validation"][: DYNAMICS_ROWS * length]
        rows = tokens[: len(tokens) // length * length] if len(tokens) >= length else tokens
        ids = torch.from_numpy(rows.astype("int64")).view(-1, min(length, len(rows)))  # (rows, length)
        return rounded(dynamics_probe(module, ids.to(self.device)))

    def _require_finite(self) -> None:
        """Refuse to save NaN or infinite weights."""
        wrong = [name for name, p in self.trained.items() if not bool(own_part(p).isfinite().all())]
        for found in self.parallel.gathered(wrong):
            if found:
                raise TrainingError(
                    f"step {self.done}: the update made {found[0]} infinite or NaN; the last checkpoint is as it was; "
                    "a smaller lr= may help"
                )

    def _evaluation(self, split: str) -> Evaluation:
        return evaluate(
            self.model,
            self.setup.data.splits[split],
            byte_lengths=self.setup.data.tokenizer.byte_lengths(),
            batch_size=self.training.batch_size,
            protocol=self.training.protocol,
            end_of_text=self.setup.data.tokenizer.end_of_text,
            precision=self.training.precision,
            parallel=self.parallel,
        )

    def _state(self) -> dict[str, Any]:
        """Return what a checkpoint holds beside its tensors."""
        metrics = self.metrics.written()
        counters = {"tokens": self.tokens, "seconds": self.seconds}
        measured = {"best": to_json(self.best), "probe": to_json(self.probe), "metrics": to_json(metrics)}
        return {"config": self._config(), **counters, **measured}

    def _require_own_folder(self) -> None:
        """Raise InputError if the run's folder was removed or replaced while it trained."""
        try:
            differing = settings_differ(self._config(), read_settings(self.folder).settings)
        except DamagedError as problem:
            raise InputError(f"{problem}; the folder was changed during training, and gets no checkpoint") from None
        require(not differing, f"folder={str(self.folder)!r} holds another run now, and gets no checkpoint of this one")

    def _save(self) -> None:
        """Write a checkpoint to go on from."""
        self._require_finite()
        self.metrics.flush()
        self._write("step", {"model": self.model.state_dict(), "optimizer": self.optimizer.state_tensors()})

    def _write(self, kind: str, tensors: checkpoint.TensorGroups) -> None:
        """Write a checkpoint: all processes put the tensors together, one writes them."""
        main = self.parallel.main
        self.parallel.agree(lambda: self._require_own_folder() if main else None)
        self.parallel.agree(
            lambda: checkpoint.save(
                self.checkpoints, kind, self.done, tensors, self._state(), whole=self.parallel.whole, write=main
            )
        )

    def _result(self) -> RunResult:
        """Test the best checkpoint and write down what came out."""
        test, problem = self._test()
        path = self.folder / RESULT
        result = RunResult(
            test=test,
            best=self.best,
            steps=self.done,
            tokens=self.tokens,
            seconds=round(self.seconds, 3),
            parameters=self.setup.config.model.num_params(),
            trained_parameters=sum(p.numel() for p in self.trained.values()),
            flops_per_token=self.setup.config.model.flops(),
            data=self.setup.data.fingerprint,
            probe=self.probe,
            problem=problem,
        )
        if problem is not None:
            self.observer.remark(problem)
        if self.parallel.main and (problem is None or not path.exists()):  # an earlier result is not lost
            write_sealed(path, to_json(result), listing(self.folder, (CONFIG, TOKENIZER, METRICS)))
        return result

    def _test(self) -> tuple[SplitScore | None, str | None]:
        """Test the best checkpoint; no other weights are tested in its place, and the reason is returned instead."""
        if self.best is not None:
            step = self.best.step
            best, problem = self._from_main(lambda: best_to_test(self.checkpoints, step))
            if best is None:
                return None, problem
            self._load(best)
        tested = self._evaluation("test")
        return SplitScore(**vars(tested), perplexity=tested.perplexity), None

    def _load(self, found: checkpoint.Checkpoint) -> None:
        """Copy the weights of a checkpoint into parameters that may be divided over processes."""
        held, state = self.parallel.agree(lambda: found.tensors("model")), self.model.state_dict()
        with torch.no_grad():
            for name, t in state.items():
                t.copy_(self.parallel.like(held[name], t))
