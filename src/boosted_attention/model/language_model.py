"""LanguageModel: a decoder whose attention is any layer of the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from boosted_attention.attention.cache import KVCache
from boosted_attention.attention.dropout import Dropout
from boosted_attention.attention.halting import PonderCosts
from boosted_attention.attention.masks import build_mask, document_mask, padding_mask
from boosted_attention.attention.rotary import Angles, rotary_angles
from boosted_attention.model.blocks import NORM_CLASSES, Block, BlockParts
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.model.feeds import FEEDS, FedBlock
from boosted_attention.model.generation import Sampling, generate
from boosted_attention.model.inputs import require_input, token_positions
from boosted_attention.model.loss import IGNORED, chunked_loss, token_losses
from boosted_attention.model.pondernet import PonderedRepeats
from boosted_attention.model.repeats import AdaptiveRepeats, PlainRepeats, Thought
from boosted_attention.model.start import construction, draw_weights, fresh_seed
from boosted_attention.model.tokens import require_tokens
from boosted_attention.model.value_residual import FirstValues
from boosted_attention.validation import InputError, require, require_choice


class LanguageModel(nn.Module):
    """A decoder language model: token and position embedding, blocks, a final norm, and the vocabulary projection.

        model = LanguageModelConfig(attention="boosted").build()
        logits = model(ids)                     # (B, T) -> (B, T, V)
        loss = model.loss(ids, targets)         # the mean, without ever holding the logits
        longer = model.generate(ids, 50)        # (B, T) -> (B, T + 50)

    Args:
        config: what the model is made of.
        seed: seed of the initial weights, as ``start.py`` draws them; None takes one from torch's random state.
    """

    drops_by_rows = True

    def __init__(self, config: LanguageModelConfig, seed: int | None = None):
        super().__init__()
        require(seed is None or isinstance(seed, int), f"seed={seed!r} must be an integer, or None to draw one")
        seed = fresh_seed() if seed is None else seed
        self.config = config
        with construction(seed):
            self.embed = nn.Embedding(config.vocab_size, config.d_model)
            self.positions = nn.Embedding(config.max_len, config.d_model) if config.positions == "learned" else None
            self.dropout = Dropout(config.dropout)
            block = Block if config.feed == "stream" else FedBlock
            self.layers = nn.ModuleList([block(config, i) for i in range(config.n_layers)])
            self.feed = None
            if config.feed != "stream":
                self.feed = FEEDS[config.feed](1 + 2 * config.n_layers, config.d_model)
            self.repeats = repeats_of(config)
            self.norm = NORM_CLASSES[config.norm_kind](config.d_model)
            self.head = None if config.tie_weights else nn.Linear(config.d_model, config.vocab_size, bias=False)
        draw_weights(self, config, seed)

    @property
    def projection(self) -> Tensor:
        """The vocabulary projection (V, D)."""
        return self.embed.weight if self.head is None else self.head.weight

    def blocks(self) -> Iterator[nn.Module]:
        """Return the repeated parts, which parallel training shards and checkpointing recomputes."""
        yield from self.layers

    def embedding_parameters(self) -> Iterator[Tensor]:
        """Return the weights of the token and position embeddings."""
        yield self.embed.weight
        if self.positions is not None:
            yield self.positions.weight

    def hidden(
        self,
        ids: Tensor,
        attention_mask: Tensor | None = None,
        cache: KVCache | None = None,
        *,
        documents: Tensor | None = None,
        positions: Tensor | None = None,
        states: list[Tensor] | None = None,
    ) -> Tensor:
        """Return what the vocabulary projection is applied to, (B, T, D).

        Args:
            ids: token ids (B, T), or vectors (B, T, D) in the place of their embeddings.
            attention_mask: as in ``forward``.
            cache: as in ``forward``.
            documents: as in ``forward``.
            positions: position of each token, (T,), (1, T) or (B, T), in the place of the counted one.
            states: list that is extended by the stream before the blocks and behind each of them, (B, T, D) each.
        """
        return self.norm(self.think(ids, attention_mask, cache, documents, positions, states).state)

    def think(
        self,
        ids: Tensor,
        attention_mask: Tensor | None,
        cache: KVCache | None = None,
        documents: Tensor | None = None,
        positions: Tensor | None = None,
        states: list[Tensor] | None = None,
    ) -> Thought:
        """Return what the blocks make of the tokens; arguments as in ``hidden``."""
        past = 0 if cache is None else cache.length
        require_input(ids, attention_mask, documents, past, self.config.d_model)
        require(
            documents is None or cache is None, "documents: a cache continues one document in each row, not several"
        )
        require(
            states is None or self.feed is None,
            f"feed={self.config.feed!r}: layers read all that was given before them, and there is no stream to show",
        )
        positions = token_positions(ids, attention_mask, documents, positions, past, self.config.max_len)
        h = self._embed(ids)  # (B, T, D)
        (batch, length), heads = ids.shape[:2], self.config.n_heads
        visible = None if attention_mask is None else padding_mask(attention_mask)  # (B, 1, 1, S)
        if documents is not None:
            apart = document_mask(documents)  # (B, 1, T, T)
            visible = apart if visible is None else apart & visible
        mask = build_mask(visible, True, batch, heads, length, past + length, ids.device)  # once for all layers
        call: dict[str, Any] = {"mask": mask}
        if self.positions is not None:
            h = h + self.positions(positions)
        else:
            call["positions"] = self._angles(positions, h.dtype)
        call["ponder"] = ponder = PonderCosts()
        h = self.dropout(h)
        if states is not None:
            states.append(h)
        thought = self.repeats(h, partial(self._apply_blocks, cache, call, states))
        of_layers = ponder.total()
        return thought if of_layers is None else thought._replace(cost=of_layers)

    def _apply_blocks(
        self,
        cache: KVCache | None,
        call: dict[str, Any],
        states: list[Tensor] | None,
        h: Tensor,
        repeat: int,
        running: Tensor | None,
    ) -> Tensor:
        """Return the stream behind all blocks, (B, T, D) -> (B, T, D); a repeat has slots of its own in the cache.

        Tokens that do not run, of (B, T), are read by every block and stay as they are.
        """
        first_values = FirstValues() if self.config.value_residual else None
        state: Any = h if self.feed is None else (h,)  # the stream, or all that was given so far
        for i, block in enumerate(self.layers, start=repeat * self.config.n_layers):
            slots = None if cache is None else cache.layer(i)
            new = block(state, first_values=first_values, cache=slots, **call)
            state = new if running is None else torch.where(running[..., None], new, state)
            if states is not None:
                states.append(state)
        return state if self.feed is None else self.feed(state)

    def _angles(self, positions: Tensor, dtype: torch.dtype) -> dict[int, Angles]:
        """Return the angles of the positions for every width of heads that a layer has."""
        widths = {width for block in self.layers for width in cast("BlockParts", block).attention.head_widths}
        return rotary_angles(positions, widths, self.config.rope_theta, dtype)

    def _embed(self, ids: Tensor) -> Tensor:
        if ids.is_floating_point():
            return ids
        try:
            return self.embed(ids)
        except IndexError:
            require_tokens(ids, self.config.vocab_size)
            raise

    def forward(
        self,
        ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        cache: KVCache | None = None,
        documents: Tensor | None = None,
    ) -> Tensor:
        """Return logits (B, T, V).

        Args:
            ids: token ids (B, T).
            attention_mask: a tokenizer's mask (B, T), 1 = real token; with a cache it covers past tokens too. Positions
                count from the first real token, so left padding changes nothing for the real ones.
            cache: a KVCache, extended by this call.
            documents: number of each token's document (B, T), where several share a row: whenever it changes, another
                one begins, which sees nothing of those before it and whose positions count from 0. A row may then be
                longer than ``max_len``, which bounds each document.
        """
        return functional.linear(self.hidden(ids, attention_mask, cache, documents=documents), self.projection)

    def loss(
        self,
        ids: Tensor,
        targets: Tensor,
        attention_mask: Tensor | None = None,
        *,
        documents: Tensor | None = None,
        reduction: str = "mean",
    ) -> Tensor:
        """Return the cross-entropy of predicting targets from ids, without ever holding the logits.

        In training mode a model that halts returns what it minimises: the expectation over its states, if it has a
        distribution of them, and ``ponder_cost`` times what halting costs.

        Args:
            ids: token ids (B, T).
            targets: the token that follows each of ids (B, T); -100 is ignored.
            attention_mask: a tokenizer's mask (B, T), 1 = real token.
            documents: as in ``forward``; a target in another document than its token is up to the caller to ignore.
            reduction: "mean" over the targets that count, "sum", or "none", which returns (B, T) without gradients.
        """
        require_choice("reduction", reduction, ("mean", "sum", "none"))
        if targets.shape != ids.shape:
            raise InputError(f"targets has shape {tuple(targets.shape)}, ids {tuple(ids.shape)}; expected the same")
        thought = self.think(ids, attention_mask, documents=documents)
        if reduction == "none":
            return token_losses(self.norm(thought.state), self.projection, targets)
        if thought.cost is None or not self.training:
            return chunked_loss(self.norm(thought.state), self.projection, targets, reduction)
        return self.objective(thought, thought.cost, targets, reduction)

    def objective(self, thought: Thought, cost: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
        """Return what a model that halts minimises, given what ``think`` returned; other arguments as in ``loss``."""
        counts = targets != IGNORED  # (B, T)
        if thought.expected is None:
            total = chunked_loss(self.norm(thought.state), self.projection, targets, "sum")
        else:
            states, weights = thought.expected
            of_steps = targets.expand(len(states), -1, -1).flatten(0, 1)  # (N B, T)
            hidden = self.norm(states).flatten(0, 1)  # (N B, T, D)
            total = chunked_loss(hidden, self.projection, of_steps, "sum", weights.flatten(0, 1))
        total = total + self.config.ponder_cost * (cost * counts).sum()
        return total if reduction == "sum" else total / counts.sum()

    def generate(
        self,
        ids: Tensor,
        max_new_tokens: int,
        *,
        attention_mask: Tensor | None = None,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop: int | None = None,
        use_cache: bool = True,
        stream: Callable[[Tensor], None] | None = None,
    ) -> Tensor:
        """Continue ids (B, T) by up to ``max_new_tokens`` tokens and return the whole sequences, (B, T + n).

        Past ``max_len`` the oldest half of the context is dropped, with and without cache alike.

        Args:
            ids: token ids of the prompts (B, T).
            max_new_tokens: largest number of tokens to add.
            attention_mask: mask of left-padded prompts (B, T), 1 = real token. ``max_len`` counts columns, padding
                included.
            temperature: 0 takes the likeliest token, 1 samples from the model, in between sharpens.
            top_k: number of likeliest tokens to sample among.
            top_p: probability that the tokens sampled among have together.
            seed: random seed of the sampling.
            stop: token that ends a sequence; the rest of its row repeats it.
            use_cache: whether to keep keys and values; False recomputes everything at each step.
            stream: function called with each step's tokens (B,).
        """
        sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        return generate(self, ids, max_new_tokens, attention_mask, sampling, stop, use_cache, stream)


def repeats_of(config: LanguageModelConfig) -> PlainRepeats | AdaptiveRepeats | PonderedRepeats:
    """Return the module that repeats the blocks of a model."""
    if config.halting == "act":
        return AdaptiveRepeats(config.n_repeats, config.d_model)
    if config.halting == "ponder":
        return PonderedRepeats(config.n_repeats, config.d_model, config.ponder_prior)
    return PlainRepeats(config.n_repeats)
