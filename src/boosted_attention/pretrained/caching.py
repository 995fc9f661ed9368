"""Keys and values of the corrections in a model's own cache.

transformers makes a cache with one layer per decoder layer. A correction's keys and values go to layers behind those,
of the same kind as the layer they correct, so that everything a cache does to its layers (crop, reorder, repeat,
reset) happens to them too. Causality makes what a round writes at a past position final, so cached decoding is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import cache_utils
from transformers.cache_utils import Cache

from boosted_attention.validation import InputError

# How to make another layer of the same kind.
CACHE_LAYERS: dict[type, Callable[[Any], Any]] = {
    cache_utils.DynamicLayer: lambda layer: cache_utils.DynamicLayer(),
    cache_utils.DynamicSlidingWindowLayer: lambda layer: cache_utils.DynamicSlidingWindowLayer(
        sliding_window=layer.sliding_window
    ),
    cache_utils.StaticLayer: lambda layer: cache_utils.StaticLayer(max_cache_len=layer.max_cache_len),
    cache_utils.StaticSlidingWindowLayer: lambda layer: cache_utils.StaticSlidingWindowLayer(
        max_cache_len=layer.max_cache_len, sliding_window=layer.max_cache_len
    ),  # it keeps the smaller of the two
}


def extend(cache: Cache, corrected: int, slot: int, n_new: int) -> None:
    """Make layer ``slot`` of the cache, if it is not there yet, of the kind of layer ``corrected``.

    That layer holds the ``n_new`` tokens of this call already; with more, it was filled without the corrections.
    """
    while len(cache.layers) <= slot:
        held: Any = cache.layers[corrected]
        if int(held.get_seq_length()) > n_new:
            raise InputError(
                "the cache was filled without the corrections of this boosted model (by the original, or with rounds "
                "switched off); begin with an empty one"
            )
        cache.layers.append(another(held))


def another(layer: Any) -> Any:
    """Make another cache layer of the same kind."""
    make = CACHE_LAYERS.get(type(layer))
    if make is None:
        raise InputError(
            f"a cache of {type(layer).__name__} cannot hold the corrections of a boosted model; use "
            f"{', '.join(kind.__name__ for kind in CACHE_LAYERS)} (cache_implementation 'dynamic' or 'static')"
        )
    made = make(layer)
    if hasattr(layer, "record_past"):
        made.record_past = layer.record_past  # assisted decoding rolls back
    return made
