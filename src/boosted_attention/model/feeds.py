"""Feeds: what a model's layers read of all that earlier layers gave, where that is not simply their sum, the stream.

    stream      h = s_0 + s_1 + ... + s_l                             s_0: the embeddings; s_i: what a layer gave
    cross       h = sum_i (b_i + relu(a . norm(s_i))) * s_i           b_i in R^d from 1, a in R^d from 0
    attention   h = sum_i softmax_i(w . norm(s_i)) s_i                w in R^d from 0

A layer here is an attention or a feed-forward network: each has a feed of its own, as has what the model predicts from,
and norm divides by the root mean square. With ``cross`` queries, keys and values are fed apart, and a model starts as
that of the plain stream. ``attention`` starts as the mean of what was given, which the norm of a layer's input makes
the same as the sum but for the norm's epsilon, which counts where embeddings are small.

Reference: Heddes et al., "DeepCrossAttention", ICML 2025, https://arxiv.org/abs/2502.06785 (its residual, GRN-v3);
"Attention Residuals", 2026, https://arxiv.org/abs/2603.15031
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from boosted_attention.model.blocks import BlockParts
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.model.value_residual import FirstValues

EPS = 1e-6

Given = tuple[Tensor, ...]  # what embeddings and layers gave so far, each (B, T, D)


def answers(t: Tensor, question: Tensor) -> Tensor:
    """Return question . norm(t), (..., D) -> (...), in float32 or better.

    A matrix product would round by the number of tokens, and by where the question lies in memory.
    """
    t = t.to(torch.promote_types(t.dtype, torch.float32))
    return (functional.rms_norm(t, t.shape[-1:], eps=EPS) * question.to(t.dtype)).sum(dim=-1)


class CrossFeed(nn.Module):
    """A sum of what was given, weighed by dimension and by what it says: (B, T, D).

    Args:
        n_given: number of tensors to choose from.
        d_model: their width.
    """

    def __init__(self, n_given: int, d_model: int):
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(d_model)) for _ in range(n_given)])  # no matrix
        self.question = nn.Parameter(torch.zeros(d_model))

    def forward(self, given: Given) -> Tensor:
        h = None
        for weight, s in zip(self.weights, given, strict=True):
            # A clamp has a slope of one at zero; relu has none there, and a question of zero would stay zero.
            relevance = answers(s, self.question).clamp_min(0)  # (B, T)
            share = (weight + relevance[..., None]).to(s.dtype) * s
            h = share if h is None else h + share
        assert h is not None
        return h


class AttentionFeed(nn.Module):
    """A mean of what was given, weighed by a softmax over it: (B, T, D).

    Args:
        n_given: number of tensors to choose from.
        d_model: their width.
    """

    def __init__(self, n_given: int, d_model: int):
        super().__init__()
        self.question = nn.Parameter(torch.zeros(d_model))

    def forward(self, given: Given) -> Tensor:
        held = torch.stack(given)  # (N, B, T, D)
        weights = answers(held, self.question).softmax(dim=0)  # (N, B, T)
        return (weights.to(held.dtype)[..., None] * held).sum(dim=0)


Feed = CrossFeed | AttentionFeed
FEEDS: dict[str, type[Feed]] = {"cross": CrossFeed, "attention": AttentionFeed}


class FedBlock(BlockParts):
    """A block whose attention and feed-forward network read what their feeds make of all that was given before.

    Args:
        config: what the model is made of.
        index: place of the block in the model, from 0.
    """

    def __init__(self, config: LanguageModelConfig, index: int):
        super().__init__(config, index)
        feed, n_given = FEEDS[config.feed], 1 + 2 * index
        inputs = ("query", "key", "value") if config.feed == "cross" else ("input",)
        self.attention_feeds = nn.ModuleDict({name: feed(n_given, config.d_model) for name in inputs})
        self.ffn_feed = feed(n_given + 1, config.d_model)

    def forward(self, given: Given, *, first_values: FirstValues | None = None, **call: Any) -> Given:
        """Return what was given, with what attention and feed-forward network give behind it.

        Args:
            given: what embeddings and layers gave so far, each (B, T, D).
            first_values: as in ``attend``.
            call: as in ``attend``.
        """
        x, *key_value = (self.attention_norm(feed(given)) for feed in self.attention_feeds.values())
        if key_value:
            call["key_value_input"] = tuple(key_value)
        given = (*given, self.attend(x, first_values, **call))
        return (*given, self.ffn(self.ffn_norm(self.ffn_feed(given))))
