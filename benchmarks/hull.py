"""The exact distance from a hull, by non-negative least squares, against the paper's general solver.

make bench
"""

import numpy as np
from scipy.optimize import minimize

from benchmarks.interleaved import compare
from boosted_attention.analysis.hull import hull_distance

VALUES, DIMENSIONS, POINTS = 64, 64, 3  # the paper's largest problem


def slsqp(y: np.ndarray, points: np.ndarray) -> float:
    """As in the paper's Appendix E: from uniform weights, without derivatives given."""
    n = len(points)
    found = minimize(
        lambda w: ((w @ points - y) ** 2).sum(),
        np.full(n, 1 / n),
        bounds=[(0, 1)] * n,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        method="SLSQP",
    )
    return float(np.sqrt(found.fun))


def main() -> None:
    draw = np.random.default_rng(0)
    problems = [(draw.standard_normal(DIMENSIONS), draw.standard_normal((VALUES, DIMENSIONS))) for _ in range(POINTS)]
    inside = [(draw.dirichlet(np.ones(VALUES)) @ points, points) for _, points in problems]
    compare(
        f"distance from the hull of {VALUES} values in {DIMENSIONS} dimensions, {2 * POINTS} points",
        {
            "NNLS": lambda: [hull_distance(*problem) for problem in problems + inside],
            "SLSQP": lambda: [slsqp(*problem) for problem in problems + inside],
        },
        repeats=5,
    )
    worst = max(slsqp(*problem) for problem in inside), max(hull_distance(*problem)[0] for problem in inside)
    print(f"points inside, largest distance: SLSQP {worst[0]:.1e}, NNLS {worst[1]:.1e}")


if __name__ == "__main__":
    main()
