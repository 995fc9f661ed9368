"""Every check holds at any seed, and can fail: with the thing it measures made wrong, it says so."""

from functools import partial

import pytest
import torch

from boosted_attention.attention.layer import BoostedAttention
from boosted_attention.attention.learners.twicing import TwicingAttention
from boosted_attention.theory import energy, erasure, mart, normalization, projections
from boosted_attention.theory.catalog import CHECKS

COSTLY = {"contraction_erases_within_a_region", "residual_is_the_gradient", "bayes_is_a_layer"}


def pytest_generate_tests(metafunc):
    if metafunc.function is test_every_check_holds_with_its_limit:
        full = metafunc.config.getoption("--full")
        checks = [check for check in CHECKS if full or check.__name__ not in COSTLY]
        metafunc.parametrize("check", checks, ids=lambda check: check.__name__)
        metafunc.parametrize("seed", range(1, 8) if full else range(1, 4))


def test_every_check_holds_with_its_limit(check, seed):
    finding = check(seed)
    assert finding.holds, finding
    assert finding.counter_holds, finding
    assert finding.measured
    assert finding.counter


def test_names_are_distinct():
    assert len({check.__name__ for check in CHECKS}) == len(CHECKS) == 17


def wider(x, patterns, beta):
    """A retrieval step that overshoots, out of the hull and up the energy, and sees the whole query."""
    return 1.5 * (beta * x @ patterns.T).softmax(dim=-1) @ patterns + 0.1 * x


def moving(x, patterns, beta):
    """A step that contracts nothing."""
    return x + 1e-3


def always_post(measure, norm, *rest):
    """What is measured of models under Pre-LN, of models under Post-LN instead."""
    return measure("post", *rest)


SHARED = partial(BoostedAttention, kv_source="shared", gate="scalar")  # corrections of round 0's own values


BROKEN = {  # check: what it measures, and how that is made wrong
    "update_is_descent": (energy, "retrieve", wider),
    "three_kinds_of_fixed_point": (energy, "weights_at_rest", lambda patterns, beta: torch.full((8,), 0.125)),
    "stays_in_hull": (erasure, "retrieve", wider),
    "forgets_the_orthogonal_part": (erasure, "retrieve", wider),
    "fixed_points_in_hull": (erasure, "retrieve", lambda x, patterns, beta: x),
    "contraction_erases_within_a_region": (erasure, "retrieve", moving),
    "bayes_is_a_layer": (mart, "PREDICTORS", {"bayes": lambda task: lambda x: x}),
    "row_span": (projections, "TwicingAttention", BoostedAttention),
    "fixed_correction": (projections, "StandardAttention", BoostedAttention),
    "own_projections_escape": (projections, "BoostedAttention", SHARED),
    "hull_escape": (projections, "StandardAttention", TwicingAttention),
    "pre_norm_adds": (normalization, "block_output", partial(always_post, normalization.block_output)),
    "additive_stream": (normalization, "distance_from_sum", partial(always_post, normalization.distance_from_sum)),
    "post_norm_rank": (normalization, "layer_norm", lambda u, gamma, eps: gamma * (u - u.mean())),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_check_says_so_when_what_it_measures_is_wrong(name, monkeypatch):
    check = next(check for check in CHECKS if check.__name__ == name)
    where, what, wrong = BROKEN[name]
    monkeypatch.setattr(where, what, wrong)
    if name == "bayes_is_a_layer":
        monkeypatch.setattr(mart, "test_set", lambda task, size, draw=mart.test_set: draw(task, 500))
    assert not check(0).holds
