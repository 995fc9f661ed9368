"""Relations across layers, from findings made by hand; and how far an examination is."""

from types import SimpleNamespace

import pytest
import torch
from scipy import stats

from boosted_attention import LanguageModelConfig
from boosted_attention.analysis.examine import examine, relations
from boosted_attention.analysis.hull import HullFinding

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
