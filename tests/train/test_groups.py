"""Groups of parameters: told by where they stand in the model, for every layer of the catalog."""

import re

import pytest
import torch

from boosted_attention import LanguageModelConfig, list_attention
from boosted_attention.train.groups import trained_parameters

SIZE = {"vocab_size": 50, "d_model": 16, "n_layers": 2, "n_heads": 4, "max_len": 8, "tie_weights": False}


@pytest.mark.parametrize("name", list_attention())
def test_groups_of_every_layer(name):
    found = trained_parameters(LanguageModelConfig(attention=name, **SIZE).build())
    for place, parameter in found.items():
        in_gate = bool(re.search(r"\.(gates|residuals)\.\d+\.", place))
        assert parameter.is_gate == in_gate, place
        assert parameter.is_correction == bool(re.search(r"\.rounds\.[1-9]\d*\.", place)), place
        in_block = place.startswith("layers.")
        assert parameter.is_matrix == (in_block and parameter.value.ndim == 2 and not in_gate), place
    assert not any(found[place].is_matrix for place in ("embed.weight", "positions.weight", "head.weight"))
    between = any(f".{part}." in place for place in found for part in ("gates", "residuals"))
    assert any(parameter.is_gate for parameter in found.values()) == between


@pytest.mark.parametrize("n_kv_heads", [4, 2])
@pytest.mark.parametrize("name", list_attention())
def test_packed_projections_divide_into_queries_keys_and_values(name, n_kv_heads):
    model = LanguageModelConfig(attention=name, n_kv_heads=n_kv_heads, **SIZE).build()
    modules, packed = dict(model.named_modules()), 0
    for place, parameter in trained_parameters(model).items():
        parts = parameter.divide(parameter.value)
        if place.endswith(".qkv.weight"):
            learner = modules[place.removesuffix(".qkv.weight")]
            packed += 1
            assert len(parts) == 3
            assert all(torch.equal(part, learner.rows(which)[0]) for which, part in zip("qkv", parts, strict=True))
        else:
            assert len(parts) == 1
            assert parts[0] is parameter.value
    assert packed >= SIZE["n_layers"]


def test_frozen_parameters_are_left_out():
    model = LanguageModelConfig(**SIZE).build()
    model.embed.weight.requires_grad_(False)
    assert trained_parameters(model).keys() == {name for name, _ in model.named_parameters()} - {"embed.weight"}
