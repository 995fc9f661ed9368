"""The plain rival: what one writes down from the paper, with nothing done for speed.

Algorithm 1 literally, separate projections, ``nn.Dropout``, softmax(Q K^T) in memory, a gate on a concatenation, whole
logits with ``cross_entropy``, and AdamW as torch gives it. With the same weights it computes what our model computes,
which a test holds; only so is a comparison of times fair.

Reference: "Gradient Boosting within a Single Attention Layer", Algorithm 1; Abdullaev and Nguyen, "Transformer Meets
Twicing", ICLR 2025, https://arxiv.org/abs/2503.00687.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from boosted_attention.model.config import LanguageModelConfig

Step = Callable[[Tensor, Tensor], None]  # one update on ids and targets, each (B, T)

ROUNDS = {"standard": 1, "twicing": 1, "boosted": 2}


class PlainHeads(nn.Module):
    """Multi-head attention without output projection, (B, T, D) -> (B, T, D); with ``twicing`` (2A - A^2) V."""

    def __init__(self, config: LanguageModelConfig, twicing: bool):
        super().__init__()
        self.n_heads, self.twicing = config.n_heads, twicing
        self.q = nn.Linear(config.d_model, config.d_model)
        self.k = nn.Linear(config.d_model, config.d_model)
        self.v = nn.Linear(config.d_model, config.d_model)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (self.split(project(x)) for project in (self.q, self.k, self.v))  # (B, H, T, dh)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, T)
        weights = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
        y = self.dropout(weights) @ v  # (B, H, T, dh)
        if self.twicing:
            y = y + self.dropout(weights) @ (v - y)
        return y.transpose(1, 2).reshape(x.shape)

    def split(self, t: Tensor) -> Tensor:
        """Split into heads, (B, T, D) -> (B, H, T, dh)."""
        batch, length, d = t.shape
        return t.view(batch, length, self.n_heads, d // self.n_heads).transpose(1, 2)


class PlainAttention(nn.Module):
    """Algorithm 1: rounds of attention, each on what the estimate missed, each through its gate."""

    def __init__(self, config: LanguageModelConfig):
        super().__init__()
        n_rounds, d = ROUNDS[config.attention], config.d_model
        self.rounds = nn.ModuleList([PlainHeads(config, config.attention == "twicing") for _ in range(n_rounds)])
        self.gates = nn.ModuleList([nn.Linear(2 * d, d) for _ in range(n_rounds - 1)])
        self.out_proj = nn.Linear(d, d)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        estimate = self.rounds[0](x, mask)  # (B, T, D)
        for attend, gate in zip(self.rounds[1:], self.gates, strict=True):
            residual = x - estimate
            correction = attend(residual, mask)
            admitted = torch.sigmoid(gate(torch.cat([estimate, correction], dim=-1)))
            estimate = estimate + admitted * correction
        return self.out_proj(estimate)


class PlainBlock(nn.Module):
    """Attention and feed-forward network, each with a norm before it: (B, T, D) -> (B, T, D)."""

    def __init__(self, config: LanguageModelConfig):
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.attention = PlainAttention(config)
        self.ffn_norm = nn.LayerNorm(config.d_model)
        self.up = nn.Linear(config.d_model, config.d_ffn)
        self.down = nn.Linear(config.d_ffn, config.d_model)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, h: Tensor, mask: Tensor) -> Tensor:
        h = h + self.attention(self.attention_norm(h), mask)
        hidden = self.dropout(functional.gelu(self.up(self.ffn_norm(h))))  # (B, T, F)
        return h + self.dropout(self.down(hidden))


class PlainModel(nn.Module):
    """A decoder of plain blocks, ids (B, T) -> logits (B, T, V).

    Args:
        config: size, dropout, and attention: standard, boosted or twicing.
    """

    mask: Tensor

    def __init__(self, config: LanguageModelConfig):
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = nn.Embedding(config.max_len, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList([PlainBlock(config) for _ in range(config.n_layers)])
        self.norm = nn.LayerNorm(config.d_model)
        self.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        for weight in (self.embed.weight, self.positions.weight):
            nn.init.normal_(weight, std=0.02)
        self.head.weight = self.embed.weight
        above = torch.ones(config.max_len, config.max_len, dtype=torch.bool).triu(1)
        self.register_buffer("mask", above, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        length = ids.shape[1]
        h = self.dropout(self.embed(ids) + self.positions(torch.arange(length)))  # (B, T, D)
        for layer in self.layers:
            h = layer(h, self.mask[:length, :length])
        return self.head(self.norm(h))

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of predicting targets (B, T) from ids (B, T)."""
        return functional.cross_entropy(self(ids).flatten(0, 1), targets.flatten())


def torch_step(model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> Step:
    """Return a function of ids and targets that makes one update as a plain loop would: clipped, with torch's AdamW.

    Args:
        model: what is trained.
        loss: computes the loss of ids and targets.
    """
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(ids: Tensor, targets: Tensor) -> None:
        loss(ids, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def plain_step(config: LanguageModelConfig) -> Step:
    """Return a training step of the plain model, a function of ids and targets.

    Args:
        config: the model.
    """
    torch.manual_seed(0)
    model = PlainModel(config)
    return torch_step(model, model.loss)
