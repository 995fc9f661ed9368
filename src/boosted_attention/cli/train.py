"""``boosted-attention train``: a language model from text, with exact resume."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from boosted_attention.data.tokens import DataConfig
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.names import require
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.folder import RunConfig
from boosted_attention.train.presets import PRESETS, find_preset


def prepare(args: Sequence[str]) -> Callable[..., int]:
    """The command with the chosen preset's values as its defaults, so that --help shows them."""
    chosen = find_preset(value_of(args, "--preset") or "mini")
    given = {name: value_of(args, name) is not None for name in ("--steps", "--epochs")}
    require(not all(given.values()), "--steps and --epochs exclude each other")
    if given["--steps"]:
        chosen = replace(chosen, training=replace(chosen.training, epochs=None))

    def run(
        *,
        preset: str = "mini",
        out: Path | None = None,
        resume: bool = False,
        device: str = "cpu",
        checkpoint_every: int = 200,
        tensorboard: bool = False,
        attention_options: tuple[str, ...] = (),
        model: Annotated[LanguageModelConfig, tyro.conf.OmitArgPrefixes] = chosen.model,
        training: Annotated[TrainingConfig, tyro.conf.OmitArgPrefixes] = chosen.training,
        data: Annotated[DataConfig, tyro.conf.OmitArgPrefixes] = chosen.data,
    ) -> int:
        """Train a language model. Without options: the mini preset, boosted, on Python's standard library.

        The run's folder holds its configuration, metrics.jsonl, checkpoints and, at the end, result.json. A run that
        was stopped or killed goes on with --resume exactly as if nothing had happened.

        Example: boosted-attention train --corpus text:notes/ --attention twicing --steps 400 --out runs/notes

        Args:
            preset: where all values start from: {presets}.
            out: folder of the run; runs/PRESET-ATTENTION-CORPUS-SEED by default.
            resume: go on from the last checkpoint in --out; a run that has not begun begins.
            device: cpu, cuda or mps.
            checkpoint_every: steps between checkpoints.
            tensorboard: also write TensorBoard files.
            attention_options: options of the attention layer, such as n_rounds=3 gate=scalar.
        """
        options = {**model.attention_options, **dict(map(parse_option, attention_options))}
        config = RunConfig(model=replace(model, attention_options=options), training=training, data=absolute(data))
        return train(config, out or default_folder(preset, config), resume, device, checkpoint_every, tensorboard)

    assert run.__doc__ is not None
    run.__doc__ = run.__doc__.replace("{presets}", ", ".join(PRESETS))
    return run


def value_of(args: Sequence[str], option: str) -> str | None:
    """What an option is given, before the command line is parsed."""
    for i, arg in enumerate(args):
        if arg == option and i + 1 < len(args):
            return args[i + 1]
        if arg.startswith(f"{option}="):
            return arg.partition("=")[2]
    return None


def absolute(data: DataConfig) -> DataConfig:
    """With full paths, so that the run's folder can be used from anywhere."""

    def full(path: str | None) -> str | None:
        return None if path is None else str(Path(path).expanduser().absolute())

    corpus = data.corpus
    if corpus.startswith("text:") and corpus != "text:":
        corpus = f"text:{full(corpus.removeprefix('text:'))}"
    paths = {name: full(getattr(data, name)) for name in ("validation", "test", "data_root")}
    return replace(data, corpus=corpus, **paths)


def parse_option(text: str) -> tuple[str, Any]:
    """n_rounds=3 is a number, gate=scalar a word, n_kv_heads=[4,2] a list."""
    name, equals, value = text.partition("=")
    require(bool(name and equals), f"--attention-options {text!r} must be NAME=VALUE")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def default_folder(preset: str, config: RunConfig) -> Path:
    corpus = re.sub(r"[^\w.-]+", "-", config.data.corpus).strip("-.")
    return Path("runs") / f"{preset}-{config.model.attention}-{corpus}-{config.training.seed}"


def train(config: RunConfig, folder: Path, resume: bool, device: str, checkpoint_every: int, tensorboard: bool) -> int:
    from rich.console import Console

    from boosted_attention.attention.selfcheck import usable_dtypes
    from boosted_attention.cli.preparing import prepared
    from boosted_attention.train.display import LiveLine
    from boosted_attention.train.probe import LeakageError
    from boosted_attention.train.trainer import Stopped, Trainer, TrainingError

    require(checkpoint_every >= 1, f"--checkpoint-every {checkpoint_every} must be at least 1")
    usable_dtypes(device)
    live = Console(stderr=True)
    data = prepared(config.data, config.model.vocab_size, live)
    config = replace(config, model=replace(config.model, vocab_size=data.tokenizer.vocab_size))
    parameters = config.model.num_params()
    header = f"{config.model.attention} attention, {parameters:,} parameters, in {folder}"
    with LiveLine(live, header) as line:
        trainer = Trainer(
            folder=folder, config=config, data=data, device=device, checkpoint_every=checkpoint_every,
            tensorboard=tensorboard, observer=line,
        )  # fmt: skip
        try:
            result = trainer.run(resume=resume)
        except Stopped as stop:
            line.remark(str(stop))
            return stop.exit_code
        except (TrainingError, LeakageError) as error:
            print(f"boosted-attention: {error}", file=sys.stderr)
            return 1
    test = result["test"]
    bits = "" if test["bits_per_byte"] is None else f", {test['bits_per_byte']:.3f} bits per byte"
    Console().print(
        f"test perplexity {test['perplexity']:.2f} over {test['tokens']:,} tokens{bits}; everything is in {folder}",
        markup=False, highlight=False, soft_wrap=True,
    )  # fmt: skip
    return 0
