"""Base learners: what one round does with its input, and the registry of their names.

Softmax attention is in ``softmax.py``; ``attention/learners`` holds the others, most of which refine it, and says how
to add one. A round without an attention map derives from ``Learner``, which has what every round has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from torch import Tensor, nn

from boosted_attention.attention.discovery import discover
from boosted_attention.attention.options import OPTION_NAMES, LayerOptions
from boosted_attention.attention.round_call import KeyValue, Projected, RoundCall
from boosted_attention.documentation import Option, argument_texts
from boosted_attention.validation import nearest, require, require_choice


class Learner(nn.Module):
    """What every round has: a function of its input, an output projection where there is one, and what it asks for.

    Args:
        options: the layer's options.
        index: the round.
        d_head: width of a head, if it is not the layer's.
    """

    needs_square_map = False  # whether queries and keys must be the same positions, which rules out memory=
    needs_order = False  # whether it is for causal calls only
    needs_maps = False  # whether its formula contains the attention weights, which only the explicit kernel hands out
    needs_maps_in_backward = False  # whether its gradient alone does
    needs_heads = False  # whether F must be heads side by side, which rules out output space
    needs_estimate = False  # whether its input must be F itself and its keys and values round 0's
    only_corrects = False  # whether it needs a round before it
    starts_at_zero = False  # whether weights of its own make it add nothing at the start
    allows_dropout = True  # whether the learner makes sense with dropped weights
    has_map = False  # whether it has an attention map, which traces then show
    random_start: Mapping[str, float] = {}  # standard deviation of weights of its own that start at random, by name
    starts_as_first: Sequence[str] = ()  # linear layers that start as those of round 0 do, in a model

    def __init__(self, options: LayerOptions, index: int, d_head: int | None = None):
        super().__init__()
        self.d_head = d_head or options.d_head
        self.n_heads = options.n_heads
        self.n_kv_heads = options.kv_heads[index]
        self.out_proj: nn.Linear | None = None

    def reset_parameters(self) -> None:
        """Draw all weights anew, in the order of construction."""
        raise NotImplementedError

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the projections that the round has, of q, k and v."""
        return ()

    def silence(self, part: str) -> None:
        """Set the part that makes the round add nothing to zero; a learner that starts at zero has none."""

    def can_read(self, first: Learner) -> bool:
        """Return whether the round can read what round 0 projected, where it shares that."""
        return True

    def packed_matrices(self) -> dict[str, Callable[[Tensor], Sequence[Tensor]]]:
        """Return how weights that hold several matrices divide into them, by name."""
        return {}

    def forward(
        self, z: Tensor, shared: Projected | None, source: KeyValue, call: RoundCall
    ) -> tuple[Tensor, Projected | None]:
        """Run one round.

        Args:
            z: the round's input (B, T, D).
            shared: what round 0 projected, for a round that shares it; None where the round projects its own.
            source: (key, value), each (B, S, D): where keys and values come from.
            call: kernel, mask, angles, cache and trace of this call.

        Returns:
            The round's output (B, T, D), and what it projected and read, None without a map.
        """
        raise NotImplementedError

    def map_flops(self, n_keys: int) -> int:
        """Count what one query costs beyond the linear layers applied once."""
        return 0

    def fused_extra_flops(self, n_keys: int) -> int:
        """Count what the fused kernel computes beyond ``map_flops``."""
        return 0


LEARNERS: dict[str, type[Learner]] = {}

AnyLearner = TypeVar("AnyLearner", bound=type[Learner])


def register_learner(name: str) -> Callable[[AnyLearner], AnyLearner]:
    """Make a learner known under a name: ``@register_learner("twicing")`` above its class.

    Args:
        name: what the layer option ``learner`` takes.
    """

    def register(learner: AnyLearner) -> AnyLearner:
        require(LEARNERS.get(name, learner) is learner, f"learner={name!r} exists already; choose another name")
        LEARNERS[name] = learner
        return learner

    return register


def list_learners() -> list[str]:
    """Return the names that the layer option ``learner`` takes."""
    discover()
    return list(LEARNERS)


def learner_class(name: str) -> type[Learner]:
    """Return a learner by name, or raise InputError with the nearest one."""
    if name not in LEARNERS:
        discover()
    require_choice("learner", name, LEARNERS)
    return LEARNERS[name]


def own_options(learner: type[Learner]) -> list[Option]:
    """Return the options of a learner's own: the keyword-only arguments of its ``__init__``."""
    texts = argument_texts(learner.__doc__)
    parameters = inspect.signature(learner.__init__, eval_str=True).parameters.values()
    return [
        Option(p.name, p.default, texts.get(p.name, ""), p.annotation) for p in parameters if p.kind is p.KEYWORD_ONLY
    ]


def resolve(layer: str, given: Mapping[str, Any]) -> LayerOptions:
    """Sort the keywords of a layer into its own options and its learners'.

    Args:
        layer: name of the layer class, for messages.
        given: what was passed.

    Returns:
        The layer's options, whose ``learner_options`` hold one mapping per round.
    """
    keywords = {name: value for name, value in given.items() if name not in OPTION_NAMES}
    options = LayerOptions(**{name: value for name, value in given.items() if name in OPTION_NAMES})
    taken = [[option.name for option in own_options(learner_class(name))] for name in options.learners]
    known = list(dict.fromkeys(name for names in taken for name in names))
    allowed = [*OPTION_NAMES, *known]
    for name in keywords:
        require(
            name in allowed, f"{layer} has no option {name!r}{nearest(name, allowed)} (options: {', '.join(allowed)})"
        )
    per_round = []
    for m, (learner, names) in enumerate(zip(options.learners, taken, strict=True)):
        own = options.options_of(m)
        shared = isinstance(options.learner_options, Mapping)
        for name in own:
            require(
                name in (known if shared else names),
                f"learner_options: learner={learner!r} has no option {name!r}{nearest(name, names)} "
                f"(options: {', '.join(names) or 'none'})",
            )
            require(name not in keywords, f"{name} is given twice, as a keyword and in learner_options")
        per_round.append({name: value for name, value in {**own, **keywords}.items() if name in names})
    return replace(options, learner_options=tuple(per_round))
