"""The trace: complete, shaped as promised, and without influence on the result."""

import pytest
import torch
from torch import nn

from boosted_attention import LayerTrace, capture
from tests.conftest import D_MODEL, N_HEADS, build, every_layer, randn


@pytest.mark.parametrize("name", every_layer())
def test_trace_changes_nothing(name):
    layer, x = build(name, n_kv_heads=2), randn(2, 9, D_MODEL)
    fused = layer(x, is_causal=True)
    layer.kernel = "explicit"
    off = layer(x, is_causal=True)
    with capture(layer):
        captured = layer(x, is_causal=True)
    assert torch.equal(captured, off)
    assert torch.equal(layer(x, is_causal=True, trace=LayerTrace()), off)
    torch.testing.assert_close(captured, fused, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", every_layer())
def test_every_round_tells_everything(name):
    layer, x = build(name, n_kv_heads=2), randn(2, 9, D_MODEL)
    with capture(layer) as traces:
        y = layer(x, is_causal=True)
    rounds = traces[""].rounds
    assert len(rounds) == layer.config.n_rounds
    for m, trace in enumerate(rounds):
        assert trace.has_map == layer.rounds[m].has_map
        if trace.has_map:
            n_maps = 2 * N_HEADS if layer.config.learners[m] == "differential-v2" else N_HEADS
            width = layer.rounds[m].d_head
            assert trace.q.shape == (2, n_maps, 9, width)
            assert trace.k.shape == (2, 2, 9, width)
            assert trace.v.numel() == 2 * 2 * 9 * width
            assert trace.weights.shape == (2, n_maps, 9, 9)
            torch.testing.assert_close(trace.weights.sum(-1), torch.ones(2, n_maps, 9, dtype=torch.float64))
        else:
            assert not any(hasattr(trace, part) for part in ("q", "k", "v", "scale", "weights"))
        assert trace.residual.shape == trace.correction.shape == trace.estimate.shape == (2, 9, D_MODEL)
        assert (trace.gate is None) == (m == 0)
        shared = m > 0 and layer.config.gates[m - 1] == "none"  # by all dimensions
        assert m == 0 or trace.gate.shape == (2, 9, 1 if shared else D_MODEL)
        if m > 0:
            before = rounds[m - 1].estimate
            torch.testing.assert_close(trace.estimate, before + trace.gate * trace.correction, rtol=0, atol=1e-12)
    last = rounds[-1].estimate
    torch.testing.assert_close(y, last if layer.out_proj is None else layer.out_proj(last), rtol=0, atol=1e-12)


@pytest.mark.parametrize("gate", ["none", "scalar", "tanh"])
def test_a_gate_that_all_dimensions_share_has_three_dimensions_too(gate):
    layer, x = build("boosted", gate=gate), randn(2, 9, D_MODEL)
    with capture(layer) as traces:
        layer(x)
    trace = traces[""].rounds[1]
    assert trace.gate.shape == (2, 9, 1)
    before = traces[""].rounds[0].estimate
    torch.testing.assert_close(trace.estimate, before + trace.gate * trace.correction, rtol=0, atol=1e-12)


def test_capture_finds_layers_by_name_and_lets_go():
    model = nn.ModuleDict({"first": build("standard"), "second": nn.Sequential(build("boosted"))})
    x = randn(1, 4, D_MODEL)
    with capture(model) as traces:
        model["second"](model["first"](x))
    assert list(traces) == ["first", "second.0"]
    assert [len(trace.rounds) for trace in traces.values()] == [1, 2]
    assert model["first"].trace is None
    held = traces["first"].rounds[0].estimate
    model["first"](randn(1, 4, D_MODEL))
    assert traces["first"].rounds[0].estimate is held


def test_trace_shows_the_latest_pass():
    layer = build("boosted")
    with capture(layer) as traces:
        layer(randn(1, 4, D_MODEL))
        layer(randn(1, 6, D_MODEL))
    assert traces[""].rounds[1].gate.shape == (1, 6, D_MODEL)


def test_capture_lets_go_after_an_error():
    layer = build("boosted")
    with pytest.raises(ValueError, match="x has shape"), capture(layer):
        layer(randn(2, 3))
    assert layer.trace is None


def test_nothing_to_capture():
    with pytest.raises(ValueError, match="Linear contains no attention layer"), capture(nn.Linear(2, 2)):
        pass
