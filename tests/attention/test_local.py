"""Local rounds: what a convolution adds, what it may not see, and the few positions its cache keeps."""

import pytest
import torch

from boosted_attention import KVCache, LanguageModelConfig, StandardAttention, attention_layer
from boosted_attention.attention.learners.local import REACH, Convolve, convolve
from boosted_attention.attention.masks import build_mask, sees_recent
from tests.conftest import D_MODEL, N_HEADS, build, randn

DOCUMENTS = (4, 7, 2)  # lengths of documents that stand in one sequence


def test_it_starts_as_standard_attention_bit_for_bit():
    layer = attention_layer("local", d_model=D_MODEL, n_heads=N_HEADS, rope_theta=1e4)
    plain, x = StandardAttention(D_MODEL, N_HEADS, rope_theta=1e4), torch.randn(2, 9, D_MODEL)
    plain.load_state_dict({n: t for n, t in layer.state_dict().items() if "convolution" not in n})
    assert layer.starts_silent
    assert torch.equal(layer(x, is_causal=True), plain(x, is_causal=True))


@pytest.mark.parametrize("space", ["heads", "output"])
def test_a_correction_that_copies_the_residual_returns_the_input(space):
    layer, x = build("local", space=space, out_proj=space == "output"), randn(2, 6, D_MODEL)
    with torch.no_grad():
        layer.rounds[1].convolution.weight.zero_()[0] = 1.0
    torch.testing.assert_close(layer(x, is_causal=True), x, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("rule", "looked_at"), [("input", lambda x, f: x), ("estimate", lambda x, f: f)])
def test_residual_rules_give_the_placements_of_the_literature(rule, looked_at):
    layer, x = build("local", residual=rule, out_proj=False), randn(2, 6, D_MODEL)
    with torch.no_grad():
        layer.rounds[1].convolution.weight.zero_()[2] = 1.0
    f = attention_layer("local-keys", d_model=D_MODEL, n_heads=N_HEADS, out_proj=False).double()
    f.rounds[0].load_state_dict(layer.rounds[0].state_dict())
    first = f(x, is_causal=True)
    expected = first + torch.nn.functional.pad(looked_at(x, first), (0, 0, 2, -2))
    torch.testing.assert_close(layer(x, is_causal=True), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("name", ["local", "local-keys", "local-correction", "local-exclusive"])
def test_documents_in_one_sequence_are_as_if_alone(name, additive):
    """Neither keys nor residuals reach over the border of a document, with a cache cut anywhere."""
    layer, x = build(name, n_kv_heads=2), randn(2, sum(DOCUMENTS), D_MODEL)
    document = torch.repeat_interleave(torch.arange(len(DOCUMENTS)), torch.tensor(DOCUMENTS))
    mask = document[:, None] == document  # (T, S)
    if additive:
        mask = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -torch.inf)
    alone = torch.cat([layer(part, is_causal=True) for part in x.split(DOCUMENTS, dim=1)], dim=1)
    torch.testing.assert_close(layer(x, mask=mask, is_causal=True), alone, rtol=0, atol=1e-12)
    cache, pieces, done = KVCache(), [], 0
    for piece in x.split([3, 2, 1, 6, 1], dim=1):
        seen = slice(done, done + piece.shape[1])
        done = seen.stop
        pieces.append(layer(piece, mask=mask[seen, :done], is_causal=True, cache=cache))
    torch.testing.assert_close(torch.cat(pieces, dim=1), alone, rtol=0, atol=1e-12)


def test_a_position_that_some_head_sees_counts():
    layer, x = build("local-correction", out_proj=False), randn(1, 3, D_MODEL)
    with torch.no_grad():
        layer.rounds[1].convolution.weight.zero_()[1] = 1.0
    mask = torch.eye(3, dtype=torch.bool).expand(1, N_HEADS, 3, 3).clone()
    mask[:, 2, 1, 0] = True  # one head of the second position
    with torch.no_grad():
        y, first = layer(x, mask=mask), build("standard", out_proj=False)
        first.rounds[0].load_state_dict(layer.rounds[0].state_dict())
        f = first(x, mask=mask)
    added = y - f
    torch.testing.assert_close(added[:, 1], (x - f)[:, 0], rtol=0, atol=1e-12)
    assert not added[:, 2].any()


@pytest.mark.parametrize("max_len", [None, 20])
@torch.no_grad()
def test_the_cache_keeps_three_positions_and_a_failed_call_changes_none(max_len, monkeypatch):
    layer, x, cache = build("local"), randn(2, 9, D_MODEL), KVCache(max_len=max_len)
    layer(x[:, :6], is_causal=True, cache=cache)
    slots = cache.layer(0).slots
    assert {slot: t.shape[2] for slot, t in slots.items() if slot in (("own k", 0), ("r", 1))} == {
        ("own k", 0): 3,
        ("r", 1): 3,
    }
    assert slots["r", 1].untyped_storage().nbytes() == 2 * 3 * D_MODEL * 8
    with monkeypatch.context() as patch:
        patch.setattr(layer.gates[0], "forward", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            layer(x[:, 6:], is_causal=True, cache=cache)
    y = layer(x[:, 6:], is_causal=True, cache=cache)
    torch.testing.assert_close(y, layer(x, is_causal=True)[:, 6:], rtol=0, atol=1e-12)


def test_nothing_of_it_is_a_matrix_to_an_optimizer():
    model = LanguageModelConfig(attention="local", d_model=16, vocab_size=50, n_layers=1, max_len=8).build()
    weights = {n: p for n, p in model.named_parameters() if "convolution" in n}
    assert len(weights) == 2
    assert sum(p.numel() for p in weights.values()) == 7 * 16
    assert all(p.ndim != 2 for p in weights.values())


@pytest.mark.parametrize("hidden", [False, True])
def test_the_convolution_has_its_own_gradient_right_twice(hidden):
    generator = torch.Generator().manual_seed(3)
    whole = torch.randn(2, 2, REACH + 5, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    weight = torch.randn(3, 2, 1, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    visible = torch.rand(2, 5, REACH + 1, generator=generator) > 0.4 if hidden else None

    def run(whole, weight):
        return Convolve.apply(whole, weight, visible, (0, 2, 3))

    assert torch.equal(run(whole, weight), convolve(whole, weight, visible, (0, 2, 3)))
    assert torch.autograd.gradcheck(run, (whole, weight))
    assert torch.autograd.gradgradcheck(run, (whole, weight))


@pytest.mark.parametrize("name", ["local", "local-keys", "local-exclusive", "standard"])
@pytest.mark.parametrize("low", [-torch.inf, torch.finfo(torch.float32).min, -1e4])
def test_an_additive_mask_hides_as_a_bool_one_does(name, low):
    """Whatever large negative number stands in the place of minus infinity, and whatever is added to a whole row."""
    layer, x = build(name), randn(2, 9, D_MODEL)
    seen = (torch.rand(2, 1, 9, 9) > 0.4) | torch.eye(9, dtype=torch.bool)
    added = torch.zeros(seen.shape, dtype=x.dtype).masked_fill(~seen, low)
    expected = layer(x, mask=seen, is_causal=True)
    for mask in (added, added + 300.0):
        torch.testing.assert_close(layer(x, mask=mask, is_causal=True), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("slope", "seen"), [(1.0, True), (40.0, False)])
def test_a_bias_hides_where_attention_would_see_nothing_any_more(slope, seen):
    """Slopes as of ALiBi hide no near position; a weight of e^-120 is none."""
    place = torch.arange(9.0)
    mask = build_mask(slope * (place - place[:, None]), True, 1, 1, 9, 9, place.device)  # 0 at a query's own position
    found = sees_recent(mask, 9, 9, REACH + 1)
    assert found is not None
    assert found[0, REACH:].tolist() == [[True, True, True, seen]] * (9 - REACH)
