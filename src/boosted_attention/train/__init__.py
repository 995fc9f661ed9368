"""Training that resumes exactly, checkpoints without pickles, and evaluation over every token.

Names are imported when they are first used, so that a configuration can be made without importing torch.
"""

from typing import TYPE_CHECKING

from boosted_attention.lazy import lazy_names

if TYPE_CHECKING:
    from boosted_attention.train.config import TrainingConfig as TrainingConfig
    from boosted_attention.train.evaluation import Evaluation as Evaluation
    from boosted_attention.train.evaluation import evaluate as evaluate
    from boosted_attention.train.folder import TrainedRun as TrainedRun
    from boosted_attention.train.folder import load_run as load_run
    from boosted_attention.train.kinds import register_model_kind as register_model_kind
    from boosted_attention.train.loop import TrainingError as TrainingError
    from boosted_attention.train.memory import TrainingMemory as TrainingMemory
    from boosted_attention.train.memory import estimate_memory as estimate_memory
    from boosted_attention.train.observer import TrainingObserver as TrainingObserver
    from boosted_attention.train.parallel import Parallel as Parallel
    from boosted_attention.train.probe import LeakageError as LeakageError
    from boosted_attention.train.recipes import RECIPES as RECIPES
    from boosted_attention.train.recipes import find_recipe as find_recipe
    from boosted_attention.train.results import RunResult as RunResult
    from boosted_attention.train.run_config import RunConfig as RunConfig
    from boosted_attention.train.signals import Stopped as Stopped
    from boosted_attention.train.trainer import Trainer as Trainer

__getattr__, __dir__, __all__ = lazy_names(__name__)
