"""The models of the retrieval tables are what their names say."""

import pytest
import torch

from boosted_attention.retrieval.models import RetrievalModel
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import seeded

TASK = RetrievalTask(d=8, n_patterns=4)


def attention(layer, state, patterns):
    """One step with the layer's own projections and inverse temperature."""
    learner = layer.rounds[0]
    q, k, v = learner.get_parameter("qkv.weight").chunk(3)
    return (learner.log_beta.exp() * (state @ q.T) @ (patterns @ k.T).T).softmax(-1) @ (patterns @ v.T)


@pytest.mark.parametrize(("family", "steps"), [("unrolled", 20), ("implicit", 21)])
def test_converged_families_take_twenty_steps(family, steps):
    """The answer is the twentieth of a loop written out; the implicit one's carries the gradient and is one more."""
    layer = seeded(lambda: RetrievalModel(family=family).build(TASK.d), 1)
    x = torch.randn(5, TASK.d)
    patterns = 3.0 * TASK.patterns()  # far enough apart that the steps differ
    with torch.no_grad():
        layer.rounds[0].get_parameter("qkv.weight").mul_(2.0)
        answer = layer(x[None], memory=patterns[None])[0]
        states = [x]
        for _ in range(steps):
            states.append(attention(layer, states[-1], patterns))
    torch.testing.assert_close(answer, states[-1], rtol=0, atol=1e-4)
    assert not torch.allclose(answer, states[1], atol=1e-2)


def test_one_round_is_one_step():
    layer = seeded(lambda: RetrievalModel().build(TASK.d), 1)
    x, patterns = torch.randn(5, TASK.d), TASK.patterns()
    with torch.no_grad():
        torch.testing.assert_close(layer(x[None], memory=patterns[None])[0], attention(layer, x, patterns))


def test_options_reach_the_boosted_layer():
    layer = RetrievalModel(n_rounds=3, gate="scalar", residual="input").build(8)
    assert (layer.config.n_rounds, layer.config.gate, layer.config.residual) == (3, "scalar", "input")
    assert layer.config.out_proj is False
