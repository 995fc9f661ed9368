"""Dataclasses as JSON and back: the same value, the keys that were promised, and messages that name the place."""

import json
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pytest

from boosted_attention.records import from_json, json_key, to_json


class Pair(NamedTuple):
    word: str
    share: float


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True, kw_only=True)
class Child(Inner):
    note: str | None  # no default: written even while it is None


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    values: list[float]
    pairs: list[Pair]
    inner: Inner | None
    by_seed: dict[int, Child]
    span: tuple[float, float]
    many: tuple[int, ...]
    anything: Any
    odd: dict[str, float] | None = field(default=None, metadata=json_key("odd one"))
    later: list[Inner] | None = None


WHOLE = Outer(
    name="x",
    values=[1.5, 2.0],
    pairs=[Pair("the", 0.5)],
    inner=None,
    by_seed={3: Child(size=1, note=None)},
    span=(0.0, 1.0),
    many=(1, 2, 3),
    anything={"free": [1, None]},
    odd={"p q": 1.0},
    later=[Inner(size=2, kind="b")],
)


def test_there_and_back():
    text = json.dumps(to_json(WHOLE), allow_nan=False)
    assert from_json(Outer, json.loads(text)) == WHOLE
    assert from_json(list[Outer], [to_json(WHOLE)] * 2) == [WHOLE] * 2


def test_a_named_tuple_is_a_list_in_json_and_itself_again():
    assert to_json(WHOLE)["pairs"] == [["the", 0.5]]
    (pair,) = from_json(list[Pair], [["the", 1]])
    assert isinstance(pair, Pair)
    assert isinstance(pair.share, float)


def test_what_is_none_by_default_is_left_out_while_it_is_none():
    bare = Outer(
        name="",
        values=[],
        pairs=[],
        inner=None,
        by_seed={1: Child(size=1, note=None)},
        span=(0, 1),
        many=(),
        anything=1,
    )
    written = to_json(bare)
    assert "later" not in written
    assert "odd one" not in written
    assert written["inner"] is None
    assert written["by_seed"] == {"1": {"size": 1, "kind": "a", "note": None}}
    assert from_json(Outer, written) == bare


def test_a_field_may_have_another_key():
    written = to_json(WHOLE)
    assert written["odd one"] == {"p q": 1.0}
    assert "odd" not in written
    with pytest.raises(ValueError, match=r"odd one\.p q must be float, got 'x'"):
        from_json(Outer, {**written, "odd one": {"p q": "x"}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, "name must be str, got 3"),
        ({"values": [1.0, "x"]}, r"values\[1\] must be float, got 'x'"),
        ({"values": 1.0}, "values must be a list, got 1.0"),
        ({"pairs": [["the"]]}, r"pairs\[0\] must be a list of 2"),
        ({"by_seed": {"1": {"size": True, "note": None}}}, r"by_seed\.1\.size must be int, got True"),
        ({"by_seed": {"1": {"size": 1, "kind": "c", "note": None}}}, r"by_seed\.1\.kind must be one of \('a', 'b'\)"),
        ({"span": [1.0]}, "span must be a list of 2"),
        ({"inner": {"size": 1, "colour": 2}}, r"inner must be an object without \['colour'\]"),
        ({"inner": {}}, r"inner must be an object with \['size'\]"),
        ({"later": [{"size": 1}, None]}, r"later\[1\] must be an object, got None"),
        ({"surprise": 1}, r"the document must be an object without \['surprise'\]"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        from_json(Outer, {**to_json(WHOLE), **change})


def test_whole_numbers_are_floats_where_floats_are_meant_but_not_the_other_way():
    assert from_json(list[float], [1, 2.5]) == [1.0, 2.5]
    assert all(type(v) is float for v in from_json(list[float], [1, 2.5]))
    with pytest.raises(ValueError, match=r"\[0\] must be int, got 1.0"):
        from_json(list[int], [1.0])


def test_lists_are_copied():
    values = [1.0]
    assert from_json(list[float], values) is not values
