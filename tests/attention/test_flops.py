"""FLOPs that learners count for their maps are those torch sees; tests/model/test_costs has those of whole models."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from boosted_attention import attention_layer


@pytest.mark.parametrize("n_kv_heads", [4, 2])
@pytest.mark.parametrize("name", ["standard", "boosted", "twicing", "differential", "differential-v2", "gated"])
def test_maps_count_what_is_left_when_the_linear_maps_are_taken_away(name, n_kv_heads):
    layer = attention_layer(name, d_model=32, n_heads=4, n_kv_heads=n_kv_heads, kernel="explicit", device="meta")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(torch.empty(3, 24, 32, device="meta"))
    linear = sum(2 * module.weight.numel() for module in layer.modules() if isinstance(module, nn.Linear))
    maps = sum(learner.map_flops(24) for learner in layer.rounds)
    assert counter.get_total_flops() == 3 * 24 * (linear + maps)
    assert maps > 0
