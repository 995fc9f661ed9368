"""Tiny models of any causal family: the default configuration with every size made small."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

VOCABULARY = 64
# What the names of sizes look like, and how small they become; the first that fits counts.
SIZES = {
    r"vocab_size$|^vocab_size_per_layer_input$": VOCABULARY,
    r"^(hidden_size|d_model|n_embd|dim|embedding_size|word_embed_proj_dim|emb_dim|dim_model|lru_width)$": 32,
    r"^(num_hidden_layers|n_layer|n_layers|num_layers|(num_)?(de|en)coder_layers|block_count)$": 3,
    r"^(num_attention_heads|n_head|n_heads|num_heads|(de|en)coder_attention_heads|linear_num_value_heads)$": 4,
    r"^(num_key_value_heads|linear_num_key_heads|n_kv_heads|num_kv_heads)$": 2,
    r"^qk_head_dim$": 16,  # the two parts of it together
    r"^((\w+_)?head_dim|rotary_dim|dim_head|attention_head_size|d_kv)$": 8,
    r"_rank$": 16,
    r"intermediate_size|ffn_dim|ffn_hidden_size|^dim_ff$|^dff$|^n_inner$|mlp_dim|expert_dim": 48,
    r"^(max_position_embeddings|n_positions|n_ctx|max_seq_len|max_sequence_length|max_context_length)$": 64,
    r"^(num_experts|num_local_experts|n_routed_experts|moe_num_experts|num_routed_experts)$": 4,
    r"num_experts_per_tok|moe_topk|moe_k|top_k_experts|^moe_router_topk$": 2,
    r"^(n_group|topk_group|num_expert_group|mamba_n_groups|n_groups)$": 1,
    r"^(sliding_window(_size)?|window_size|attention_window_size)$": 6,
    r"^(mamba_n_heads|mamba_num_heads)$": 8,
    r"^(mamba_d_head|mamba_d_state|state_size|ssm_state_size)$": 8,
    r"^(mamba_chunk_size|chunk_size)$": 4,
    r"^mamba_d_ssm$": 64,
    r"^first_k_dense_replace$": 1,
    r"^(index_topk|index_n_heads)$": 4,
}
LISTS = ("layer_types", "layers_block_type", "mlp_layer_types")  # one entry per layer
WHERE_NONE = {
    "head_dim": 8,
    "num_key_value_heads": 2,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
}  # sizes that a default leaves open
MAMBA = {"layer_types": ["mamba", "attention", "mamba"], "num_hidden_layers": 3}
# What the sizes alone do not give.
OPTIONS: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1], "num_hidden_layers": 3},
    "granitemoehybrid": MAMBA,
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_hidden_layers": 3},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2},
    "lfm2_moe": {"layer_types": ["full_attention", "conv", "full_attention"], "num_hidden_layers": 3},
    "mamba2": {"num_heads": 8, "head_dim": 8, "expand": 2},
    "reformer": {"axial_pos_embds_dim": [16, 16], "axial_pos_shape": [8, 8], "attn_layers": ["local", "local"]},
    "zaya": {"num_experts_per_tok": 1},
    "xmod": {"default_language": "en_XX"},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
}


def small(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes among a configuration's values, made small, those of its parts too."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and name.endswith("config"):
            found[name] = small(value)
        elif value is None and name in WHERE_NONE:
            found[name] = WHERE_NONE[name]
        elif isinstance(value, int) and not isinstance(value, bool):
            size = next((size for pattern, size in SIZES.items() if re.search(pattern, name)), None)
            found |= {} if size is None else {name: size}
    kinds = {name: list(dict.fromkeys(values[name])) for name in LISTS if isinstance(values.get(name), list)}
    if any(kinds.values()):
        n = 4 if max(map(len, kinds.values())) > 1 else 3
        found |= {name: [has[i % len(has)] for i in range(n)] for name, has in kinds.items() if has}
        found["num_hidden_layers"] = n
    if "kv_lora_rank" in found and "num_key_value_heads" in found:  # latent attention expands to all heads
        found["num_key_value_heads"] = found["num_attention_heads"]
    if "pad_token_id" in values:
        found["pad_token_id"] = 0
    if values.get("is_encoder_decoder"):
        found["is_encoder_decoder"] = False
    if "is_decoder" in values:
        found["is_decoder"] = True
    return found


def tiny(family: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """Build a tiny model of a family, with weights that are large enough for attention to matter.

    Args:
        family: its model_type.
        dtype: of its weights.
    """
    kind = CONFIG_MAPPING[family]
    given = {**small(kind().to_dict()), **OPTIONS.get(family, {})}
    given = {name: value for name, value in given.items() if not isinstance(getattr(kind, name, None), property)}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(kind(**given)).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.15)
    for name in ("bos_token_id", "eos_token_id"):
        if getattr(model, "generation_config", None) is not None:
            setattr(model.generation_config, name, None)
    return model.to(dtype)  # type: ignore[arg-type]
