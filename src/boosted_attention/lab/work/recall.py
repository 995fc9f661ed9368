"""Work on sequence tasks: one model, one task, one seed each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from boosted_attention.lab.trials.trial import Context, work
from boosted_attention.lab.work.language import Diverged
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.recall.associative import AssociativeRecall
from boosted_attention.recall.permutations import PermutationComposition
from boosted_attention.recall.scoring import RecallResult, score
from boosted_attention.recall.task import SequenceTask
from boosted_attention.recall.training import train
from boosted_attention.records import from_json, to_json
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.loop import TrainingError

Config = dict[str, Any]
TASKS: dict[str, Callable[..., SequenceTask]] = {
    "associative": AssociativeRecall,
    "permutations": PermutationComposition,
}


@work("recall.train")
def train_on_task(context: Context, *, task: Config, model: Config, training: Config, test_size: int) -> Config:
    """Train a model on a task, which is a name of TASKS with options, and score it.

    The result is a RecallResult; a training that diverges is a result too.
    """
    options = dict(task)
    the_task = TASKS[options.pop("name")](**options)
    config = LanguageModelConfig.from_dict(model)
    try:
        trained = train(config, the_task, TrainingConfig(**training), progress=lambda f: context.progress(0.95 * f))
    except TrainingError as error:
        return to_json(Diverged(diverged=str(error)))
    return to_json(score(trained, the_task, test_size))


def outcome_of(result: Config) -> RecallResult | Diverged:
    """Read the result of a training on a task."""
    return from_json(Diverged if "diverged" in result else RecallResult, result)
