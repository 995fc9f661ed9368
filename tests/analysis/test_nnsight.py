"""nnsight reads and changes rounds by the names that docs/interpretability.md gives."""

import pytest
import torch

from boosted_attention import boost, capture, disable_rounds
from boosted_attention.analysis.survey import logits_of
from tests.analysis.made import T, V, model
from tests.pretrained.families import disturb, tiny


@pytest.fixture(scope="module")
def nnsight():
    return pytest.importorskip("nnsight", reason="nnsight is not installed: pip install 'boosted-attention[interpret]'")


def ours():
    """One of our models, with the part of a round that gives its output."""
    return model(), "layers.1.attention", lambda seen: seen.layers[1].attention.rounds[1].output[0]


def llama():
    """A boosted model of transformers."""
    boosted = boost(tiny("llama", vocab_size=V))
    disturb(boosted)
    return boosted, "model.layers.1.self_attn", lambda seen: seen.model.layers[1].self_attn.outputs[1].output


def gpt2():
    """A boosted model that calls its layers otherwise."""
    boosted = boost(tiny("gpt2", vocab_size=V))
    disturb(boosted)
    return boosted, "transformer.h.1.attn", lambda seen: seen.transformer.h[1].attn.outputs[1].output


@pytest.fixture(params=[ours, llama, gpt2])
def case(request):
    return request.param()


@pytest.fixture
def ids():
    return torch.randint(V, (2, T))


@torch.no_grad()
def test_a_round_is_read(case, ids, nnsight):
    m, name, output = case
    seen = nnsight.NNsight(m)
    with capture(m) as traces, seen.trace(ids):
        inside = output(seen).save()
    correction = traces[name].rounds[1].correction
    assert torch.equal(inside, correction)
    with seen.trace(ids):
        fused = output(seen).save()
    torch.testing.assert_close(fused, correction, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_gates_and_residuals_are_read(case, ids, nnsight):
    m, name, _ = case
    seen = nnsight.NNsight(m)
    layer = seen.get(name)
    with capture(m) as traces, seen.trace(ids):
        residual = layer.residuals[0].output.save()
        gate = layer.gates[0].output.save()
    trace = traces[name].rounds[1]
    assert torch.equal(residual, trace.residual)
    assert torch.equal(gate.expand_as(trace.gate), trace.gate)


@torch.no_grad()
def test_a_round_set_to_zero_is_a_disabled_round(case, ids, nnsight):
    m, name, output = case
    seen = nnsight.NNsight(m)
    with seen.trace(ids):
        output(seen)[:] = 0
        patched = seen.output.save()
    with disable_rounds(m, layers=name, rounds=1):
        without = logits_of(m, ids)
    assert torch.equal(getattr(patched, "logits", patched), without)
    assert not torch.equal(without, logits_of(m, ids))
