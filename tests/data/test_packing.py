"""Packed rows: every prediction inside a document once, none across, and rows as full as they can be."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from boosted_attention.data.batches import PackedBatches, batch_hash
from boosted_attention.data.packing import PackedRows, best_fit
from boosted_attention.model.loss import IGNORED

END = 0
TEXTS = st.lists(st.integers(0, 5), min_size=1, max_size=80)  # many ends of text, some of them side by side


def predictions_of(tokens, length):
    """What precedes each predicted token in its piece, and the token: as a reading of the text gives it."""
    found, context = [], []
    for token in tokens:
        if context:
            found.append((tuple(context), token))
        context = [] if token == END else [*context, token]
        if len(context) > length:  # the last of them is predicted and begins the next piece
            context = context[-1:]
    return sorted(found)


@given(TEXTS, st.integers(1, 9))
def test_every_prediction_inside_a_document_is_made_once(text, length):
    rows = PackedRows(np.array(text, dtype=np.uint16), end_of_text=END, length=length)
    ids, targets, documents = rows(range(len(rows)))
    assert ids.shape == targets.shape == documents.shape == (len(rows), length)
    found = []
    for row, behind, numbers in zip(ids.tolist(), targets.tolist(), documents.tolist(), strict=True):
        for t, target in enumerate(behind):
            if target != IGNORED:
                found.append((tuple(row[numbers.index(numbers[t]) : t + 1]), target))
        padding = [number for number, target in zip(numbers, behind, strict=True) if target == IGNORED]
        assert len(set(padding)) <= 1
        assert not padding or padding == numbers[-len(padding) :]
    assert sorted(found) == predictions_of(text, length)


@given(st.lists(st.integers(1, 12), max_size=60))
def test_no_row_overflows_and_no_two_would_fit_into_one(sizes):
    rows = best_fit(np.array(sizes, dtype=np.int64), 12)
    filled = np.bincount(rows, weights=sizes, minlength=0)
    assert (filled <= 12).all()
    assert (filled > 0).all()
    two = np.sort(filled)[:2]
    assert len(two) < 2 or two.sum() > 12


def test_documents_of_one_row_are_numbered_and_the_rest_is_padding():
    text = np.array([5, 6, 7, END, 8, END, END, 9, 9], dtype=np.uint16)  # the last has no end
    ids, targets, documents = PackedRows(text, end_of_text=END, length=6)([0])
    assert ids[0].tolist() == [5, 6, 7, 8, 9, END]
    assert targets[0].tolist() == [6, 7, END, END, 9, IGNORED]
    assert documents[0].tolist() == [0, 0, 0, 1, 2, 3]


TOKENS = np.random.default_rng(0).integers(40, size=3000).astype(np.uint16)


def batches(seed: int = 0, **options) -> PackedBatches:
    return PackedBatches(TOKENS, **{"end_of_text": END, "batch_size": 4, "length": 32, "seed": seed, **options})


def test_batches_are_a_function_of_seed_and_step():
    made = batches()
    n = made.steps_per_epoch
    forward = [made(step) for step in range(2 * n)]
    backward = [batches()(step) for step in reversed(range(2 * n))][::-1]
    for a, b in zip(forward, backward, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    names = [batch_hash(batch.ids, batch.documents) for batch in forward]
    assert len(set(names)) == len(names)
    assert batch_hash(batches(1)(0).ids) != batch_hash(forward[0].ids)
    rows = {tuple(row.tolist()) for batch in forward[:n] for row in batch.ids}
    assert len(rows) == 4 * n  # each row once in an epoch


def test_rows_are_nearly_full():
    made = batches()
    predicted = sum(int((made(step).targets != IGNORED).sum()) for step in range(made.steps_per_epoch))
    assert predicted / (made.steps_per_epoch * 4 * 32) > 0.95


def test_where_documents_end_is_part_of_a_batchs_name():
    ids = torch.zeros(2, 3, dtype=torch.long)
    assert batch_hash(ids) == batch_hash(ids, None) != batch_hash(ids, ids)
    assert batch_hash(ids, ids) != batch_hash(ids, ids + 1)


def test_what_cannot_be_packed_is_named():
    with pytest.raises(ValueError, match="the tokenizer has no end-of-text token"):
        batches(end_of_text=None)
    with pytest.raises(ValueError, match="the training split has no end of text inside, it is one document"):
        batches(end_of_text=77)
    with pytest.raises(ValueError, match=r"fill \d+ rows of 32; one batch has 500: give more text"):
        batches(batch_size=500)
