"""Proposition 2: the residual is the negative gradient of a squared loss, and the gate is a shrinkage."""

from __future__ import annotations

import math

import torch

from boosted_attention.attention.layer import AttentionLayer, BoostedAttention
from boosted_attention.attention.trace import capture
from boosted_attention.retrieval.models import RetrievalModel
from boosted_attention.retrieval.predictors import PREDICTORS
from boosted_attention.retrieval.task import RetrievalTask
from boosted_attention.retrieval.training import RetrievalTraining, seeded, test_set, train
from boosted_attention.theory.finding import Finding, gaussian, generator


def residual_is_the_gradient(seed: int) -> Finding:
    """Proposition 2: x - F = -grad_F ||x - F||^2 / 2."""
    draw = generator(seed)
    x = gaussian(2, 9, 16, draw=draw)
    layer = seeded(lambda: BoostedAttention(16, 2, out_proj=False), seed).double()
    with capture(layer) as traces:
        layer(x)
    first, second = traces[""].rounds
    estimate = first.estimate.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(0.5 * (x - estimate).square().sum(), estimate)
    error = float((-gradient - second.residual).detach().abs().max())

    task = RetrievalTask()
    trained = train(lambda _: RetrievalModel(n_rounds=2).build(task.d), task, RetrievalTraining(), [seed])[0]
    queries, _ = test_set(task, 2048)
    with capture(trained) as traces, torch.no_grad():
        trained(queries[None], memory=task.patterns()[None])
    distance = [float((queries - trace.estimate[0]).norm(dim=-1).mean()) for trace in traces[""].rounds]
    cosine = torch.cosine_similarity(traces[""].rounds[1].correction, traces[""].rounds[1].residual, dim=-1)
    return Finding(
        name="2",
        paper="r = x - F is the negative gradient of ||x - F||^2 / 2, so a round is a boosting step on it.",
        measured={"largest difference between r and the negative gradient": error},
        holds=error < 1e-12,
        condition=(
            "No round is fitted to r: training minimises the task's loss. On the retrieval task ||x - F|| hardly falls "
            "from round to round."
        ),
        counter={
            "||x - F_0|| after training": distance[0],
            "||x - F_1|| after training": distance[1],
            "cosine of the correction with r": float(cosine.mean()),
        },
        counter_holds=distance[1] > 0.9 * distance[0],
    )


def scalar_gate_is_shrinkage(seed: int) -> Finding:
    """Proposition 2: with a scalar gate, F = f_0 + eta sum_m f_m, as in Friedman (2001)."""
    draw, eta = generator(seed), 0.3
    x = gaussian(2, 9, 16, draw=draw)
    layer = seeded(lambda: BoostedAttention(16, 2, gate="scalar", n_rounds=4, out_proj=False), seed).double()
    assert isinstance(layer, AttentionLayer)
    with torch.no_grad():
        for gate in layer.gates:
            gate.get_parameter("logit").fill_(math.log(eta / (1 - eta)))
    with capture(layer) as traces, torch.no_grad():
        layer(x)
    rounds = traces[""].rounds
    total = rounds[0].estimate + eta * sum(trace.correction for trace in rounds[1:])
    error = float((total - rounds[-1].estimate).abs().max())

    vector = seeded(lambda: BoostedAttention(16, 2, out_proj=False), seed).double()
    with capture(vector) as traces, torch.no_grad():
        vector(x)
    gate = traces[""].rounds[1].gate
    assert gate is not None
    return Finding(
        name="2-gate",
        paper="With a scalar gate the layer is Friedman's additive model with shrinkage eta.",
        measured={"largest difference from f_0 + eta sum f_m": error},
        holds=error < 1e-12,
        condition="The paper's own gate depends on the input and the dimension, so no single eta describes it.",
        counter={"spread of the vector gate over dimensions and positions": float(gate.std())},
        counter_holds=float(gate.std()) > 1e-3,
    )


def bayes_is_a_layer(seed: int) -> Finding:
    """The Bayes predictor sum_k p_k softmax_k(<p_k, x> / sigma^2) is an attention layer."""
    task = RetrievalTask(sigma=0.5)
    x, index = test_set(task, 200_000)  # the two differ by tenths of a point
    patterns = task.patterns()
    posterior = (x @ patterns.T / task.sigma**2).softmax(dim=-1) @ patterns
    error = float((PREDICTORS["bayes"](task)(x) - posterior).abs().max())
    accuracy = {
        name: 100 * float((torch.cdist(p, patterns).argmin(-1) == index).double().mean())
        for name, p in (("Bayes", posterior), ("MAP", x))
    }
    return Finding(
        name="bayes",
        paper="The Bayes predictor of the task is attention with identity projections and beta = 1/sigma^2.",
        measured={"largest difference from this library's layer": error},
        holds=error < 1e-5,
        condition="It is optimal in squared error, not in accuracy: there the pattern nearest to the query is.",
        counter=accuracy,
        counter_holds=accuracy["MAP"] >= accuracy["Bayes"],
    )
