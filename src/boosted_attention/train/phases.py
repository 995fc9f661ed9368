"""Phases of a training: one for everything, or rounds one after the other and then everything together.

    phase m < M    trains round m with its gate, on the loss of the task; all else is frozen, and rounds after it are
                   left out. Phase 0 trains the whole model without corrections.
    phase M        corrects: everything is trained

The M + 1 phases of a stagewise training are equally long, up to one update, and add up to the training's steps. Each
has the schedule of learning rates of a run of its own length, and an optimizer of its own. The gate is the boosting
rate, which is learned with its round.

Reference: Badirli et al., "Gradient Boosting Neural Networks: GrowNet", 2020, https://arxiv.org/abs/2002.07971
(learners added stage by stage, a learned boosting rate, a corrective step; there after every stage, here once at the
end); Huang et al., "Learning Deep ResNet Blocks Sequentially using Boosting Theory", ICML 2018,
https://arxiv.org/abs/1706.04964 (earlier blocks frozen).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from boosted_attention.attention.trace import ModuleTree, traced_layers
from boosted_attention.validation import require


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Some updates of a training, and what they train.

    Args:
        first: updates before it.
        length: its own updates.
        round: the round that is trained; None trains everything.
    """

    first: int
    length: int
    round: int | None = None

    def trains(self, round: int) -> bool:
        """Say whether parameters of a round are trained; those outside of corrections belong to round 0.

        Args:
            round: number of the round.
        """
        return self.round is None or round == self.round

    def leave_out_later_rounds(self, model: ModuleTree) -> None:
        """Switch off the rounds that come after the one that is trained, until another phase is begun.

        Args:
            model: any module that contains attention layers of boosted_attention.
        """
        for layer in traced_layers(model).values():
            layer.disabled = frozenset() if self.round is None else frozenset(range(self.round + 1, layer.n_rounds))


def joint(total: int) -> list[Phase]:
    """Return the one phase of a training that trains everything at once.

    Args:
        total: updates of the whole training.
    """
    return [Phase(first=0, length=total)]


def stagewise(total: int, n_rounds: int) -> list[Phase]:
    """Return the phases of a stagewise training: one for each round, and one for all.

    Args:
        total: updates of the whole training.
        n_rounds: M, rounds of the layers that have most.
    """
    require(n_rounds > 1, "stagewise=True needs correction rounds, and no layer of the model has any")
    require(
        total > n_rounds,
        f"stagewise=True needs at least {n_rounds + 1} steps, one for each of {n_rounds} rounds and one for all; there "
        f"are {total}",
    )
    starts = [total * i // (n_rounds + 1) for i in range(n_rounds + 2)]
    numbers: list[int | None] = [*range(n_rounds), None]
    return [
        Phase(first=first, length=end - first, round=number)
        for first, end, number in zip(starts, starts[1:], numbers, strict=False)
    ]


def phase_of(phases: Sequence[Phase], step: int) -> Phase:
    """Return the phase of the update after ``step`` others.

    Args:
        phases: the phases of the training.
        step: updates done.
    """
    return next(phase for phase in reversed(phases) if phase.first <= step)


def require_trained_rounds(rounds: Iterable[int], n_rounds: int) -> None:
    """Raise InputError unless every round has something that is trained.

    Args:
        rounds: the rounds of everything that is trained.
        n_rounds: M, rounds of the layers that have most.
    """
    absent = sorted(set(range(n_rounds)) - set(rounds))
    require(not absent, f"stagewise=True: nothing that is trained belongs to round {', '.join(map(str, absent))}")
