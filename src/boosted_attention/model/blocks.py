"""One block: attention, then a feed-forward network, each added to the stream.

    pre:   h = h + f(norm(h))        the stream stays a sum of what the layers add
    post:  h = norm(h + f(h))        every sum is normalised again

Reference: Xiong et al., "On Layer Normalization in the Transformer Architecture", ICML 2020.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from boosted_attention.attention.catalog import attention_layer
from boosted_attention.attention.dropout import Dropout
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.model.value_residual import FirstValues, ValueResidual

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


class BlockParts(nn.Module):
    """The parts of a block, of whatever it reads.

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
        self.value_residual = ValueResidual() if config.value_residual and index > 0 else None

    def attend(self, x: Tensor, first_values: FirstValues | None, **call: Any) -> Tensor:
        """Return what the attention makes of its input, (B, T, D) -> (B, T, D).

        Args:
            x: the normalised input.
            first_values: values of the first layer, which it keeps there itself; None without value residual.
            call: mask, positions and cache of the attention.
        """
        if first_values is not None:
            mix = self.value_residual
            call["change_values"] = first_values.keep if mix is None else partial(mix, first=first_values)
        return self.attention(x, is_causal=True, **call)


class Block(BlockParts):
    """A block that reads the stream and adds to it.

    Args:
        config: what the model is made of.
        index: place of the block in the model, from 0.
    """

    def forward(self, h: Tensor, *, first_values: FirstValues | None = None, **call: Any) -> Tensor:
        """Map the stream h (B, T, D) -> (B, T, D); the other arguments are those of ``attend``."""
        if self.pre:
            h = h + self.attend(self.attention_norm(h), first_values, **call)
            return h + self.ffn(self.ffn_norm(h))
        h = self.attention_norm(h + self.attend(h, first_values, **call))
        return self.ffn_norm(h + self.ffn(h))
