"""Agreement of two folders of results, on numbers made by hand."""

import pytest

from boosted_attention.lab.judging.agreement import contrary, in_both, sign
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Paired, Table
from boosted_attention.statistics import estimate

UP, DOWN, UNCLEAR = (1.0, 1.1, 1.2), (-1.0, -1.1, -1.2), (-1.0, 1.1, 0.2)


def table(text, **values):
    """A table whose comparisons have these differences, one per seed, on a text."""
    made = Table("made", ["one"])
    made.compare(
        [
            Paired(Quantity(name).on(text), dict(enumerate(own)), dict.fromkeys(range(9), 0.0))
            for name, own in values.items()
        ]
    )
    return made


@pytest.mark.parametrize(("values", "side"), [(UP, 1), (DOWN, -1), (UNCLEAR, 0), ((5.0,), 0), ((-5.0,), 0)])
def test_an_interval_tells_a_side_where_it_leaves_zero_out(values, side):
    assert sign(estimate(values)) == side


@pytest.mark.parametrize(
    ("here", "there", "agrees"),
    [
        (UP, UP, True),
        (DOWN, DOWN, True),
        (UP, DOWN, False),
        (DOWN, UP, False),
        (UP, UNCLEAR, True),
        (UNCLEAR, DOWN, True),
    ],
)
def test_opposite_signs_disagree_unless_one_cannot_tell(here, there, agrees):
    pairs = in_both({"lm-main": table("a", x=here)}, {"lm-main": table("b", x=there)})
    assert [both.agrees for both in pairs] == [agrees]
    assert (contrary(pairs) == []) == agrees


def test_comparisons_of_one_name_and_experiment_are_put_side_by_side_whatever_their_text():
    first = {"lm-main": table("a", x=UP, y=UP), "lm-rounds": table("a", x=UP)}
    second = {"lm-main": table("b", x=DOWN, z=DOWN), "lm-controls": table("b", x=DOWN)}
    pairs = in_both(first, second)
    assert [(both.experiment, both.first.label, both.second.label) for both in pairs] == [("lm-main", "x | a", "x | b")]
    assert contrary(pairs) == ["lm-main: x | a +1.1 [+0.852, +1.35] against x | b -1.1 [-1.35, -0.852]"]
    assert in_both(first, {}) == []
