"""Training on the task, all seeds together: their weights are stacked and one vmap runs them side by side.

The settings that reproduce the paper's tables: MSE, Adam, fresh samples at every step, cosine annealing to 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from boosted_attention.attention.trace import traced_layers
from boosted_attention.progress import Progress
from boosted_attention.retrieval.task import RetrievalTask, Score, score
from boosted_attention.train.groups import rounds_of
from boosted_attention.train.phases import Phase, joint, stagewise

TEST_SEED = 1_000_003  # one test set for all seeds and models, so that differences are paired


class HasLoss(Protocol):
    """What a module may return instead of its prediction."""

    def loss(self, target: Tensor) -> Tensor:
        """Return the loss, given the patterns behind the queries (..., n, d): (...)."""
        ...


@dataclass(frozen=True, kw_only=True)
class RetrievalTraining:
    """Hyperparameters of training on the retrieval task.

    Args:
        steps: optimizer steps.
        lr: learning rate at the start; a cosine takes it to 0.
        batch: fresh queries per step.
    """

    steps: int = 150
    lr: float = 3e-3
    batch: int = 512


def seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Build a module with the initialisation of ``seed``, leaving the global random state alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def train(
    make: Callable[[int], nn.Module],
    task: RetrievalTask,
    training: RetrievalTraining,
    seeds: Sequence[int],
    *,
    together: bool = True,
    one_round_at_a_time: bool = False,
    progress: Progress = lambda fraction: None,
) -> list[nn.Module]:
    """Train one module per seed. A seed fixes initialisation and samples, whatever the other seeds are.

    Args:
        make: builds the module of a seed, which is called as ``module(x, memory=patterns)`` and returns predictions,
            or an object with a loss of its own; frozen parameters stay.
        task: patterns and noise.
        training: hyperparameters.
        seeds: one module is trained for each.
        together: stack all seeds in one vmap; otherwise they are trained one after the other.
        one_round_at_a_time: train stagewise, as ``train/phases.py`` says, each phase with a cosine of its own.
        progress: called with the fraction done.
    """
    modules = [seeded(partial(make, seed), seed) for seed in seeds]
    groups = [modules] if together else [[module] for module in modules]
    numbers = [list(seeds)] if together else [[seed] for seed in seeds]
    phases = joint(training.steps)
    if one_round_at_a_time:
        phases = stagewise(training.steps, max(layer.n_rounds for layer in traced_layers(modules[0]).values()))
    for done, (group, group_seeds) in enumerate(zip(groups, numbers, strict=True)):
        _train_group(
            group, task, training, group_seeds, phases, lambda f, done=done: progress((done + f) / len(groups))
        )
    return modules


def _train_group(
    modules: list[nn.Module],
    task: RetrievalTask,
    training: RetrievalTraining,
    seeds: Sequence[int],
    phases: Sequence[Phase],
    progress: Progress,
) -> None:
    memory = task.patterns()[None]  # (1, K, d)
    weights: dict[str, Tensor] = dict(modules[0].named_parameters())
    trainable = [name for name, t in weights.items() if t.requires_grad]
    if len(modules) > 1:
        weights = {name: t.detach() for name, t in stack_module_state(modules)[0].items()}
        for name in trainable:
            weights[name].requires_grad_()

    def predict(weights: dict[str, Tensor], x: Tensor) -> Tensor | HasLoss:
        made = functional_call(modules[0], weights, (x[None],), {"memory": memory})
        return made[0] if isinstance(made, Tensor) else made  # (n, d) -> (n, d)

    run = predict if len(modules) == 1 else vmap(predict)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    rounds = rounds_of(modules[0])
    for phase in phases:
        phase.leave_out_later_rounds(modules[0])
        chosen = [name for name in trainable if phase.trains(rounds[name])]
        for name in trainable:
            weights[name].requires_grad_(name in chosen)
        optimizer = torch.optim.Adam([weights[name] for name in chosen], lr=training.lr, fused=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, phase.length)
        for step in range(phase.first, phase.first + phase.length):
            samples = [task.sample(training.batch, generator) for generator in generators]
            x, index = (torch.stack(part) if len(modules) > 1 else part[0] for part in zip(*samples, strict=True))
            target = task.patterns()[index]  # (n, d) or (seeds, n, d)
            loss = loss_of(run(weights, x), target).sum()  # seeds and answers do not mix: each has its own gradient
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            progress((step + 1) / training.steps)
    if len(modules) > 1:
        for i, module in enumerate(modules):
            module.load_state_dict({name: t[i].detach() for name, t in weights.items()})


def loss_of(prediction: Tensor | HasLoss, target: Tensor) -> Tensor:
    """Return the mean squared error of each seed, or what a model's own output says.

    Args:
        prediction: (n, d) or (seeds, n, d), or with several answers per query before the last two dimensions; or an
            output with a loss of its own.
        target: patterns behind the queries, (n, d) or (seeds, n, d).
    """
    if not isinstance(prediction, Tensor):
        return prediction.loss(target)
    target = target[..., None, :, :] if prediction.ndim > target.ndim else target
    return (prediction - target).square().mean(dim=(-2, -1))


def test_set(task: RetrievalTask, size: int) -> tuple[Tensor, Tensor]:
    """Draw the first ``size`` queries of the one test set, in which patterns are equally frequent."""
    index = torch.arange(size) % task.n_patterns
    noise = torch.randn(size, task.d, generator=torch.Generator().manual_seed(TEST_SEED))
    return task.patterns()[index] + task.sigma * noise, index


@torch.no_grad()
def evaluate(predict: Callable[[Tensor], Tensor], task: RetrievalTask, size: int) -> Score:
    """Score a predictor on the common test set.

    Args:
        predict: maps queries (n, d) to predictions (n, d).
        task: patterns and noise.
        size: queries of the test set.
    """
    x, index = test_set(task, size)
    predictions = torch.cat([predict(part) for part in x.split(4096)])
    return score(predictions, index, task.patterns())
