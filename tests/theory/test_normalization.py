"""Ranks of Jacobians that are known."""

import numpy as np
import torch

from boosted_attention.theory import normalization
from tests.theory.values import only


def test_ranks_are_those_of_known_jacobians():
    """LayerNorm's has rank d - 2 without eps, d - 1 with it; zero gammas take away what they can."""
    found = normalization.post_norm_rank(1)
    assert only(found.measured, "rank in") == 10
    assert [only(found.counter, name) for name in ("eps = 1e-5", "2 zero", "3 zero")] == [11, 10, 9]
    u, gamma = torch.randn(12).double(), torch.ones(12).double()
    jacobian = normalization.jacobian(lambda v: normalization.layer_norm(v, gamma, 0.0), u)
    assert np.linalg.matrix_rank(jacobian.numpy()) == normalization.rank(jacobian) == 10
    torch.testing.assert_close(jacobian @ torch.ones(12).double(), torch.zeros(12).double())
