"""Every check can fail: with the thing it measures made wrong, it says that the statement does not hold."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from boosted_attention.attention.layer import BoostedAttention
from boosted_attention.attention.learners.twicing import TwicingAttention
from boosted_attention.retrieval.training import RetrievalTraining
from boosted_attention.theory import energy, erasure, mart, normalization, projections
from boosted_attention.theory.catalog import CHECKS


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


def test_rounds_that_do_not_see_the_residual_are_found(monkeypatch):
    monkeypatch.setattr(mart, "BoostedAttention", partial(BoostedAttention, residual="input"))
    monkeypatch.setattr(mart, "RetrievalTraining", partial(RetrievalTraining, steps=1, batch=8))
    assert not mart.residual_is_the_gradient(0).holds


def test_a_gate_of_another_size_than_the_shrinkage_is_found(monkeypatch):
    monkeypatch.setattr(mart, "math", SimpleNamespace(log=lambda value: 0.0))
    assert not mart.scalar_gate_is_shrinkage(0).holds


def test_a_filter_that_decays_otherwise_is_found(monkeypatch):
    polyfit = np.polyfit
    monkeypatch.setattr(energy.np, "polyfit", lambda x, y, degree: polyfit(x, 1.1 * y, degree))
    assert not energy.twicing_spectrum(0).holds
