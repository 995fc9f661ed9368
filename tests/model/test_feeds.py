"""Feeds: DeepCrossAttention and Attention Residuals beside plain loops, and how they start."""

from functools import partial

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from boosted_attention import LanguageModelConfig
from boosted_attention.train.groups import trained_parameters
from boosted_attention.train.memory import estimate_memory
from tests.model.depth import SMALL, assert_causal_and_cached, assert_like_oracle, counted_flops, small, tokens

FEEDS = ("cross", "attention")


def rms(s):
    return s / (s.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def cross(w, at, given):
    total = 0.0
    for i, s in enumerate(given):
        asked = rms(s) @ w[f"{at}.question"]
        total = total + (w[f"{at}.weights.{i}"] + torch.where(asked >= 0, asked, 0.0)[:, None]) * s
    return total


def attention(w, at, given):
    scores = torch.stack([torch.exp(rms(s) @ w[f"{at}.question"]) for s in given])  # (N, T)
    return sum((a / scores.sum(0))[:, None] * s for a, s in zip(scores, given, strict=True))


def oracle(kind, w, ids):
    feed = {"cross": cross, "attention": attention}[kind]
    given = [w.embedded(ids)]
    for i in range(2):
        names = ["query", "key", "value"] if kind == "cross" else ["input"] * 3
        reads = [w.norm(f"layers.{i}.attention_norm", feed(w, f"layers.{i}.attention_feeds.{n}", given)) for n in names]
        given.append(w.attention(i, *w.projected(i, *reads)))
        given.append(w.ffn(i, w.norm(f"layers.{i}.ffn_norm", feed(w, f"layers.{i}.ffn_feed", given))))
    return w.logits(feed(w, "feed", given))


@pytest.mark.parametrize("kind", FEEDS)
def test_equal_to_plain_loops_in_outputs_and_gradients(kind):
    assert_like_oracle(small(feed=kind), partial(oracle, kind), tokens())


@pytest.mark.parametrize("kind", FEEDS)
@pytest.mark.parametrize(
    ("of_model", "options"),
    [
        ("boosted", {"positions": "rotary", "n_kv_heads": 2}),
        ("boosted-input", {"value_residual": True}),
        ("twicing", {"norm_kind": "rmsnorm", "qk_norm": True}),
    ],
)
def test_causal_and_exact_with_a_cache(kind, of_model, options):
    assert_causal_and_cached(small(of_model, feed=kind, **options))


@pytest.mark.parametrize("attention", ["standard", "boosted", "boosted-input", "differential"])
def test_cross_starts_as_the_plain_stream(attention):
    ids = tokens()
    fed, plain = (LanguageModelConfig(**SMALL, attention=attention, feed=feed) for feed in ("cross", "stream"))
    ours, theirs = fed.build(seed=3).double(), plain.build(seed=3).double()
    shared = theirs.state_dict()
    assert all(torch.equal(ours.state_dict()[name], t) for name, t in shared.items())
    torch.testing.assert_close(ours(ids), theirs(ids), rtol=0, atol=1e-12)


def test_attention_starts_as_the_plain_stream_but_for_the_norms_epsilon():
    ids = tokens()
    fed, plain = (LanguageModelConfig(**SMALL, feed=feed).build(seed=3).double() for feed in ("attention", "stream"))
    assert not torch.allclose(fed(ids), plain(ids), rtol=0, atol=1e-8)
    for model in (fed, plain):
        for module in model.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.eps = 0.0
    torch.testing.assert_close(fed(ids), plain(ids), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", FEEDS)
def test_every_tensor_moves_in_training(kind):
    model = LanguageModelConfig(**SMALL, feed=kind).build(seed=3)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(10):
        ids = tokens()
        model.loss(ids, ids.roll(-1, 1)).backward()
        optimizer.step()
        optimizer.zero_grad()
    still = {name for name, p in model.named_parameters() if (p - before[name]).abs().max() < 1e-4}
    # A softmax over one tensor is one, whatever is asked.
    assert still == ({"layers.0.attention_feeds.input.question"} if kind == "attention" else set())


@pytest.mark.parametrize("kind", FEEDS)
def test_costs(kind):
    config, plain = LanguageModelConfig(**SMALL, feed=kind), LanguageModelConfig(**SMALL)
    assert config.flops() == plain.flops() == counted_flops(config)
    fed = {n for n, p in trained_parameters(config.on_meta()).items() if "feed" in n and p.is_matrix}
    assert not fed
    ours, theirs = (estimate_memory(c, batch_size=2) for c in (config, plain))
    assert ours.cache == theirs.cache
    assert ours.activations > theirs.activations
    numbers = {"cross": 16 * (3 * 2 + 3 + 3 * 4 + 5 + 6), "attention": 5 * 16}
    assert config.num_params() - plain.num_params() == numbers[kind]


@pytest.mark.parametrize("kind", FEEDS)
def test_recomputed_activations_give_the_same_gradients(kind):
    model, ids = small("boosted", feed=kind).train(), tokens()
    kept = torch.autograd.grad(model.loss(ids, ids), list(model.parameters()))
    for block in model.layers:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    again = torch.autograd.grad(model.loss(ids, ids), list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(kept, again, strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feed": "crss"}, "feed='crss' .*did you mean 'cross'"),
        ({"feed": "cross", "norm": "post"}, "feed='cross' with norm='post': .* use norm='pre'"),
        ({"feed": "attention", "n_repeats": 2}, "feed='attention' with n_repeats=2: .* use n_repeats=1"),
    ],
)
def test_refused_in_one_line(options, message):
    with pytest.raises(ValueError, match=message) as caught:
        LanguageModelConfig(**{**SMALL, **options})
    assert "\n" not in str(caught.value)
