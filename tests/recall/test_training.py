"""Training and scoring on sequence tasks."""

import pytest
import torch
from torch import nn

from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.recall.associative import AssociativeRecall
from boosted_attention.recall.permutations import PermutationComposition
from boosted_attention.recall.scoring import TEST_SEED, accuracy, score
from boosted_attention.recall.task import batch
from boosted_attention.recall.training import train
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.loop import TrainingError
from boosted_attention.validation import InputError

TASK = AssociativeRecall(length=8, n_keys=4, n_values=4)
MODEL = LanguageModelConfig(
    vocab_size=8, d_model=16, n_layers=1, n_heads=2, max_len=16, attention="boosted", positions="rotary"
)


def by_hand(steps: int, lr: float) -> nn.Module:
    """The same training with torch's own AdamW and nothing of the trainer's."""
    model = MODEL.build(seed=4)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    for step in range(steps):
        ids, targets = batch(TASK, 6, 8, seed=4, step=step)
        logits = model(ids).flatten(0, 1)
        loss = nn.functional.cross_entropy(logits, targets.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = lr * (1 - step / steps)
        optimizer.step()
    return model


def test_training_is_what_a_loop_written_out_does():
    told = []
    training = TrainingConfig(steps=5, batch_size=6, lr=1e-2, warmup=0, schedule="linear", horizon=0, seed=4)
    found = train(MODEL, TASK, training, progress=told.append)
    assert not found.training
    assert told == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    expected = by_hand(5, 1e-2)
    for name, weight in found.named_parameters():
        torch.testing.assert_close(weight, expected.get_parameter(name), rtol=0, atol=1e-4)


def test_a_training_that_diverges_says_at_which_step():
    training = TrainingConfig(steps=3, batch_size=2, lr=1e38, warmup=0)
    with pytest.raises(TrainingError, match=r"step [23]: loss "):
        train(MODEL, TASK, training)


def test_model_and_task_must_have_one_vocabulary():
    with pytest.raises(InputError, match="vocab_size=8 must be that of the task, 120"):
        train(MODEL, PermutationComposition(length=4), TrainingConfig(steps=1))


class Oracle(nn.Module):
    """Answers right where a row's number is below a limit, and with a key, which is never right, elsewhere."""

    config = MODEL

    def __init__(self, right: int):
        super().__init__()
        self.right, self.seen = right, 0

    def forward(self, ids):
        rows = torch.arange(len(ids)) + self.seen
        self.seen += len(ids)
        _, targets = batch(TASK, 400, ids.shape[1], seed=TEST_SEED, step=ids.shape[1])
        answers = torch.where((rows < self.right)[:, None], targets[rows].clamp_min(0), 0)
        return nn.functional.one_hot(answers, 8).float()


@pytest.mark.parametrize("right", [0, 100, 400])
def test_accuracy_is_the_share_of_answers_that_are_right(right):
    assert accuracy(Oracle(right), TASK, 8, 400) == pytest.approx(right / 4)


def test_scores_are_of_both_lengths():
    found = score(MODEL.build(seed=0), TASK, 50)
    assert (found.trained, found.doubled) == (
        accuracy(MODEL.build(seed=0), TASK, 8, 50),
        accuracy(MODEL.build(seed=0), TASK, 16, 50),
    )
    assert found.parameters == MODEL.num_params()
