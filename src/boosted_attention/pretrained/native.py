"""Our own language models as models of transformers, with ``generate`` and the Auto classes.

    to_transformers(model).save_pretrained(folder);   AutoModelForCausalLM.from_pretrained(folder)

The weights keep their names behind ``model.``; ``from_transformers`` takes the model out again. Keys and values of
every round live in transformers' own cache: round m of layer i in its layer m * n + i, where n counts layers as often
as they are repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer
from transformers.modeling_outputs import CausalLMOutputWithPast

from boosted_attention.attention.cache import KVCache, LayerCache, Slot
from boosted_attention.data.tokenizer import END_OF_TEXT, Tokenizer
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.model.language_model import LanguageModel
from boosted_attention.model.loss import IGNORED
from boosted_attention.pretrained.folders import load_model
from boosted_attention.validation import require


class BoostedAttentionConfig(PreTrainedConfig):
    """``model`` holds the options of ``LanguageModelConfig``; the rest is what transformers asks of a config."""

    model_type = "boosted-attention"

    def __init__(self, model: Mapping[str, Any] | None = None, **kwargs: Any):
        self.model = LanguageModelConfig.from_dict(dict(model or {})).to_dict()
        options = LanguageModelConfig.from_dict(self.model)
        self.vocab_size, self.hidden_size = options.vocab_size, options.d_model
        self.num_hidden_layers, self.num_attention_heads = options.applications, options.n_heads
        self.max_position_embeddings = options.max_len
        kwargs["tie_word_embeddings"] = options.tie_weights
        super().__init__(**kwargs)


class BoostedAttentionForCausalLM(PreTrainedModel, GenerationMixin):
    """A ``LanguageModel`` behind the interface of transformers."""

    config_class = BoostedAttentionConfig
    base_model_prefix = "model"
    _supports_cache_class = True
    accepts_loss_kwargs = False  # the loss is a mean over this batch; a trainer has to weigh batches itself

    def __init__(self, config: BoostedAttentionConfig):
        super().__init__(config)
        self.model = LanguageModel(LanguageModelConfig.from_dict(config.model))
        self.post_init()

    def _init_weights(self, module: Any) -> None:
        """Do nothing: the model draws its own weights."""

    def get_input_embeddings(self) -> Any:
        return self.model.embed

    def get_output_embeddings(self) -> Any:
        return self.model.embed if self.model.head is None else self.model.head

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        return_dict: bool | None = None,
        **ignored: Any,
    ) -> CausalLMOutputWithPast:
        """Return logits, and with ``labels`` the loss of predicting each from the tokens before it."""
        wants_cache = use_cache if use_cache is not None else past_key_values is not None
        if wants_cache and past_key_values is None:
            past_key_values = DynamicCache()
        ours = None
        if past_key_values is not None and wants_cache:
            ours = TransformersCache(past_key_values, self.config.num_hidden_layers)
        hidden = self.model.hidden(input_ids, attention_mask, ours)
        kept = hidden[:, -logits_to_keep:] if logits_to_keep else hidden
        logits: Any = torch.nn.functional.linear(kept, self.model.projection)
        loss: Any = None
        if labels is not None:
            loss = torch.nn.functional.cross_entropy(
                logits[:, :-1].float().transpose(1, 2), labels[:, 1:], ignore_index=IGNORED
            )
        return CausalLMOutputWithPast(
            loss=loss, logits=logits, past_key_values=past_key_values if wants_cache else None
        )


class TransformersCache(KVCache):
    """A cache of transformers, seen as ours."""

    def __init__(self, cache: Cache, n_layers: int):
        super().__init__()
        other = next((type(layer).__name__ for layer in cache.layers if type(layer) is not DynamicLayer), None)
        require(
            other is None,
            f"a cache of {other} cannot hold the rounds of this model; use a DynamicCache of DynamicLayer",
        )
        self.cache, self.n_layers = cache, n_layers
        self.before = int(cache.get_seq_length())

    def layer(self, index: int) -> LayerCache:
        if index not in self._layers:
            self._layers[index] = TransformersLayer(self, index)
        return self._layers[index]

    @property
    def length(self) -> int:
        return self.before


class TransformersLayer(LayerCache):
    """One layer's slots: "k" and "v" of a round are keys and values of one cache layer, any other slot is both."""

    def __init__(self, whole: TransformersCache, index: int):
        super().__init__()
        self.whole, self.index = whole, index
        self.length = whole.before

    @property
    def batch_size(self) -> int | None:
        return None if not self.length else self._layer_of("k", 0).keys.shape[0]

    def admit(self, owner: object, batch: int, n_new: int) -> None:
        held = self.batch_size
        if held not in (None, batch):
            raise ValueError(f"cache holds a batch of {held}, the input is a batch of {batch}")

    def append(self, slot: Slot, new: Tensor) -> Tensor:
        kind, m = slot
        layer = self._layer_of(kind, m)
        if not layer.is_initialized:
            layer.lazy_initialization(new, new)
        held = self.past(slot)
        grown = new if held is None else torch.cat([held, new], dim=-2)
        if kind != "v":
            layer.keys = grown
        if kind != "k":
            layer.values = grown
        return grown

    def recent(self, slot: Slot, new: Tensor, count: int) -> Tensor:
        """Keep all positions: transformers may crop its caches."""
        return self.append(slot, new)[:, :, -(count + new.shape[2]) :]

    def past(self, slot: Slot) -> Tensor | None:
        kind, m = slot
        layer = self._layer_of(kind, m)
        return (layer.values if kind == "v" else layer.keys)[..., : self.length, :] if self.length else None

    def _layer_of(self, kind: str, m: int) -> Any:
        """Pairs of round m first, then, behind all rounds that a model may have, other slots."""
        place = m if kind in ("k", "v") else MOST_ROUNDS + m
        index = place * self.whole.n_layers + self.index
        layers = self.whole.cache.layers
        while len(layers) <= index:
            layers.append(DynamicLayer())
        return layers[index]


MOST_ROUNDS = 16


def to_transformers(model: LanguageModel) -> BoostedAttentionForCausalLM:
    """Return a model of transformers with the same weights.

    Args:
        model: a model of ours; it is copied.
    """
    made = BoostedAttentionForCausalLM(BoostedAttentionConfig(model=model.config.to_dict()))
    made.model.load_state_dict(model.state_dict())
    made.to(dtype=next(model.parameters()).dtype)  # type: ignore[call-overload]
    return made.train(model.training)


def from_transformers(source: BoostedAttentionForCausalLM | str | Path) -> LanguageModel:
    """Return the model of ours inside a model of transformers.

    Args:
        source: the model, or a folder it was saved in.
    """
    if not isinstance(source, BoostedAttentionForCausalLM):
        loaded = load_model(source)
        require(
            isinstance(loaded, BoostedAttentionForCausalLM),
            f"{source} holds a {type(loaded).__name__}, not a model of ours",
        )
        assert isinstance(loaded, BoostedAttentionForCausalLM)
        source = loaded
    return source.model


def tokenizer_to_transformers(tokenizer: Tokenizer, max_len: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer of transformers that reads text as ours does.

    Args:
        tokenizer: a tokenizer of ours.
        max_len: longest sequence of the model it belongs to.
    """
    end = END_OF_TEXT if tokenizer.core.token_to_id(END_OF_TEXT) is not None else None
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.core,
        model_max_length=max_len,
        eos_token=end,
        bos_token=end,
        pad_token=end,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )


AutoConfig.register(BoostedAttentionConfig.model_type, BoostedAttentionConfig, exist_ok=True)
AutoModelForCausalLM.register(BoostedAttentionConfig, BoostedAttentionForCausalLM, exist_ok=True)
