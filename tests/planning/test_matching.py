"""Standard models of equal cost."""

from dataclasses import replace

import pytest

from boosted_attention import LanguageModelConfig
from boosted_attention.lab.experiments.language._arms import main_arms
from boosted_attention.lab.presets import PRESETS
from boosted_attention.planning import matching
from boosted_attention.planning.matching import matched
from boosted_attention.train.recipes import PAPER, RECIPES


def test_matching_finds_the_papers_width():
    model = matched(replace(PAPER.model, attention="boosted"), "parameters")
    assert (model.d_model, model.num_params(), model.ffn_multiple) == (288, 8_789_184, 4.0)
    assert main_arms(PRESETS["paper"])["param-fair"] == {"attention": "standard", "d_model": 288}


@pytest.mark.parametrize("by", sorted(matching.COSTS))
@pytest.mark.parametrize(
    "arm", [{"attention": "boosted"}, {"attention": "gated"}, {"attention": "boosted", "norm": "post"}]
)
def test_matched_models_cost_the_same(by, arm):
    model = replace(RECIPES["mini"].model, **arm)
    found = matched(model, by)
    assert found.attention == "standard"
    assert found.norm == model.norm
    assert matching.COSTS[by](found) == pytest.approx(matching.COSTS[by](model), rel=0.01)


@pytest.mark.parametrize("attention", ["boosted", "gated", "differential-v2"])
def test_any_layer_can_be_given_a_number_of_parameters(attention):
    model = replace(RECIPES["mini"].model, attention=attention)
    found = matching.match_cost(model, 300_000)
    assert found.attention == attention
    assert found.num_params() == pytest.approx(300_000, rel=0.01)
    assert matching.match_cost(found, found.num_params()) == found


def test_what_cannot_be_matched_shows_the_nearest():
    tiny = LanguageModelConfig(vocab_size=3, d_model=4, n_layers=1, n_heads=4, max_len=2, ffn_multiple=0.25)
    with pytest.raises(
        ValueError, match=r"no boosted model has 13 parameters: the nearest, d_model=4 with .*, has 2\d\d"
    ):
        matching.match_cost(tiny, 13.0)
    with pytest.raises(ValueError, match=r"by='flps' .*did you mean 'flops'"):
        matched(tiny, "flps")


def test_rotary_positions_get_heads_of_even_width():
    for d_model in (16, 24, 64):
        model = LanguageModelConfig(attention="boosted", d_model=d_model, n_heads=2, positions="rotary")
        assert matched(model).d_model // 2 % 2 == 0
