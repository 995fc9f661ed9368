"""LanguageModelConfig: what a model is made of, what it costs, and how to build it.

Importing this module does not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from boosted_attention.attention.catalog import check_layer, find_entry
from boosted_attention.documentation import documented
from boosted_attention.validation import (
    InputError,
    divisors,
    is_number,
    nearest,
    require,
    require_choice,
    require_count,
)

if TYPE_CHECKING:
    from boosted_attention.attention.learner import Learner
    from boosted_attention.model.language_model import LanguageModel

NORMS = ("pre", "post")
NORM_KINDS = ("layernorm", "rmsnorm")
POSITIONS = ("learned", "rotary")
INITS = ("normal", "scaled", "zero")
HALTING = ("none", "act", "ponder")
FEEDS = ("stream", "cross", "attention")
# Sizes beyond which nothing is built, so that a number with a digit too many is known at once.
MOST = {
    "vocab_size": 2**22,
    "d_model": 2**17,
    "n_layers": 2**10,
    "n_heads": 2**12,
    "n_kv_heads": 2**12,
    "max_len": 2**24,
    "n_repeats": 2**10,
}
MOST_HIDDEN = 2**22  # of the feed-forward network
PONDER_COST, PONDER_PRIOR = 0.01, 0.2
CHOICES = {
    "norm": NORMS,
    "norm_kind": NORM_KINDS,
    "positions": POSITIONS,
    "feed": FEEDS,
    "halting": HALTING,
    "init": INITS,
}
"""Names that an option takes."""
SET_BY_MODEL = (
    "d_model",
    "n_heads",
    "layer_index",
    "dropout",
    "out_proj",
    "rope_theta",
    "kdim",
    "vdim",
    "device",
    "dtype",
)
"""Options of a layer that ``attention_options`` cannot set."""


@documented
@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig:
    """The options of a decoder language model; the defaults are those of the ``mini`` recipe."""

    vocab_size: int = 2048
    """Tokens in the vocabulary."""
    d_model: int = 64
    """Width of the residual stream."""
    n_layers: int = 4
    """Blocks of attention and feed-forward network."""
    n_heads: int = 4
    """Attention heads per round."""
    n_kv_heads: int | None = None
    """Key/value heads, for grouped-query attention; as many as n_heads by default."""
    max_len: int = 128
    """Longest sequence, and the length of a training row."""
    attention: str = "boosted"
    """Attention layer, by catalog name."""
    attention_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of that layer, such as n_rounds=3 or gate=scalar."""
    boosted_layers: str | Sequence[int] = "all"
    """Layers that get ``attention``: all, none, last:k, or indices such as 0,2; the others are standard."""
    qk_norm: bool = False
    """RMS norm of queries and keys, in every layer."""
    norm: str = "pre"
    """Placement of the norms: pre (inside the branch) or post (after the sum)."""
    norm_kind: str = "layernorm"
    """Kind of the norms: layernorm or rmsnorm."""
    positions: str = "learned"
    """Position embedding: learned (one vector per position) or rotary."""
    rope_theta: float = 10_000.0
    """Base of the rotary embedding."""
    ffn_multiple: float = 4.0
    """Hidden width of the feed-forward network, in multiples of d_model."""
    dropout: float = 0.0
    """Dropout probability of embeddings, attention weights and the feed-forward network, in training."""
    feed: str = "stream"
    """What layers read of what earlier ones gave: stream (the sum), cross (DeepCrossAttention: weighed sums, apart for
    queries, keys and values) or attention (Attention Residuals: a mean with weights by softmax)."""
    value_residual: bool = False
    """First layer's values mixed into those of every later layer, with learned weights."""
    n_repeats: int = 1
    """Times that the blocks are applied one after another, with the same weights; traces show the last time."""
    halting: str = "none"
    """Halting over repeats: none (all tokens take all), act (each token decides, and predicts from the mean of its
    states) or ponder (PonderNet: a distribution over the states)."""
    ponder_cost: float = PONDER_COST
    """Weight in the training loss of what halting costs: act's tau, also for layers that halt, and ponder's beta."""
    ponder_prior: float = PONDER_PRIOR
    """Probability to stop at each repeat in the geometric prior of halting=ponder."""
    tie_weights: bool = True
    """Token embedding also as the vocabulary projection."""
    init: str = "normal"
    """Initialisation: normal (every matrix N(0, 0.02), the paper's), scaled (projections into the stream divided by
    sqrt(2 n_layers)) or zero (projections into the stream start at zero)."""

    def __post_init__(self) -> None:
        for option, most in MOST.items():
            if option != "n_kv_heads" or self.n_kv_heads is not None:
                require_count(option, getattr(self, option), most)
        for option, allowed in CHOICES.items():
            require_choice(option, getattr(self, option), allowed)
        find_entry(self.attention)
        d, h = self.d_model, self.n_heads
        if d % h:
            raise InputError(f"n_heads={h} does not divide d_model={d}; allowed: {divisors(d)}")
        require(
            is_number(self.ffn_multiple) and 1 <= round(self.ffn_multiple * d) <= MOST_HIDDEN,
            f"ffn_multiple={self.ffn_multiple!r} must be a positive number that makes at most {MOST_HIDDEN:,} hidden "
            "units",
        )
        require(is_number(self.dropout) and 0.0 <= self.dropout < 1.0, f"dropout={self.dropout!r} must lie in [0, 1)")
        self._check_feed()
        self._check_halting()
        for option in SET_BY_MODEL:
            require(option not in self.attention_options, f"attention_options: {option} is set by the model")
        if not isinstance(self.boosted_layers, str):
            object.__setattr__(self, "boosted_layers", tuple(self.boosted_layers))
        self.attention_layers()
        try:
            check_attention(self)
        except InputError as problem:
            if not any(f"{option}=" in str(problem) for option in self.attention_options):
                raise
            raise InputError(f"attention_options: {problem}") from None  # the model may have options of that name

    def _check_feed(self) -> None:
        if self.feed != "stream":
            require(
                self.norm == "pre",
                f"feed={self.feed!r} with norm={self.norm!r}: there is no sum that could be normalised again; use "
                "norm='pre'",
            )
            require(
                self.n_repeats == 1,
                f"feed={self.feed!r} with n_repeats={self.n_repeats}: a layer weighs a fixed number of earlier ones; "
                "use n_repeats=1",
            )

    def _check_halting(self) -> None:
        require(
            self.halting == "none" or self.n_repeats > 1,
            f"halting={self.halting!r} needs n_repeats=2 or more, got n_repeats={self.n_repeats}",
        )
        require(
            is_number(self.ponder_cost) and self.ponder_cost >= 0,
            f"ponder_cost={self.ponder_cost!r} must be a number of at least 0",
        )
        require(
            is_number(self.ponder_prior) and 0 < self.ponder_prior < 1,
            f"ponder_prior={self.ponder_prior!r} must lie between 0 and 1",
        )

    def require_ponder_options_used(self) -> None:
        """Raise InputError if a price or a prior of halting is set where nothing halts."""
        halts = self.halting != "none" or bool(self.attention_options.get("halting"))
        require(
            halts or self.ponder_cost == PONDER_COST,
            f"ponder_cost={self.ponder_cost!r} has no use where no token halts; set halting='act' and n_repeats, or "
            "halting=True of the attention layer",
        )
        require(
            self.halting == "ponder" or self.ponder_prior == PONDER_PRIOR,
            f"ponder_prior={self.ponder_prior!r} has no use with halting={self.halting!r}; set halting='ponder'",
        )

    def attention_layers(self) -> frozenset[int]:
        """Return the indices of the layers that get ``attention``."""
        return layer_indices(self.boosted_layers, self.n_layers, "boosted_layers")

    def layer_arguments(self, index: int) -> dict[str, Any]:
        """Return the arguments of ``attention_layer`` for layer ``index``: the config's attention, or standard."""
        arguments: dict[str, Any] = {"name": "standard"}
        if self.n_kv_heads is not None:
            arguments["n_kv_heads"] = self.n_kv_heads
        if self.qk_norm:
            arguments["qk_norm"] = True
        if self.positions == "rotary":
            arguments["rope_theta"] = self.rope_theta
        if index in self.attention_layers():
            arguments.update({"name": self.attention, **self.attention_options})
        fixed = {"d_model": self.d_model, "n_heads": self.n_heads, "layer_index": index, "dropout": self.dropout}
        return {**arguments, **fixed}

    @property
    def applications(self) -> int:
        """Number of blocks that a token passes through, each time that a block is repeated counted."""
        return self.n_layers * self.n_repeats

    @property
    def d_ffn(self) -> int:
        """Hidden width of the feed-forward network."""
        return round(self.ffn_multiple * self.d_model)

    def build(self, seed: int | None = None) -> LanguageModel:
        """Build the model with initial weights that are a function of the seed, their names and their shapes.

        Args:
            seed: the seed; None takes one from torch's random state, so that ``torch.manual_seed`` decides.
        """
        from boosted_attention.model.language_model import LanguageModel

        return LanguageModel(self, seed)

    def on_meta(self) -> LanguageModel:
        """Build the model without storage: the same modules and shapes, nothing allocated."""
        from boosted_attention.shapes import shapes_only

        with shapes_only():
            return self.build()

    def __hash__(self) -> int:
        """Hash all options but those of the attention, which may hold lists; equality looks at these too."""
        return hash(tuple(value for name, value in vars(self).items() if name != "attention_options"))

    def num_params(self, *, embeddings: bool = True) -> int:
        """Count the parameters, with or without those of the token and position embeddings."""
        total, in_embeddings, _, _ = shape_costs(self)
        return total if embeddings else total - in_embeddings

    def flops(self, length: int | None = None) -> int:
        """Count forward FLOPs per token in sequences of ``length``, max_len by default; training takes thrice that.

        Tokens that may halt inside layers are counted as if they took every round.
        """
        _, _, linear, maps = shape_costs(self)
        head = 2 * self.vocab_size * self.d_model if self.tie_weights else 0  # an untied head is a linear layer
        return linear + head + sum(learner.map_flops(length or self.max_len) for learner in maps)

    def fused_extra_flops(self, length: int | None = None) -> int:
        """Count what the fused kernel computes beyond ``flops``, per token."""
        return sum(learner.fused_extra_flops(length or self.max_len) for learner in shape_costs(self)[3])

    def flops_by_part(self, length: int | None = None) -> dict[str, int]:
        """Return ``flops`` by part: each round, gates, output projections, feed-forward network, head."""
        from torch import nn

        from boosted_attention.attention.learner import Learner

        parts: dict[str, int] = {}
        for name, module in self.on_meta().named_modules():
            spent = 2 * module.weight.numel() if isinstance(module, nn.Linear) else 0
            if isinstance(module, Learner):
                spent = module.map_flops(length or self.max_len)
            if spent:
                part = part_of(name)
                times = 1 if part == "head" else self.n_repeats
                parts[part] = parts.get(part, 0) + times * spent
        tied = {"head": 2 * self.vocab_size * self.d_model} if self.tie_weights else {}
        return {**dict(sorted(parts.items())), **tied}

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as plain JSON values."""
        layers = self.boosted_layers if isinstance(self.boosted_layers, str) else list(self.boosted_layers)
        return {**asdict(self), "attention_options": dict(self.attention_options), "boosted_layers": layers}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LanguageModelConfig:
        """Return the configuration that ``to_dict`` gave."""
        unknown = set(values) - set(cls.__dataclass_fields__)
        if unknown:
            name = min(unknown)
            raise InputError(f"model configuration has no option {name!r}{nearest(name, cls.__dataclass_fields__)}")
        return cls(**values)


def part_of(name: str) -> str:
    """Return the part of the model to which a module belongs, by its name."""
    if found := re.search(r"\.rounds\.(\d+)", name):
        return f"round {found[1]}"
    kinds = {".gates.": "gates", ".ffn.": "feed-forward", ".attention.": "output projection"}
    return next((kind for mark, kind in kinds.items() if mark in name), "head")


def layer_indices(chosen: str | Sequence[int], n: int, option: str) -> frozenset[int]:
    """Return the layers that "all", "none", "last:k", "0,2" or indices mean in a model with n; -1 is the last."""
    if isinstance(chosen, str):
        if chosen in ("all", "none"):
            return frozenset(range(n if chosen == "all" else 0))
        kind, _, count = chosen.partition(":")
        if kind == "last":
            require(count.isdigit() and 0 <= int(count) <= n, f"{option}={chosen!r}: last:k takes k from 0 to {n}")
            return frozenset(range(n - int(count), n))
        parts = chosen.split(",")
        require(
            all(part.strip().removeprefix("-").isdigit() for part in parts),
            f"{option}={chosen!r} must be 'all', 'none', 'last:k' or indices such as '0,2'"
            f"{nearest(chosen, ('all', 'none', f'last:{n}'))}",
        )
        chosen = [int(part) for part in parts]
    require(isinstance(chosen, Iterable), f"{option}={chosen!r} must be 'all', 'none', 'last:k' or indices")
    chosen = [i.item() if hasattr(i, "item") else i for i in chosen]  # type: ignore[attr-defined]  # numpy's numbers
    wrong = [i for i in chosen if not (isinstance(i, int) and not isinstance(i, bool) and -n <= i < n)]
    require(not wrong, f"{option}={chosen}: indices go from {-n} to {n - 1}, got {wrong}")
    return frozenset(i % n for i in chosen)


@lru_cache(maxsize=1024)
def check_attention(config: LanguageModelConfig) -> None:
    """Let the layer check every option of the attention, once for each kind of layer."""
    chosen = config.attention_layers()
    kinds = {i in chosen: i for i in range(config.n_layers)}
    for index in kinds.values():
        options = check_layer(**config.layer_arguments(index))
        require(
            config.init != "zero" or not options.waits_behind_zero,
            f"init='zero' with gate={options.gate!r} and correction_start={options.correction_start!r}: corrections "
            "and the projection behind them would both start at zero and hold each other up; use one of the two",
        )
        require(
            config.halting == "none" or not options.halting,
            f"halting={config.halting!r} with attention_options halting=True: tokens stop over repeats or inside "
            "layers; use one of the two",
        )
    if config.value_residual:
        check_values(config, list(kinds.values()))


def check_values(config: LanguageModelConfig, layers: Sequence[int]) -> None:
    """Raise InputError unless layers lay their values out alike, so that the first layer's can be mixed into all."""
    from boosted_attention.attention.catalog import attention_layer
    from boosted_attention.shapes import shapes_only

    require(config.n_layers > 1, f"value_residual=True with n_layers={config.n_layers}: there is no later layer")
    with shapes_only():
        found = {i: attention_layer(**config.layer_arguments(i)).value_layout for i in layers}
    require(
        len(set(found.values())) == 1,
        "value_residual=True needs value heads of one number and width in all layers, got (heads, width) "
        + ", ".join(f"{layout} in layer {i}" for i, layout in sorted(found.items())),
    )


@lru_cache(maxsize=512)
def shape_costs(config: LanguageModelConfig) -> tuple[int, int, int, list[Learner]]:
    """Return parameters, those of the embeddings, FLOPs of linear layers per token, and learners as often as they run.

    FLOPs are the multiplications and additions of the mathematics in the forward pass, with every query seeing all keys
    (a causal kernel may do half). Softmax, norms and element-wise work are left out, as ``torch.utils.flop_counter``
    leaves them out.
    """
    from torch import nn

    from boosted_attention.attention.learner import Learner

    model = config.on_meta()
    in_blocks = [module for block in model.blocks() for module in block.modules()]
    head = 0 if model.head is None else 2 * model.head.weight.numel()
    return (
        sum(p.numel() for p in model.parameters()),
        sum(p.numel() for p in model.embedding_parameters()),
        config.n_repeats * sum(2 * m.weight.numel() for m in in_blocks if isinstance(m, nn.Linear)) + head,
        config.n_repeats * [m for m in in_blocks if isinstance(m, Learner)],
    )
