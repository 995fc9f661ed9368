"""Recipes: the models they name."""

import pytest

from boosted_attention import LanguageModelConfig
from boosted_attention.train.recipes import RECIPES


def test_the_papers_recipes_are_these_models():
    sizes = {name: RECIPES[f"paper-small-{name}"].model.num_params() for name in ("standard", "wide", "twicing")}
    assert sizes == {"standard": 7_419_392, "wide": 8_789_184, "twicing": 7_419_392}
    assert RECIPES["paper-small"].model.num_params() == RECIPES["paper-small-boosted"].model.num_params() == 8_734_208


@pytest.mark.parametrize("name", ["gpt-125m", "gpt-350m", "gpt-1b"])
def test_large_recipes_decay_hidden_matrices_alone(name):
    training = RECIPES[name].training
    assert (training.weight_decay, training.weight_decay_on) == (0.1, "matrices")


def test_large_recipes_cost_nothing_to_ask_about():
    sizes = {}
    for name in ("gpt-125m", "gpt-350m"):
        boosted = RECIPES[name].model
        standard = LanguageModelConfig(**{**boosted.to_dict(), "attention": "standard"})
        sizes[name] = boosted.num_params() / standard.num_params() - 1
    assert sizes["gpt-125m"] == pytest.approx(0.28, abs=0.01)
    assert sizes["gpt-350m"] == pytest.approx(0.35, abs=0.01)
