"""LanguageModel: a decoder whose attention is any layer of the catalog."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from boosted_attention.attention.cache import KVCache
from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.learners import SoftmaxLearner
from boosted_attention.attention.masks import padding_mask
from boosted_attention.model.blocks import NORM_CLASSES, Block, FeedForward
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.model.loss import chunked_loss, token_losses
from boosted_attention.validation import require, require_choice

INIT_STD = 0.02


class LanguageModel(nn.Module):
    """Token and position embedding, blocks, a final norm, and the vocabulary projection.

    model = LanguageModelConfig(attention="boosted").build()
    logits = model(ids)                     # (B, T) -> (B, T, V)
    loss = model.loss(ids, targets)         # the mean, without ever holding the logits
    longer = model.generate(ids, 50)        # (B, T) -> (B, T + 50)
    """

    def __init__(self, config: LanguageModelConfig):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = nn.Embedding(config.max_len, config.d_model) if config.positions == "learned" else None
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList([Block(config, i) for i in range(config.n_layers)])
        self.norm = NORM_CLASSES[config.norm_kind](config.d_model)
        self.head = None if config.tie_weights else nn.Linear(config.d_model, config.vocab_size, bias=False)
        if not self.embed.weight.is_meta:
            self.apply(self._init)

    def _init(self, module: nn.Module) -> None:
        """N(0, 0.02) for every matrix and zero biases; what a learner draws itself stays as it is."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=INIT_STD)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if self.config.init == "scaled":
            into_stream = module.down if isinstance(module, FeedForward) else None
            if isinstance(module, AttentionLayer | SoftmaxLearner):
                into_stream = module.out
            if into_stream is not None:  # children come before their parents, so this has the last word
                nn.init.normal_(into_stream.weight, std=INIT_STD / math.sqrt(2 * self.config.n_layers))

    @property
    def projection(self) -> Tensor:
        """The vocabulary projection (V, D)."""
        return self.embed.weight if self.head is None else self.head.weight

    def blocks(self) -> Iterator[nn.Module]:
        """The repeated parts, as parallel training divides the model."""
        yield from self.layers

    def embedding_parameters(self) -> Iterator[Tensor]:
        yield self.embed.weight
        if self.positions is not None:
            yield self.positions.weight

    def hidden(self, ids: Tensor, mask: Tensor | None = None, cache: KVCache | None = None) -> Tensor:
        """What the vocabulary projection sees, (B, T) -> (B, T, D). See ``forward``."""
        past = 0 if cache is None else cache.length
        positions = self._check(ids, mask, past)
        h = self._embed(ids)  # (B, T, D)
        call: dict[str, Any] = {"cache": cache, "mask": None if mask is None else padding_mask(mask)}
        if self.positions is not None:
            h = h + self.positions(positions)
        else:
            call["positions"] = positions
        h = self.dropout(h)
        for layer in self.layers:
            h = layer(h, **call)
        return self.norm(h)

    def _embed(self, ids: Tensor) -> Tensor:
        try:
            return self.embed(ids)
        except IndexError:
            require_tokens(ids, self.config.vocab_size)
            raise

    def _check(self, ids: Tensor, mask: Tensor | None, past: int) -> Tensor:
        """Validate; the positions of ids, (T,) or (B, T)."""
        if ids.ndim != 2 or ids.is_floating_point() or ids.shape[1] < 1:
            raise ValueError(
                f"ids has shape {tuple(ids.shape)} and dtype {ids.dtype}; expected integers (batch, length)"
            )
        total = past + ids.shape[1]
        if total > self.config.max_len:
            raise ValueError(f"ids reach position {total}, the model takes max_len={self.config.max_len}")
        if mask is None:
            return torch.arange(past, total, device=ids.device)
        if mask.shape != (ids.shape[0], total):
            raise ValueError(
                f"mask has shape {tuple(mask.shape)}; expected {(ids.shape[0], total)}: one entry per token so far, "
                "1 for real tokens"
            )
        counted = mask.long().cumsum(dim=1) - 1  # from the first real token
        return counted.clamp_min(0)[:, past:]

    def forward(self, ids: Tensor, mask: Tensor | None = None, *, cache: KVCache | None = None) -> Tensor:
        """Logits (B, T, V).

        Args:
            ids: (B, T) token ids.
            mask: a tokenizer's attention mask, 1 = real token, over all tokens so far (with a cache: past ones too).
                Positions count from the first real token, so left padding changes nothing for the real ones.
            cache: a KVCache, extended by this call.
        """
        return functional.linear(self.hidden(ids, mask, cache), self.projection)

    def loss(self, ids: Tensor, targets: Tensor, attention_mask: Tensor | None = None, *, reduction: str = "mean") -> Tensor:
        """Cross-entropy of targets (B, T), -100 = ignored: "mean" over the rest, "sum", or "none" (no gradients)."""
        require_choice("reduction", reduction, ("mean", "sum", "none"))
        if targets.shape != ids.shape:
            raise ValueError(f"targets has shape {tuple(targets.shape)}, ids {tuple(ids.shape)}; expected the same")
        hidden = self.hidden(ids, attention_mask)
        if reduction == "none":
            return token_losses(hidden, self.projection, targets)
        return chunked_loss(hidden, self.projection, targets, reduction)

    def generate(
        self,
        ids: Tensor,
        max_new_tokens: int,
        *,
        mask: Tensor | None = None,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop: int | None = None,
        use_cache: bool = True,
        stream: Callable[[Tensor], None] | None = None,
    ) -> Tensor:
        """Continue ids (B, T) by up to ``max_new_tokens`` tokens; the whole sequences, (B, T + n).

        Past ``max_len`` the oldest half of the context is dropped, with and without cache alike.

        Args:
            mask: attention mask of left-padded prompts, 1 = real token. ``max_len`` counts columns, padding included.
            temperature: 0 takes the likeliest token, 1 samples from the model, in between sharpens.
            top_k: sample among the k likeliest only.
            top_p: sample among the likeliest that together have this probability.
            seed: of the sampling; the same seed gives the same text.
            stop: a token that ends a sequence; the rest of its row repeats it.
            use_cache: False recomputes everything at each step.
            stream: called with each step's tokens (B,).
        """
        from boosted_attention.model.generation import Sampling, generate

        sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        return generate(self, ids, max_new_tokens, mask, sampling, stop, use_cache, stream)

    @classmethod
    def from_original(
        cls,
        path_or_state_dict: str | os.PathLike[str] | Mapping[str, Any],
        *,
        n_heads: int = 4,
        attention: str | None = None,
        norm: str = "pre",
    ) -> LanguageModel:
        """Import weights of the paper's own code; see ``model/original.py``.

        Args:
            path_or_state_dict: the checkpoint file, or a state dict.
            n_heads: of the model; not in the file.
            attention: catalog name; inferred by default ("standard" or "boosted"), so "twicing" must be told.
            norm: "pre", or "post" for the runs of the normalization ablation.
        """
        from boosted_attention.model.original import import_original

        return import_original(path_or_state_dict, n_heads=n_heads, attention=attention, norm=norm)


def require_tokens(ids: Tensor, vocab_size: int) -> None:
    require(ids.numel() > 0, "ids is empty; give at least one token")
    low, high = int(ids.min()), int(ids.max())
    require(
        low >= 0 and high < vocab_size,
        f"token id {low if low < 0 else high} is outside the vocabulary of {vocab_size} tokens",
    )
