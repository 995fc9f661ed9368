"""Rows of several documents in language models: logits, losses and gradients are those of the documents alone."""

import pytest
import torch

from boosted_attention import KVCache, list_attention
from boosted_attention.attention.checks import CHECK_OPTIONS
from boosted_attention.model.loss import IGNORED
from tests.model.depth import SMALL, small, tokens

LENGTHS = (4, 1, 5, 2)
DOCUMENTS = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS)).expand(2, -1)  # (2, 12)
DEPTHS = [
    {"positions": "rotary"},
    {"value_residual": True},
    {"feed": "cross", "value_residual": True},
    {"feed": "attention"},
    {"n_repeats": 2, "value_residual": True},
    {"n_repeats": 2, "halting": "act"},
    {"n_repeats": 3, "halting": "ponder", "positions": "rotary"},
    {"attention": "boosted-shared", "attention_options": {"halting": True, "n_rounds": 3}},
    {"attention": "local-exclusive", "norm": "post", "positions": "rotary", "tie_weights": False},
]


def targets_inside(ids):
    """The token behind each one, where it is of the same document."""
    targets = ids.roll(-1, dims=1)
    targets[DOCUMENTS.roll(-1, dims=1) != DOCUMENTS] = IGNORED
    return targets


def assert_as_alone(model):
    ids, upstream = tokens(), torch.randn(2, 12, SMALL["vocab_size"], dtype=torch.float64)
    targets, parameters = targets_inside(ids), list(model.parameters())

    def with_gradients(logits, loss):
        found = torch.autograd.grad((logits * upstream).sum() + loss, parameters, materialize_grads=True)
        return [logits.detach(), loss.detach(), *found]

    pieces = list(zip(ids.split(LENGTHS, dim=1), targets.split(LENGTHS, dim=1), strict=True))
    together = with_gradients(
        model(ids, documents=DOCUMENTS), model.loss(ids, targets, documents=DOCUMENTS, reduction="sum")
    )
    alone = with_gradients(
        torch.cat([model(piece) for piece, _ in pieces], dim=1),
        torch.stack([model.loss(piece, behind, reduction="sum") for piece, behind in pieces]).sum(),
    )
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("attention", list_attention())
def test_logits_losses_and_gradients_are_those_of_the_documents_alone(attention, full):
    for positions in ("learned", "rotary") if full else ("learned",):
        assert_as_alone(small(attention, positions=positions, attention_options=CHECK_OPTIONS.get(attention, {})))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("options", DEPTHS, ids=str)
def test_documents_stay_apart_however_layers_are_fed_and_repeated(options, training):
    model = small(**options)
    assert_as_alone(model.train(training))


@pytest.mark.parametrize("options", [{}, *DEPTHS], ids=str)
def test_changing_a_document_changes_no_other_bit_for_bit(options):
    """With dropout too, whose masks go by place; tokens that leave a layer early change others' last bits."""
    model = small(**options, dropout=0.2)
    gathers = options.get("attention_options", {}).get("halting", False)
    ids = tokens()
    for training in (False, True):
        model.train(training)

        @torch.no_grad()
        def run(ids):
            torch.manual_seed(1)
            return model(ids, documents=DOCUMENTS)

        full = run(ids)
        for document in range(len(LENGTHS)):
            inside = DOCUMENTS[0] == document
            changed = run(torch.where(inside, (ids + 1) % SMALL["vocab_size"], ids))
            if gathers and not training:
                torch.testing.assert_close(changed[:, ~inside], full[:, ~inside], rtol=0, atol=1e-12)
            else:
                assert torch.equal(changed[:, ~inside], full[:, ~inside])
            assert not torch.equal(changed[:, inside], full[:, inside])


def test_a_row_may_be_longer_than_each_document_may_be():
    model = small()  # max_len=12
    ids, documents = tokens(length=20), (torch.arange(20) // 10).expand(2, -1)
    both = torch.cat([model(half) for half in ids.split(10, dim=1)], dim=1)
    torch.testing.assert_close(model(ids, documents=documents), both, rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match="ids reach position 13, the model takes max_len=12"):
        model(ids, documents=(torch.arange(20) // 13).expand(2, -1))


def test_padding_and_documents_in_one_row():
    model, ids = small("local", positions="rotary"), tokens(length=10)
    documents = torch.tensor([0] * 5 + [1] * 5).expand(2, -1)
    mask = torch.ones_like(ids)
    mask[0, :2] = mask[0, 5:7] = mask[1, 8:] = 0
    got = model(ids, mask, documents=documents)
    for row, start, end in ((0, 2, 5), (0, 7, 10), (1, 0, 5), (1, 5, 8)):
        alone = model(ids[row : row + 1, start:end])[0]
        torch.testing.assert_close(got[row, start:end], alone, rtol=0, atol=1e-10)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_positions_and_vectors_may_be_given(positions):
    model, ids = small(positions=positions), tokens(length=6)
    plain = model.hidden(ids)
    assert torch.equal(model.hidden(ids, positions=torch.arange(6)), plain)
    assert torch.equal(model.hidden(model.embed(ids)), plain)
    moved = model.hidden(ids, positions=torch.arange(3, 9).expand(2, -1))
    if positions == "learned":
        assert not torch.allclose(moved, plain)
    else:  # distances alone count
        torch.testing.assert_close(moved, plain, rtol=0, atol=1e-10)
    spread = model.hidden(ids, positions=torch.arange(0, 12, 2)[None])
    assert not torch.allclose(spread, plain)


@pytest.mark.parametrize("options", [{}, {"n_repeats": 2, "halting": "act"}], ids=str)
def test_states_are_the_stream_before_the_blocks_and_behind_each(options):
    model, ids, states = small(positions="rotary", **options), tokens(), []
    last = model.hidden(ids, states=states)
    assert len(states) == 1 + model.config.applications
    assert torch.equal(states[0], model.embed(ids))
    if not options:
        assert torch.equal(model.norm(states[-1]), last)
    with pytest.raises(ValueError, match="feed='cross': layers read all that was given before them"):
        small(feed="cross").hidden(ids, states=[])


def test_what_does_not_go_together_is_refused():
    model, ids = small(), tokens(length=6)
    documents = torch.zeros_like(ids)
    with pytest.raises(ValueError, match="documents: a cache continues one document in each row"):
        model(ids, documents=documents, cache=KVCache())
    with pytest.raises(ValueError, match=r"documents has shape \(2, 5\); expected \(2, 6\)"):
        model(ids, documents=documents[:, 1:])
    with pytest.raises(ValueError, match="positions contain -1; they count from 0"):
        model.hidden(ids, positions=torch.arange(-1, 5))
    with pytest.raises(ValueError, match="ids reach position 13, the model takes max_len=12"):
        model.hidden(ids, positions=torch.arange(7, 13))
    with pytest.raises(ValueError, match=r"positions has shape \(2, 5\)"):
        model.hidden(ids, positions=documents[:, 1:])
    with pytest.raises(ValueError, match=r"expected integers \(batch, length\)"):
        model(torch.zeros(2, 6, 3))
