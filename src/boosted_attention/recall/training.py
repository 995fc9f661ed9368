"""Training on a sequence task: fresh sequences at every step, all of one length, no curriculum."""

from __future__ import annotations

import torch

from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.model.language_model import LanguageModel
from boosted_attention.progress import Progress
from boosted_attention.recall.task import SequenceTask, batch
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.loop import TrainingError
from boosted_attention.train.optim import TrainingOptimizer
from boosted_attention.validation import require


def train(
    config: LanguageModelConfig,
    task: SequenceTask,
    training: TrainingConfig,
    *,
    progress: Progress = lambda fraction: None,
) -> LanguageModel:
    """Train a language model on a task. The seed fixes its start and its sequences.

    Args:
        config: the model, with the task's vocabulary.
        task: what the sequences are drawn from.
        training: steps, rows of a step, optimizer, learning rates and seed; what concerns texts has no meaning here.
        progress: called with the fraction done.

    Raises:
        TrainingError: the loss became infinite or NaN.
    """
    require(
        config.vocab_size == task.vocab_size,
        f"vocab_size={config.vocab_size} must be that of the task, {task.vocab_size}",
    )
    model = config.build(seed=training.seed)
    optimizer = TrainingOptimizer(training, model)
    limit = training.clip or float("inf")
    for step in range(training.steps):
        ids, targets = batch(task, training.batch_size, task.length, seed=training.seed, step=step)
        optimizer.set_rates(step, training.steps)
        loss = model.loss(ids, targets)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(optimizer.parameters.values(), limit)
        if not bool(loss.isfinite() & norm.isfinite()):
            raise TrainingError(f"step {step + 1}: loss {float(loss.detach())}, gradient norm {float(norm)}")
        optimizer.step()
        progress((step + 1) / training.steps)
    return model.eval()
