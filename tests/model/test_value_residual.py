"""Value residual: later layers read the first layer's values, cached and not, with every layer of the catalog."""

import pytest
import torch
from torch.nn import functional

from boosted_attention import KVCache, LanguageModelConfig, capture, list_attention
from boosted_attention.attention.checks import CHECK_OPTIONS
from boosted_attention.attention.heads import split_heads
from tests.model.depth import SMALL, assert_causal_and_cached, assert_like_oracle, counted_flops, small, tokens

ON = {"value_residual": True}


def oracle(w, ids):
    h, first = w.embedded(ids), None
    for i in range(3):
        x = w.norm(f"layers.{i}.attention_norm", h)
        q, k, v = w.projected(i, x, x, x)
        if first is None:
            first = v
        else:
            own, of_first = w[f"layers.{i}.value_residual.weights"]
            v = own * v + of_first * first
        h = h + w.attention(i, q, k, v)
        h = h + w.ffn(i, w.norm(f"layers.{i}.ffn_norm", h))
    return w.logits(h)


def mixed(taps, t, first_lag):
    """Convolve every dimension of t (T, D) with its own taps (lags, H, 1, d)."""
    found = torch.zeros_like(t)
    for lag, weight in enumerate(taps.flatten(1), first_lag):
        for now in range(lag, len(t)):
            found[now] = found[now] + weight * t[now - lag]
    return found


def oracle_of_cheap_rounds(w, ids):
    """Local keys, a local correction of x - F, and heads without what lies along the mixed value."""
    h, first = w.embedded(ids), None
    for i in range(3):
        at = f"layers.{i}.attention"
        x = w.norm(f"{at}_norm", h)
        q, k, v = w.projected(i, x, x, x)
        first = v if first is None else first
        if i:
            own, of_first = w[f"layers.{i}.value_residual.weights"]
            v = own * v + of_first * first
        f = w.heads(q, k + mixed(w[f"{at}.rounds.0.k_convolution.weight"], k, 1), v)
        f = f + mixed(w[f"{at}.rounds.1.convolution.weight"], x - f, 0)
        along = [(a * b).sum(1, keepdim=True) / b.square().sum(1, keepdim=True) * b for a, b in each_head(f, v)]
        shares = w[f"{at}.gates.1.theta"].tanh()
        f = f - torch.cat([share * part for share, part in zip(shares, along, strict=True)], dim=1)
        h = h + w.linear(f"{at}.out_proj", f)
        h = h + w.ffn(i, w.norm(f"layers.{i}.ffn_norm", h))
    return w.logits(h)


def each_head(*tensors):
    return zip(*(t.chunk(4, dim=1) for t in tensors), strict=True)


@pytest.mark.parametrize(("attention", "by_loops"), [("standard", oracle), ("local-exclusive", oracle_of_cheap_rounds)])
def test_equal_to_plain_loops_in_outputs_and_gradients(attention, by_loops):
    assert_like_oracle(small(attention, n_layers=3, **ON), by_loops, tokens())


@pytest.mark.parametrize(
    ("attention", "options"),
    [
        *((name, {"attention_options": CHECK_OPTIONS.get(name, {})}) for name in list_attention()),
        ("standard", {"n_kv_heads": 2, "positions": "rotary", "qk_norm": True}),
        ("boosted-shared", {"n_repeats": 2}),
        ("twicing", {"norm": "post"}),
    ],
)
def test_causal_and_exact_with_a_cache(attention, options):
    assert_causal_and_cached(small(attention, **ON, **options))


def test_it_starts_at_one_half_and_shares_the_start_of_all_else():
    config = LanguageModelConfig(**SMALL, **ON)
    ours, plain = config.build(seed=3).state_dict(), LanguageModelConfig(**SMALL).build(seed=3).state_dict()
    assert ours.keys() - plain.keys() == {"layers.1.value_residual.weights"}
    assert ours["layers.1.value_residual.weights"].tolist() == [0.5, 0.5]
    assert all(torch.equal(ours[name], t) for name, t in plain.items())
    assert config.num_params() == LanguageModelConfig(**SMALL).num_params() + 2


def test_a_weight_of_one_and_none_of_the_first_is_the_model_without():
    ours, plain, ids = small("boosted", **ON), small("boosted"), tokens()
    with torch.no_grad():
        ours.layers[1].value_residual.weights.copy_(torch.tensor([1.0, 0.0]))
    plain.load_state_dict({n: t for n, t in ours.state_dict().items() if "value_residual" not in n})
    assert torch.equal(ours(ids), plain(ids))


def test_the_cache_and_the_trace_hold_the_mixture():
    model, ids, cache = small(**ON), tokens(), KVCache()
    with capture(model) as traces:
        model(ids, cache=cache)
    assert torch.equal(traces["layers.1.attention"].rounds[0].v, cache.layer(1).slots["v", 0])
    assert torch.equal(traces["layers.0.attention"].rounds[0].v, cache.layer(0).slots["v", 0])
    x = traces["layers.1.attention"].rounds[0].residual
    learner = model.layers[1].attention.rounds[0]
    own = split_heads(functional.linear(x, *learner.rows("v")), learner.d_head)
    a, b = model.layers[1].value_residual.weights
    torch.testing.assert_close(cache.layer(1).slots["v", 0], a * own + b * cache.layer(0).slots["v", 0])


def test_recomputed_activations_give_the_same_gradients():
    from functools import partial

    from torch.utils.checkpoint import checkpoint

    model, ids = small("boosted", **ON).train(), tokens()
    kept = torch.autograd.grad(model.loss(ids, ids), list(model.parameters()))
    for block in model.layers:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    again = torch.autograd.grad(model.loss(ids, ids), list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(kept, again, strict=True))


def test_flops_do_not_count_elementwise_work():
    config = LanguageModelConfig(**SMALL, **ON)
    assert config.flops() == LanguageModelConfig(**SMALL).flops() == counted_flops(config)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_layers": 1}, r"value_residual=True with n_layers=1: there is no later layer"),
        (
            {"attention": "differential", "boosted_layers": "last:1"},
            r"value_residual=True needs value heads of one .* \(4, 4\) in layer 0, \(2, 8\) in layer 1",
        ),
        (
            {"attention_options": {"n_kv_heads": 2}, "boosted_layers": "0"},
            r"value_residual=True needs .* \(2, 4\) in layer 0, \(4, 4\) in layer 1",
        ),
    ],
)
def test_refused_in_one_line(options, message):
    with pytest.raises(ValueError, match=message) as caught:
        LanguageModelConfig(**{**SMALL, **ON, **options})
    assert "\n" not in str(caught.value)
