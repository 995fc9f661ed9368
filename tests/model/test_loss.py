"""The chunked loss is the plain loss."""

import pytest
import torch
from torch.nn import functional

from boosted_attention import LanguageModelConfig
from boosted_attention.model import loss as chunked
from boosted_attention.model.loss import IGNORED, chunked_loss, token_losses


def summed_loss(hidden, weight, targets):
    return chunked_loss(hidden, weight, targets, "sum")


def plain(hidden, weight, targets):
    logits = functional.linear(hidden, weight).flatten(0, 1)
    return functional.cross_entropy(logits, targets.flatten(), ignore_index=IGNORED, reduction="sum")


@pytest.mark.parametrize("rows", [1, 3, 7, 30, 1000])  # chunks that divide 30 tokens, that do not, and one for all
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
def test_equal_to_the_plain_loss_and_its_gradients(rows, dtype, bound, monkeypatch):
    monkeypatch.setattr(chunked, "chunk_rows", lambda vocab_size: rows)
    hidden = torch.randn(3, 10, 8, dtype=dtype)
    weight = torch.randn(11, 8, dtype=dtype)
    targets = torch.randint(11, (3, 10))
    targets[0, :4] = IGNORED
    results = []
    for function in (summed_loss, plain):
        leaves = [t.clone().requires_grad_() for t in (hidden, weight)]
        total = function(*leaves, targets) / 26
        (3.0 * total).backward()
        results.append([total.detach(), *(leaf.grad for leaf in leaves)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=bound, atol=bound)
    losses = token_losses(hidden, weight, targets)
    torch.testing.assert_close(losses.sum(), plain(hidden, weight, targets), rtol=bound, atol=bound)
    assert losses.shape == targets.shape
    assert torch.equal(losses[0, :4], torch.zeros(4, dtype=dtype))


def test_gradient_of_either_side_alone():
    hidden, weight, targets = torch.randn(2, 5, 4), torch.randn(7, 4), torch.randint(7, (2, 5))
    summed_loss(hidden.requires_grad_(), weight, targets).backward()
    assert hidden.grad is not None
    assert weight.grad is None
    summed_loss(hidden.detach(), weight.requires_grad_(), targets).backward()
    assert weight.grad is not None


def test_logits_that_underflow_have_a_finite_loss():
    hidden, weight = torch.ones(1, 1, 1), torch.tensor([[200.0], [-200.0]])
    assert summed_loss(hidden, weight, torch.tensor([[1]])) == 400.0
    assert token_losses(hidden, weight, torch.tensor([[1]])).item() == 400.0


@pytest.mark.parametrize("wrong", [-1, 7])
def test_a_target_outside_the_vocabulary_is_named(wrong):
    with pytest.raises(ValueError, match=f"targets contain {wrong}; the vocabulary has 7 tokens"):
        summed_loss(torch.randn(1, 2, 4), torch.randn(7, 4), torch.tensor([[1, wrong]]))


def test_in_half_precision_it_is_as_good_as_the_plain_loss():
    model = LanguageModelConfig(vocab_size=97, d_model=32, max_len=16).build()
    ids, targets = torch.randint(97, (4, 16)), torch.randint(97, (4, 16))
    exact = model.loss(ids, targets)
    exact.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model.loss(ids, targets)
    loss.backward()
    assert loss.dtype == torch.float32
    assert float(loss.detach()) == pytest.approx(float(exact.detach()), rel=2e-3)
    got = model.embed.weight.grad
    assert float((got - expected["embed.weight"]).norm() / expected["embed.weight"].norm()) < 0.05


def test_the_models_loss_is_the_loss_of_its_logits():
    model = LanguageModelConfig(vocab_size=97, d_model=32, max_len=16).build().double()
    ids, targets = torch.randint(97, (4, 16)), torch.randint(97, (4, 16))
    targets[1, 3:] = IGNORED
    logits = model(ids)
    expected = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    torch.testing.assert_close(model.loss(ids, targets), expected, rtol=0, atol=1e-12)
    total = model.loss(ids, targets, reduction="sum")
    torch.testing.assert_close(total / (targets != IGNORED).sum(), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(model.loss(ids, targets, reduction="none").sum(), total, rtol=0, atol=1e-10)
