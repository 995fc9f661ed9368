"""Matched models: the standard model that costs what another model costs, or any model of a given cost.

The width is chosen first, as the paper does, in steps of the number of heads (twice that with rotary positions, which
turn pairs of dimensions). Where no width comes within one percent, the feed-forward network of the nearest width is
made a little wider or narrower to close the gap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.validation import InputError, require_choice

Cost = Callable[[LanguageModelConfig], float]

COSTS: dict[str, Cost] = {
    "parameters": lambda config: config.num_params(),
    "non-embedding parameters": lambda config: config.num_params(embeddings=False),
    "flops": lambda config: config.flops(),
}
CLOSE = 0.01  # of the cost


def matched(model: LanguageModelConfig, by: str = "parameters") -> LanguageModelConfig:
    """The standard model of the same depth and heads whose cost is nearest to another's.

    Args:
        model: the model to be matched.
        by: "parameters", "non-embedding parameters" or "flops".
    """
    require_choice("by", by, COSTS)
    standard = replace(model, attention="standard", attention_options={}, boosted_layers="all")
    return match_cost(standard, COSTS[by](model), by)


def match_cost(base: LanguageModelConfig, target: float, by: str = "parameters") -> LanguageModelConfig:
    """A model of another width whose cost is within one percent of ``target``.

    Args:
        base: the model to be made wider or narrower; its attention, depth and heads stay.
        target: the cost it is to have.
        by: a name of COSTS, which must grow with the width.
    """
    cost = COSTS[by]
    nearest = nearest_width(base, target, cost)
    if off(cost(nearest), target) > CLOSE:
        nearest = adjust_ffn(nearest, target, cost)
    found = cost(nearest)
    if off(found, target) > CLOSE:
        raise InputError(
            f"no {base.attention} model has {target:,.0f} {by}: the nearest, d_model={nearest.d_model} with a "
            f"feed-forward network of {nearest.d_ffn}, has {found:,.0f}"
        )
    return nearest


def nearest_width(base: LanguageModelConfig, target: float, cost: Cost) -> LanguageModelConfig:
    """Find the width of nearest cost, by bisection over multiples of n_heads; rotary positions need even heads."""
    unit = base.n_heads * (2 if base.positions == "rotary" else 1)

    def width(units: int) -> LanguageModelConfig:
        return replace(base, d_model=units * unit)

    low, high = 1, 2
    while cost(width(high)) < target:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(width(middle)) < target else (low, middle)
    return min((width(low), width(high)), key=lambda config: off(cost(config), target))


def adjust_ffn(base: LanguageModelConfig, target: float, cost: Cost) -> LanguageModelConfig:
    """Adjust the feed-forward network, in whose hidden width the cost is linear."""
    here = cost(base)
    per_unit = cost(with_ffn(base, base.d_ffn + 1)) - here
    return with_ffn(base, max(1, base.d_ffn + round((target - here) / per_unit)))


def with_ffn(base: LanguageModelConfig, hidden: int) -> LanguageModelConfig:
    return replace(base, ffn_multiple=hidden / base.d_model)


def off(value: float, target: float) -> float:
    return abs(value / target - 1)
