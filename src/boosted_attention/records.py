"""Dataclasses as JSON and back: what one part of the project writes and another reads has a type.

A field whose default is None is left out of the JSON while it is None; every other field is always written.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """Turn dataclasses, mappings and sequences into plain dicts and lists; other values stay as they are."""
    if is_dataclass(value) and not isinstance(value, type):
        held = {field: getattr(value, field.name) for field in fields(value)}
        return {f.name: to_json(v) for f, v in held.items() if v is not None or not is_optional(f)}
    if isinstance(value, Mapping):
        return {str(key): to_json(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(v) for v in value]
    return value


def from_json(kind: type[T], value: Any, where: str = "") -> T:
    """Build a ``kind`` from what ``to_json`` made of one.

    Args:
        kind: a dataclass, or a type made of dataclasses, lists, tuples, dicts, unions and plain values.
        value: what ``json.load`` gave.
        where: path of the value inside the document, for the message.

    Raises:
        ValueError: the value does not have the type; the message names the place.
    """
    return decoded(kind, value, where)


def decoded(kind: Any, value: Any, where: str) -> Any:
    """``from_json`` for any form of type."""
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
        item = arguments[0] if arguments else Any
        return [decoded(item, v, f"{where}[{i}]") for i, v in enumerate(value)]
    if origin is tuple:
        check(isinstance(value, list | tuple), where, "a list", value)
        kinds = [arguments[0]] * len(value) if arguments[1:] == (...,) else arguments
        check(len(kinds) == len(value), where, f"a list of {len(kinds)}", value)
        return tuple(decoded(k, v, f"{where}[{i}]") for i, (k, v) in enumerate(zip(kinds, value, strict=True)))
    if origin in (dict, Mapping) or kind is dict:
        check(isinstance(value, dict), where, "an object", value)
        key, item = arguments or (str, Any)
        return {key(k): decoded(item, v, f"{where}.{k}") for k, v in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    check(isinstance(value, kind) and (kind is not int or not isinstance(value, bool)), where, kind.__name__, value)
    return value


def dataclass_from(kind: Any, value: Any, where: str) -> Any:
    check(isinstance(value, dict), where, "an object", value)
    known = {field.name: field for field in fields(kind)}
    unknown = sorted(set(value) - set(known))
    check(not unknown, where, f"an object without {unknown[:1]}", value)
    lacking = [n for n, f in known.items() if n not in value and f.default is MISSING and f.default_factory is MISSING]
    check(not lacking, where, f"an object with {lacking[:1]}", value)
    hints = hints_of(kind)
    return kind(**{name: decoded(hints[name], v, f"{where}.{name}".lstrip(".")) for name, v in value.items()})


def one_of(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    problems = []
    for kind in kinds:
        if kind is not type(None):
            try:
                return decoded(kind, value, where)
            except ValueError as problem:
                problems.append(str(problem))
    raise ValueError(problems[0])


@cache
def hints_of(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def is_optional(field: Field[Any]) -> bool:
    return field.default is None


def check(condition: bool, where: str, expected: str, value: Any) -> None:
    if not condition:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        raise ValueError(f"{where or 'the document'} must be {expected}, got {shown}")
