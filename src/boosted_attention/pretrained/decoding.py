"""Cached decoding of a model of transformers, token by token, for whoever times or counts it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Decoder:
    """A model in the middle of decoding, the likeliest token each time; a call goes on by some tokens.

    Args:
        model: a causal language model of transformers, or peft's around one.
        ids: the prompt (1, T).
    """

    def __init__(self, model: Any, ids: Tensor):
        from transformers import DynamicCache

        self.model, self.cache, self.last = model, DynamicCache(config=model.config), ids
        self(1)

    @torch.no_grad()
    def __call__(self, tokens: int) -> None:
        for _ in range(tokens):
            logits = self.model(self.last, past_key_values=self.cache, use_cache=True, logits_to_keep=1).logits
            self.last = logits.argmax(dim=-1)  # (1, 1)

    def cache_bytes(self) -> int:
        """Return the bytes that the cache holds of one token."""
        layers: Any = self.cache.layers
        held = [t for layer in layers for t in (layer.keys, layer.values)]  # (1, H_kv, S, dh) each
        return sum(t.numel() * t.element_size() // t.shape[-2] for t in held)
