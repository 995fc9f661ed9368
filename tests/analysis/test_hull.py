"""Hull distance: exact, certified, and of the outputs the model really makes."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from boosted_attention import LanguageModelConfig, TwicingAttention, capture
from boosted_attention.analysis.hull import head_outputs, hull_distance, hull_study


def slsqp(y, points):
    """The paper's way: a general solver from the uniform weights."""
    n = len(points)
    return minimize(
        lambda w: ((w @ points - y) ** 2).sum(),
        np.full(n, 1 / n),
        jac=lambda w: 2 * points @ (w @ points - y),
        bounds=[(0, None)] * n,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(n)},
        method="SLSQP",
        options={"ftol": 1e-10, "maxiter": 500},
    )


@pytest.mark.parametrize(("n", "d"), [(1, 4), (3, 16), (16, 16), (40, 16), (64, 64), (128, 8)])
def test_agrees_with_slsqp_and_is_certified(n, d):
    rng = np.random.default_rng(n * d)
    converged = 0
    for scale in (0.3, 1.0, 3.0):
        points, y = rng.standard_normal((n, d)), scale * rng.standard_normal(d)
        distance, gap = hull_distance(y, points)
        assert gap < 1e-10
        other = slsqp(y, points)
        if other.success:
            converged += 1
            theirs = np.sqrt(other.fun)
            assert distance <= theirs + 1e-9
            assert theirs**2 - distance**2 < 1e-6  # what the solver was asked for
        inside = rng.dirichlet(np.ones(n)) @ points
        assert hull_distance(inside, points)[0] < 1e-10
    assert converged


def trained_like(**options):
    torch.manual_seed(2)
    config = LanguageModelConfig(vocab_size=50, d_model=32, n_layers=2, n_heads=4, max_len=40, **options)
    model = config.build().eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return model


ROWS = torch.randint(50, (5, 41), generator=torch.Generator().manual_seed(0))
KINDS = [
    {},
    {"n_kv_heads": 2},
    {"positions": "rotary"},
    {"attention_options": {"scale": "learned"}},
    {"attention_options": {"n_rounds": 3}},
    {"attention_options": {"gate": "scalar"}},
    {"attention_options": {"kv_source": "shared"}},
]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_the_outputs_are_the_models(options):
    """What is recomputed in float64 is what the layer computed, head by head."""
    model = trained_like(**options).double()
    with torch.no_grad(), capture(model) as traces:
        model(ROWS[:1, :-1])
    for trace in traces.values():
        for head in range(4):
            _, found = head_outputs(trace.rounds, 0, head, np.random.default_rng(0))
            columns = slice(8 * head, 8 * head + 8)
            assert found["first estimate"] == pytest.approx(trace.rounds[0].estimate[0, :, columns].numpy(), abs=1e-12)
            assert found["boosted"] == pytest.approx(trace.rounds[-1].estimate[0, :, columns].numpy(), abs=1e-12)
            moved = np.linalg.norm(found["boosted"] - found["first estimate"], axis=1)
            random = np.linalg.norm(found["random correction"] - found["first estimate"], axis=1)
            assert random == pytest.approx(moved)


def test_the_twicing_control_is_twicing():
    model = trained_like()
    with torch.no_grad(), capture(model) as traces:
        model(ROWS[:1, :-1])
    rounds = traces["layers.0.attention"].rounds
    twicing = TwicingAttention(d_model=32, n_heads=4, out_proj=False).double()
    ours = model.layers[0].attention.rounds[0].qkv
    with torch.no_grad():
        twicing.rounds[0].qkv.weight.copy_(ours.weight)
        twicing.rounds[0].qkv.bias.copy_(ours.bias)
        y = twicing(rounds[0].residual.double(), is_causal=True)[0]
    for head in range(4):
        _, found = head_outputs(rounds, 0, head, np.random.default_rng(0))
        assert found["twicing"] == pytest.approx(y[:, 8 * head : 8 * head + 8].numpy(), abs=1e-4)


def test_standard_attention_stays_inside():
    """Every sampled pair, of a standard model and of a boosted one's first estimate, in float32 models."""
    for attention in ("standard", "boosted"):
        found = hull_study(trained_like(attention=attention), ROWS, pairs=100)
        for row in found:
            for kinds in (row.paper, row.beyond_head_dim):
                inside = kinds["first estimate"]
                assert inside.n == 100
                assert inside.largest_relative < 1e-8
                assert inside.outside == 0.0
                assert all(kind.largest_gap < 1e-10 for kind in kinds.values())


def test_corrections_leave_the_hull_and_random_ones_do_too():
    found = hull_study(trained_like(), ROWS, pairs=60)
    assert [row.layer for row in found] == [0, 1]
    assert found[0].head_dim == 8
    for row in found:
        boosted, random = row.paper["boosted"], row.paper["random correction"]
        assert boosted.mean > 0.01
        assert boosted.outside > 0.5
        assert random.outside > 0.5
        assert boosted.deciles[0] <= boosted.mean <= boosted.deciles[-1]
        assert 0 < boosted.relative <= boosted.largest_relative
    assert hull_study(trained_like(), ROWS, pairs=60) == found  # the same pairs every time


def test_no_position_sees_more_values_than_dimensions():
    found = hull_study(trained_like(), ROWS[:, :8], pairs=10)
    assert all(row.beyond_head_dim is None for row in found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention_options": {"space": "output"}}, r"layers\.0\.attention works in output space.*head space only"),
        ({"attention": "twicing"}, "learner='twicing', whose outputs are no averages"),
    ],
)
def test_what_has_no_hull_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        hull_study(trained_like(**options), ROWS, pairs=2)


def simplex_distance(y, points):
    n = len(points)
    found = minimize(
        lambda w: np.sum((points.T @ w - y) ** 2),
        np.full(n, 1 / n),
        jac=lambda w: 2 * points @ (points.T @ w - y),
        bounds=[(0, 1)] * n,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"maxiter": 500, "ftol": 1e-14},
    )
    return np.sqrt(found.fun)


@pytest.mark.parametrize(("n", "d"), [(1, 3), (5, 3), (8, 16), (40, 16)])
def test_hull_distance_is_exact(n, d):
    rng = np.random.default_rng(n)
    points = rng.standard_normal((n, d))
    for scale in (0.1, 1.0, 10.0):
        y = scale * rng.standard_normal(d)
        distance, gap = hull_distance(y, points)
        assert abs(gap) < 1e-10 * max(1.0, scale**2)
        assert distance == pytest.approx(simplex_distance(y, points), abs=2e-3)
    weights = rng.dirichlet(np.ones(n))
    assert hull_distance(weights @ points, points)[0] < 1e-10
    assert hull_distance(points[0] + 5.0, points[:1])[0] == pytest.approx(5.0 * np.sqrt(d))


def test_hull_of_a_segment():
    points = np.array([[0.0, 0.0], [1.0, 0.0]])
    assert hull_distance(np.array([0.5, 2.0]), points)[0] == pytest.approx(2.0)
    assert hull_distance(np.array([3.0, 0.0]), points)[0] == pytest.approx(2.0)
    assert hull_distance(np.array([0.25, 0.0]), points)[0] < 1e-12
