"""Recipes by name: a model, how it is trained, and on which text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from boosted_attention.data.tokens import DataConfig
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.run_config import RunConfig
from boosted_attention.validation import require_choice

LanguageModelRun = RunConfig[LanguageModelConfig]

MINI = RunConfig(model=LanguageModelConfig(), training=TrainingConfig(), data=DataConfig())

# Small models that are trained well in minutes of one core: what each part of it bought is in docs/log.md.
ARENA = RunConfig(
    model=LanguageModelConfig(positions="rotary", init="zero"),
    training=TrainingConfig(
        optimizer="muon", steps=1300, lr=1.6e-2, matrix_lr=0.02, schedule="linear", horizon=0, eval_every=100
    ),
    data=DataConfig(),
)

# The paper's Appendix A, read as it was really run.
PAPER = RunConfig(
    model=LanguageModelConfig(vocab_size=16_384, d_model=256, max_len=256, dropout=0.1),
    training=TrainingConfig(
        epochs=15,
        layout="rows",
        lr=3e-4,
        warmup=1500,
        horizon=0,
        eval_every=1,
        eval_unit="epochs",
        protocol="paper",
        seed=42,
    ),
    data=DataConfig(corpus="wikitext-103", tokenizer="paper", train_tokens=10_000_000),
)

GPT = RunConfig(
    model=LanguageModelConfig(vocab_size=50_257, d_model=768, n_layers=12, n_heads=12, max_len=1024, init="scaled"),
    training=TrainingConfig(
        steps=20_000,
        batch_size=512,
        accumulate=32,
        lr=6e-4,
        weight_decay=0.1,
        weight_decay_on="matrices",
        beta2=0.95,
        precision="bfloat16",
        horizon=0,
        eval_every=1000,
    ),
    data=DataConfig(corpus="openwebtext"),
)


def with_model(recipe: LanguageModelRun, **options: Any) -> LanguageModelRun:
    """Return the recipe with some options of its model changed."""
    return replace(recipe, model=replace(recipe.model, **options))


class Recipes(Mapping[str, LanguageModelRun]):
    """Recipes by name, each made when it is first asked for: checking the options of some layers imports torch.

    Args:
        makers: a function for each name.
    """

    def __init__(self, makers: Mapping[str, Callable[[], LanguageModelRun]]):
        self.makers = {name: cache(make) for name, make in makers.items()}

    def __getitem__(self, name: str) -> LanguageModelRun:
        return self.makers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self.makers)

    def __len__(self) -> int:
        return len(self.makers)


RECIPES = Recipes(
    {
        "mini": lambda: MINI,
        "arena": lambda: ARENA,
        "arena-128": lambda: replace(with_model(ARENA, d_model=128), training=replace(ARENA.training, steps=1000)),
        "paper-small": lambda: PAPER,
        "paper-small-standard": lambda: with_model(PAPER, attention="standard"),
        "paper-small-twicing": lambda: with_model(PAPER, attention="twicing"),
        "paper-small-wide": lambda: with_model(PAPER, attention="standard", d_model=288),
        "paper-small-boosted": lambda: PAPER,
        "paper-medium": lambda: with_model(PAPER, d_model=384, n_layers=6, n_heads=6),
        "gpt-125m": lambda: GPT,
        "gpt-350m": lambda: larger(lr=3e-4, d_model=1024, n_layers=24, n_heads=16),
        "gpt-1b": lambda: larger(lr=2e-4, d_model=2048, n_layers=20, n_heads=16),
    }
)


def larger(*, lr: float, **options: Any) -> LanguageModelRun:
    """Return the recipe of gpt-125m with another model and learning rate."""
    return replace(with_model(GPT, **options), training=replace(GPT.training, lr=lr))


def find_recipe(name: str) -> LanguageModelRun:
    """Return a recipe by its name.

    Args:
        name: a key of RECIPES, such as "mini" or "gpt-125m".
    """
    require_choice("recipe", name, RECIPES)
    return RECIPES[name]
