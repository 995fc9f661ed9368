"""Keys and values of the corrections in a model's own cache.

Corrections that share round 0's keys and values write nothing: ``SharedKV`` hands them what round 0 was given, and
``SharedPages`` does so in continuous batching, where the kernel and not the module asks for it. For the others,
transformers makes a cache with one layer per decoder layer. A correction's keys and values go to layers behind those,
of the same kind as the layer they correct, so that everything a cache does to its layers (crop, reorder, repeat, reset)
happens to them too. Causality makes what a round writes at a past position final, so cached decoding is exact.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import cache_utils
from transformers.cache_utils import Cache
from transformers.generation.continuous_batching import PagedAttentionCache

from boosted_attention.validation import InputError

CACHE_ARGUMENTS = ("past_key_values", "layer_past", "past_key_value")
PAGES = "cache"  # argument by which continuous batching hands its pages to the kernel

# How to make another layer of the same kind, for keys and values alone.
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
# Layers that hold the state of a recurrence too, in versions of transformers that have them: they are of these kinds.
HYBRID_LAYERS = {
    "LinearAttentionAndFullAttentionLayer": cache_utils.DynamicLayer,
    "LinearAttentionAndSlidingWindowAttentionLayer": cache_utils.DynamicSlidingWindowLayer,
    "LinearAttentionAndStaticFullAttentionLayer": cache_utils.StaticLayer,
    "LinearAttentionAndStaticSlidingWindowAttentionLayer": cache_utils.StaticSlidingWindowLayer,
}
CACHE_LAYERS |= {
    getattr(cache_utils, name): CACHE_LAYERS[kind] for name, kind in HYBRID_LAYERS.items() if hasattr(cache_utils, name)
}


class SharedKV(Cache):
    """A model's cache while one layer runs its rounds: round 0 writes to it, and corrections read what round 0 got.

    Args:
        cache: the model's own cache; None where it has none.
        layer_idx: the layer whose keys and values are shared; those of others pass through.
    """

    def __init__(self, cache: Cache | None, layer_idx: int):
        self.cache, self.layer_idx = cache, layer_idx
        self.layers = [] if cache is None else cache.layers
        self.held: tuple[Tensor, Tensor] | None = None  # (B, H_kv, S, dh) each, once round 0 has run

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        if layer_idx == self.layer_idx and self.held is not None:
            return self.held
        held = (key_states, value_states)
        if self.cache is not None:
            held = self.cache.update(key_states, value_states, layer_idx, *args, **kwargs)
        if layer_idx == self.layer_idx:
            self.held = held
        return held

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["cache"], name)


class SharedPages(PagedAttentionCache):
    """The pages of continuous batching while one layer runs its rounds: round 0 writes, and all read what it got.

    A second writing would not do: a layer with a sliding window overwrites what the window still shows.

    Args:
        pages: the pages of all layers.
    """

    def __init__(self, pages: PagedAttentionCache):
        self.pages = pages
        self.held: tuple[tuple[Tensor, Tensor], dict[str, Any]] | None = None  # keys and values, and told arguments

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, kwargs: dict[str, Any]) -> Any:
        """Return all keys and values of the layer, and put what the kernel needs to know into ``kwargs``."""
        if self.held is None or kwargs.get("block_table") is not None:  # with a table, the kernel itself reads pages
            before = dict(kwargs)
            made: Any = self.pages.update(key_states, value_states, layer_idx, kwargs)  # type: ignore[attr-defined]
            self.held = made, {name: value for name, value in kwargs.items() if value is not before.get(name)}
        made, told = self.held
        kwargs.update(told)
        return made


def with_cache(
    new: Cache, old: Cache | None, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with ``new`` in the place of its cache.

    Args:
        new: the cache to pass.
        old: the cache that was passed; None if there was none.
        name: what the called module calls its cache.
        args: arguments by place.
        kwargs: arguments by name.
    """
    if old is None:
        return args, {**kwargs, name: new}
    changed = {key: new if value is old else value for key, value in kwargs.items()}
    return tuple(new if value is old else value for value in args), changed


def cache_argument(kind: type) -> str:
    """Return what the forward pass of a class of attention modules calls its cache."""
    names = inspect.signature(kind.forward).parameters
    return next((name for name in CACHE_ARGUMENTS if name in names), CACHE_ARGUMENTS[0])


def extend(cache: Cache, corrected: int, slot: int, n_new: int) -> None:
    """Make layer ``slot`` of the cache, if it is not there yet, of the kind of layer ``corrected``.

    That layer holds the ``n_new`` tokens of this call already, and layer ``slot`` must hold all tokens before them.
    """
    layers: Any = cache.layers
    if len(layers) <= slot and torch.compiler.is_exporting():
        raise InputError(
            "an exported program's cache has layers for the model's own attention alone; boost with kv='shared', "
            "whose corrections need none, or export without a cache"
        )
    missing = range(len(layers), slot + 1)
    layers += [another(layers[corrected]) for _ in missing]
    if missing or not torch.compiler.is_compiling():
        held, before = length_of(layers[corrected]), length_of(layers[slot])
        if held is not None and before is not None and held != before + n_new:
            raise InputError(
                "the cache was filled without the corrections of this boosted model (by the original, or with rounds "
                "switched off); begin with an empty one"
            )


def length_of(layer: Any) -> int | None:
    """Return how many tokens a cache layer holds; None where only a device that would have to be waited for knows."""
    length = layer.get_seq_length()
    return None if isinstance(length, Tensor) and length.device.type != "cpu" else int(length)


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
