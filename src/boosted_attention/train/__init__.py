"""Training that resumes exactly, checkpoints without pickles, and evaluation over every token.

The names below are imported when they are first used, so that a configuration can be made without importing torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from boosted_attention.train.config import TrainingConfig
    from boosted_attention.train.evaluation import Evaluation, evaluate
    from boosted_attention.train.folder import TrainedRun, load_run
    from boosted_attention.train.memory import TrainingMemory, estimate_memory
    from boosted_attention.train.recipes import RECIPES, find_recipe
    from boosted_attention.train.results import RunResult
    from boosted_attention.train.run_config import RunConfig
    from boosted_attention.train.trainer import Trainer

__all__ = [
    "RECIPES",
    "Evaluation",
    "RunConfig",
    "RunResult",
    "TrainedRun",
    "Trainer",
    "TrainingConfig",
    "TrainingMemory",
    "estimate_memory",
    "evaluate",
    "find_recipe",
    "load_run",
]

HOMES = {
    "Evaluation": "evaluation",
    "RECIPES": "recipes",
    "RunConfig": "run_config",
    "RunResult": "results",
    "TrainedRun": "folder",
    "Trainer": "trainer",
    "TrainingConfig": "config",
    "TrainingMemory": "memory",
    "estimate_memory": "memory",
    "evaluate": "evaluation",
    "find_recipe": "recipes",
    "load_run": "folder",
}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
