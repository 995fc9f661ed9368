"""Things to be broken, made once: a run, token files, a correction with its base, results, and what they say."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from boosted_attention.data.tokens import DataConfig, prepare
from boosted_attention.storage.sealing import seal_of
from tests.text import sample_text
from tests.train.driver import small_trainer

VOCABULARY = 300


@dataclass(frozen=True)
class Workshop:
    """A folder with everything that hunts damage copies of."""

    root: Path

    @cached_property
    def text(self) -> Path:
        """A text to train on."""
        return self.part("words.txt", lambda path: path.write_text(sample_text(20_000)))

    @cached_property
    def run(self) -> Path:
        """A finished run."""
        return self.part("run", lambda folder: small_trainer(folder, self.text).run(resume=True))

    @cached_property
    def cache(self) -> Path:
        """A cache with the token files of the text."""
        return self.part("cache", lambda folder: prepare(self.corpus, VOCABULARY, cache=folder))

    @property
    def corpus(self) -> DataConfig:
        return DataConfig(corpus=f"text:{self.text}")

    @cached_property
    def base(self) -> Path:
        """A small pretrained model."""
        return self.part("base", save_small_model)

    @cached_property
    def correction(self) -> Path:
        """A correction of the small model that changes what it says."""
        return self.part("correction", lambda folder: save_small_correction(self.base, folder))

    @cached_property
    def results(self) -> Path:
        """Results of a small reproduction."""
        from boosted_attention.lab.presets import preset
        from boosted_attention.lab.reproduce import reproduce

        return self.part("results", lambda folder: reproduce(["propositions", "gates"], preset("smoke"), folder, 1))

    def part(self, name: str, make: Callable[[Path], object]) -> Path:
        """A file or folder that the first process to ask for it makes, while others that ask wait."""
        path, done = self.root / name, self.root / f"{name}.done"
        with FileLock(self.root / f"{name}.lock"):
            if not done.exists():
                make(path)
                done.touch()
        return path


def save_small_model(folder: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def save_small_correction(base: Path, folder: Path) -> None:
    from boosted_attention.pretrained import boost, save_correction
    from boosted_attention.pretrained.folders import load_model

    model = boost(load_model(base), kv="shared", rank=2)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter))
    save_correction(model, folder)


Observe = Callable[[Path, Workshop], Any]


def look_at_run(folder: Path, workshop: Workshop) -> Any:
    """What a run says: its weights' loss on fixed tokens, its tokenizer, its history."""
    from boosted_attention.train.folder import load_run
    from boosted_attention.train.metrics import evaluation_rows, step_rows

    said = []
    for which in ("best", "last"):
        run = load_run(folder, which)
        ids = torch.arange(run.config.model.max_len)[None] % run.config.model.vocab_size
        with torch.no_grad():
            said.append([run.step, float(run.model(ids).double().sum()), run.tokenizer.sha256, run.fingerprint])
    return [said, [row.validation_loss for row in evaluation_rows(folder)], [row.loss for row in step_rows(folder)]]


def look_at_cache(folder: Path, workshop: Workshop) -> Any:
    """What a cache says: the tokens themselves."""
    data = prepare(workshop.corpus, VOCABULARY, cache=folder)
    return [data.fingerprint, {name: [str(ids.dtype), ids.tobytes().hex()] for name, ids in data.splits.items()}]


def look_at_correction(folder: Path, workshop: Workshop) -> Any:
    """What a corrected model says."""
    from boosted_attention.pretrained import load_correction
    from boosted_attention.pretrained.folders import load_model

    model = load_correction(load_model(workshop.base), folder)
    with torch.no_grad():
        return float(model(torch.arange(16)[None]).logits.double().sum())


def look_at_base(folder: Path, workshop: Workshop) -> Any:
    """What a pretrained model says."""
    from boosted_attention.pretrained.folders import load_model

    with torch.no_grad():
        return float(load_model(folder)(torch.arange(16)[None]).logits.double().sum())


def look_at_results(folder: Path, workshop: Workshop) -> Any:
    """What a ledger says, read again from its records; a record that does not serve is left out and remarked."""
    from boosted_attention.lab.judging.ledger import as_rows
    from boosted_attention.lab.reproduce import reread, stored_preset
    from boosted_attention.validation import InputError

    found = reread(stored_preset(folder), folder)
    if found.outcome.remarks:
        raise InputError(found.outcome.remarks[0])
    if set(found.tables) != {"propositions", "gates"}:
        raise InputError("an experiment is shown as not run, as it is without one of its trials")
    return seal_of(json.loads(json.dumps(as_rows(found.ledger))))


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of folder: where a whole one is, how it is looked at, and whether it can be made again."""

    folder: Callable[[Workshop], Path]
    look: Observe
    rebuilt: bool = False


KINDS = {
    "run": Kind(folder=lambda workshop: workshop.run, look=look_at_run),
    "cache": Kind(folder=lambda workshop: workshop.cache, look=look_at_cache, rebuilt=True),
    "correction": Kind(folder=lambda workshop: workshop.correction, look=look_at_correction),
    "results": Kind(folder=lambda workshop: workshop.results, look=look_at_results),
}


def files_of(folder: Path) -> list[Path]:
    """The files that something consists of: neither locks nor what is made from the rest."""
    made = {"timings.json", "report.html"}
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".") and path.suffix != ".lock" and path.name not in made
    )


def quiet_environment() -> dict[str, str]:
    """The environment of processes that hunts start."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
