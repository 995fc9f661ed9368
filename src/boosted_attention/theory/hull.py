"""The exact distance of a point from a convex hull, by non-negative least squares.

    min_w ||V^T w - y||,  w >= 0,  sum w = 1

With A = [(V - y)^T; 1^T] and b = [0; 1], the minimiser of ||A w - b||^2 over w >= 0, scaled to sum 1, solves it: for
w = s u with sum u = 1 the objective is s^2 D(u)^2 + (s - 1)^2, whose minimum over s grows with D(u).
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls


def hull_distance(y: np.ndarray, points: np.ndarray) -> tuple[float, float]:
    """Distance of y (d,) to conv(points (n, d)), and the duality gap that certifies it."""
    shifted = points - y  # (n, d)
    a = np.vstack([shifted.T, np.ones(len(points))])
    b = np.zeros(a.shape[0])
    b[-1] = 1.0
    w, _ = nnls(a, b)
    w = w / w.sum()
    offset = w @ shifted  # (d,)
    gradient = shifted @ offset
    return float(np.linalg.norm(offset)), float(w @ gradient - gradient.min())
