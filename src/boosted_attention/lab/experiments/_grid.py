"""Grids of learning rates: which factor is best, whether it lies inside, and how a grid grows until it does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

CLOSE = 0.005  # of the perplexity: points nearer than this are taken for equal
LARGEST_GRID = 8  # points of an extended one
Points = Mapping[float, float | None]  # factor: validation perplexity; None where training diverged


def is_inside(points: Points) -> bool:
    """Whether the lowest perplexity has a point on either side; a diverged one counts as the worst."""
    values = [points[factor] for factor in sorted(points)]
    worst_last = [math.inf if value is None else value for value in values]
    return 0 < worst_last.index(min(worst_last)) < len(values) - 1


def best_factor(points: Points) -> float | None:
    """The factor with the lowest validation perplexity; of the best two, if they are close, the smaller.

    None where every training diverged.
    """
    best_two = sorted((value, factor) for factor, value in points.items() if value is not None)[:2]
    close = [factor for value, factor in best_two if value <= best_two[0][0] * (1 + CLOSE)]
    return min(close, default=None)


def described(points: Points, shown: Callable[[float], str] = "x {:g}".format) -> str:
    """What a grid found at every rate, which one is taken, and by which rule.

    Args:
        points: the grid.
        shown: a factor in words.
    """
    tried = ", ".join(f"{shown(f)} {'diverged' if v is None else f'{v:.3f}'}" for f, v in sorted(points.items()))
    best = best_factor(points)
    edge = "" if is_inside(points) else ", at the edge of the grid"
    taken = shown(min(points) if best is None else best)
    return f"{tried}; taken {taken}{edge} (of two within {100 * CLOSE:g} % the smaller)"


def extension(points: Points, step: float) -> float | None:
    """The factor that a grid lacks: beyond the edge at which the lowest perplexity lies; None if it needs no more.

    A grid on which everything diverged grows towards smaller rates.

    Args:
        points: the grid.
        step: ratio of neighbours.
    """
    if is_inside(points) or len(points) >= LARGEST_GRID:
        return None
    smallest, *_, largest = sorted(points)
    known = [(value, factor) for factor, value in points.items() if value is not None]
    return largest * step if known and min(known)[1] == largest else smallest / step


def grown(
    factors: Sequence[float], points_at: Callable[[Sequence[float]], Points], step: float
) -> tuple[tuple[float, ...], float | None]:
    """The factors to be tried, and the best of them once all have been: the smallest where every training diverged.

    Args:
        factors: the grid to begin with.
        points_at: its points by factor; KeyError if one is not there yet.
        step: ratio of neighbours.
    """
    while True:
        try:
            points = points_at(factors)
        except KeyError:
            return tuple(factors), None
        more = extension(points, step)
        if more is None:
            best = best_factor(points)
            return tuple(factors), min(factors) if best is None else best
        factors = sorted((*factors, more))
