"""The switch ``disable_rounds``: run a model without some of its correction rounds, as if their gates were shut.

with disable_rounds(model):                       # no corrections anywhere: the first estimates alone
    ...
with disable_rounds(model, layers=[1], rounds=2): # layer 1 without its second correction
    ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from boosted_attention.attention.trace import ModuleTree, traced_layers
from boosted_attention.validation import is_count, nearest, require


@contextmanager
def disable_rounds(
    model: ModuleTree,
    *,
    layers: Iterable[int | str] | int | str | None = None,
    rounds: Iterable[int] | int | None = None,
) -> Iterator[None]:
    """Leave out correction rounds inside the block.

    Traces then hold the rounds that ran, numbered from 0.

    Args:
        model: any module that contains attention layers of boosted_attention.
        layers: layers by number in the model's order or by module name; all by default.
        rounds: rounds by number, from 1 (round 0 is the first estimate and stays); all corrections by default.
    """
    found = traced_layers(model)
    require(bool(found), f"disable_rounds: {type(model).__name__} contains no attention layer of boosted_attention")
    names = list(found)
    chosen = [named(layer, names) for layer in listed(names if layers is None else layers)]
    asked = None if rounds is None else frozenset(listed(rounds))
    most = max(layer.n_rounds for layer in found.values()) - 1
    require(
        asked is None or all(is_count(m) and m <= most for m in asked),
        f"rounds={rounds!r} must be numbers from 1 to {most}: round 0 is the first estimate, and no layer has more",
    )
    before = {name: found[name].disabled for name in chosen}
    try:
        for name in chosen:
            corrections = frozenset(range(1, found[name].n_rounds))
            found[name].disabled |= corrections if asked is None else corrections & asked
        yield
    finally:
        for name, disabled in before.items():
            found[name].disabled = disabled


def listed(value: object) -> list:
    """Return one value or several as a list."""
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]


def named(layer: int | str, names: list[str]) -> str:
    """Return the name of a layer that is given by number or name."""
    if isinstance(layer, int):
        require(-len(names) <= layer < len(names), f"layers: no layer {layer}; the model has {len(names)}, from 0 on")
        return names[layer]
    require(layer in names, f"layers: no layer {layer!r}{nearest(str(layer), names)}")
    return layer
