"""Our own language models as models of transformers, with ``generate`` and the Auto classes.

    to_transformers(model).save_pretrained(folder);   AutoModelForCausalLM.from_pretrained(folder)

The weights keep their names behind ``model.``; ``from_transformers`` takes the model out again. Keys and values of
every round live in transformers' own cache: round m of layer i in its layer m * n + i, where n counts layers as often
as they are repeated. That cache must grow: static, quantised, sliding and offloaded ones are refused.

``position_ids`` that begin anew inside a row mark packed documents, as everywhere in transformers, with or without an
``attention_mask``: none sees another, no prediction across their border counts in the loss, and there is no cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
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
from boosted_attention.attention.masks import documents_from
from boosted_attention.attention.trace import first_maps
from boosted_attention.data.tokenizer import END_OF_TEXT, Tokenizer
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.model.inputs import require_input
from boosted_attention.model.language_model import LanguageModel
from boosted_attention.model.loss import IGNORED
from boosted_attention.pretrained.folders import load_model
from boosted_attention.pretrained.sharing import SharedModel
from boosted_attention.validation import InputError, require


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


class BoostedAttentionForCausalLM(SharedModel, PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """A ``LanguageModel`` behind the interface of transformers."""

    config_class = BoostedAttentionConfig
    base_model_prefix = "model"
    _supports_cache_class = True
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = False  # the loss is a mean over this batch; a trainer has to weigh batches itself

    def __init__(self, config: BoostedAttentionConfig):
        super().__init__(config)
        self.model = LanguageModel(LanguageModelConfig.from_dict(config.model))
        self.post_init()

    def _init_weights(self, module: Any) -> None:
        """Do nothing: the model draws its own weights."""

    def get_input_embeddings(self) -> Any:
        return self.model.embed

    def set_input_embeddings(self, value: Any) -> None:
        self.model.embed = value

    def get_output_embeddings(self) -> Any:
        return self.model.embed if self.model.head is None else self.model.head

    def set_output_embeddings(self, new_embeddings: Any) -> None:
        """Exchange the vocabulary projection; where it is the embedding, there is no other to exchange."""
        if self.model.head is not None:
            self.model.head = new_embeddings
        else:
            tied = new_embeddings is self.model.embed
            require(
                tied, "tie_weights=True: the embedding is the vocabulary projection; set_input_embeddings sets both"
            )

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> Any:
        """Change the number of tokens, as for other models of transformers, and tell both configurations."""
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        self.model.config = replace(self.model.config, vocab_size=self.config.vocab_size)
        self.config.model = self.model.config.to_dict()
        return embeddings

    def _set_gradient_checkpointing(
        self, enable: bool = True, gradient_checkpointing_func: Callable[..., Any] = checkpoint, every_n_layers: int = 1
    ) -> None:
        """Compute the activations of every n-th block twice in training instead of keeping them, or of none."""
        keywords = getattr(gradient_checkpointing_func, "keywords", {})
        require(
            not keywords.get("use_reentrant"),
            "use_reentrant=True: what blocks hand to each other beside the stream would get no gradient; use False",
        )
        for i, block in enumerate(self.model.blocks()):
            vars(block).pop("forward", None)
            chosen = enable and i % every_n_layers == 0
            block.gradient_checkpointing = chosen  # type: ignore[assignment]  # as transformers knows such a module
            if chosen:
                block.forward = partial(run_checkpointed, block, block.forward, gradient_checkpointing_func)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int | Tensor = 0,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Return logits, and with ``labels`` the loss of predicting each from the tokens before it.

        Args:
            input_ids: token ids (B, T).
            attention_mask: a tokenizer's mask over all tokens so far (B, S), 1 = real token.
            position_ids: positions (B, T); where they begin anew inside a row, so does a document.
            past_key_values: a cache that grows, extended by this call.
            inputs_embeds: vectors (B, T, D) in the place of the tokens' embeddings.
            labels: the tokens themselves (B, T), -100 = ignored. In training a model that halts adds the price of it.
            use_cache: whether to make a cache where none is given, and to return it.
            output_attentions: whether to return round 0's weights, (B, H, T, S), of every layer as often as it is
                applied. Those of corrections are in traces (``boosted_attention.capture``).
            output_hidden_states: whether to return embeddings and the stream behind each layer, the last normalised.
            return_dict: whether to return an object; False for a tuple of what is not None.
            logits_to_keep: number of last positions with logits, 0 for all, or their indices.
        """
        maps = self.config.output_attentions if output_attentions is None else output_attentions
        shown = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        named = self.config.return_dict if return_dict is None else return_dict
        tokens = input_ids if inputs_embeds is None else inputs_embeds
        if tokens is None or (input_ids is not None and inputs_embeds is not None):
            raise InputError("input_ids or inputs_embeds: pass exactly one of the two")
        require(
            labels is None or (isinstance(logits_to_keep, int) and logits_to_keep == 0),
            "labels with logits_to_keep: the loss needs the logits of all positions",
        )
        self._require_one_pass(past_key_values is not None or bool(use_cache), bool(maps))
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache()
        cache = None
        if past_key_values is not None:
            cache = TransformersCache(past_key_values, self.config.num_hidden_layers)
        past = 0 if cache is None else cache.length
        require_input(tokens, attention_mask, None, past, self.model.config.d_model)
        documents = None
        if position_ids is not None:
            batch, length = tokens.shape[:2]
            require(
                position_ids.shape in ((1, length), (batch, length)),
                f"position_ids has shape {tuple(position_ids.shape)}; expected {(batch, length)}",
            )
            position_ids = position_ids.expand(batch, -1)
            documents = packed_documents(position_ids, attention_mask, cache)
        states: list[Tensor] | None = [] if shown else None
        with first_maps(self.model) if maps else nullcontext() as weights:
            thought = self.model.think(tokens, attention_mask, cache, documents, position_ids, states)
        hidden = self.model.norm(thought.state)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits: Any = torch.nn.functional.linear(hidden[:, kept], self.model.projection)
        loss = None
        if labels is not None:
            targets = next_tokens(labels, documents)
            if thought.cost is not None and self.training:
                loss = self.model.objective(thought, thought.cost, targets)
            else:
                loss = cross_entropy(logits, targets)
        output = CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=None if use_cache is False else past_key_values,
            hidden_states=None if states is None else (*states[:-1], hidden),
            attentions=None if weights is None else tuple(weights),
        )
        return output if named else output.to_tuple()

    def _require_one_pass(self, caches: bool, traces: bool) -> None:
        """Raise InputError where blocks are computed twice and something would be done twice, or once only."""
        twice = any(getattr(block, "gradient_checkpointing", False) for block in self.model.blocks())
        if twice and self.training and torch.is_grad_enabled():
            require(not caches, "use_cache=True: checkpointed blocks run twice, and a cache would grow twice")
            require(not traces, "output_attentions=True: checkpointed blocks run twice, and keep no attention weights")


def run_checkpointed(
    block: nn.Module, forward: Callable[..., Any], run: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Run a block's forward pass through a checkpointing function where that can pay: in training, with gradients."""
    if block.training and torch.is_grad_enabled():
        return run(partial(forward, **kwargs), *args)
    return forward(*args, **kwargs)


def packed_documents(position_ids: Tensor, attention_mask: Tensor | None, cache: KVCache | None) -> Tensor | None:
    """Return the number of each token's document (B, T), as its positions tell; None where every row is one document.

    Args:
        position_ids: positions (B, T).
        attention_mask: mask over all tokens so far (B, S), 1 = real token; None for all.
        cache: cache of the call, which holds one document per row.
    """
    past = 0 if cache is None else cache.length
    real = torch.ones_like(position_ids) if attention_mask is None else attention_mask[:, past:]
    documents = documents_from(position_ids, real.bool())
    if cache is not None:
        held = past if attention_mask is None else attention_mask[:, :past].sum(dim=1, keepdim=True)  # real past tokens
        follows = (held + real.cumsum(dim=1) > 1) & real.bool()  # other tokens of its row
        require(
            documents is None and not bool((follows & (position_ids == 0)).any()),
            "position_ids begin anew inside a row: a cache holds one document per row; pass use_cache=False",
        )
    return documents


def next_tokens(labels: Tensor, documents: Tensor | None) -> Tensor:
    """Return what each position is to predict, (B, T): the label behind it; nothing behind the last.

    Args:
        labels: tokens (B, T), -100 = ignored.
        documents: number of each token's document (B, T): the first token of each is not predicted.
    """
    targets = labels[:, 1:]
    if documents is not None:
        targets = targets.masked_fill(documents[:, 1:] != documents[:, :-1], IGNORED)
    return torch.nn.functional.pad(targets, (0, 1), value=IGNORED)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss of predicting each target (B, T) from the logits (B, T, V) of its position."""
    return torch.nn.functional.cross_entropy(
        logits[:, :-1].float().transpose(1, 2), targets[:, :-1], ignore_index=IGNORED
    )


class TransformersCache(KVCache):
    """A cache of transformers, seen as ours."""

    def __init__(self, cache: Cache, n_layers: int):
        super().__init__()
        require(isinstance(cache, Cache), f"past_key_values={type(cache).__name__}: use a DynamicCache")
        other = next((type(layer).__name__ for layer in cache.layers if type(layer) is not DynamicLayer), None)
        require(
            other is None,
            f"a cache of {other} cannot hold the rounds of this model; use a DynamicCache of DynamicLayer",
        )
        require(not cache.offloading, "an offloaded cache cannot hold the rounds of this model; use a DynamicCache")
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
