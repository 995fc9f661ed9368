"""Generation: cached as uncached, reproducible, and within its bounds."""

import pytest
import torch

from boosted_attention import KVCache, LanguageModelConfig, list_attention
from boosted_attention.attention.checks import CHECK_OPTIONS
from boosted_attention.model import generation
from boosted_attention.model.generation import (
    COPY_PAYS,
    COPY_PAYS_LATER,
    Sampling,
    by_columns,
    stored_for_few_rows,
    window_start,
)

VOCAB = 37


def trained_alike(name: str, **options):
    """A model whose logits are spread as a trained model's are."""
    config = LanguageModelConfig(
        vocab_size=VOCAB,
        d_model=16,
        n_layers=2,
        max_len=16,
        attention=name,
        attention_options=CHECK_OPTIONS.get(name, {}),
        **options,
    )
    model = config.build().double()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return model


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("name", list_attention())
def test_with_the_cache_and_without_the_same_tokens(name, positions):
    """Past the model's length too, where the context is a window."""
    model, ids = trained_alike(name, positions=positions), torch.randint(VOCAB, (3, 5))
    cached, recomputed = (model.generate(ids, 25, use_cache=use) for use in (True, False))
    assert torch.equal(cached, recomputed)
    sampled = [model.generate(ids, 25, temperature=1.0, top_k=9, seed=3, use_cache=use) for use in (True, False)]
    assert torch.equal(*sampled)


def test_left_padded_prompts_continue_as_they_would_alone():
    model = trained_alike("boosted")
    prompts = [torch.randint(VOCAB, (1, n)) for n in (3, 6)]
    padded = torch.cat([torch.cat([torch.zeros(1, 3, dtype=torch.long), prompts[0]], dim=1), prompts[1]])
    mask = torch.tensor([[0, 0, 0, 1, 1, 1], [1] * 6])
    together = model.generate(padded, 8, attention_mask=mask)
    assert torch.equal(together[0, 3:], model.generate(prompts[0], 8)[0])
    assert torch.equal(together[1], model.generate(prompts[1], 8)[0])
    assert torch.equal(together, model.generate(padded, 8, attention_mask=mask, use_cache=False))


def test_padding_that_no_row_needs_costs_no_context():
    model, ids = trained_alike("boosted"), torch.randint(VOCAB, (2, 5))
    padded = torch.cat([torch.zeros(2, 6, dtype=torch.long), ids], dim=1)
    mask = torch.tensor([[0] * 6 + [1] * 5] * 2)
    assert torch.equal(model.generate(padded, 20, attention_mask=mask)[:, 6:], model.generate(ids, 20))
    assert torch.equal(model.generate(padded, 20, attention_mask=mask)[:, :6], padded[:, :6])


def test_greedy_is_the_argmax_of_the_logits():
    model, ids = trained_alike("standard"), torch.randint(VOCAB, (2, 4))
    expected = ids
    for _ in range(6):
        expected = torch.cat([expected, model.eval()(expected)[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(model.generate(ids, 6), expected)


def test_seeds_stops_and_streams():
    model, ids = trained_alike("boosted"), torch.randint(VOCAB, (4, 3))
    first, again, other = (model.generate(ids, 20, temperature=1.0, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    stop, seen = int(first[0, 8]), []
    stopped = model.generate(ids, 20, temperature=1.0, seed=1, stop=stop, stream=seen.append)
    ends = [row.index(stop) if stop in row else None for row in stopped[:, 3:].tolist()]
    for row, end in zip(stopped[:, 3:].tolist(), ends, strict=True):
        assert end is None or set(row[end:]) == {stop}
    assert torch.equal(torch.stack(seen, dim=1), stopped[:, 3:])
    assert ends[0] is not None


def test_filters_keep_the_likeliest():
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0]]).log_softmax(-1).repeat(4000, 1)
    draw = torch.Generator().manual_seed(0)

    def support(**options):
        return set(Sampling(temperature=1.0, **options).choose(logits, draw).tolist())

    assert support() == {0, 1, 2, 3}
    assert support(top_k=2) == {0, 1}
    assert support(top_k=99) == {0, 1, 2, 3}
    assert support(top_p=0.7) == {0, 1}  # 0.64, then 0.88
    assert support(top_p=0.01) == {0}
    often = Sampling(temperature=0.25).choose(logits, draw)
    assert (often == 0).double().mean() > 0.95
    assert set(Sampling(temperature=1e-40).choose(logits, draw).tolist()) == {0}


@pytest.mark.parametrize(
    ("options", "kept"),
    [({}, 5), ({"top_k": 3}, 3), ({"top_p": 0.9}, 4), ({"top_k": 4, "top_p": 0.87}, 3), ({"top_k": 1}, 1)],
)
def test_what_is_kept_is_drawn_as_often_as_its_probability_says(options, kept):
    """The likeliest tokens stand anywhere in the vocabulary, and keep their proportions at any temperature."""
    p = torch.tensor([0.1, 0.05, 0.4, 0.15, 0.3], dtype=torch.float64)
    n, expected = 40_000, torch.zeros_like(p)
    likeliest = p.argsort(descending=True)[:kept]
    expected[likeliest] = p[likeliest] / p[likeliest].sum()
    sampling = Sampling(temperature=2.0, **options)
    drawn = sampling.choose((2 * p.log()).expand(n, -1), torch.Generator().manual_seed(1))
    often = torch.bincount(drawn, minlength=5) / n
    assert (often[expected == 0] == 0).all()
    assert ((often - expected).abs() <= 4.5 * (expected * (1 - expected) / n).sqrt()).all()


def test_the_window_drops_its_older_half():
    assert [window_start(n, 16) for n in (1, 16, 17, 24, 25, 32, 33)] == [0, 0, 8, 8, 16, 16, 24]
    assert window_start(5, 1) == 4


@pytest.mark.parametrize(("new_tokens", "lengths"), [(4, [8]), (12, [16]), (21, [16, 16, 9])])
def test_the_cache_is_no_longer_than_needed(new_tokens, lengths, monkeypatch):
    """It holds prompt and new tokens but the last, up to the model's length; each further window has its own."""
    made = []
    monkeypatch.setattr(generation, "KVCache", lambda max_len: made.append(max_len) or KVCache(max_len=max_len))
    trained_alike("boosted").generate(torch.randint(VOCAB, (2, 5)), new_tokens)
    assert made == lengths


@pytest.mark.parametrize("options", [{}, {"tie_weights": False}])
def test_weights_stored_by_columns_choose_the_same_tokens(options, monkeypatch):
    model, ids = trained_alike("boosted", **options), torch.randint(VOCAB, (2, 5))
    before = {name: (p.data_ptr(), p.stride()) for name, p in model.named_parameters()}
    with stored_for_few_rows(model, COPY_PAYS, 2) as projection:
        assert torch.equal(projection, model.projection)
        assert projection.stride() == (1, VOCAB)
        assert model.layers[0].attention.rounds[1].qkv.weight.stride() == (1, 48)
        assert model.layers[0].ffn.down.weight.stride() == (64, 1)  # more inputs than outputs
        assert model.embed.weight.stride() == (16, 1)
    copied = model.generate(ids, COPY_PAYS)
    assert {name: (p.data_ptr(), p.stride()) for name, p in model.named_parameters()} == before
    monkeypatch.setattr(generation, "by_columns", lambda weight, n_rows: weight)
    assert torch.equal(model.generate(ids, COPY_PAYS), copied)


@pytest.mark.parametrize(("n_rows", "enough"), [(1, COPY_PAYS), (2, COPY_PAYS), (3, COPY_PAYS_LATER)])
def test_few_tokens_do_without_a_copy_of_the_weights(n_rows, enough):
    """More rows gain less from it, so that it takes more tokens to pay."""
    model = trained_alike("standard")
    with stored_for_few_rows(model, enough - 1, n_rows) as projection:
        assert projection is model.projection
        assert model.layers[0].ffn.up.weight.stride() == (16, 1)
    with stored_for_few_rows(model, enough, n_rows) as projection:
        assert model.layers[0].ffn.up.weight.stride() == (1, 64)


def test_how_a_weight_is_stored_depends_on_the_batch():
    """One row waits for every weight that has more outputs than inputs, several rows only for narrow ones."""
    narrow, wide, tall = torch.randn(400, 256), torch.randn(600, 512), torch.randn(256, 400)
    stored = {n: [by_columns(w, n).stride() == (1, w.shape[0]) for w in (narrow, wide, tall)] for n in (1, 4, 16)}
    assert stored == {1: [True, True, False], 4: [True, False, False], 16: [True, False, False]}
    assert torch.equal(by_columns(narrow, 4), narrow)


def test_what_is_generated_can_be_trained_on():
    model, streamed = trained_alike("boosted"), []
    longer = model.generate(torch.randint(VOCAB, (2, 5)), COPY_PAYS, stream=streamed.append)
    loss = model.loss(longer[:, :-1], longer[:, 1:]) + model.embed(streamed[0]).sum()
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_generation_leaves_the_mode_as_it_was():
    model = trained_alike("boosted", dropout=0.5).train()
    ids = torch.randint(VOCAB, (2, 4))
    assert torch.equal(model.generate(ids, 5), model.generate(ids, 5))
    assert model.training


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "temperature=-1.0"),
        ({"top_k": 0}, "top_k=0"),
        ({"top_p": 1.5}, "top_p=1.5"),
        ({"seed": 10**20}, "seed=100000000000000000000 must lie in"),
        ({"stop": 99}, "stop=99 is outside the vocabulary"),
        ({"attention_mask": torch.ones(2, 2)}, "attention_mask has shape"),
        ({"attention_mask": torch.tensor([[1, 1, 0]])}, "pad prompts on the left"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        trained_alike("standard").generate(torch.zeros(1, 3, dtype=torch.long), 2, **options)


def test_wrong_prompts_are_named():
    model = trained_alike("standard")
    with pytest.raises(ValueError, match="outside the vocabulary of 37"):
        model.generate(torch.tensor([[40]]), 2)
    with pytest.raises(ValueError, match="ids is empty"):
        model.generate(torch.zeros(1, 0, dtype=torch.long), 2)
    with pytest.raises(ValueError, match="max_new_tokens=-1"):
        model.generate(torch.tensor([[1]]), -1)
