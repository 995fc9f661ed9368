"""What a layer is made of, validated once: every wrong option is named with its value and what would be right."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, TypeGuard

from boosted_attention.attention.gates import GATES
from boosted_attention.attention.residuals import RESIDUALS
from boosted_attention.validation import is_count, nearest, require, require_choice

KV_SOURCES = ("residual", "input", "shared")
SPACES = ("heads", "output")

Temperature = float | Literal["learned"] | None


class CommonOptions(TypedDict, total=False):
    """The keywords every layer takes, whatever its mechanism; ``BoostedAttention`` documents them."""

    n_kv_heads: int | Sequence[int] | None
    head_dim: int | None
    rope_theta: float | None
    temperature: Temperature
    out: bool
    layer_index: int
    bias: bool
    dropout: float


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """The options of an attention layer; ``BoostedAttention`` documents each."""

    d_model: int
    n_heads: int
    n_rounds: int = 1
    gate: str = "vector"
    kv_source: str = "residual"
    residual: str = "error"
    space: str = "heads"
    learner: str = "softmax"
    learner_options: Mapping[str, Any] = field(default_factory=dict)
    n_kv_heads: int | Sequence[int] | None = None
    head_dim: int | None = None
    rope_theta: float | None = None
    temperature: Temperature = None
    out: bool = True
    layer_index: int = 0
    bias: bool = True
    dropout: float = 0.0
    kdim: int | None = None
    vdim: int | None = None

    def __post_init__(self) -> None:
        for option in ("d_model", "n_heads", "n_rounds", "head_dim", "kdim", "vdim"):
            value = getattr(self, option)
            optional = option in ("head_dim", "kdim", "vdim") and value is None
            require(optional or is_count(value), f"{option}={value!r} must be an integer of at least 1")
        require_choice("gate", self.gate, GATES)
        require_choice("kv_source", self.kv_source, KV_SOURCES)
        require_choice("residual", self.residual, RESIDUALS)
        require_choice("space", self.space, SPACES)
        self._check_heads()
        require(
            self.rope_theta is None or (is_number(self.rope_theta) and self.rope_theta > 0 and self.d_head % 2 == 0),
            f"rope_theta={self.rope_theta!r} needs a positive base and an even head_dim, got head_dim={self.d_head}",
        )
        require(
            self.temperature in (None, "learned") or (is_number(self.temperature) and self.temperature > 0),
            f"temperature={self.temperature!r} must be None (1/sqrt(head_dim)), 'learned', "
            "or a positive factor on the scores",
        )
        require(
            self.out or self.space == "heads",
            "out=False needs space='heads'; with space='output' every round has its own output projection",
        )
        require(
            isinstance(self.layer_index, int) and self.layer_index >= 0,
            f"layer_index={self.layer_index!r} must be an integer of at least 0",
        )
        require(is_number(self.dropout) and 0.0 <= self.dropout < 1.0, f"dropout={self.dropout!r} must lie in [0, 1)")

    def _check_heads(self) -> None:
        d, h = self.d_model, self.n_heads
        require(
            self.head_dim is not None or d % h == 0,
            f"n_heads={h} does not divide d_model={d}; allowed: {', '.join(map(str, divisors(d)))} (or give head_dim)",
        )
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
            require(
                is_count(n) and h % n == 0,
                f"n_kv_heads={self.n_kv_heads} must divide n_heads={h}; allowed: {', '.join(map(str, divisors(h)))}",
            )
        require(
            self.kv_source != "shared" or len(set(self.kv_heads)) == 1,
            f"n_kv_heads={self.n_kv_heads} with kv_source='shared' must be the same in every round: there is one K/V",
        )

    @property
    def d_head(self) -> int:
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

    def reads_own_kv(self, m: int) -> bool:
        """Whether round m projects keys and values of its own."""
        return m == 0 or self.kv_source != "shared"


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def common_options(options: CommonOptions) -> CommonOptions:
    """The options themselves, if every layer has them."""
    allowed = list(CommonOptions.__annotations__)
    for option in options:
        require(
            option in allowed, f"no option {option!r}{nearest(option, allowed)} (common options: {', '.join(allowed)})"
        )
    return options


def divisors(n: int) -> list[int]:
    return [i for i in range(1, n + 1) if n % i == 0]
