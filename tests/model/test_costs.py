"""What a model costs, known without building it."""

import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from boosted_attention import LanguageModelConfig, list_attention
from boosted_attention.attention.checks import CHECK_OPTIONS
from tests.conftest import MIXED, every_layer

SOLVES = {  # torch counts no triangular solve: n^2 multiplications and additions for each column of the right side
    torch.ops.aten.linalg_solve_triangular: lambda a, b, *, out_shape, **_: math.prod(b) * b[-2]
}
PAPER = {"vocab_size": 16_384, "d_model": 256, "n_layers": 4, "n_heads": 4, "max_len": 256}


@pytest.mark.parametrize(
    ("options", "parameters", "not_embeddings"),
    [
        ({"attention": "standard"}, 7_419_392, 3_159_552),
        ({"attention": "twicing"}, 7_419_392, 3_159_552),
        ({"attention": "standard", "d_model": 288}, 8_789_184, 3_996_864),
        ({"attention": "boosted"}, 8_734_208, 4_474_368),
        ({"attention": "standard", "n_layers": 5}, 8_209_152, 3_949_312),
    ],
)
def test_the_papers_models_have_their_exact_sizes(options, parameters, not_embeddings):
    config = LanguageModelConfig(**{**PAPER, **options})
    assert config.num_params() == parameters
    assert config.num_params(embeddings=False) == not_embeddings


@pytest.mark.parametrize("name", list_attention())
def test_num_params_is_what_building_gives(name):
    config = LanguageModelConfig(attention=name, d_model=32, vocab_size=50, max_len=16)
    assert config.num_params() == sum(p.numel() for p in config.build().parameters())


@pytest.mark.parametrize("name", every_layer())
@pytest.mark.parametrize(
    "options", [{}, {"n_kv_heads": 2, "positions": "rotary", "tie_weights": False, "qk_norm": True}]
)
def test_flops_are_those_the_counter_sees_on_the_explicit_kernel(name, options):
    """On the meta device, where iterated learners cannot stop early and so do all they may."""
    of_layer = {**CHECK_OPTIONS.get(name, {}), "kernel": "explicit"}
    if name in MIXED:
        name, of_layer = "boosted", {"n_rounds": len(MIXED[name]["learner"]), **MIXED[name], **of_layer}
    config = LanguageModelConfig(
        attention=name, attention_options=of_layer, d_model=32, vocab_size=50, max_len=24, **options
    )
    model = config.on_meta()
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=SOLVES) as counter:
        model(torch.zeros(3, 24, dtype=torch.long, device="meta"))
    assert config.flops() * 3 * 24 == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_twicing_counts_one_score_and_two_sums_and_reports_the_fused_extra_apart():
    costs = {name: LanguageModelConfig(attention=name, **PAPER) for name in ("standard", "twicing", "boosted")}
    products = 2 * 256 * 256 * 4  # one product of T x d numbers, in four layers
    assert costs["twicing"].flops() - costs["standard"].flops() == products
    assert costs["twicing"].fused_extra_flops() == products
    assert costs["standard"].fused_extra_flops() == costs["boosted"].fused_extra_flops() == 0
    relative = costs["boosted"].flops() / costs["standard"].flops()
    assert relative == pytest.approx(1.23, abs=0.005)
