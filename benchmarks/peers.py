"""Models of other libraries, of the size of our standard one: transformers' GPT-2 and x-transformers' decoder."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.plain import Step, torch_step
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.validation import require

GPT2 = {"GPT-2, eager": "eager", "GPT-2, sdpa": "sdpa"}
X_TRANSFORMERS = "x-transformers"
PEERS = (*GPT2, X_TRANSFORMERS)


def require_peers() -> None:
    """Raise InputError unless the other libraries are installed."""
    for module, name in (("transformers", "transformers"), ("x_transformers", "x-transformers")):
        require(find_spec(module) is not None, f"{name} is not installed; pip install -e '.[bench]' brings it")


def gpt2(config: LanguageModelConfig, kernel: str) -> nn.Module:
    """Build transformers' GPT-2 with tied weights and torch's GELU: its own is made of seven operations and slower.

    Args:
        config: size and dropout.
        kernel: "eager" or "sdpa".
    """
    from transformers import AutoModelForCausalLM, GPT2Config
    from transformers.utils import logging

    logging.set_verbosity_error()
    own = GPT2Config(
        vocab_size=config.vocab_size,
        n_positions=config.max_len,
        n_embd=config.d_model,
        n_layer=config.n_layers,
        n_head=config.n_heads,
        n_inner=config.d_ffn,
        activation_function="gelu",
        resid_pdrop=config.dropout,
        embd_pdrop=config.dropout,
        attn_pdrop=config.dropout,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    return AutoModelForCausalLM.from_config(own, attn_implementation=kernel)


def x_transformers(config: LanguageModelConfig) -> nn.Module:
    """Build x-transformers' decoder with its fused attention and tied weights.

    Args:
        config: size and dropout.
    """
    from x_transformers import Decoder, TransformerWrapper  # pyright: ignore[reportMissingImports]  # an extra

    return TransformerWrapper(
        num_tokens=config.vocab_size,
        max_seq_len=config.max_len,
        emb_dropout=config.dropout,
        tie_embedding=True,
        attn_layers=Decoder(
            dim=config.d_model,
            depth=config.n_layers,
            heads=config.n_heads,
            attn_dim_head=config.d_model // config.n_heads,
            ff_mult=config.d_ffn / config.d_model,
            attn_dropout=config.dropout,
            ff_dropout=config.dropout,
            attn_flash=True,
        ),
    )


def peer_step(name: str, config: LanguageModelConfig) -> Step:
    """Return a training step of a peer, with the loss that a user of its library would write.

    Args:
        name: one of PEERS.
        config: size and dropout.
    """
    torch.manual_seed(0)
    if name in GPT2:
        model: Any = gpt2(config, GPT2[name])
        return torch_step(model, lambda ids, targets: model(ids, labels=ids).loss)  # it shifts ids itself
    model = x_transformers(config)
    return torch_step(model, lambda ids, targets: functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten()))
