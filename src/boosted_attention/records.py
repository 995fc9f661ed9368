"""Dataclasses as JSON and back, so that what one part of the project writes and another reads has a type.

A field whose default is None is left out of the JSON while it is None; every other field is always written. A field
whose metadata is ``json_key(...)`` has another key in the JSON than its name.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from boosted_attention.validation import InputError

T = TypeVar("T")
KEY = "json key"  # in a field's metadata
PLAIN = (str, int, float, bool)


def json_key(key: str) -> dict[str, str]:
    """Give a dataclass field another key in the JSON, as ``field(metadata=json_key("p and q"))``.

    Args:
        key: the JSON key, which need not be a Python name.
    """
    return {KEY: key}


def to_json(value: Any) -> Any:
    """Turn dataclasses, mappings and sequences into plain dicts and lists; other values stay as they are.

    Args:
        value: a dataclass instance, or a mapping, list or tuple of such; named tuples become lists.
    """
    if is_dataclass(value) and not isinstance(value, type):
        held = {f: getattr(value, f.name) for f in fields(value)}
        return {key_of(f): to_json(v) for f, v in held.items() if v is not None or not is_optional(f)}
    if isinstance(value, Mapping):
        return {str(key): to_json(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(v) for v in value]
    return value


def from_json(kind: type[T], value: Any, where: str = "") -> T:
    """Build a ``kind`` from what ``to_json`` made of one.

    Args:
        kind: a dataclass, or a type made of dataclasses, named tuples, lists, tuples, dicts, unions and plain values.
        value: what ``json.load`` gave.
        where: path of the value inside the document, for the message.

    Raises:
        InputError: the value does not have the type; the message names the place.
    """
    return decoded(kind, value, where)


def decoded(kind: Any, value: Any, where: str) -> Any:
    """Do what ``from_json`` does, for any form of type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if is_dataclass(kind):
        return dataclass_from(kind, value, where)
    if origin in (Union, types.UnionType):
        return one_of(arguments, value, where)
    if origin is Literal:
        check(value in arguments, where, f"one of {arguments}", value)
        return value
    if origin in (list, Sequence) or kind is list:
        check(isinstance(value, list), where, "a list", value)
        return items_from(arguments[0] if arguments else Any, value, where)
    if is_named_tuple(kind):
        return kind(*tuple_from(tuple(hints_of(kind).values()), value, where))
    if origin is tuple:
        return tuple_from(arguments, value, where)
    if origin in (dict, Mapping) or kind is dict:
        check(isinstance(value, dict), where, "an object", value)
        key, item = arguments or (str, Any)
        return {key(k): decoded(item, v, inside(where, k)) for k, v in value.items()}
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        check(is_finite(value), where, "a finite number", value)
        return float(value)
    check(isinstance(value, kind) and (kind is not int or not isinstance(value, bool)), where, kind.__name__, value)
    return value


def dataclass_from(kind: Any, value: Any, where: str) -> Any:
    """Build a dataclass from an object with its keys: none unknown, and none missing that has no default."""
    check(isinstance(value, dict), where, "an object", value)
    known = {key_of(f): f for f in fields(kind)}
    unknown = sorted(set(value) - set(known))
    check(not unknown, where, f"an object without {unknown[:1]}", value)
    lacking = [k for k, f in known.items() if k not in value and f.default is MISSING and f.default_factory is MISSING]
    check(not lacking, where, f"an object with {lacking[:1]}", value)
    hints = hints_of(kind)
    given = {known[key].name: (key, v) for key, v in value.items()}
    return kind(**{name: decoded(hints[name], v, inside(where, key)) for name, (key, v) in given.items()})


def items_from(item: Any, values: list[Any], where: str) -> list[Any]:
    """Decode the items of a list; long lists of numbers or texts, as analyses have them, are only checked."""
    if item in PLAIN and all(type(v) is item for v in values) and (item is not float or all(map(is_finite, values))):
        return list(values)
    return [decoded(item, v, f"{where}[{i}]") for i, v in enumerate(values)]


def tuple_from(kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    """Decode a tuple with a type for each place, or with one type for all (``tuple[X, ...]``)."""
    check(isinstance(value, list | tuple), where, "a list", value)
    if kinds[1:] == (...,):
        kinds = (kinds[0],) * len(value)
    check(len(kinds) == len(value), where, f"a list of {len(kinds)}", value)
    return tuple(decoded(k, v, f"{where}[{i}]") for i, (k, v) in enumerate(zip(kinds, value, strict=True)))


def one_of(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    """Decode a union: the first of its types that the value has."""
    if value is None and type(None) in kinds:
        return None
    problems = []
    for kind in kinds:
        if kind is not type(None):
            try:
                return decoded(kind, value, where)
            except ValueError as problem:
                problems.append(str(problem))
    raise InputError(problems[0])


@cache
def hints_of(kind: type) -> dict[str, Any]:
    """The types of a class's fields, in order; evaluated once per class."""
    return get_type_hints(kind)


def is_finite(value: float) -> bool:
    """Whether a number is finite as a float; an integer of JSON may be too large for one."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def is_optional(f: Field[Any]) -> bool:
    return f.default is None


def key_of(f: Field[Any]) -> str:
    return f.metadata.get(KEY, f.name)


def inside(where: str, key: object) -> str:
    """The path of an entry of the object at ``where``."""
    return f"{where}.{key}" if where else str(key)


def check(condition: bool, where: str, expected: str, value: Any) -> None:
    """Raise InputError unless the condition holds."""
    if not condition:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        raise InputError(f"{where or 'the document'} must be {expected}, got {shown}")
