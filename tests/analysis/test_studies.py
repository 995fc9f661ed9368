"""Every study against the plain computation on the whole, in one go."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from boosted_attention import LanguageModelConfig, LayerTrace, RoundTrace, capture, disable_rounds
from boosted_attention.analysis.corrections import corrections
from boosted_attention.analysis.dynamics import DynamicsStudy, dynamics_probe
from boosted_attention.analysis.entropy import EntropyFinding, EntropyStudy, correlation, rank_correlation, ratios
from boosted_attention.analysis.examine import Analysis, Relations, examine
from boosted_attention.analysis.explorer import explore, pack
from boosted_attention.analysis.gates import GateStudy
from boosted_attention.analysis.importance import importance, most_important
from boosted_attention.analysis.interval import Interval
from boosted_attention.analysis.predictions import Prediction
from boosted_attention.analysis.specialisation import KEY_KINDS, SpecialisationStudy, is_punctuation
from boosted_attention.analysis.survey import (
    Distribution,
    Histogram,
    by_layer,
    draw_rows,
    rounded,
    survey,
    token_losses_of,
)
from boosted_attention.records import from_json, to_json

VOCABULARY = [f"w{i}" for i in range(40)] + [".", ",", "(", "\n", "�", "_"]
V, T = len(VOCABULARY), 12


def model(attention="boosted", **options):
    torch.manual_seed(1)
    sizes = {"vocab_size": V, "d_model": 16, "n_layers": 2, "n_heads": 2, "max_len": T}
    config = LanguageModelConfig(attention=attention, **{**sizes, **options})
    made = config.build().eval()
    for p in made.parameters():
        nn.init.normal_(p, std=0.3)  # sharper than at the start, so that there is something to see
    return made


@pytest.fixture(scope="module")
def rows():
    return torch.randint(V, (6, T + 1), generator=torch.Generator().manual_seed(5))


def whole_trace(m, rows):
    with torch.no_grad(), capture(m) as traces:
        m(rows[:, :-1])
    return list(traces.values())


@pytest.mark.parametrize("batch_size", [1, 4])
def test_gates(rows, batch_size):
    m, study = model(), GateStudy(VOCABULARY)
    survey(m, rows, [study], batch_size=batch_size)
    found = study.result()
    assert [(row.layer, row.round) for row in found] == [(0, 1), (1, 1)]
    for row, trace in zip(found, whole_trace(m, rows), strict=True):
        g = trace.rounds[1].gate.double()
        assert row.mean == pytest.approx(float(g.mean()), abs=1e-6)
        assert row.std == pytest.approx(float(g.std(correction=0)), abs=1e-6)
        assert row.spread == pytest.approx(float(g.mean(dim=(0, 1)).std(correction=0)), abs=1e-6)
        assert row.open == pytest.approx(float((g > 0.5).double().mean()))
        assert row.dimensions == pytest.approx(g.mean(dim=(0, 1)).tolist(), abs=1e-6)
        assert row.positions == pytest.approx(g.mean(dim=(0, 2)).tolist(), abs=1e-6)
        expected, _ = np.histogram(g.numpy(), bins=20, range=(0, 1))
        assert row.histogram.share == pytest.approx((expected / expected.sum()).tolist(), abs=2e-3)
        assert row.widest_tokens[0].mean >= row.narrowest_tokens[0].mean
        text, mean, occurrences = row.widest_tokens[0]
        token = VOCABULARY.index(text)
        assert occurrences == int((rows[:, :-1] == token).sum())
        assert mean == pytest.approx(float(g.mean(dim=-1)[rows[:, :-1] == token].mean()), abs=1e-6)


def test_scalar_gates_have_one_dimension(rows):
    m, study = model(attention_options={"gate": "scalar"}), GateStudy(VOCABULARY)
    survey(m, rows, [study])
    assert [len(row.dimensions) for row in study.result()] == [1, 1]
    assert study.result()[0].mean == pytest.approx(float(m.layers[0].attention.gates[0].logit.detach().sigmoid()))


@pytest.mark.parametrize("batch_size", [1, 4])
def test_entropy(rows, batch_size):
    m, study = model(attention_options={"n_rounds": 3}), EntropyStudy(T)
    survey(m, rows, [study], batch_size=batch_size)
    found = {(row.layer, row.round): row for row in study.result()}
    assert set(found) == {(layer, r) for layer in range(2) for r in range(3)}
    for layer, trace in enumerate(whole_trace(m, rows)):
        for r, one in enumerate(trace.rounds):
            w = one.weights.double()
            h = -(w * w.clamp_min(1e-300).log()).sum(-1)  # (B, H, T)
            assert found[layer, r].mean == pytest.approx(float(h.mean()), abs=1e-5)
            assert found[layer, r].heads == pytest.approx(h.mean(dim=(0, 2)).tolist(), abs=1e-5)
            assert sum(found[layer, r].histogram.share) == pytest.approx(1.0)
            if r:
                sharp, gate = -h.mean(dim=1).flatten().numpy(), one.gate.double().mean(dim=-1).flatten().numpy()
                expected = np.corrcoef(sharp, gate)[0, 1]
                assert found[layer, r].correlation_with_gate == pytest.approx(expected, abs=1e-3)


def test_ratios_and_correlations():
    def finding(m, mean):
        return EntropyFinding(
            layer=0, round=m, mean=mean, heads=[mean], histogram=Distribution(low=0.0, high=1.0, share=[1.0])
        )

    assert [one.percent for one in ratios([finding(0, 3.0), finding(1, 1.0)], [finding(0, 2.0)])] == [50.0, -50.0]
    assert ratios([finding(0, 3.0)], [finding(0, 0.0)]) == []
    assert correlation([1, 2, 3], [2, 4, 6]) == pytest.approx(1.0)
    assert rank_correlation([1, 2, 30], [3, 2, 1]) == pytest.approx(-1.0)
    assert correlation([1, 1], [1, 2]) is None
    assert correlation([1], [1]) is None


def made_trace(weights):
    trace = LayerTrace([RoundTrace()])
    trace.rounds[0].weights = weights
    return [trace]


def test_what_heads_attend_to():
    """Attention made by hand: to oneself, the token before, the first one, and a comma."""
    ids = torch.tensor([[1, 41, 1, 2, 1, 41]])  # the comma is token 41
    punctuation = torch.tensor([is_punctuation(text) for text in VOCABULARY])
    eye = torch.eye(6)
    before = torch.cat([eye[:1], eye[:-1]])
    first = torch.zeros(6, 6)
    first[:, 0] = 1
    study = SpecialisationStudy(punctuation)
    study.add(ids, made_trace(torch.stack([eye, before, first])[None]))
    heads = study.result().rows[0].heads
    assert heads["itself"] == pytest.approx([1, 1 / 6, 1 / 6])
    assert heads["previous token"] == pytest.approx([0, 5 / 6, 1 / 6])
    assert heads["first position"] == pytest.approx([1 / 6, 2 / 6, 1])
    assert heads["punctuation"] == pytest.approx([2 / 6, 1 / 6, 0])
    assert heads["same token earlier"] == pytest.approx([0, 0, 2 / 6])  # positions 2 and 4 look at token 1, at 0
    uniform = study.result().uniform
    assert uniform["itself"] == pytest.approx(np.mean([1 / t for t in range(1, 7)]))
    assert uniform["punctuation"] == pytest.approx(np.mean([0, 1 / 2, 1 / 3, 1 / 4, 1 / 5, 2 / 6]))
    assert set(uniform) == set(KEY_KINDS)


def test_punctuation_is_signs_only():
    assert [text for text in VOCABULARY if is_punctuation(text)] == [".", ",", "(", "_"]
    assert is_punctuation(' "')
    assert not is_punctuation("")


def test_dynamics(rows):
    m, study = model(), DynamicsStudy()
    survey(m, rows, [study])
    for row in study.result():
        trace = whole_trace(m, rows)[row.layer]
        x, r = trace.rounds[0].residual, trace.rounds[row.round]
        left = ((x - r.estimate).norm(dim=-1) / x.norm(dim=-1)).mean()
        assert row.left == pytest.approx(float(left), abs=1e-5)
        cosine = (r.correction * r.residual).sum(-1) / r.correction.norm(dim=-1) / r.residual.norm(dim=-1)
        assert row.cosine == pytest.approx(float(cosine.mean()), abs=1e-5)
        assert row.gate == pytest.approx(1.0 if r.gate is None else float(r.gate.mean()), abs=1e-6)


def test_the_probe_disturbs_nothing(rows):
    m = model(dropout=0.5).train()
    state = torch.get_rng_state()
    probe = dynamics_probe(m, rows[:2, :-1])
    assert m.training
    assert torch.equal(torch.get_rng_state(), state)
    assert [layer.trace for layer in (m.layers[0].attention, m.layers[1].attention)] == [None, None]
    assert [(row.layer, row.round) for row in probe] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_importance(rows):
    m = model()
    found = importance(m, rows)
    with torch.no_grad():
        base = token_losses_of(m, rows)
        assert found.loss == pytest.approx(float(base.double().mean()), abs=1e-6)
        for layer, change in [*((one.layer, one) for one in found.layers), (None, found.all)]:
            with disable_rounds(m, layers=layer):
                off = token_losses_of(m, rows)
            assert change.mean == pytest.approx(float((off - base).double().mean()), abs=1e-6)
            assert change.low <= change.mean <= change.high
    assert found.worth_boosting == [one.layer for one in found.layers if one.low > 0]
    assert len(most_important(found, 1)) == 1
    best = max(found.layers, key=lambda one: one.mean).layer
    assert most_important(found, 1) == [best]
    chosen = most_important(found, 2)
    assert LanguageModelConfig(n_layers=2, boosted_layers=chosen).attention_layers() == {0, 1}


def test_a_correction_that_does_nothing_is_worth_nothing(rows):
    m = model()
    qkv = m.layers[1].attention.rounds[1].qkv
    with torch.no_grad():
        qkv.weight[-16:] = 0  # its values
        qkv.bias[-16:] = 0
    found = importance(m, rows)
    assert found.layers[1].mean == 0.0
    assert 1 not in found.worth_boosting
    plain = importance(model("standard"), rows)
    assert plain.layers == []
    assert plain.all is None


def test_corrections_show_gains_and_losses(rows):
    mine, theirs = model(), model("standard")
    found = corrections(mine, theirs, rows, VOCABULARY)
    with torch.no_grad():
        gain = token_losses_of(theirs, rows) - token_losses_of(mine, rows)  # (n, T)
    assert found.tokens == gain.numel()
    assert found.gain.mean == pytest.approx(float(gain.mean()), abs=1e-5)
    assert found.share_better == pytest.approx(float((gain > 0).double().mean()))
    assert found.quantiles["0.5"] == pytest.approx(float(gain.median()), abs=0.5)
    top, bottom = found.gains[0], found.losses[0]
    assert top.against.loss - top.model.loss == pytest.approx(float(gain[:, 4:].max()), abs=1e-5)
    assert bottom.against.loss - bottom.model.loss == pytest.approx(float(gain[:, 4:].min()), abs=1e-5)
    differences = [e.against.loss - e.model.loss for e in found.gains]
    assert differences == sorted(differences, reverse=True)
    n, t = divmod(int(gain[:, 4:].argmax()), T - 4)
    t += 4
    assert top.context == [VOCABULARY[i] for i in rows[n, : t + 1].tolist()]
    assert top.target == VOCABULARY[int(rows[n, t + 1])]
    assert [len(layer) for layer in top.model.attention] == [2, 2]
    assert [len(layer) for layer in top.against.attention] == [1, 1]
    assert sum(top.model.attention[0][1]) == pytest.approx(1.0, abs=1e-5)
    assert len(top.model.top) == 5
    same = corrections(mine, mine, rows, VOCABULARY)
    assert same.gain.mean == 0.0


def test_the_explorer_holds_the_attention(rows):
    import base64

    m = model()
    found = explore(m, None, rows[0], VOCABULARY)
    trace = whole_trace(m, rows[:1])
    assert found.against is None
    assert found.tokens == [VOCABULARY[i] for i in rows[0].tolist()]
    for layer, rounds in enumerate(found.model.layers):
        for r, one in enumerate(rounds):
            flat = np.frombuffer(base64.b64decode(one.attention), dtype="<u2") / 65_535
            weights = trace[layer].rounds[r].weights[0].mean(dim=0)
            assert flat == pytest.approx(weights.numpy()[np.tril_indices(T)], abs=1e-5)
            assert one.residual == pytest.approx(trace[layer].rounds[r].residual[0].norm(dim=-1).tolist(), abs=1e-5)
            assert (one.gate is None) == (r == 0)
    assert len(pack(torch.eye(3))) == 16


def test_rows_are_drawn_once_each_and_the_same_every_time():
    tokens = np.arange(1000, dtype=np.uint16)
    rows = draw_rows(tokens, 9, 20)
    assert rows.shape == (20, 10)
    assert torch.equal(rows, draw_rows(tokens, 9, 20))
    assert len(set(rows[:, 0].tolist())) == 20
    assert bool((rows.diff(dim=1) == 1).all())
    assert draw_rows(tokens[:21], 9, 20).shape == (2, 10)
    with pytest.raises(ValueError, match="9 tokens; sequences of 9 need at least 10"):
        draw_rows(tokens[:9], 9, 20)


def test_histogram_and_rounding():
    histogram = Histogram(0.0, 1.0, 4)
    histogram.add(torch.tensor([-1.0, 0.1, 0.3, 0.99, 2.0]))
    assert histogram.result().share == pytest.approx([0.4, 0.2, 0, 0.4])
    assert rounded({"a": [1.23456789, None, 3, "x"]}) == {"a": [1.23457, None, 3, "x"]}
    with pytest.raises(ValueError, match="infinite or NaN"):
        rounded([{"a": float("nan")}])


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


def test_gates_have_three_dimensions(rows):
    """One number for all positions and dimensions is seen as (B, T, 1)."""
    for gate, width in (("vector", 16), ("mlp", 16), ("scalar", 1), ("none", 1)):
        for trace in whole_trace(model(attention_options={"gate": gate}), rows):
            assert trace.rounds[0].gate is None
            assert trace.rounds[1].gate.shape == (len(rows), T, width)


def test_a_gate_that_does_not_vary_has_no_correlation(rows):
    study = EntropyStudy(T)
    survey(model(attention_options={"gate": "scalar"}), rows, [study])
    assert [one.correlation_with_gate for one in study.result()] == [None] * 4


def test_intervals_are_shown_where_there_is_one():
    assert Interval(mean=0.5, low=0.25, high=0.75, n=3).shown() == "0.5000 [0.2500, 0.7500]"
    assert Interval(mean=0.5, low=0.5, high=0.5, n=1).shown(2) == "0.50"


def test_rounding_keeps_types():
    found = rounded(Interval(mean=1.23456789, low=0.0, high=2.0, n=3))
    assert found == Interval(mean=1.23457, low=0.0, high=2.0, n=3)
    assert rounded([Prediction("a", 0.123456789)]) == [Prediction("a", 0.123457)]
    assert isinstance(rounded(Prediction("a", 0.5)), Prediction)
    assert rounded((1.0, 2)) == (1.0, 2)


def test_findings_by_layer(rows):
    study = DynamicsStudy()
    survey(model(), rows, [study])
    chosen = by_layer(study.result(), 1)
    assert list(chosen) == [0, 1]
    assert all((layer, 1) == (one.layer, one.round) for layer, one in chosen.items())
