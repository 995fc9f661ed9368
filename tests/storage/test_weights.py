"""Weights as they enter: any value that is not finite is found, and its tensor named."""

import pytest
import torch

from boosted_attention.storage.documents import DamagedError
from boosted_attention.storage.weights import is_finite, require_finite


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e5m2])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_one_value_among_many_is_found(dtype, value):
    t = torch.zeros(3, 501)
    require_finite({"good": t.to(dtype)}, "folder")
    t[2, 77] = value
    with pytest.raises(DamagedError, match=r"folder: 1 of the 1503 values of bad are infinite or NaN"):
        require_finite({"good": torch.zeros(2).to(dtype), "bad": t.to(dtype)}, "folder")


def test_infinities_that_cancel_are_found():
    with pytest.raises(DamagedError, match="2 of the 2"):
        require_finite({"both": torch.tensor([float("inf"), float("-inf")])}, "folder")


def test_large_values_whose_sum_overflows_pass():
    for large in (torch.full((1000,), 60_000.0, dtype=torch.float16), torch.full((10,), 3e38)):
        assert not large.sum().isfinite()
        assert is_finite(large)


def test_integers_and_shapes_without_values_pass():
    passed = {"ids": torch.arange(3), "meta": torch.empty(2, device="meta"), "none": torch.empty(0)}
    require_finite(passed, "folder")
    with pytest.raises(DamagedError, match="values of last"):
        require_finite({**passed, "last": torch.tensor([float("nan")])}, "folder")  # they do not end the search
