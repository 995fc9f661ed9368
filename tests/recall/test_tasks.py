"""The sequence tasks against brute force, one sequence at a time."""

import pytest
import torch

from boosted_attention.model.loss import IGNORED
from boosted_attention.recall.associative import AssociativeRecall
from boosted_attention.recall.permutations import ELEMENTS, PermutationComposition, products, swaps
from boosted_attention.recall.task import batch
from boosted_attention.validation import InputError

TASKS = [AssociativeRecall(length=16, n_keys=9, n_values=4), PermutationComposition(length=6)]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_a_batch_is_a_function_of_seed_and_step(task):
    first = batch(task, 5, task.length, seed=1, step=7)
    batch(task, 5, task.length, seed=1, step=8)
    again = batch(task, 5, task.length, seed=1, step=7)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    for other in (batch(task, 5, task.length, seed=2, step=7), batch(task, 5, task.length, seed=1, step=8)):
        assert not torch.equal(first[0], other[0])
    for ids, targets in (first, batch(task, 5, 2 * task.length, seed=1, step=7)):
        assert ids.shape == targets.shape
        assert 0 <= ids.min() <= ids.max() < task.vocab_size


def test_every_key_is_shown_once_and_asked_once():
    task = TASKS[0]
    ids, targets = batch(task, 200, 16, seed=0, step=0)
    orders = set()
    for row, target in zip(ids.tolist(), targets.tolist(), strict=True):
        shown = dict(zip(row[:8:2], row[1:8:2], strict=True))
        assert len(shown) == 4
        assert all(key < 9 for key in shown)
        assert all(9 <= value < 13 for value in shown.values())
        asked = row[8::2]
        assert sorted(asked) == sorted(shown)
        assert row[9::2] == [shown[key] for key in asked]
        expected = [IGNORED] * 16
        expected[8::2] = [shown[key] for key in asked]
        assert target == expected
        orders.add(tuple(list(shown).index(key) for key in asked))
    assert len(orders) == 24, "every order of four keys occurs"


def test_products_are_what_the_permutations_do_to_five_things():
    ids, targets = batch(TASKS[1], 60, 12, seed=0, step=0)
    for row, target in zip(ids.tolist(), targets.tolist(), strict=True):
        state = list(range(5))
        for number, expected in zip(row, target, strict=True):
            state = [ELEMENTS[number][i] for i in state]  # the new one after all before it
            assert ELEMENTS[expected] == tuple(state)


def test_the_table_is_that_of_a_group_which_the_swaps_generate():
    table = products()
    identity = torch.arange(120)
    assert torch.equal(table[0], identity)
    assert torch.equal(table[:, 0], identity)
    assert all(torch.equal(row.sort().values, identity) for row in table)
    a, b, c = torch.randint(120, (3, 500))
    assert torch.equal(table[table[a, b], c], table[a, table[b, c]])
    assert all(sum(x != i for i, x in enumerate(ELEMENTS[s])) == 2 for s in swaps().tolist())
    reached = {0}
    while (more := reached | {int(table[s, r]) for s in swaps().tolist() for r in reached}) != reached:
        reached = more
    assert len(reached) == 120


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AssociativeRecall(length=30), "length=30 must be a multiple of 4"),
        (lambda: AssociativeRecall(length=64, n_keys=8), "length=64 needs 16 different keys, and n_keys=8"),
        (lambda: AssociativeRecall(n_values=0), "n_values=0 must be at least 1"),
        (lambda: PermutationComposition(length=0), "length=0 must be at least 1"),
        (lambda: batch(TASKS[0], 2, 40, seed=0, step=0), "length=40 needs 10 different keys, and n_keys=9"),
    ],
)
def test_bad_input_gets_one_line(make, message):
    with pytest.raises(InputError, match=message):
        make()
