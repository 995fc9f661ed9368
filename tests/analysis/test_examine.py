"""An examination: everything at once, stored and read back; its progress; and relations, from findings made by hand."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from boosted_attention import LanguageModelConfig
from boosted_attention.analysis.examine import Analysis, Relations, examine, relations
from boosted_attention.analysis.hull import HullFinding
from boosted_attention.records import from_json, to_json
from tests.analysis.made import VOCABULARY, T, model

GATE = [0.3, 0.5, 0.4, 0.35]
PERCENT = [10.0, -45.0, -20.0, 5.0]  # of entropy beside the other model's: round 1 is sharper where it is negative
DISTANCE = [0.9, 5.2, 3.4, 4.3]
WORTH = [0.02, 0.01, 0.04, 0.03]


def related(percent=PERCENT, layers=4):
    of_rounds = [(m, i) for m in (0, 1, 2) for i in range(layers)]
    gates = [SimpleNamespace(layer=i, round=m, mean=GATE[i] if m == 1 else 9.0 - i) for m, i in of_rounds if m]
    ratios = [SimpleNamespace(layer=i, round=m, percent=percent[i] if m == 1 else 7.0 * i) for m, i in of_rounds]
    hull = [SimpleNamespace(layer=i, paper={"boosted": SimpleNamespace(mean=DISTANCE[i])}) for i in range(layers)]
    missed = SimpleNamespace(layers=[SimpleNamespace(layer=i, mean=WORTH[i]) for i in reversed(range(layers))])
    return relations(gates, ratios, HullFinding(layers=hull, refused=None), missed)


def test_relations_are_of_round_1_and_a_sharper_round_counts_as_more():
    found = related()
    sharpness = [-p for p in PERCENT]
    assert found.sharpness_and_gate == pytest.approx(stats.pearsonr(sharpness, GATE).statistic)
    assert found.sharpness_and_gate > 0.9
    assert found.hull_distance_and_gate == pytest.approx(stats.spearmanr(DISTANCE, GATE).statistic)
    assert found.importance_and_gate == pytest.approx(stats.spearmanr(WORTH, GATE).statistic)
    assert related([-p for p in PERCENT]).sharpness_and_gate == pytest.approx(-found.sharpness_and_gate)


def test_two_layers_or_a_constant_relate_to_nothing():
    assert related(layers=2).sharpness_and_gate is None
    assert related([3.0] * 4).sharpness_and_gate is None
    assert related([3.0] * 4).hull_distance_and_gate is not None


@pytest.mark.parametrize("compared", [False, True])
def test_progress_grows_and_ends_at_one(compared):
    def model(attention):
        config = LanguageModelConfig(vocab_size=16, d_model=8, n_layers=2, n_heads=2, max_len=8, attention=attention)
        return config.build().eval()

    rows, told = torch.randint(16, (2, 9)), []
    against = model("standard") if compared else None
    examine(model("boosted"), rows, list("abcdefghijklmnop"), against=against, pairs=4, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0


class Wrapped(nn.Module):
    """A model that answers as Hugging Face's do."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, ids):
        return SimpleNamespace(logits=self.inner(ids))


def test_everything_at_once_and_for_models_that_wrap_their_logits(rows):
    mine, theirs = model(), model("standard")
    told = []
    found = examine(mine, rows, VOCABULARY, against=theirs, pairs=8, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0
    wrapped = examine(Wrapped(mine), rows, VOCABULARY, against=Wrapped(theirs), pairs=8)
    assert [name.removeprefix("inner.") for name in wrapped.layers] == found.layers
    assert replace(wrapped, layers=found.layers) == found
    assert found.hull.against.layers[0].paper["first estimate"].outside == 0
    assert found.relations == Relations(  # two layers have no correlation
        sharpness_and_gate=None, hull_distance_and_gate=None, importance_and_gate=None
    )
    alone = examine(theirs, rows, VOCABULARY, pairs=4, with_explorer=False)
    assert alone.gates == []
    assert alone.explorer is None
    assert alone.corrections is None


@pytest.mark.parametrize(
    "options",
    [
        {"attention": name}
        for name in (
            "differential",
            "differential-v2",
            "gated",
            "twicing",
            "boosted-differential",
            "parallax",
            "boosted-low-rank",
        )
    ]
    + [{"attention_options": {"space": "output"}}],
    ids=str,
)
def test_other_layers_are_analysed_but_for_the_hull(rows, options):
    found = examine(model(**options), rows, VOCABULARY, pairs=4)
    assert found.hull.model.layers is None
    assert "hull distance: layers.0.attention" in found.hull.model.refused
    assert all(0 <= row.mean <= np.log(T) for row in found.entropy.model)


def test_an_analysis_is_stored_and_read_back(rows):
    """With keys that are no Python names, with nulls where a part is missing, and without what was not added."""
    found = examine(model(n_layers=3), rows, VOCABULARY, against=model("standard", n_layers=3), pairs=8)
    written = to_json(found)
    assert from_json(Analysis, json.loads(json.dumps(written, allow_nan=False))) == found
    assert set(written["relations"]) == {
        "sharpness and gate",
        "hull distance and gate, ranks",
        "importance and gate, ranks",
    }
    assert isinstance(found.relations.importance_and_gate, float)
    assert set(written["hull"]["model"]["layers"][0]) == {"layer", "head_dim", "paper", "beyond head_dim"}
    assert not {"training", "data", "about", "names"} & set(written)
    assert "correlation_with_gate" not in written["entropy"]["model"][0]  # round 0 has no gate
    assert "correlation_with_gate" in written["entropy"]["model"][1]
    token, mean, count = written["gates"][0]["widest_tokens"][0]
    assert (token in VOCABULARY, type(mean), type(count)) == (True, float, int)
    alone = to_json(examine(model("standard"), rows, VOCABULARY, pairs=4, with_explorer=False))
    assert [alone[key] for key in ("corrections", "explorer")] == [None, None]
    assert alone["importance"]["all"] is None
    assert alone["entropy"]["against"] is alone["entropy"]["ratios"] is alone["hull"]["against"] is None
