"""Several documents in one row: each is what it would be alone, and none sees another."""

import pytest
import torch

from boosted_attention import KVCache, document_mask, document_positions
from tests.conftest import D_MODEL, build, every_layer, randn

LENGTHS = (5, 1, 7, 3)
DOCUMENTS = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))[None]  # (1, 16)


def packed(documents, rotary: bool = True) -> dict:
    """Keywords of a layer's call on rows of documents."""
    positions = {"positions": document_positions(documents)} if rotary else {}
    return {"mask": document_mask(documents), "is_causal": True, **positions}


def with_gradients(layer, y, x, upstream):
    leaves = [x, *layer.parameters()]
    return [y.detach(), *torch.autograd.grad(y, leaves, upstream, materialize_grads=True)]


@pytest.mark.parametrize("name", every_layer())
def test_outputs_and_gradients_are_those_of_the_documents_alone(name):
    layer = build(name, rope_theta=1e4)
    x, upstream = randn(1, 16, D_MODEL).requires_grad_(), randn(1, 16, D_MODEL)
    together = with_gradients(layer, layer(x, **packed(DOCUMENTS)), x, upstream)
    pieces = [layer(piece, is_causal=True) for piece in x.split(LENGTHS, dim=1)]
    alone = with_gradients(layer, torch.cat(pieces, dim=1), x, upstream)
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("name", every_layer())
def test_changing_a_document_changes_no_other_bit_for_bit(name, dropout):
    layer = build(name, rope_theta=1e4)
    if not all(learner.allows_dropout for learner in layer.rounds):
        dropout = 0.0
    layer = build(name, rope_theta=1e4, dropout=dropout)
    x = randn(2, 16, D_MODEL).requires_grad_()

    def run(x):
        torch.manual_seed(3)
        return layer(x, **packed(DOCUMENTS.expand(2, -1)))

    y = run(x)
    for document in DOCUMENTS.unique():
        inside = DOCUMENTS[0] == document
        with torch.no_grad():
            changed = run(torch.where(inside[:, None], x + 3.0, x))
        assert torch.equal(changed[:, ~inside], y[:, ~inside])
        if inside.sum() > 1:  # one token alone may come to nothing, as in exclusive-fixed
            assert not torch.equal(changed[:, inside], y[:, inside])
        (gradient,) = torch.autograd.grad(y[:, ~inside].sum(), x, retain_graph=True)
        assert gradient[:, inside].abs().max() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_documents_longer_than_a_kernel_block_stay_apart(dtype, dropout):
    layer, x = build("boosted", dtype, dropout=dropout), randn(1, 900, D_MODEL, dtype=dtype)
    documents = (torch.arange(900) // 600)[None]

    @torch.no_grad()
    def run(x):
        torch.manual_seed(3)
        return layer(x, **packed(documents, rotary=False))

    changed = x.clone()
    changed[:, :600] += 1.0
    assert torch.equal(run(changed)[:, 600:], run(x)[:, 600:])
    if not dropout:
        bound = 1e-5 if dtype == torch.float32 else 0.05
        torch.testing.assert_close(run(x)[:, 600:], layer(x[:, 600:], is_causal=True), rtol=bound, atol=bound)


@pytest.mark.parametrize("name", every_layer())
def test_a_leak_between_documents_would_be_found(name):
    """The comparison itself can fail: without the mask every layer sees across documents."""
    layer, x = build(name), randn(1, 16, D_MODEL)
    together = layer(x, is_causal=True)
    alone = torch.cat([layer(piece, is_causal=True) for piece in x.split(LENGTHS, dim=1)], dim=1)
    assert not torch.allclose(together, alone, rtol=1e-3, atol=1e-3)


def test_every_change_of_number_begins_a_document():
    documents = torch.tensor([[4, 4, 1, 1, 1, 4], [0, 0, 0, 0, 0, 0]])
    assert document_positions(documents).tolist() == [[0, 1, 0, 1, 2, 0], [0, 1, 2, 3, 4, 5]]
    mask = document_mask(documents)[:, 0]
    assert mask[1].all()
    blocks = torch.block_diag(torch.ones(2, 2), torch.ones(3, 3), torch.ones(1, 1)).bool()
    assert torch.equal(mask[0], blocks)  # the last token is not of the first document


def test_a_cache_goes_on_behind_documents_that_a_mask_keeps_apart():
    layer, x = build("local", rope_theta=1e4), randn(1, 16, D_MODEL)
    call = packed(DOCUMENTS)
    with torch.no_grad():
        whole, cache = layer(x, **call), KVCache()
        for t in range(16):
            mask, positions = call["mask"][:, :, t : t + 1, : t + 1], call["positions"][:, t : t + 1]
            y = layer(x[:, t : t + 1], mask=mask, positions=positions, is_causal=True, cache=cache)
            torch.testing.assert_close(y, whole[:, t : t + 1], rtol=0, atol=1e-10)


@pytest.mark.parametrize("wrong", [torch.zeros(3, dtype=torch.long), torch.zeros(1, 3), torch.zeros(1, 3).bool()])
def test_documents_are_integers_of_rows(wrong):
    with pytest.raises(ValueError, match=r"documents has shape .* expected integers \(batch, length\)"):
        document_mask(wrong)
