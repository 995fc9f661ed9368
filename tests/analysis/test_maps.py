"""Attention maps as bertviz and circuitsvis take them, in real calls where these are installed."""

import json
import re

import pytest
import torch

from boosted_attention import InputError, attention_layer, boost, capture, disable_rounds
from boosted_attention.analysis import attention_maps
from boosted_attention.attention.trace import LayerTrace
from tests.analysis.made import VOCABULARY, model
from tests.conftest import D_MODEL, build, every_layer, randn
from tests.pretrained.families import tiny

EXTRA = "pip install 'boosted-attention[interpret]'"


@pytest.fixture(scope="module")
def tokens(rows):
    return [VOCABULARY[i] for i in rows[0, :-1].tolist()]


def traced(m, rows):
    with torch.no_grad(), capture(m) as traces:
        m(rows[:, :-1])
    return traces


@pytest.mark.parametrize("name", every_layer())
def test_every_round_is_shown_or_named(name):
    layer = build(name)
    with torch.no_grad(), capture(layer) as traces:
        layer(randn(2, 5, D_MODEL), is_causal=True)
    maps = attention_maps(traces, list("abcde"), row=1)
    assert len(maps.rounds) + len(maps.left_out) == layer.n_rounds
    assert maps.by_head().shape == (len(maps.head_names()), 5, 5)
    torch.testing.assert_close(maps.by_head().sum(dim=-1)[:, -1], torch.ones(len(maps.head_names())))


def test_names_and_values(rows, tokens):
    traces = traced(model(n_layers=3), rows)
    maps = attention_maps(traces, tokens)
    assert maps.rounds == [f"layer {i} round {m}" for i in range(3) for m in range(2)]
    place = maps.head_names().index("layer 2 round 1 head 1")
    assert torch.equal(maps.by_head()[place], traces["layers.2.attention"].rounds[1].weights[0, 1])
    assert torch.equal(maps.by_round()[5], traces["layers.2.attention"].rounds[1].weights[:1])
    assert maps.left_out == []


def test_rounds_without_a_map_are_left_out_and_named(rows, tokens):
    maps = attention_maps(traced(model("local"), rows), tokens)
    assert maps.rounds == ["layer 0 round 0", "layer 1 round 0"]
    assert maps.left_out == ["layer 0 round 1", "layer 1 round 1"]


def test_rounds_that_did_not_run_are_not_shown(rows, tokens):
    m = model()
    with disable_rounds(m, layers=0):
        maps = attention_maps(traced(m, rows), tokens)
    assert maps.rounds == ["layer 0 round 0", "layer 1 round 0", "layer 1 round 1"]


def test_wrong_input(rows, tokens):
    traces = traced(model(), rows)
    with pytest.raises(InputError, match="tokens has 3 entries; the traced sequence has 12 positions"):
        attention_maps(traces, tokens[:3])
    with pytest.raises(InputError, match="row=6: the batch has 6, from 0 on"):
        attention_maps(traces, tokens, row=6)
    with pytest.raises(InputError, match="nothing was traced; run the model inside the block"):
        attention_maps({"": LayerTrace()}, tokens)
    layer = attention_layer("standard", d_model=D_MODEL, n_heads=4)
    with capture(layer) as cross:
        layer(torch.randn(1, 2, D_MODEL), memory=torch.randn(1, 5, D_MODEL))
    with pytest.raises(InputError, match="layer 0 round 0 has 2 queries and 5 keys"):
        attention_maps(cross, list("ab"))


def test_layers_have_the_numbers_that_the_model_gives_them():
    pytest.importorskip("transformers")
    model = boost(tiny("llama"), layers="last:1")
    with torch.no_grad(), capture(model) as traces:
        model(torch.randint(2, 60, (1, 3)))
    assert attention_maps(traces, list("abc")).rounds == ["layer 2 round 0", "layer 2 round 1"]


def test_bertviz_takes_one_number_of_heads():
    layer = build("differential-v2+softmax+hopfield")
    with capture(layer) as traces:
        layer(randn(1, 3, D_MODEL), is_causal=True)
    with pytest.raises(InputError, match=r"rounds have 4 and 8 heads, and bertviz takes one number; use by_head\(\)"):
        attention_maps(traces, list("abc")).by_round()


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # bertviz leaves its script open
@pytest.mark.parametrize("view", ["head_view", "model_view"])
def test_bertviz_shows_all_rounds(view, rows, tokens):
    bertviz = pytest.importorskip("bertviz", reason=f"bertviz is not installed: {EXTRA}")
    maps = attention_maps(traced(model(), rows), tokens)
    page = getattr(bertviz, view)(maps.by_round(), maps.tokens, html_action="return").data
    (shown,) = parameters(page)["attention"]
    assert shown["left_text"] == tokens
    torch.testing.assert_close(torch.tensor(shown["attn"]), torch.stack(maps.weights))


def test_circuitsvis_shows_all_heads(rows, tokens):
    circuitsvis = pytest.importorskip("circuitsvis", reason=f"circuitsvis is not installed: {EXTRA}")
    maps = attention_maps(traced(model(), rows), tokens)
    page = circuitsvis.attention.attention_heads(maps.by_head(), maps.tokens, maps.head_names())
    shown = properties(str(page))
    assert shown["attentionHeadNames"] == maps.head_names()
    torch.testing.assert_close(torch.tensor(shown["attention"]), maps.by_head())
    shown = properties(str(circuitsvis.attention.attention_patterns(maps.tokens, maps.by_head())))
    assert (shown["tokens"], len(shown["attention"])) == (tokens, 8)


def parameters(page: str) -> dict:
    """What a page of bertviz gives its script."""
    return json.JSONDecoder().raw_decode(page.partition("const params = ")[2])[0]


def properties(page: str) -> dict:
    """What a page of circuitsvis gives its script."""
    (found,) = re.findall(r'^ *(\{".*\})$', page, flags=re.MULTILINE)
    return json.loads(found)
