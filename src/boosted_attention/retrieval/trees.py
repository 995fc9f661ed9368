"""Gradient-boosted trees on the retrieval task: boosting as it is usually done, on the samples a model is trained with.

    F_0 = mean of y,    F_m = F_{m-1} + eta tree_m,    tree_m fitted to y - F_{m-1},    for each dimension of y apart

Reference: Friedman, "Greedy function approximation: a gradient boosting machine", Annals of Statistics 29, 2001. The
trees are those of scikit-learn's HistGradientBoostingRegressor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boosted_attention.progress import Progress
from boosted_attention.retrieval.task import RetrievalTask, Score, score
from boosted_attention.retrieval.training import RetrievalTraining, test_set
from boosted_attention.validation import InputError, require


@dataclass(frozen=True, kw_only=True)
class BoostedTrees:
    """Options of gradient-boosted trees.

    Args:
        n_rounds: trees for each dimension.
        max_leaves: leaves of a tree at most; None for no limit, 20 samples in each.
        shrinkage: eta, the factor on every tree.
    """

    n_rounds: int = 50
    max_leaves: int | None = 31
    shrinkage: float = 0.2


def all_samples(task: RetrievalTask, training: RetrievalTraining, seed: int) -> tuple[Tensor, Tensor]:
    """Draw everything that a model of this seed is shown: queries (n, d), and the patterns behind them (n, d).

    Args:
        task: patterns and noise.
        training: steps, and queries of each.
        seed: seed of the training.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = [task.sample(training.batch, generator) for _ in range(training.steps)]
    return torch.cat([x for x, _ in drawn]), task.patterns()[torch.cat([index for _, index in drawn])]


def score_trees(
    trees: BoostedTrees,
    task: RetrievalTask,
    training: RetrievalTraining,
    seed: int,
    size: int,
    after: Sequence[int],
    *,
    progress: Progress = lambda fraction: None,
) -> dict[int, Score]:
    """Fit trees to the samples of a training, and score them after some of their rounds: {rounds: Score}.

    Args:
        trees: how they are fitted.
        task: patterns and noise.
        training: steps and queries of the training whose samples they get.
        seed: seed of that training.
        size: queries of the test set.
        after: numbers of rounds, from 1 to those of ``trees``.
        progress: called with the fraction done.

    Raises:
        InputError: scikit-learn is not installed, or there are not so many rounds.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise InputError("trees need scikit-learn: pip install 'boosted-attention[trees]'") from None
    require(
        all(1 <= m <= trees.n_rounds for m in after), f"after={tuple(after)} must lie in 1 to n_rounds={trees.n_rounds}"
    )
    x, y = all_samples(task, training, seed)
    queries, index = test_set(task, size)
    options: dict[str, Any] = {  # whose types scikit-learn does not state
        "max_iter": trees.n_rounds,
        "max_leaf_nodes": trees.max_leaves,
        "learning_rate": trees.shrinkage,
        "early_stopping": False,
        "random_state": seed,
    }
    predictions = {m: torch.empty(size, task.d) for m in after}
    with threadpool_limits(limits=1):  # a trial has one core
        for j in range(task.d):
            model = HistGradientBoostingRegressor(**options).fit(x.numpy(), y[:, j].numpy())
            for m, predicted in enumerate(model.staged_predict(queries.numpy()), start=1):
                if m in predictions:
                    predictions[m][:, j] = torch.from_numpy(predicted)
            progress((j + 1) / task.d)
    return {m: score(predicted, index, task.patterns()) for m, predicted in predictions.items()}
