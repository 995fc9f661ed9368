"""The exact distance from a hull, by non-negative least squares, against the paper's general solver."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from benchmarks.bench import Bench
from benchmarks.race import Race
from benchmarks.section import Section, Shown, ratio, seconds, table
from boosted_attention.analysis.hull import hull_distance

NNLS, SLSQP = "NNLS", "SLSQP"
POINTS, TURNS = 3, 5


@dataclass(frozen=True, kw_only=True)
class Hull:
    """Times, and the largest distance that each solver finds for points that lie inside."""

    values: int
    dimensions: int
    points: int
    solvers: Race
    inside: dict[str, float]


def slsqp(y: np.ndarray, points: np.ndarray) -> float:
    """Solve as in the paper's Appendix E: from uniform weights, without derivatives given."""
    n = len(points)
    found = minimize(
        lambda w: ((w @ points - y) ** 2).sum(),
        np.full(n, 1 / n),
        bounds=[(0, 1)] * n,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        method="SLSQP",
    )
    return float(np.sqrt(found.fun))


def measure(bench: Bench) -> Hull:
    """Time both on points outside and inside."""
    values = dimensions = 8 if bench.quick else 64  # the paper's largest problem
    draw = np.random.default_rng(0)
    outside = [(draw.standard_normal(dimensions), draw.standard_normal((values, dimensions))) for _ in range(POINTS)]
    inside = [(draw.dirichlet(np.ones(values)) @ points, points) for _, points in outside]
    problems = outside + inside
    race = bench.race(
        "solvers",
        {
            NNLS: lambda: [hull_distance(*problem) for problem in problems],
            SLSQP: lambda: [slsqp(*problem) for problem in problems],
        },
        TURNS,
        until=1.0,
    )
    worst = {
        NNLS: max(float(hull_distance(*problem)[0]) for problem in inside),
        SLSQP: max(slsqp(*problem) for problem in inside),
    }
    return Hull(values=values, dimensions=dimensions, points=len(problems), solvers=race, inside=worst)


def show(hull: Hull) -> Shown:
    """Make the table."""
    rows = [
        [name, seconds(hull.solvers.median(name)), ratio(hull.solvers.ratio(name, NNLS)), f"{hull.inside[name]:.1e}"]
        for name in (NNLS, SLSQP)
    ]
    text = (
        f"{hull.points} points and hulls of {hull.values} values in {hull.dimensions} dimensions, half of the points "
        "inside. The paper solves this with SLSQP.\n\n"
    )
    return Shown(text=text + table(["", "time", "times NNLS", "largest distance of a point inside"], rows))


HULL = Section(name="hull", title="Distance from a hull", minutes=0.1, result=Hull, measure=measure, show=show)
