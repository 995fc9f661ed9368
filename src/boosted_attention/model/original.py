"""Checkpoints of the paper's own code, with its names translated to ours.

    embed.weight  pos_embed.weight  ln_f.*  head.weight (tied)
    layers.{i}.attn.W_qkv | .W_qkvs.{m}  .W_out  .gates.{m-1}.0        layers.{i}.n1 | .n2 | .ffn.0 | .ffn.3

The file is a dict with ``model_state_dict``; it is read with ``weights_only=True``, which runs no code from it.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from boosted_attention.attention.catalog import find_entry
from boosted_attention.attention.layer import BoostedAttention
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.model.language_model import LanguageModel
from boosted_attention.validation import InputError, require

RENAMED = [
    (r"pos_embed\.weight", r"positions.weight"),
    (r"ln_f\.(\w+)", r"norm.\1"),
    (r"layers\.(\d+)\.attn\.W_qkv\.(\w+)", r"layers.\1.attention.rounds.0.qkv.\2"),
    (r"layers\.(\d+)\.attn\.W_qkvs\.(\d+)\.(\w+)", r"layers.\1.attention.rounds.\2.qkv.\3"),
    (r"layers\.(\d+)\.attn\.W_out\.(\w+)", r"layers.\1.attention.out_proj.\2"),
    (r"layers\.(\d+)\.attn\.gates\.(\d+)\.0\.(\w+)", r"layers.\1.attention.gates.\2.proj.\3"),
    (r"layers\.(\d+)\.n1\.(\w+)", r"layers.\1.attention_norm.\2"),
    (r"layers\.(\d+)\.n2\.(\w+)", r"layers.\1.ffn_norm.\2"),
    (r"layers\.(\d+)\.ffn\.0\.(\w+)", r"layers.\1.ffn.up.\2"),
    (r"layers\.(\d+)\.ffn\.3\.(\w+)", r"layers.\1.ffn.down.\2"),
]


def load_original(
    source: str | os.PathLike[str] | Mapping[str, Any],
    *,
    n_heads: int = 4,
    attention: str | None = None,
    norm: str = "pre",
) -> LanguageModel:
    """Load a model of the paper's own code, https://github.com/salehsargolzaee/boosted-attention.

    Args:
        source: the checkpoint file, or a state dict.
        n_heads: attention heads of the model, which the file does not tell.
        attention: catalog name; "standard" or "boosted" is inferred by default, so "twicing" must be given.
        norm: "pre", or "post" for the runs of the normalization ablation.
    """
    state: Any = dict(source) if isinstance(source, Mapping) else read(Path(source))
    state = state.get("model_state_dict", state) if isinstance(state, Mapping) else state
    whole = isinstance(state, Mapping) and all(isinstance(t, Tensor) for t in state.values())
    require(whole, "the checkpoint is not a dict of tensors: it is not one of the original model's")
    state = {name.removeprefix("module.").removeprefix("_orig_mod."): t for name, t in state.items()}
    for name in ("embed.weight", "pos_embed.weight", "ln_f.weight", "layers.0.ffn.0.weight"):
        require(name in state, f"state dict has no {name!r}: it is not one of the original model's")
    head = state.pop("head.weight", state["embed.weight"])
    require(
        torch.equal(head, state["embed.weight"]), "head.weight differs from embed.weight; the original ties the two"
    )
    state = {name: t for name, t in state.items() if not is_buffer(name)}
    config = infer_config(state, n_heads, attention, norm)
    model = config.build()
    renamed = {rename(name): t for name, t in state.items()}
    missing, unexpected = model.load_state_dict(renamed, strict=False)
    require(
        not missing and not unexpected,
        f"the weights do not fit {config.attention!r} attention: missing {missing[:3]}, unexpected {unexpected[:3]}",
    )
    return model.eval()


def read(path: Path) -> Any:
    """Read a checkpoint file without running code from it."""
    require(path.is_file(), f"{path} is not a file; give the original code's checkpoint")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, AttributeError) as error:
        raise InputError(
            f"{path} holds more than weights, or is damaged: {(str(error).splitlines() or ['?'])[0]}"
        ) from None


def infer_config(state: Mapping[str, Tensor], n_heads: int, attention: str | None, norm: str) -> LanguageModelConfig:
    """Return the configuration that the shapes of the weights imply."""
    vocab_size, d_model = state["embed.weight"].shape
    n_layers = 1 + max(int(match[1]) for name in state if (match := re.match(r"layers\.(\d+)\.", name)))
    rounds = {int(match[1]) for name in state if (match := re.search(r"\.W_qkvs\.(\d+)\.", name))}
    kind = attention or ("boosted" if rounds else "standard")
    require(
        not rounds or issubclass(find_entry(kind).layer_class(), BoostedAttention),
        f"the weights do not fit {kind!r} attention: they are those of {len(rounds)} rounds",
    )
    return LanguageModelConfig(
        vocab_size=vocab_size,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        max_len=state["pos_embed.weight"].shape[0],
        attention=kind,
        attention_options={"n_rounds": len(rounds)} if rounds else {},
        norm=norm,
        ffn_multiple=state["layers.0.ffn.0.weight"].shape[0] / d_model,
    )


def is_buffer(name: str) -> bool:
    """Return whether the name is that of a causal mask, which some code keeps in its state."""
    return name.rpartition(".")[2] in ("mask", "causal_mask", "tril")


def rename(name: str) -> str:
    """Translate the name of a weight."""
    for pattern, ours in RENAMED:
        if re.fullmatch(pattern, name):
            return re.sub(pattern, ours, name)
    return name
