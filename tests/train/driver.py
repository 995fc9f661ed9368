"""A small training run in a process of its own, which may be told where to die."""

import os
import signal
from pathlib import Path

import torch

from boosted_attention.data.tokens import DataConfig, prepare
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.train import checkpoint
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.run_config import RunConfig
from boosted_attention.train.signals import Stopped
from boosted_attention.train.trainer import Trainer

STEPS = 24


def small_config(text: Path, *, model=None, **training) -> RunConfig:
    """Dropout on, so that the random state matters; accumulation on; evaluations between checkpoints."""
    options = {"vocab_size": 300, "d_model": 16, "n_layers": 2, "n_heads": 2, "max_len": 16, "dropout": 0.1}
    settings = {"steps": STEPS, "batch_size": 8, "accumulate": 2, "eval_every": 5, "horizon": 0, "seed": 3}
    return RunConfig(
        model=LanguageModelConfig(**{**options, **(model or {})}),
        training=TrainingConfig(**{**settings, **training}),
        data=DataConfig(corpus=f"text:{text}", held_out_tokens=200),
    )


def small_trainer(
    folder: Path, text: Path, *, checkpoint_every: int = 4, observer=None, model=None, **training
) -> Trainer:
    config = small_config(text, model=model, **training)
    data = prepare(config.data, config.model.vocab_size)
    more = {} if observer is None else {"observer": observer}
    return Trainer(folder=folder, config=config, data=data, checkpoint_every=checkpoint_every, **more)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def train(folder: Path, text: Path, die_at: tuple[str, int] | None, resume: bool, **training) -> None:
    """Train to the end, or until ``die_at``: ("flush", n) dies in the n-th write to disk, ("step", n) inside step n."""
    torch.set_num_threads(1)
    trainer = small_trainer(folder, text, **training)
    if die_at is not None:
        where, left = die_at
        module, name = {"flush": (checkpoint, "flush"), "step": (torch.nn.utils, "clip_grad_norm_")}[where]
        original, count = getattr(module, name), [left]

        def counted(*args, **options):
            count[0] -= 1
            if count[0] == 0:
                die()
            return original(*args, **options)

        setattr(module, name, counted)
    try:
        trainer.run(resume=resume)
    except Stopped as stop:
        raise SystemExit(stop.exit_code) from None
