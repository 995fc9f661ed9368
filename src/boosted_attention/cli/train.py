"""``boosted-attention train``: a language model from text, with exact resume."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from boosted_attention.attention.options import LAYER_DEFAULTS, help_lines
from boosted_attention.cli.failure import CommandFailure
from boosted_attention.data.tokens import DataConfig
from boosted_attention.model.config import SET_BY_MODEL, LanguageModelConfig
from boosted_attention.storage.documents import DamagedError, parsed
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.recipes import RECIPES, find_recipe
from boosted_attention.train.run_config import RunConfig
from boosted_attention.validation import require

if TYPE_CHECKING:
    from boosted_attention.train.parallel import Parallel

RENAMED = {"folder": "out", "strategy": "parallel"}


def prepare(args: Sequence[str]) -> Callable[..., int]:
    """Return the command with the chosen recipe's values as its defaults, so that --help shows them."""
    chosen = find_recipe(value_of(args, "--recipe") or "mini")
    given = {name: value_of(args, name) is not None for name in ("--steps", "--epochs")}
    require(not all(given.values()), "--steps and --epochs exclude each other")
    if given["--steps"]:
        chosen = replace(chosen, training=replace(chosen.training, epochs=None))

    def run(
        *,
        recipe: str = "mini",
        out: Path | None = None,
        resume: bool = False,
        device: str = "cpu",
        checkpoint_every: int = 200,
        log_to: tuple[str, ...] = (),
        parallel: str = "ddp",
        checkpoint_activations: bool = False,
        attention_options: tuple[str, ...] = (),
        model: Annotated[LanguageModelConfig, tyro.conf.OmitArgPrefixes] = chosen.model,
        training: Annotated[TrainingConfig, tyro.conf.OmitArgPrefixes] = chosen.training,
        data: Annotated[DataConfig, tyro.conf.OmitArgPrefixes] = chosen.data,
    ) -> int:
        """Train a language model. Without options: the mini recipe, boosted, on Python's standard library.

        The run's folder holds its configuration, metrics.jsonl, checkpoints and, at the end, result.json. A run that
        was stopped or killed goes on with --resume exactly as if nothing had happened. Several processes train one
        model under torchrun; how many, changes nothing but, on GPUs, the dropout that is drawn.

        Example: boosted-attention train --corpus text:notes/ --attention twicing --steps 400 --out runs/notes

        Example: torchrun --nproc-per-node 4 -m boosted_attention train --parallel fsdp --device cuda

        Args:
            recipe: values to start from: {recipes}.
            out: folder of the run; runs/RECIPE-ATTENTION-CORPUS-SEED by default.
            resume: continuation from the last checkpoint in --out; a run that has not begun begins.
            device: device to train on: cpu, cuda or mps.
            checkpoint_every: steps between checkpoints.
            log_to: tools that get copies of metrics.jsonl, one or several: tensorboard, trackio, csv.
            parallel: sharing of the model by torchrun's processes: ddp (each holds all) or fsdp (each holds a part).
            checkpoint_activations: activations computed twice instead of kept, to save memory.
            attention_options: options of the attention layer, such as n_rounds=3 gate=scalar; for boosted attention:
                {options}
        """
        of_layer = {**model.attention_options, **dict(map(parse_option, attention_options))}
        config = RunConfig(model=replace(model, attention_options=of_layer), training=training, data=absolute(data))
        config.model.require_ponder_options_used()
        options = Options(
            resume=resume,
            device=device,
            checkpoint_every=checkpoint_every,
            log_to=log_to,
            parallel=parallel,
            checkpoint_activations=checkpoint_activations,
        )
        return train(config, out or default_folder(recipe, config), options)

    assert run.__doc__ is not None
    lines = help_lines(LAYER_DEFAULTS["BoostedAttention"], without=SET_BY_MODEL)
    layer_options = ("\n" + 16 * " ").join(lines)
    run.__doc__ = run.__doc__.replace("{recipes}", ", ".join(RECIPES)).replace("{options}", layer_options)
    return run


def value_of(args: Sequence[str], option: str) -> str | None:
    """Return what an option is given, before the command line is parsed."""
    for i, arg in enumerate(args):
        if arg == option and i + 1 < len(args):
            return args[i + 1]
        if arg.startswith(f"{option}="):
            return arg.partition("=")[2]
    return None


def absolute(data: DataConfig) -> DataConfig:
    """Return the configuration with full paths, so that the run's folder can be used from anywhere."""

    def full(path: str | None) -> str | None:
        return None if path is None else str(Path(path).expanduser().absolute())

    corpus = data.corpus
    if corpus.startswith("text:") and corpus != "text:":
        corpus = f"text:{full(corpus.removeprefix('text:'))}"
    paths = {name: full(getattr(data, name)) for name in ("validation", "test", "data_root")}
    return replace(data, corpus=corpus, **paths)


PYTHON_CONSTANTS = {"True": True, "False": False, "None": None}  # which are no JSON


def parse_option(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE: n_rounds=3 is a number, gate=scalar a word, n_kv_heads=[4,2] a list; True and true are alike."""
    name, equals, value = text.partition("=")
    require(bool(name and equals), f"--attention-options {text!r} must be NAME=VALUE")
    try:
        return name, PYTHON_CONSTANTS[value] if value in PYTHON_CONSTANTS else parsed(value, text)
    except DamagedError:  # a word
        return name, value


def default_folder(recipe: str, config: RunConfig) -> Path:
    """Return the folder of a run that was given none."""
    corpus = re.sub(r"[^\w.-]+", "-", config.data.corpus).strip("-.")
    return Path("runs") / f"{recipe}-{config.model.attention}-{corpus}-{config.training.seed}"


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a run is carried out, which is no part of its configuration."""

    resume: bool
    device: str
    checkpoint_every: int
    log_to: tuple[str, ...]
    parallel: str
    checkpoint_activations: bool


def train(config: RunConfig, folder: Path, options: Options) -> int:
    """Train in as many processes as torchrun started, and return the exit code."""
    from boosted_attention.train.parallel import another_died, processes
    from boosted_attention.train.sinks import require_sinks

    require(options.checkpoint_every >= 1, f"checkpoint_every={options.checkpoint_every} must be at least 1")
    require_sinks(options.log_to)
    try:
        with processes(options.parallel, options.device) as (parallel, device):
            return train_together(config, folder, replace(options, device=device), parallel)
    except RuntimeError as error:
        if not another_died(error):
            raise
        raise CommandFailure(f"process {os.environ['RANK']} lost the others, and ends") from None


def train_together(config: RunConfig, folder: Path, options: Options, parallel: Parallel) -> int:
    """Do one process's part; the main one shows how it goes."""
    from rich.console import Console

    from boosted_attention.cli.preparing import prepared
    from boosted_attention.train.budget import require_room
    from boosted_attention.train.display import LiveLine
    from boosted_attention.train.loop import TrainingError
    from boosted_attention.train.probe import LeakageError
    from boosted_attention.train.signals import Stopped
    from boosted_attention.train.trainer import Trainer

    live = Console(stderr=True, quiet=not parallel.main)
    if parallel.world == 1 and options.device == "cpu":
        require_room(config.model)
    data = parallel.agree(lambda: prepared(config.data, config.model.vocab_size, live))
    config = replace(config, model=replace(config.model, vocab_size=data.tokenizer.vocab_size))
    parameters = config.model.num_params()
    together = f", {parallel.world} processes ({parallel.strategy})" if parallel.world > 1 else ""
    header = f"{config.model.attention} attention, {parameters:,} parameters, in {folder}{together}"
    with LiveLine(live, header) as line:
        trainer = parallel.agree(
            lambda: Trainer(
                folder=folder,
                config=config,
                data=data,
                device=options.device,
                parallel=parallel,
                observer=line,
                checkpoint_every=options.checkpoint_every,
                log_to=options.log_to,
                checkpoint_activations=options.checkpoint_activations,
            )
        )
        try:
            result = trainer.run(resume=options.resume)
        except Stopped as stop:
            raise CommandFailure(str(stop), stop.exit_code, silent=not parallel.main) from None
        except (TrainingError, LeakageError) as error:
            raise CommandFailure(str(error), silent=not parallel.main) from None
    test = result.test
    if test is None:
        raise CommandFailure(result.problem or "the run was not tested", silent=not parallel.main)
    bits = "" if test.bits_per_byte is None else f", {test.bits_per_byte:.3f} bits per byte"
    Console(quiet=not parallel.main).print(
        f"test perplexity {test.perplexity:.2f} over {test.tokens:,} tokens{bits}; everything is in {folder}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    return 0
