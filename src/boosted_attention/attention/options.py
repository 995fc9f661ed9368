"""LayerOptions: every option of an attention layer, stated and validated once.

Signatures, ``help()``, error messages and the command line's help are derived from the dataclass. Importing this module
does not import torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields
from functools import cache
from typing import Any, Literal, get_type_hints

from boosted_attention.documentation import REQUIRED, Option, documented, field_texts
from boosted_attention.validation import (
    InputError,
    divisors,
    is_count,
    is_number,
    require,
    require_choice,
    require_count,
)

# Sizes beyond which nothing is built, so that a number with a digit too many is known at once.
MOST_ROUNDS, MOST_WIDTH = 2**8, 2**20
CHOICES: Mapping[str, tuple[str, ...]] = {
    "gate": ("none", "scalar", "tanh", "vector", "mlp", "headwise", "tanh-headwise"),
    "kv_source": ("residual", "input", "shared"),
    "residual": ("error", "input", "estimate", "normalised"),
    "space": ("heads", "output"),
    "correction_start": ("drawn", "silent"),
    "kernel": ("auto", "fused", "explicit"),
}
"""Names that an option takes."""

PER_CORRECTION = ("gate", "residual")
"""Options that may be given once for all corrections or once for each."""

HEADWISE_GATES = ("headwise", "tanh-headwise")
"""Gates with one number per head, which head space alone has."""

ZERO_GATES = ("tanh", "tanh-headwise")
"""Gates that start at zero."""

LAYER_DEFAULTS: Mapping[str, Mapping[str, Any]] = {"StandardAttention": {}, "BoostedAttention": {"n_rounds": 2}}
"""Defaults in which the layers of softmax attention differ from ``LayerOptions``, by class."""


@documented
@dataclass(frozen=True)
class LayerOptions:
    """The options of an attention layer; every layer class takes them, with other defaults."""

    d_model: int
    """Width of the input x, (B, T, d_model)."""
    n_heads: int
    """Attention heads per round."""
    _: KW_ONLY
    n_rounds: int = 1
    """Rounds M of the boosting loop; 1 makes no correction."""
    gate: str | Sequence[str] = "vector"
    """Gate of a correction, or one per correction: none (g = 1), scalar (one learned number per round, sigmoid, from
    1/2), tanh (one learned number per round, from 0), vector (the paper's: sigmoid of a linear map of [F || c], one
    number per dimension), mlp (vector with a hidden layer), headwise (vector with one number per head) or tanh-headwise
    (one learned number per head, from 0)."""
    kv_source: str = "residual"
    """Source of a correction's keys and values: residual (what the round looks at, the paper's), input (x, Appendix D)
    or shared (round 0's own keys and values: no new projections, one K/V pair in the cache)."""
    residual: str | Sequence[str] = "error"
    """What a correction looks at, or one such rule per correction: error (x - F), normalised (x - rho * RMSNorm(F), rho
    learned per dimension, from 1), or a control: input (x, a second attention beside the first) or estimate (F,
    attention upon attention)."""
    space: str = "heads"
    """Where F lives: heads (before the one output projection; n_heads * head_dim must be d_model) or output (every
    round has an output projection of its own; any head_dim)."""
    halting: bool = False
    """Rounds that each token takes as many of as it decides (adaptive computation time); needs kv_source=shared or
    input, so that no token's output depends on when others stop."""
    correction_start: str = "drawn"
    """Start of the corrections: drawn (as every other weight) or silent (a correction adds exactly zero until training
    moves it: its values start at zero; in output space its output projection; with a tanh gate the gate)."""
    learner: str | Sequence[str] = "softmax"
    """Base learner of all rounds, or one per round, by the names of ``list_learners()``; the last of two or more also
    serves the rounds that follow."""
    learner_options: Mapping[str, Any] | Sequence[Mapping[str, Any]] = field(default_factory=dict)
    """Options of the learners' own: one mapping, each entry for every learner that has such an option, or one mapping
    per round. They may also be passed as keywords."""
    n_kv_heads: int | Sequence[int] | None = None
    """Key/value heads for grouped-query attention, one number or one per round; None for n_heads."""
    head_dim: int | None = None
    """Width of a head; None for d_model / n_heads."""
    rope_theta: float | None = None
    """Base of the rotary position embedding; None for none."""
    scale: float | Literal["learned"] | None = None
    """Factor on the scores: None for 1/sqrt(head_dim), a number, or learned (one per round, starting at 2)."""
    qk_norm: bool = False
    """RMS norm of the queries and keys of every head, with learned weights, before rotary embedding and scale."""
    out_proj: bool = True
    """Output projection behind the loop; without it the layer returns F itself."""
    layer_index: int = 0
    """Place in the model: chooses the layer's part of a KVCache, and differential attention's lambda_init."""
    bias: bool = True
    """Biases on projections and gates."""
    dropout: float = 0.0
    """Dropout probability of the attention weights, in training."""
    kernel: str = "auto"
    """Attention kernel: auto (fused where possible), fused (a call that would hold the attention weights is refused) or
    explicit (attention weights in memory)."""
    kdim: int | None = None
    """Width of a memory's keys; None for d_model."""
    vdim: int | None = None
    """Width of a memory's values; None for d_model."""
    device: Any = None
    """Device of the weights, as in torch.nn."""
    dtype: Any = None
    """Dtype of the weights, as in torch.nn."""

    def __post_init__(self) -> None:
        for option in ("d_model", "n_heads", "n_rounds", "head_dim", "kdim", "vdim"):
            value = getattr(self, option)
            if value is not None or option not in ("head_dim", "kdim", "vdim"):
                require_count(option, value, MOST_ROUNDS if option == "n_rounds" else MOST_WIDTH)
        self._check_choices()
        self._check_learners()
        self._check_heads()
        self._check_start()
        self._check_halting()
        require(
            self.rope_theta is None or (is_number(self.rope_theta) and self.rope_theta > 0 and self.d_head % 2 == 0),
            f"rope_theta={self.rope_theta!r} needs a positive base and an even head_dim, got head_dim={self.d_head}",
        )
        require(
            self.scale in (None, "learned") or (is_number(self.scale) and self.scale > 0),
            f"scale={self.scale!r} must be None (1/sqrt(head_dim)), 'learned', or a positive factor on the scores",
        )
        require(
            self.out_proj or self.space == "heads",
            "out_proj=False needs space='heads'; with space='output' every round has its own output projection",
        )
        require(
            isinstance(self.layer_index, int) and self.layer_index >= 0,
            f"layer_index={self.layer_index!r} must be an integer of at least 0",
        )
        require(is_number(self.dropout) and 0.0 <= self.dropout < 1.0, f"dropout={self.dropout!r} must lie in [0, 1)")

    def _check_choices(self) -> None:
        for option, allowed in CHOICES.items():
            value = getattr(self, option)
            if option in PER_CORRECTION and not isinstance(value, str) and isinstance(value, Sequence):
                object.__setattr__(self, option, tuple(value))
                require(
                    len(value) == self.n_rounds - 1,
                    f"{option}={tuple(value)} needs one entry per correction, n_rounds - 1 = {self.n_rounds - 1}",
                )
                for one in value:
                    require_choice(option, one, allowed)
            else:
                require_choice(option, value, allowed)
        for gate in self.gates:
            require(
                gate not in HEADWISE_GATES or self.space == "heads",
                f"gate={gate!r} needs space='heads': behind an output projection there are no heads",
            )

    def _check_learners(self) -> None:
        if not isinstance(self.learner, str):
            named = tuple(self.learner)
            beyond = self.n_rounds - len(named) if len(named) > 1 else 0  # a single entry names no correction
            object.__setattr__(self, "learner", named + named[-1:] * beyond)
            require(
                len(self.learner) == self.n_rounds,
                f"learner={self.learner} needs one entry per round, n_rounds={self.n_rounds}",
            )
        if not isinstance(self.learner_options, Mapping):
            object.__setattr__(self, "learner_options", tuple(self.learner_options))
            require(
                len(self.learner_options) == self.n_rounds
                and all(isinstance(given, Mapping) for given in self.learner_options),
                f"learner_options={self.learner_options} needs one mapping, or one per round, n_rounds={self.n_rounds}",
            )

    def _check_heads(self) -> None:
        d, h = self.d_model, self.n_heads
        if self.head_dim is None and d % h:
            raise InputError(f"n_heads={h} does not divide d_model={d}; allowed: {divisors(d)} (or give head_dim)")
        require(
            self.n_rounds == 1 or self.space == "output" or h * self.d_head == d,
            f"head_dim={self.head_dim} with space='heads' needs n_heads * head_dim == d_model"
            + (f", so head_dim={d // h} here" if d % h == 0 else "")
            + "; space='output' takes any head_dim",
        )
        per_round = isinstance(self.n_kv_heads, Sequence)
        require(
            not per_round or len(self.kv_heads) == self.n_rounds,
            f"n_kv_heads={self.n_kv_heads} needs one entry per round, n_rounds={self.n_rounds}",
        )
        for n in self.kv_heads:
            if not (is_count(n) and h % n == 0):
                raise InputError(f"n_kv_heads={self.n_kv_heads} must divide n_heads={h}; allowed: {divisors(h)}")
        require(
            self.kv_source != "shared" or len(set(self.kv_heads)) == 1,
            f"n_kv_heads={self.n_kv_heads} with kv_source='shared' must be the same in every round: there is one K/V",
        )

    def _check_start(self) -> None:
        if self.correction_start == "silent":
            require(
                self.n_rounds > 1, f"correction_start='silent' with n_rounds={self.n_rounds}: there is no correction"
            )
            for m in range(1, self.n_rounds):
                if self.learners[m] == "softmax":  # the layer asks the others, which may start at zero by themselves
                    self.require_silent_part(m)

    def _check_halting(self) -> None:
        require(isinstance(self.halting, bool), f"halting={self.halting!r} must be True or False")
        if self.halting:
            require(self.n_rounds > 1, f"halting=True with n_rounds={self.n_rounds}: there is no round to leave out")
            require(
                self.kv_source != "residual",
                "halting=True with kv_source='residual': a token that has stopped has no residual for others to read; "
                "use kv_source='shared' or 'input'",
            )

    def require_silent_part(self, m: int) -> None:
        """Raise InputError if nothing in round m can start at zero."""
        require(
            self.silent_part(m) is not None,
            "correction_start='silent' with kv_source='shared' and space='heads' needs gate='tanh' or 'tanh-headwise': "
            "such a correction has neither values nor an output projection of its own to start at zero",
        )

    def silent_part(self, m: int) -> str | None:
        """Return the one part of round m that starts at zero where it starts silent; None if it has no such part.

        With two of them at zero neither would have a gradient.
        """
        if self.gates[m - 1] in ZERO_GATES:
            return "gate"
        if self.space == "output":
            return "out_proj"
        return "values" if self.kv_source != "shared" else None

    @property
    def waits_behind_zero(self) -> bool:
        """Whether a projection that starts at zero behind the layer may hold its corrections up.

        A headwise tanh gate needs head space, where the first update moves the projection and the second the gate.
        """
        return self.n_rounds > 1 and (self.correction_start == "silent" or "tanh" in self.gates)

    @property
    def d_head(self) -> int:
        """Width of a head."""
        return self.d_model // self.n_heads if self.head_dim is None else self.head_dim

    @property
    def d_inner(self) -> int:
        """Width of the concatenated heads."""
        return self.n_heads * self.d_head

    @property
    def d_estimate(self) -> int:
        """Width of F, which is what the gates see."""
        return self.d_model if self.space == "output" else self.d_inner

    @property
    def kv_heads(self) -> tuple[int, ...]:
        """K/V heads of each round."""
        if isinstance(self.n_kv_heads, Sequence):
            return tuple(self.n_kv_heads)
        return (self.n_heads if self.n_kv_heads is None else self.n_kv_heads,) * self.n_rounds

    @property
    def learners(self) -> tuple[str, ...]:
        """Name of each round's learner."""
        return (self.learner,) * self.n_rounds if isinstance(self.learner, str) else tuple(self.learner)

    @property
    def gates(self) -> tuple[str, ...]:
        """Name of each correction's gate."""
        return (self.gate,) * (self.n_rounds - 1) if isinstance(self.gate, str) else tuple(self.gate)

    @property
    def residuals(self) -> tuple[str, ...]:
        """Name of each correction's residual rule."""
        return (self.residual,) * (self.n_rounds - 1) if isinstance(self.residual, str) else tuple(self.residual)

    @property
    def factory(self) -> dict[str, Any]:
        """Device and dtype, as keywords of modules and tensors."""
        return {"device": self.device, "dtype": self.dtype}

    def options_of(self, m: int) -> Mapping[str, Any]:
        """Return the learner options of round m."""
        return self.learner_options if isinstance(self.learner_options, Mapping) else self.learner_options[m]

    def reads_own_kv(self, m: int) -> bool:
        """Return whether round m projects keys and values of its own."""
        return m == 0 or self.kv_source != "shared"


OPTION_NAMES = tuple(f.name for f in fields(LayerOptions))


def layer_options(defaults: Mapping[str, Any] | None = None) -> list[Option]:
    """Return every option of a layer with its default, its text and its type.

    Args:
        defaults: defaults of a layer class that differ from those of ``LayerOptions``.
    """
    texts, kinds = described()
    options = []
    for f in fields(LayerOptions):
        default = f.default if f.default is not MISSING else REQUIRED
        default = f.default_factory() if f.default_factory is not MISSING else default
        options.append(Option(f.name, (defaults or {}).get(f.name, default), texts.get(f.name, ""), kinds[f.name]))
    return options


@cache
def described() -> tuple[dict[str, str], dict[str, Any]]:
    """Return text and type of each option."""
    return field_texts(LayerOptions), get_type_hints(LayerOptions)


def help_lines(defaults: Mapping[str, Any] | None = None, without: Collection[str] = ()) -> list[str]:
    """Return the options as lines of help, "name=default: text".

    Args:
        defaults: defaults that differ from those of ``LayerOptions``.
        without: options to leave out, such as those that a model sets itself.
    """
    return [str(option) for option in layer_options(defaults) if option.name not in without]
