"""Figures of an analysis: captions that take the paper's numbers from one place, and figures for any kind of model."""

import json

import pytest
import torch

from boosted_attention import LanguageModelConfig
from boosted_attention.analysis.dynamics import DynamicsAtStep
from boosted_attention.analysis.examine import Analysis, Names, examine
from boosted_attention.lab.experiments.language.analysis import PAPER
from boosted_attention.records import from_json, to_json
from boosted_attention.report.inside import inside_figures, maps, visible

VOCABULARY = [f"w{i}" for i in range(30)] + [".", "\n"]
NAMES = Names(model="boosted", against="standard")


def model(attention="boosted", **options):
    torch.manual_seed(3)
    return LanguageModelConfig(
        vocab_size=32, d_model=16, n_layers=2, n_heads=2, max_len=12, attention=attention, **options
    ).build()


@pytest.fixture(scope="module")
def rows():
    return torch.randint(32, (4, 13), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def analysis(rows):
    return examine(model().eval(), rows, VOCABULARY, against=model("standard").eval(), pairs=8)


def captions(analysis, paper):
    return {figure.name: figure.caption for figure in inside_figures(analysis, NAMES, paper)}


def test_captions_tell_the_papers_numbers(analysis):
    told = captions(analysis, PAPER)
    assert "(the paper: 0.33 ± 0.08, 0.49 ± 0.22, 0.39, 0.36)" in told["gates"]
    assert "(the paper, with contexts of 256 tokens: standard 2.71, round 0 3.34, round 1 2.55)" in told["entropy"]
    assert "The paper's Figure 4 (means 0.88, 5.19, 4.25, 3.41) with its controls" in told["hull"]


def test_rounds_without_a_map_are_left_out(rows):
    """Entropy, shares and maps are of rounds that attend; the explorer says so, and the record can be read back."""
    mixed = examine(model("local-exclusive").eval(), rows, VOCABULARY, against=model("local").eval(), pairs=4)
    assert {found.round for found in mixed.entropy.model} == {0}
    assert {row.round for row in mixed.specialisation.model.rows} == {0}
    assert [found.label for found in maps(mixed, NAMES)] == ["standard", "round 0"]
    assert [r.attention is None for r in mixed.explorer.model.layers[0]] == [False, True, True]
    assert mixed.corrections.gains[0].model.attention[0][1:] == [[], []]
    assert "defined for learner='softmax'" in mixed.hull.model.refused
    assert [figure.name for figure in inside_figures(mixed, NAMES)] == [
        "gates",
        "importance",
        "entropy",
        "specialisation",
        "examples",
    ]
    assert from_json(Analysis, json.loads(json.dumps(to_json(mixed)))) == mixed


def test_captions_without_the_papers_numbers(analysis):
    told = captions(analysis, None)
    for text in ("(the paper", "2.71", "0.33 ±", "5.19"):
        assert not any(text in caption for caption in told.values())
    assert "The paper's Figure 4 with its controls" in told["hull"]


def test_figures_by_what_was_found(rows, analysis):
    assert [figure.name for figure in inside_figures(analysis, NAMES)] == [
        "gates",
        "importance",
        "entropy",
        "hull",
        "specialisation",
        "examples",
    ]
    plain = examine(model("standard").eval(), rows, VOCABULARY, pairs=4)
    assert [figure.name for figure in inside_figures(plain, Names(model="standard", against=""))] == [
        "entropy",
        "specialisation",
    ]


def test_training_is_drawn_from_two_evaluations_on(analysis):
    from dataclasses import replace

    steps = [DynamicsAtStep(step=step, rounds=analysis.dynamics) for step in (0, 10)]
    drawn = {figure.name: figure for figure in inside_figures(replace(analysis, training=steps), NAMES)}
    assert len(drawn["dynamics"].panels) == 4  # what is left after two rounds, one cosine, one gate
    left = drawn["dynamics"].panels[1].series[0]
    after_round_1 = next(one.left for one in analysis.dynamics if (one.layer, one.round) == (0, 1))
    assert (list(left.x), list(left.y)) == ([0, 10], [after_round_1] * 2)
    one_step = replace(analysis, training=steps[:1])
    assert "dynamics" not in {figure.name for figure in inside_figures(one_step, NAMES)}


def test_every_round_of_both_models_is_a_map(rows, analysis):
    assert [(one.label, one.theirs, one.round) for one in maps(analysis, NAMES)] == [
        ("standard", True, 0),
        ("round 0", False, 0),
        ("round 1", False, 1),
    ]
    both = examine(model().eval(), rows, VOCABULARY, against=model().eval(), pairs=4, with_explorer=False)
    labels = [one.label for one in maps(both, Names(model="mine", against="theirs"))]
    assert labels == ["theirs, round 0", "theirs, round 1", "round 0", "round 1"]


def test_blanks_can_be_seen():
    assert visible(" a\tb\n") == "␣a⇥b⏎"
    assert visible("a very long token") == "a␣very␣long…"
