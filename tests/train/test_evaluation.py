"""Evaluation: every token once, with the context it should have."""

import math

import numpy as np
import pytest
import torch

from boosted_attention import LanguageModelConfig
from boosted_attention.train.evaluation import evaluate, windows

LENGTH, VOCAB = 16, 41


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = LanguageModelConfig(vocab_size=VOCAB, d_model=16, n_layers=2, max_len=LENGTH).build().double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model


def loss_of(model, tokens, start, position):
    """-log p of the token at ``position``, seen from ``start``."""
    ids = torch.from_numpy(tokens[start:position].astype(np.int64))[None]
    return -float(model(ids)[0, -1].log_softmax(-1)[int(tokens[position])])


@pytest.mark.parametrize("n", [2, 15, 16, 17, 18, 100])
@pytest.mark.parametrize("stride", [1, 5, 16])
def test_every_token_but_the_first_is_counted_once(model, n, stride):
    tokens = np.random.default_rng(0).integers(VOCAB, size=n).astype(np.uint16)
    spans = list(windows(n, LENGTH, stride))
    assert sorted(t for _, first, end in spans for t in range(first, end)) == list(range(1, n))
    assert all(end - start <= LENGTH + 1 for start, _, end in spans)
    with torch.no_grad():
        expected = [loss_of(model, tokens, s, t) for s, first, end in spans for t in range(first, end)]
    found = evaluate(model, tokens, stride=stride, batch_size=3)
    assert found.tokens == n - 1
    assert found.loss == pytest.approx(np.mean(expected), abs=1e-12)
    assert found.perplexity == pytest.approx(math.exp(found.loss))


def test_a_stride_gives_every_token_its_context():
    for start, first, _ in list(windows(200, 16, 4))[1:]:
        assert first - start >= 12


def test_bits_per_byte(model):
    tokens = np.random.default_rng(1).integers(VOCAB, size=50).astype(np.uint16)
    lengths = np.arange(VOCAB)
    found = evaluate(model, tokens, byte_lengths=lengths)
    assert found.bits_per_byte == pytest.approx(found.loss * 49 / math.log(2) / tokens[1:].sum())
    assert evaluate(model, tokens).bits_per_byte is None


def test_the_papers_protocol(model):
    """Rows of T tokens, T - 1 predictions, an incomplete batch of rows left out."""
    tokens = np.random.default_rng(2).integers(VOCAB, size=7 * LENGTH + 5).astype(np.uint16)
    found = evaluate(model, tokens, protocol="paper", batch_size=3)
    assert found.tokens == 6 * (LENGTH - 1)
    rows = torch.from_numpy(tokens[: 6 * LENGTH].astype(np.int64)).view(6, LENGTH)
    with torch.no_grad():
        expected = model.loss(rows[:, :-1], rows[:, 1:])
    assert found.loss == pytest.approx(float(expected), abs=1e-12)


def test_the_batch_size_does_not_matter(model):
    tokens = np.random.default_rng(3).integers(VOCAB, size=333).astype(np.uint16)
    losses = [evaluate(model, tokens, batch_size=n).loss for n in (1, 4, 64)]
    assert losses == pytest.approx([losses[0]] * 3, abs=1e-12)


def test_what_cannot_be_is_named(model):
    tokens = np.zeros(100, np.uint16)
    for options, message in (
        ({"stride": 0}, "stride=0 must lie between 1 and max_len=16"),
        ({"stride": 17}, "stride=17"),
        ({"protocol": "papr"}, "did you mean 'paper'"),
        ({"protocol": "paper", "stride": 4}, "stride=4: protocol='paper' has no stride"),
        ({"protocol": "paper"}, "the split has 100 tokens; protocol='paper' needs at least 512"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate(model, tokens, **options)
    with pytest.raises(ValueError, match="the split has 1 tokens"):
        evaluate(model, tokens[:1])
