"""Tiny random models of every family that boost must know."""

import torch
import transformers
from torch import nn

from boosted_attention.pretrained.families import find_projections
from boosted_attention.pretrained.layer import corrected_layers

SIZE = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
SIZE |= {"max_position_embeddings": 64}
WIDE = {**SIZE, "intermediate_size": 48}
GROUPED = {**WIDE, "num_key_value_heads": 2}
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}

# family: (config class, model class, options)
FAMILIES = {
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {
            "vocab_size": 64,
            "n_embd": 32,
            "n_layer": 3,
            "n_head": 4,
            "n_positions": 64,
            "scale_attn_by_inverse_layer_idx": True,
            "attn_pdrop": 0.0,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
        },
    ),
    "llama": ("LlamaConfig", "LlamaForCausalLM", GROUPED),
    "mistral": ("MistralConfig", "MistralForCausalLM", {**GROUPED, "sliding_window": 6}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", GROUPED),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {**GROUPED, "head_dim": 16}),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", {**WIDE, "num_key_value_heads": 1, "head_dim": 16}),
    "opt": ("OPTConfig", "OPTForCausalLM", {**SIZE, "ffn_dim": 48, "word_embed_proj_dim": 32, "dropout": 0.0}),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", WIDE),
    "phi": ("PhiConfig", "PhiForCausalLM", WIDE),
    "smollm3": ("SmolLM3Config", "SmolLM3ForCausalLM", {**GROUPED, "no_rope_layer_interval": 2}),
}


def tiny(family: str, *, dtype=torch.float32, kernel: str = "sdpa", **more) -> transformers.PreTrainedModel:
    """A model with weights large enough for attention to differ from place to place, biases included."""
    config, model, options = FAMILIES[family]
    torch.manual_seed(0)
    made = getattr(transformers, config)(**{**options, **NO_TOKENS, **more})
    made._attn_implementation = kernel
    built = getattr(transformers, model)(made).eval()
    with torch.no_grad():
        for name, p in built.named_parameters():
            scale = p.ndim == 1 and name.endswith("weight")  # of a norm
            nn.init.normal_(p, mean=float(scale), std=0.2)
    built.generation_config.eos_token_id = None
    return built.to(dtype)


def disturb(model: nn.Module, std: float = 0.2) -> None:
    """As if the corrections had been trained."""
    from boosted_attention.pretrained.correction import is_correction

    torch.manual_seed(1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if is_correction(name):
                p.add_(std * torch.randn_like(p))


def tokens(rows: int = 2, length: int = 12) -> torch.Tensor:
    return torch.randint(2, 60, (rows, length), generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def is_silent(model: nn.Module) -> bool:
    """Whether no correction has been trained yet."""
    corrections = [m for attention in corrected_layers(model).values() for m in attention.corrections]
    return not any(bool(t.any()) for m in corrections for t in find_projections(m).values)
