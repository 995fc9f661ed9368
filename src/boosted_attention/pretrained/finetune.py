"""FinetuneConfig: a pretrained model for this project's trainer.

A run keeps what was trained, not the model it started from: checkpoints hold the trained parameters alone, and loading
one needs the base again, whose weights are known by their hash.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from boosted_attention.documentation import documented
from boosted_attention.pretrained.families import widths
from boosted_attention.pretrained.finetuned import FinetunedModel
from boosted_attention.pretrained.folders import first_line, load_model, read_config, weights_hash
from boosted_attention.pretrained.light import Projection
from boosted_attention.pretrained.places import attention_modules
from boosted_attention.pretrained.stages import n_rounds_of
from boosted_attention.pretrained.trained_parts import TRAINED_PARTS, with_trained_parts
from boosted_attention.shapes import shapes_only
from boosted_attention.validation import InputError, is_count, require, require_choice

DEFAULT_LENGTH = 512  # tokens per row


@documented
@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """A pretrained model, what is added to it, and what of it is trained; the options are keyword arguments."""

    base: str
    """Folder of the model, with config.json, *.safetensors and tokenizer.json."""
    vocab_size: int = 0
    """Tokens of the tokenizer; set when the data are prepared."""
    boost: Mapping[str, Any] | None = None
    """Options of boost(); None takes the model as it is."""
    train: str = "correction"
    """Trained part: correction (the correction rounds alone, frozen ones left out), all, or lora (adapters on the
    attention)."""
    lora_rank: int = 8
    """Rank of the adapters of lora."""
    max_len: int = 0
    """Tokens per row; 0 takes 512, or as many as the model has positions."""
    weights: str = ""
    """Hash of the base's weight files; filled in by itself."""
    kind: str = field(default="pretrained", init=False)

    def __post_init__(self) -> None:
        require_choice("train", self.train, TRAINED_PARTS)
        require(is_count(self.lora_rank), f"lora_rank={self.lora_rank} must be at least 1")
        require(self.max_len >= 0, f"max_len={self.max_len} must not be negative")
        found = weights_hash(Path(self.base))
        require(
            self.weights in ("", found),
            f"{self.base} holds other weights now ({found[:12]}) than when the run began ({self.weights[:12]})",
        )
        object.__setattr__(self, "weights", found)
        longest = getattr(self.hf_config, "max_position_embeddings", None)
        if self.max_len == 0:
            object.__setattr__(self, "max_len", min(DEFAULT_LENGTH, longest or DEFAULT_LENGTH))
        require(
            longest is None or self.max_len <= longest,
            f"max_len={self.max_len} is more than the {longest} positions of {self.base}",
        )

    @property
    def attention(self) -> str:
        """Name of what is trained, for display."""
        boosted = self.boost is not None or getattr(self.hf_config, "boosting", None)
        return {"correction": "boosted", "lora": "lora"}.get(self.train, "boosted, all" if boosted else "full")

    @cached_property
    def hf_config(self) -> Any:
        """transformers' configuration of the base."""
        return read_config(Path(self.base))

    def build(self) -> FinetunedModel:
        """Load the base and add what is trained; half precision is left to autocast."""
        return self._finetuned(load_model(self.base, dtype=torch.float32))

    def on_meta(self) -> FinetunedModel:
        """Return the model without its weights: the same modules and shapes, nothing allocated."""
        return self._meta

    @cached_property
    def _meta(self) -> FinetunedModel:
        with shapes_only():
            return self._finetuned(empty_model(self.hf_config, self.base))

    def _finetuned(self, base: PreTrainedModel) -> FinetunedModel:
        model = with_trained_parts(
            base, boost_options=self.boost, train=self.train, lora_rank=self.lora_rank, name=self.base
        )
        return FinetunedModel(model, self)

    def num_params(self, *, trained: bool = False) -> int:
        """Count all parameters, or the trained ones."""
        return sum(p.numel() for p in self._meta.parameters() if p.requires_grad or not trained)

    def flops(self, n_keys: int | None = None) -> int:
        """Count a token's forward FLOPs: matrices, and scores and sums over ``n_keys`` keys (default max_len)."""
        keys = self.max_len if n_keys is None else n_keys
        modules: list[Any] = list(self._meta.modules())
        matrices = [m.weight.numel() for m in modules if is_matrix(m)]
        matrices += [math.prod(widths(m.linear)) for m in modules if isinstance(m, Projection) and m.reads]
        config = self.hf_config.get_text_config()
        heads = config.num_attention_heads
        width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
        maps = sum(n_rounds_of(module) for module in attention_modules(self._meta.model))
        return 2 * sum(matrices) + maps * 4 * width * keys

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "boost": None if self.boost is None else dict(self.boost)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FinetuneConfig:
        """Build a configuration from what ``to_dict`` returned."""
        return cls(**{key: value for key, value in values.items() if key != "kind"})


def is_matrix(module: nn.Module) -> bool:
    """Say whether a layer multiplies by a matrix; embeddings look theirs up."""
    return not isinstance(module, nn.Embedding) and getattr(getattr(module, "weight", None), "ndim", 0) == 2


def empty_model(hf_config: Any, name: str) -> PreTrainedModel:
    """Make a model from its configuration, with whatever weights torch gives it on the current device."""
    try:
        return AutoModelForCausalLM.from_config(hf_config)
    except Exception as error:
        raise InputError(f"{name} is not a causal language model: {first_line(error)}") from None


def lora_rank_for(parameters: int, base: str) -> int:
    """Return the rank whose adapters have about as many parameters.

    Args:
        parameters: number of parameters to match.
        base: folder of the model.
    """
    one = FinetuneConfig(base=base, train="lora", lora_rank=1).num_params(trained=True)
    return max(1, round(parameters / one))
