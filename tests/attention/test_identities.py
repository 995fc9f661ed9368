"""The mechanism says what the papers say: special cases, sizes and limits."""

import itertools
import math

import pytest
import torch
from torch.nn import functional

from boosted_attention import (
    BoostedAttention,
    DifferentialAttention,
    HopfieldAttention,
    KVCache,
    LowRankAttention,
    StandardAttention,
    TwicingAttention,
    attention_layer,
    capture,
)
from boosted_attention.attention.learners.differential import lambda_init
from tests.conftest import D_MODEL, N_HEADS, build, randn


def n_params(layer):
    return sum(p.numel() for p in layer.parameters())


def heads(t, n=N_HEADS):
    return t.unflatten(-1, (n, -1)).transpose(1, 2)


def test_sizes_of_the_paper():
    assert n_params(StandardAttention(256, 4)) == 263_168
    assert n_params(TwicingAttention(256, 4)) == 263_168
    assert n_params(BoostedAttention(256, 4)) == 591_872


def test_weight_names():
    def names(**options):
        return {name.rpartition(".")[0] for name, _ in BoostedAttention(8, 2, bias=False, **options).named_parameters()}

    assert names() == {"rounds.0.qkv", "rounds.1.qkv", "gates.0.proj", "out_proj"}
    assert names(kv_source="shared") == {"rounds.0.qkv", "rounds.1.q", "gates.0.proj", "out_proj"}
    assert names(space="output") == {f"rounds.{m}.{w}" for m in (0, 1) for w in ("qkv", "out_proj")} | {"gates.0.proj"}
    assert names(gate="scalar", out_proj=False) == {"rounds.0.qkv", "rounds.1.qkv", "gates.0"}
    assert names(gate="mlp", out_proj=False) >= {"gates.0.hidden", "gates.0.proj"}


def test_one_round_equals_standard():
    standard, boosted = build("standard"), build("boosted", n_rounds=1)
    boosted.load_state_dict(standard.state_dict())
    x = randn(2, 7, D_MODEL)
    assert torch.equal(boosted(x, is_causal=True), standard(x, is_causal=True))


def test_standard_equals_torch():
    layer = build("standard")
    torch_layer = torch.nn.MultiheadAttention(D_MODEL, N_HEADS, batch_first=True).double()
    torch_layer.load_state_dict(
        {
            "in_proj_weight": layer.rounds[0].qkv.weight,
            "in_proj_bias": layer.rounds[0].qkv.bias,
            "out_proj.weight": layer.out_proj.weight,
            "out_proj.bias": layer.out_proj.bias,
        }
    )
    x = randn(2, 7, D_MODEL)
    torch.testing.assert_close(layer(x), torch_layer(x, x, x)[0], rtol=0, atol=1e-12)


def test_algorithm_1_by_hand():
    layer, x = build("boosted", n_rounds=3), randn(2, 7, D_MODEL)

    def attention(m, z):
        q, k, v = (heads(t) for t in layer.rounds[m].qkv(z).chunk(3, dim=-1))
        weights = (q @ k.transpose(-2, -1) / math.sqrt(D_MODEL / N_HEADS)).softmax(-1)
        return (weights @ v).transpose(1, 2).flatten(2)

    estimate = attention(0, x)
    for m in (1, 2):
        correction = attention(m, x - estimate)
        gate = torch.sigmoid(layer.gates[m - 1].proj(torch.cat([estimate, correction], -1)))
        estimate = estimate + gate * correction
    torch.testing.assert_close(layer(x), layer.out_proj(estimate), rtol=0, atol=1e-12)


def test_twicing_equals_its_polynomial():
    layer, x = build("twicing", out_proj=False), randn(2, 9, D_MODEL)
    with capture(layer) as traces:
        y = layer(x, is_causal=True)
    a, v = traces[""].rounds[0].weights, traces[""].rounds[0].v
    torch.testing.assert_close(y, ((2 * a - a @ a) @ v).transpose(1, 2).flatten(2), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["strict-twicing", "delta"])
def test_values_are_reduced_by_what_earlier_positions_predict(name):
    """The map A_< by hand, and the reduced values in the cache: one step, or the solution of the system."""
    layer, x, cache = build(name, out_proj=False), randn(2, 9, D_MODEL), KVCache()
    with capture(layer) as traces:
        y = layer(x, is_causal=True, cache=cache)
    trace, u = traces[""].rounds[0], cache.layer(0).slots["u", 0]
    scores = trace.scale * trace.q @ trace.k.transpose(-2, -1)
    earlier = torch.ones(9, 9, dtype=torch.bool).tril(-1)
    before = scores[..., 1:, :].masked_fill(~earlier[1:], -torch.inf).softmax(-1)
    before = torch.cat([torch.zeros_like(before[..., :1, :]), before], dim=-2)  # the first position predicts zero
    predicted = before @ (trace.v if name == "strict-twicing" else u)
    torch.testing.assert_close(u, trace.v - trace.extra["beta"] * predicted, rtol=0, atol=1e-12)
    torch.testing.assert_close(heads(y), trace.weights @ u, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["strict-twicing", "delta"])
def test_nothing_is_predicted_where_beta_is_zero(name):
    layer, standard, x = build(name), build("standard"), randn(2, 9, D_MODEL)
    standard.load_state_dict({key: t for key, t in layer.state_dict().items() if ".beta." not in key})
    with torch.no_grad():
        layer.rounds[0].beta.bias.fill_(-1000.0)
    torch.testing.assert_close(layer(x, is_causal=True), standard(x, is_causal=True), rtol=0, atol=1e-12)


def test_low_rank_is_attention_with_narrow_heads():
    """At full rank and with E = 1 it is standard attention; its rank is a quarter of the width by default."""
    full, standard = build("low-rank", rank=D_MODEL, rope_theta=1e4), build("standard", rope_theta=1e4)
    x = randn(2, 9, D_MODEL)
    standard.load_state_dict({key: t for key, t in full.state_dict().items() if ".expand." not in key})
    with torch.no_grad():
        full.rounds[0].expand.weight.copy_(torch.eye(D_MODEL))
    torch.testing.assert_close(full(x, is_causal=True), standard(x, is_causal=True), rtol=0, atol=1e-12)
    ranks = [(64, 4, None, 16), (64, 4, 1e4, 16), (48, 4, 1e4, 8), (8, 4, None, 4), (8, 4, 1e4, 8)]
    for d_model, n_heads, rope_theta, rank in ranks:
        layer = LowRankAttention(d_model, n_heads, rope_theta=rope_theta)
        assert layer.rounds[0].expand.in_features == rank
    assert LowRankAttention(64, 4, rank=8).rounds[0].scale == pytest.approx(1 / math.sqrt(2))


def test_twicing_has_the_standard_layers_weights():
    outcome = build("twicing").load_state_dict(build("standard").state_dict())
    assert not outcome.missing_keys
    assert not outcome.unexpected_keys


def test_differential_v1_without_lambda_is_its_first_map():
    layer = build("differential", out_proj=False, layer_index=2)
    x, learner = randn(2, 9, D_MODEL), layer.rounds[0]
    with torch.no_grad():  # exp(0) - exp(lq2.lk2) + lambda_init = 0
        for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"):
            getattr(learner, name).zero_()
        learner.lambda_q2[0], learner.lambda_k2[0] = 1.0, math.log(1 + lambda_init(2))
    with capture(layer) as traces:
        y = layer(x, is_causal=True)
    trace = traces[""].rounds[0]
    assert abs(trace.extra["lambda"].item()) < 1e-15
    first = trace.weights[:, 0::2] @ trace.v  # (B, H/2, T, 2dh)
    expected = functional.rms_norm(first, first.shape[-1:], eps=1e-5) * (1 - lambda_init(2))
    torch.testing.assert_close(y, expected.transpose(1, 2).flatten(2), rtol=0, atol=1e-12)


def test_differential_v2_without_lambda_is_its_first_map():
    layer = build("differential-v2", out_proj=False)
    with torch.no_grad():
        layer.rounds[0].lambda_proj.weight.zero_()
        layer.rounds[0].lambda_proj.bias.fill_(-1000.0)
    standard = StandardAttention(D_MODEL, N_HEADS, out_proj=False).double()
    qkv, learner = layer.rounds[0].qkv, standard.rounds[0].qkv
    even = [row for head in range(N_HEADS) for row in range(16 * head, 16 * head + 8)]
    rest = list(range(2 * D_MODEL, 4 * D_MODEL))
    learner.load_state_dict({"weight": qkv.weight[even + rest], "bias": qkv.bias[even + rest]})
    x = randn(2, 9, D_MODEL)
    torch.testing.assert_close(layer(x, is_causal=True), standard(x, is_causal=True), rtol=0, atol=1e-12)


def test_differential_lambda_starts_where_the_paper_says():
    assert lambda_init(0) == pytest.approx(0.2)
    assert lambda_init(3) == pytest.approx(0.8 - 0.6 * math.exp(-0.9))
    first, later = (DifferentialAttention(8, 2, layer_index=i).rounds[0] for i in (0, 3))
    assert first.lambda_init < later.lambda_init


def test_differential_keeps_the_baseline_parameter_count():
    extra = n_params(DifferentialAttention(256, 4)) - n_params(StandardAttention(256, 4))
    assert extra == 4 * 64 + 128  # lambda vectors and the norm


def test_one_hopfield_step_is_attention():
    standard, hopfield = build("standard"), HopfieldAttention(D_MODEL, N_HEADS, n_steps=1).double()
    hopfield.load_state_dict(standard.state_dict())
    x = randn(2, 7, D_MODEL)
    assert torch.equal(hopfield(x), standard(x))


@pytest.mark.parametrize("name", ["composition", "parallax"])
def test_forms_that_refine_attention_start_as_attention(name):
    standard, layer = build("standard"), attention_layer(name, d_model=D_MODEL, n_heads=N_HEADS).double()
    outcome = layer.load_state_dict(standard.state_dict(), strict=False)
    assert not outcome.unexpected_keys
    x = randn(2, 7, D_MODEL)
    layer.kernel = standard.kernel = "explicit"
    assert torch.equal(layer(x, is_causal=True), standard(x, is_causal=True))


def test_parallax_is_the_change_of_attention_when_the_query_moves():
    """y = A v + d/de softmax(scale q k^T - e rho k^T) v at e = 0."""
    layer, x = build("parallax", out_proj=False), randn(2, 7, D_MODEL)
    with capture(layer) as traces:
        y = layer(x)
    trace = traces[""].rounds[0]
    k, v, rho = trace.k.transpose(-2, -1), trace.v, trace.extra["rho"]

    def attention(e):
        return (trace.scale * trace.q @ k - e * rho @ k).softmax(-1) @ v

    at, change = torch.func.jvp(attention, (torch.zeros(()).double(),), (torch.ones(()).double(),))
    torch.testing.assert_close(heads(y), at + change, rtol=0, atol=1e-12)


def test_scalar_gate_is_mart_shrinkage():
    layer, eta, x = build("boosted", gate="scalar", n_rounds=3, out_proj=False), 0.3, randn(2, 7, D_MODEL)
    with torch.no_grad():
        for gate in layer.gates:
            gate.logit.fill_(math.log(eta / (1 - eta)))
    with capture(layer) as traces:
        layer(x)
    rounds = traces[""].rounds
    for before, after in itertools.pairwise(rounds):
        torch.testing.assert_close(after.residual, x - before.estimate, rtol=0, atol=1e-12)
        torch.testing.assert_close(after.estimate, before.estimate + eta * after.correction, rtol=0, atol=1e-12)


def test_kv_sources_agree_when_the_first_estimate_is_zero():
    residual, from_input = build("boosted"), build("boosted-input")
    from_input.load_state_dict(residual.state_dict())
    with torch.no_grad():
        for layer in (residual, from_input):
            layer.rounds[0].qkv.weight[2 * D_MODEL :].zero_()
            layer.rounds[0].qkv.bias[2 * D_MODEL :].zero_()
    x = randn(2, 7, D_MODEL)
    torch.testing.assert_close(residual(x), from_input(x), rtol=0, atol=1e-12)
    assert residual(x).std() > 0.01


def test_shared_round_reads_round_zeros_keys_and_values():
    layer, x = build("boosted-shared"), randn(2, 7, D_MODEL)
    with capture(layer) as traces:
        layer(x)
    first, second = traces[""].rounds
    assert second.k is first.k
    assert second.v is first.v


def test_residual_rules():
    x = randn(2, 7, D_MODEL)
    for name, rule in (("boosted", lambda x, f: x - f), ("parallel", lambda x, f: x), ("sequential", lambda x, f: f)):
        layer = build(name)
        with capture(layer) as traces:
            layer(x)
        first, second = traces[""].rounds
        assert torch.equal(second.residual, rule(x, first.estimate))


def test_scale():
    x = randn(1, 5, D_MODEL)
    standard, scaled = build("standard"), build("standard", scale=1.5)
    learned = build("standard", scale="learned")
    scaled.load_state_dict(standard.state_dict())
    learned.load_state_dict(
        {**standard.state_dict(), "rounds.0.log_beta": torch.tensor(math.log(1.5), dtype=torch.float64)}
    )
    torch.testing.assert_close(scaled(x), learned(x), rtol=0, atol=1e-12)
    assert not torch.allclose(standard(x), scaled(x))
    assert build("boosted", scale="learned").rounds[1].log_beta.exp().item() == pytest.approx(2.0)


def test_bayes_predictor_is_a_layer_with_identity_projections():
    sigma, patterns, x = 0.5, functional.normalize(randn(6, 16), dim=-1), randn(1, 9, 16)
    layer = StandardAttention(16, 1, scale=1 / sigma**2, out_proj=False, bias=False).double()
    with torch.no_grad():
        layer.rounds[0].qkv.weight.copy_(torch.eye(16).repeat(3, 1))
    posterior = (x @ patterns.T / sigma**2).softmax(-1) @ patterns
    torch.testing.assert_close(layer(x, memory=patterns[None]), posterior, rtol=0, atol=1e-12)


def test_rotary_depends_on_distance_alone():
    layer, x = build("boosted", rope_theta=100.0), randn(2, 7, D_MODEL)
    shifted = layer(x, is_causal=True, positions=torch.arange(7) + 1000)
    torch.testing.assert_close(layer(x, is_causal=True), shifted, rtol=0, atol=1e-10)
    stretched = layer(x, is_causal=True, positions=torch.arange(7) * 2)
    assert not torch.allclose(stretched, shifted)


def test_fewer_kv_heads_in_the_correction():
    layer = BoostedAttention(32, 4, n_kv_heads=(4, 1))
    assert layer.rounds[0].qkv.out_features == 96
    assert layer.rounds[1].qkv.out_features == 32 + 8 + 8
