"""Rounds among the values: exclusive, value-basis; and the gates and residual rule that came with them."""

import pytest
import torch

from boosted_attention import BoostedAttention, LanguageModelConfig, TwicingAttention, attention_layer, capture
from boosted_attention.attention.gates import HeadwiseGate
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.groups import trained_parameters
from boosted_attention.train.optim import TrainingOptimizer
from tests.conftest import D_MODEL, N_HEADS, build, randn


def heads(t):
    """Heads side by side, (B, T, D) -> (B, H, T, dh)."""
    return t.unflatten(-1, (N_HEADS, -1)).transpose(1, 2)


@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
def test_nothing_is_left_along_the_own_value(n_kv_heads):
    layer, x = build("exclusive-fixed", n_kv_heads=n_kv_heads, out_proj=False), randn(2, 7, D_MODEL)
    with capture(layer) as traces:
        y = layer(x, is_causal=True)
    v = traces[""].rounds[0].v.repeat_interleave(N_HEADS // n_kv_heads, dim=1)
    assert (heads(traces[""].rounds[0].estimate) * v).sum(-1).abs().max() > 0.01
    torch.testing.assert_close((heads(y) * v).sum(-1), torch.zeros(2, N_HEADS, 7, dtype=torch.float64))
    assert not y[:, 0].abs().max() > 1e-12  # the first position has its own value alone


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_values_of_zero_leave_the_estimate_and_its_gradients_finite(dtype):
    layer, x = build("exclusive-fixed", dtype), randn(2, 5, D_MODEL, dtype=dtype).requires_grad_()
    with torch.no_grad():
        for rows in layer.rounds[0].rows("v"):
            rows[:8] = 0.0  # the values of one head
    y = layer(x, is_causal=True)
    y.float().square().sum().backward()
    assert y.isfinite().all()
    assert all(t.grad.isfinite().all() for t in (x, *layer.parameters()))


@pytest.mark.parametrize("n_kv_heads", [4, 2])
def test_asked_with_round_0s_query_and_added_whole_it_is_twicing(n_kv_heads):
    layer = build("value-basis-tied", n_kv_heads=n_kv_heads, rope_theta=1e4, qk_norm=True, scale="learned")
    twicing = TwicingAttention(
        D_MODEL, N_HEADS, n_kv_heads=n_kv_heads, rope_theta=1e4, qk_norm=True, scale="learned"
    ).double()
    with torch.no_grad():
        layer.gates[0].theta.fill_(30.0)  # tanh is 1
    twicing.load_state_dict({n: t for n, t in layer.state_dict().items() if "gates" not in n})
    x = randn(2, 9, D_MODEL)
    torch.testing.assert_close(layer(x, is_causal=True), twicing(x, is_causal=True), rtol=0, atol=1e-12)


def test_a_models_second_question_starts_as_a_copy_of_the_first():
    model = LanguageModelConfig(attention="value-basis", d_model=16, n_layers=2, vocab_size=50, max_len=8).build(seed=3)
    layers = [block.attention for block in model.layers]
    for layer in layers:
        assert torch.equal(layer.rounds[1].q.weight, layer.rounds[0].rows("q")[0])
    assert not torch.equal(layers[0].rounds[1].q.weight, layers[1].rounds[1].q.weight)


def test_a_headwise_gate_has_one_number_for_all_dimensions_of_a_head():
    gate = HeadwiseGate(D_MODEL, n_heads=N_HEADS).double()
    g = gate(randn(2, 5, D_MODEL), randn(2, 5, D_MODEL))
    assert g.shape == (2, 5, D_MODEL)
    assert torch.equal(heads(g), heads(g)[..., :1].expand(-1, -1, -1, D_MODEL // N_HEADS))
    assert len(g[0, 0].unique()) == N_HEADS


@pytest.mark.parametrize("gate", ["headwise", "tanh-headwise"])
def test_gates_per_head_are_traced_per_dimension(gate):
    layer, x = build("boosted", gate=gate), randn(2, 9, D_MODEL)
    with capture(layer) as traces:
        layer(x)
    first, second = traces[""].rounds
    assert second.gate.shape == (2, 9, D_MODEL)
    torch.testing.assert_close(second.estimate, first.estimate + second.gate * second.correction, rtol=0, atol=1e-12)


@pytest.mark.parametrize("space", ["heads", "output"])
def test_without_its_estimate_a_normalised_residual_is_the_input(space):
    x = randn(2, 9, D_MODEL)
    ours, parallel = (build("boosted", residual=rule, space=space) for rule in ("normalised", "input"))
    with torch.no_grad():
        ours.residuals[0].rho.zero_()
    ours.load_state_dict(parallel.state_dict(), strict=False)
    assert torch.equal(ours(x, is_causal=True), parallel(x, is_causal=True))


def test_a_normalised_residual_does_not_depend_on_the_size_of_the_estimate():
    layer, x = build("boosted-normalised"), randn(2, 9, D_MODEL)
    with torch.no_grad():
        layer.residuals[0].rho.fill_(1.0)
    small, large = (layer.residuals[0](x, size * randn(1, 1, D_MODEL)) - x for size in (1e-3, 1e3))
    for r in (small, large):
        torch.testing.assert_close(r.square().mean(-1), torch.ones(2, 9, dtype=torch.float64), rtol=1e-6, atol=0)


def test_its_weights_are_with_the_gates_and_do_not_decay_beside_matrices():
    model = LanguageModelConfig(
        attention="boosted-normalised", d_model=16, n_layers=1, vocab_size=50, max_len=8
    ).build()
    found = trained_parameters(model)["layers.0.attention.residuals.0.rho"]
    assert found.is_gate
    assert not found.is_matrix
    optimizer = TrainingOptimizer(TrainingConfig(optimizer="muon", weight_decay=0.1, gate_lr_factor=3.0), model)
    (group,) = [
        group
        for made in optimizer.optimizers.values()
        for group in made.param_groups
        if any(p is found.value for p in group["params"])
    ]
    assert group["weight_decay"] == 0.0
    assert group["highest"] == pytest.approx(3.0 * TrainingConfig(optimizer="muon").lr)


def test_every_correction_may_have_a_gate_and_a_residual_of_its_own():
    layer = BoostedAttention(8, 2, n_rounds=3, gate=["none", "headwise"], residual=("input", "normalised"))
    assert layer.config.gates == ("none", "headwise")
    assert [n for n, _ in layer.named_parameters() if n.startswith(("gates", "residuals"))] == [
        "gates.1.proj.weight",
        "gates.1.proj.bias",
        "residuals.1.rho",
    ]
    again = attention_layer("local-exclusive", d_model=8, n_heads=2)
    assert again.starts_silent
    assert again.config.residuals == ("error", "estimate")
