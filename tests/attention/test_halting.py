"""Halting inside a layer: the oracle, independence of others, a cost that follows, and its gradient."""

import pytest
import torch
from torch.func import functional_call, stack_module_state
from torch.utils.flop_counter import FlopCounterMode

from boosted_attention import AttentionLayer, KVCache, LayerTrace, attention_layer, capture, disable_rounds
from boosted_attention.attention import reference
from boosted_attention.attention.checks import (
    FLOAT64_BOUND,
    MASK_KINDS,
    against_oracle,
    cached_error,
    causality_violation,
    sample_call,
)
from boosted_attention.attention.halting import PonderCosts
from tests.conftest import D_MODEL, N_HEADS, disturbed, randn

LENGTH = 13
FORMS = {
    "shared": {"kv_source": "shared"},
    "input": {"kv_source": "input"},
    "shared, output, rotary, grouped": {
        "kv_source": "shared",
        "space": "output",
        "rope_theta": 1e4,
        "n_kv_heads": 2,
        "qk_norm": True,
    },
    "input, gated, scalar gate": {"kv_source": "input", "learner": "gated", "gate": "scalar", "rope_theta": 1e4},
    "twicing, then others": {
        "kv_source": "input",
        "learner": ("twicing", "softmax", "differential-v2", "hopfield"),
        "n_steps": 2,
    },
    "low-rank, composition": {"kv_source": "input", "learner": ("softmax", "low-rank", "composition", "low-rank")},
    "Parallax": {"kv_source": "shared", "learner": ("softmax", "parallax", "softmax", "softmax"), "gate": "scalar"},
}


def halting(form: str = "shared", spread: float = 1.0, bias: float = -0.6, **options) -> AttentionLayer:
    """A layer of four rounds whose tokens take different numbers of them."""
    given = {"d_model": D_MODEL, "n_heads": N_HEADS, "n_rounds": 4, "halting": True, **FORMS[form], **options}
    layer = disturbed(attention_layer("boosted", **given).double())
    with torch.no_grad():
        for p in layer.rounds.parameters():
            p.mul_(2.0)  # sharper maps, so that tokens differ
        layer.halting.weight.normal_(std=spread)
        layer.halting.bias.fill_(bias)
    return layer


def rounds_taken(layer, x, **call) -> torch.Tensor:
    trace = LayerTrace()
    layer(x, trace=trace, **call)
    return trace.rounds_taken


@pytest.mark.parametrize("form", FORMS)
def test_tokens_of_these_tests_differ(form):
    taken = rounds_taken(halting(form), randn(3, LENGTH, D_MODEL), is_causal=True)
    assert len(taken.unique()) >= 3
    assert sum(len(row.unique()) > 1 for row in taken) >= 2  # a row that takes all rounds is a case too


@pytest.mark.parametrize("kind", MASK_KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_outputs_and_gradients_are_the_oracles(form, kind):
    layer = halting(form)
    call = sample_call(kind, 3, N_HEADS, LENGTH, torch.float64)
    for error in against_oracle(layer, randn(3, LENGTH, D_MODEL), **call):
        assert error.max < FLOAT64_BOUND, error.name


@pytest.mark.parametrize("form", FORMS)
def test_the_future_is_unseen_and_a_cache_is_exact(form):
    """Bit for bit where all tokens stay in the loop; else to rounding, which depends on how many are multiplied."""
    layer, x = halting(form), randn(3, LENGTH, D_MODEL)
    with capture(layer):
        assert causality_violation(layer, x, [1, 6, 12]) is None
    x.requires_grad_()
    y = layer(x, is_causal=True)
    for s in (1, 6, 12):
        changed = x.detach().clone()
        changed[:, s:] += 3.0
        torch.testing.assert_close(layer(changed, is_causal=True)[:, :s], y[:, :s], rtol=0, atol=1e-12)
        assert not torch.autograd.grad(y[:, :s].sum(), x, retain_graph=True)[0][:, s:].any()
    for max_len in (None, 20):
        for chunks in ([1] * 13, [9, 1, 1, 1, 1], [2, 5, 1, 4, 1]):
            assert cached_error(layer, x, chunks, max_len) < 1e-10


@pytest.mark.parametrize("form", FORMS)
def test_all_tokens_to_the_end_is_the_same(form):
    """In traces, compiled and under vmap tokens stay in the loop, with weights of zero."""
    layer, x = halting(form), randn(3, LENGTH, D_MODEL)
    y = layer(x, is_causal=True)
    with capture(layer) as traces:
        torch.testing.assert_close(layer(x, is_causal=True), y, rtol=0, atol=1e-12)
    trace = traces[""]
    weights = torch.stack([r.extra["halting_weight"] for r in trace.rounds])
    torch.testing.assert_close(weights.sum(0), torch.ones_like(weights[0]), rtol=0, atol=1e-14)
    assert torch.equal((weights > 0).sum(0), trace.rounds_taken)
    assert trace.mean_rounds == pytest.approx(float(trace.rounds_taken.mean()))
    mean = sum(w[..., None] * r.estimate for w, r in zip(weights, trace.rounds, strict=True))
    expected = mean if layer.out_proj is None else layer.out_proj(mean)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, is_causal=True), y, rtol=0, atol=1e-12)


def test_stacked_layers_under_vmap():
    layers, x = [halting("shared, output, rotary, grouped") for _ in range(2)], randn(2, 3, 5, D_MODEL)
    stacked, _ = stack_module_state(layers)
    together = torch.func.vmap(lambda w, t: functional_call(layers[0], w, (t,), {"is_causal": True}))(stacked, x)
    for i, layer in enumerate(layers):
        torch.testing.assert_close(together[i], layer(x[i], is_causal=True), rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", ["shared", "input"])
@torch.no_grad()
def test_a_token_does_not_depend_on_others_halting(form):
    """With the same keys and values, a token gets the same whoever else is in the loop."""
    layer, memory, x = halting(form), randn(1, 7, D_MODEL), randn(1, LENGTH, D_MODEL)
    together = layer(x, memory=memory)
    taken = rounds_taken(layer, x, memory=memory)
    assert len(taken.unique()) > 1
    for t in range(LENGTH):
        alone = layer(x[:, t : t + 1], memory=memory)
        torch.testing.assert_close(together[:, t : t + 1], alone, rtol=0, atol=1e-12)


def counted(layer, x, **call) -> int:
    layer.kernel = "explicit"
    with FlopCounterMode(display=False) as counter:
        layer(x, is_causal=True, **call)
    return counter.get_total_flops()


@torch.no_grad()
def test_a_halted_token_costs_nothing():
    x = randn(1, LENGTH, D_MODEL)
    layer, plain = halting(), attention_layer("standard", d_model=D_MODEL, n_heads=N_HEADS).double()
    taken = rounds_taken(layer, x, is_causal=True)
    corrections = int((taken - 1).sum())
    linear = 2 * (D_MODEL**2 + 2 * D_MODEL * D_MODEL)  # queries and gate of one token
    maps = 2 * 2 * D_MODEL * LENGTH
    assert counted(layer, x) == counted(plain, x) + corrections * (linear + maps)
    layer.halting.bias.fill_(60.0)
    layer.halting.weight.zero_()
    assert counted(layer, x) == counted(plain, x)
    caches = KVCache(), KVCache()
    for some, cache in zip((layer, plain), caches, strict=True):
        some(x, is_causal=True, cache=cache)
    new = randn(1, 1, D_MODEL)
    assert counted(layer, new, cache=caches[0]) == counted(plain, new, cache=caches[1])


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_the_loop_ends_when_all_tokens_have_stopped(form):
    """Where later rounds have keys and values of their own to remember, it goes on without tokens."""
    layer, x = halting(form), randn(1, LENGTH, D_MODEL)
    assert (rounds_taken(layer, x, is_causal=True) < layer.n_rounds).any()
    for chunks in ([1] * 13, [9, 1, 1, 1, 1]):
        assert cached_error(layer, x, chunks, None) < 1e-10
    layer.halting.weight.zero_()
    layer.halting.bias.fill_(60.0)
    called = []
    layer.gates[0].register_forward_hook(lambda *given: called.append(given))
    layer(x, is_causal=True)
    assert not called
    layer(x, is_causal=True, cache=KVCache())
    assert len(called) == layer.config.reads_own_kv(1)


@torch.no_grad()
def test_rows_of_a_batch_whose_tokens_have_all_stopped_are_left_out():
    """Where a third of the rows or less goes on; else copies of keys and values would cost more than they spare."""
    layer, x = halting(bias=0.8), randn(9, 1, D_MODEL)
    taken = rounds_taken(layer, x, is_causal=True)
    plain = attention_layer("standard", d_model=D_MODEL, n_heads=N_HEADS).double()
    of_one = 2 * 3 * D_MODEL**2 + 2 * 2 * D_MODEL
    rows = 9
    expected = counted(plain, x)
    for m in (1, 2, 3):
        running = int((taken > m).sum())
        rows = running if 3 * running <= rows else rows
        expected += rows * of_one
    assert rows < 9
    assert counted(layer, x) == expected


def test_in_training_a_round_that_no_token_takes_has_gradients_of_zero():
    layer, x = halting(spread=0.0, bias=60.0), randn(2, LENGTH, D_MODEL)
    layer(x, is_causal=True).square().sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    assert all(not p.grad.any() for m in (1, 2, 3) for p in layer.rounds[m].parameters())
    assert not any(p.grad.any() for p in layer.gates.parameters())
    one_token = 2 * (D_MODEL**2 + 2 * D_MODEL**2) + 2 * 2 * D_MODEL * LENGTH
    plain = attention_layer("standard", d_model=D_MODEL, n_heads=N_HEADS).double()
    assert counted(layer, x) <= counted(plain, x) + 3 * one_token


@pytest.mark.parametrize("form", ["shared", "input"])
def test_gradient_of_the_ponder_cost_against_finite_differences(form):
    """Away from the places where a token changes its number of rounds."""
    layer, x = halting(form), randn(2, LENGTH, D_MODEL)

    def cost() -> torch.Tensor:
        ponder = PonderCosts()
        layer(x, is_causal=True, ponder=ponder)
        return ponder.costs[0].sum()

    named = {n: p for n, p in layer.named_parameters() if not n.startswith(("out_proj", "rounds.3", "gates.2"))}
    gradients = torch.autograd.grad(cost(), list(named.values()), materialize_grads=True)
    for (name, p), gradient in zip(named.items(), gradients, strict=True):
        flat, index = p.data.view(-1), int(gradient.abs().argmax())
        value, at = flat[index].item(), []
        for step in (1e-6, -1e-6):
            flat[index] = value + step
            at.append(cost().item())
        flat[index] = value
        assert gradient.view(-1)[index].item() == pytest.approx((at[0] - at[1]) / 2e-6, rel=1e-5, abs=1e-7), name


def test_the_ponder_cost_is_the_oracles():
    layer, x, ponder = halting("input"), randn(2, LENGTH, D_MODEL), PonderCosts()
    layer(x, is_causal=True, ponder=ponder)
    with capture(layer) as traces:
        layer(x, is_causal=True)
    w = reference.within(dict(layer.named_parameters()), "halting.")
    for b in range(2):
        expected = reference.adaptive_mean([r.estimate[b] for r in traces[""].rounds], w)[1]
        torch.testing.assert_close(ponder.costs[0][b], expected, rtol=0, atol=1e-12)


def test_disabled_rounds_end_the_loop_sooner():
    layer, x = halting(), randn(2, LENGTH, D_MODEL)
    with disable_rounds(layer):
        assert torch.equal(rounds_taken(layer, x), torch.ones(2, LENGTH, dtype=torch.float64))
    with disable_rounds(layer, rounds=3):
        assert float(rounds_taken(layer, x).max()) == 3


def test_dropout_is_the_explicit_kernels():
    layer, x = halting(dropout=0.4), randn(2, LENGTH, D_MODEL)
    torch.manual_seed(3)
    y = layer(x, is_causal=True)
    layer.kernel = "explicit"
    torch.manual_seed(3)
    torch.testing.assert_close(layer(x, is_causal=True), y, rtol=0, atol=1e-12)


def test_it_starts_with_one_probability_for_all():
    layer = attention_layer("boosted-shared", d_model=D_MODEL, n_heads=N_HEADS, n_rounds=3, halting=True)
    assert not layer.halting.weight.any()
    assert layer.halting.bias.tolist() == [1.0]
    assert rounds_taken(layer, torch.randn(2, 5, D_MODEL)).unique().tolist() == [2.0]
    with torch.no_grad():
        layer.halting.bias.add_(1.0)
    layer.reset_parameters()
    assert layer.halting.bias.tolist() == [1.0]
    assert "halting=True" in repr(layer)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "halting=True with kv_source='residual': a token that has stopped .* use kv_source='shared' or 'input'"),
        ({"n_rounds": 1}, "halting=True with n_rounds=1: there is no round to leave out"),
        ({"halting": "act"}, "halting='act' must be True or False"),
        (
            {"kv_source": "shared", "learner": ("softmax", "twicing")},
            "halting=True with learner='twicing' in round 1: it needs queries and keys to be the same positions",
        ),
    ],
)
def test_refused_in_one_line(options, message):
    with pytest.raises(ValueError, match=message) as caught:
        attention_layer("boosted", **{"d_model": D_MODEL, "n_heads": N_HEADS, "halting": True, **options})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("form", ["shared", "input"])
@pytest.mark.parametrize("bias", [-0.6, 60.0])
def test_cached_decoding_under_autocast(form, bias):
    """Rounds hand on numbers of several precisions there, also where no token is left in the loop."""
    layer, x = halting(form, bias=bias).float(), torch.randn(2, LENGTH, D_MODEL)
    cache = KVCache()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        whole = layer(x, is_causal=True)
        steps = [layer(x[:, t : t + 1], is_causal=True, cache=cache) for t in range(LENGTH)]
    decoded = torch.cat(steps, dim=1)
    assert torch.isfinite(decoded).all()
    if bias > 1:  # all stop after round 0, whatever rounding does
        torch.testing.assert_close(decoded, whole, rtol=0.05, atol=0.05)
