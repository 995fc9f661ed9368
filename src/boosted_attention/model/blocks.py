"""One block: attention, then a feed-forward network, each added to the stream.

    pre:   h = h + f(norm(h))        the stream stays a sum of what the layers add
    post:  h = norm(h + f(h))        every sum is normalised again

Reference: Xiong et al., "On Layer Normalization in the Transformer Architecture", ICML 2020.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from boosted_attention.attention.catalog import attention_layer
from boosted_attention.attention.dropout import Dropout
from boosted_attention.model.config import LanguageModelConfig

NORM_CLASSES = {"layernorm": nn.LayerNorm, "rmsnorm": nn.RMSNorm}


class FeedForward(nn.Module):
    """Feed-forward network, down(gelu(up(x))), with dropout behind both linear maps: (B, T, D) -> (B, T, D)."""

    def __init__(self, d_model: int, d_hidden: int, dropout: float):
        super().__init__()
        self.up = nn.Linear(d_model, d_hidden)
        self.down = nn.Linear(d_hidden, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.gelu(self.up(x))
        if not self.training:
            return self.down(hidden)
        return self.dropout(self.down(self.dropout(hidden)))


class Block(nn.Module):
    """One block of the decoder.

    Args:
        config: what the model is made of.
        index: place of the block in the model, from 0.
    """

    def __init__(self, config: LanguageModelConfig, index: int):
        super().__init__()
        norm = NORM_CLASSES[config.norm_kind]
        self.pre = config.norm == "pre"
        self.attention = attention_layer(**config.layer_arguments(index))
        self.attention_norm = norm(config.d_model)
        self.ffn = FeedForward(config.d_model, config.d_ffn, config.dropout)
        self.ffn_norm = norm(config.d_model)

    def forward(self, h: Tensor, **call: Any) -> Tensor:
        """Map the stream (B, T, D) -> (B, T, D); ``call`` are the attention's mask, positions and cache."""
        if self.pre:
            h = h + self.attention(self.attention_norm(h), is_causal=True, **call)
            return h + self.ffn(self.ffn_norm(h))
        h = self.attention_norm(h + self.attention(h, is_causal=True, **call))
        return self.ffn_norm(h + self.ffn(h))
