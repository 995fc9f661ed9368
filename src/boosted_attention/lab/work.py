"""The work of a run: functions of (progress, **config) whose result is JSON. Results are keyed by seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.trace import capture
from boosted_attention.retrieval.iteration import accuracy_after, contraction, critical_beta, fixed_points
from boosted_attention.retrieval.models import RetrievalModel
from boosted_attention.retrieval.predictors import PREDICTORS
from boosted_attention.retrieval.routing import FEATURES, Routers
from boosted_attention.retrieval.task import RetrievalTask, score
from boosted_attention.retrieval.training import Training, evaluate, test_set, train

Progress = Callable[[float], None]
Config = dict[str, Any]


def baselines(progress: Progress, *, task: Config, test_size: int) -> Config:
    """Chance, raw query, MAP and Bayes on one test set."""
    the_task = RetrievalTask(**task)
    return {name: asdict(evaluate(make(the_task), the_task, test_size)) for name, make in PREDICTORS.items()}


def retrieval(
    progress: Progress, *, task: Config, model: Config, training: Config, seeds: Sequence[int], test_size: int
) -> Config:
    """Train one model for all seeds and score it; with what the partial sums F_m are worth after each round."""
    the_task, the_model = RetrievalTask(**task), RetrievalModel(**model)
    layers = train(
        lambda _: the_model.build(the_task.d),
        the_task,
        Training(**training),
        seeds,
        progress=lambda f: progress(0.95 * f),
    )
    memory, result = the_task.patterns()[None], {}
    for seed, layer in zip(seeds, layers, strict=True):
        assert isinstance(layer, AttentionLayer)
        found = evaluate(lambda x, layer=layer: layer(x[None], memory=memory)[0], the_task, test_size)
        result[str(seed)] = {**asdict(found), "rounds": _rounds(layer, the_task)}
    return result


@torch.no_grad()
def _rounds(layer: AttentionLayer, task: RetrievalTask) -> list[Config]:
    """Per round: distance of F_m to the query (what boosting would reduce) and to the pattern (what training does)."""
    x, index = test_set(task, 2048)
    with capture(layer) as traces:
        layer(x[None], memory=task.patterns()[None])
    target = task.patterns()[index]
    rows = []
    for trace in traces[""].rounds:
        estimate, c, r = trace.estimate[0], trace.correction[0], trace.residual[0]
        rows.append(
            {
                "to_query": float((x - estimate).norm(dim=-1).mean()),
                "to_pattern": float((target - estimate).norm(dim=-1).mean()),
                "cosine": float(torch.cosine_similarity(c, r, dim=-1).mean()),
                "gate": None if trace.gate is None else mean_gate(trace.gate),
            }
        )
    return rows


def mean_gate(gate: Tensor) -> float:
    """Mean of a gate (1, T, D); one that all share, (1, T, 1), is its own mean, which a sum of copies would round."""
    return float(gate.mean() if gate.shape[-1] > 1 else gate[0, 0, 0])


def routing(progress: Progress, *, task: Config, training: Config, seeds: Sequence[int], test_size: int) -> Config:
    """Train one-step attention, freeze it, train routers between it and its converged iteration, by features."""
    the_task, the_training = RetrievalTask(**task), Training(**training)
    memory, build = the_task.patterns()[None], RetrievalModel().build
    trained = train(lambda _: build(the_task.d), the_task, the_training, seeds, progress=lambda f: progress(0.2 * f))
    layers = {seed: layer for seed, layer in zip(seeds, trained, strict=True) if isinstance(layer, AttentionLayer)}
    routers = train(
        lambda seed: Routers(layers[seed]), the_task, the_training, seeds, progress=lambda f: progress(0.2 + 0.7 * f)
    )
    x, index = test_set(the_task, test_size)
    result: Config = {name: {} for name in FEATURES}
    for seed, router in zip(seeds, routers, strict=True):
        assert isinstance(router, Routers)
        with torch.no_grad():
            gates, one, rest = router.route(x[None], memory=memory)
        for name, g in gates.items():
            answers = {"routed": g * one + (1 - g) * rest, "one_step": one, "converged": rest}
            result[name][str(seed)] = {
                **{label: asdict(score(answer[0], index, memory[0])) for label, answer in answers.items()},
                "weight_on_one_step": float(g.mean()),
                "chose_one_step": 100 * float((g > 0.5).double().mean()),
            }
    return result


def temperature(
    progress: Progress,
    *,
    task: Config,
    betas: Sequence[float],
    steps: Sequence[int],
    seeds: Sequence[int],
    test_size: int,
) -> Config:
    """Iterated, untrained retrieval over beta (rows) and steps (columns): accuracy, and how many patterns are kept."""
    the_task = RetrievalTask(**task)
    result: Config = {"identity": [], "default": [], "fixed_points": [], "contraction": []}
    for i, beta in enumerate(betas):
        result["identity"].append([accuracy_after(the_task, beta, n, test_size, init="identity") for n in steps])
        result["default"].append(
            [
                {str(seed): accuracy_after(the_task, beta, n, test_size, init="default", seed=seed) for seed in seeds}
                for n in steps
            ]
        )
        result["fixed_points"].append([fixed_points(the_task, beta, n) for n in steps])
        result["contraction"].append(contraction(the_task, beta))
        progress((i + 1) / (len(betas) + 1))
    bayes = evaluate(PREDICTORS["bayes"](the_task), the_task, test_size).accuracy
    return {**result, "critical_beta": critical_beta(the_task), "bayes": bayes}


def propositions(progress: Progress, *, seed: int) -> list[Config]:
    """Every proposition's check with its counter-case."""
    from boosted_attention.theory.catalog import CHECKS

    findings = []
    for done, check in enumerate(CHECKS):
        findings.append(asdict(check(seed)))
        progress((done + 1) / len(CHECKS))
    return findings
