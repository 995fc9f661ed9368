"""Sequences that all studies see."""

import pytest
import torch

from tests.analysis.made import T, V


@pytest.fixture(scope="module")
def rows():
    return torch.randint(V, (6, T + 1), generator=torch.Generator().manual_seed(5))
