"""One block: attention, then a feed-forward network, each added to the stream.

    pre:   h = h + f(norm(h))        the stream stays a sum of what the layers add
    post:  h = norm(h + f(h))        every sum is normalised again

Reference: Xiong et al., "On Layer Normalization in the Transformer Architecture", ICML 2020.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from boosted_attention.attention.catalog import attention_layer
from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.model.config import LanguageModelConfig

NORM_CLASSES = {"layernorm": nn.LayerNorm, "rmsnorm": nn.RMSNorm}


class FeedForward(nn.Module):
    """down(gelu(up(x))), with dropout after either."""

    def __init__(self, d_model: int, d_hidden: int, dropout: float):
        super().__init__()
        self.up = nn.Linear(d_model, d_hidden)
        self.down = nn.Linear(d_hidden, d_model)
        self.gelu = nn.GELU()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.down(self.dropout(self.gelu(self.up(x)))))


class Block(nn.Module):
    def __init__(self, config: LanguageModelConfig, index: int):
        super().__init__()
        norm = NORM_CLASSES[config.norm_kind]
        self.pre = config.norm == "pre"
        self.attention = make_attention(config, index)
        self.attention_norm = norm(config.d_model)
        self.ffn = FeedForward(config.d_model, config.d_ffn, config.dropout)
        self.ffn_norm = norm(config.d_model)

    def forward(self, h: Tensor, **call: Any) -> Tensor:
        """(B, T, D) -> (B, T, D); ``call`` are the attention's mask, positions and cache."""
        if self.pre:
            h = h + self.attention(self.attention_norm(h), is_causal=True, **call)
            return h + self.ffn(self.ffn_norm(h))
        h = self.attention_norm(h + self.attention(h, is_causal=True, **call))
        return self.ffn_norm(h + self.ffn(h))


def make_attention(config: LanguageModelConfig, index: int) -> AttentionLayer:
    """The attention of layer ``index``: the config's, or the standard one."""
    arguments: dict[str, Any] = {"name": "standard"}
    if config.n_kv_heads is not None:
        arguments["n_kv_heads"] = config.n_kv_heads
    if config.positions == "rotary":
        arguments["rope_theta"] = config.rope_theta
    if index in config.attention_layers():
        arguments.update({"name": config.attention, **config.attention_options})
    fixed = {"d_model": config.d_model, "n_heads": config.n_heads, "layer_index": index, "dropout": config.dropout}
    return attention_layer(**arguments, **fixed)
