"""Work on fine-tuning: what is measured is of the text, the split and the weights that it says."""

import math
from dataclasses import replace

import pytest

from boosted_attention.lab.trials.trial import Context
from boosted_attention.lab.work import finetune
from boosted_attention.train.evaluation import evaluate
from boosted_attention.train.folder import load_run
from boosted_attention.train.loop import TrainingError
from boosted_attention.train.trainer import Trainer
from tests.text import sample_text

SIZE = {"steps": 1, "batch_size": 1, "max_len": 16, "held_out": 100}


@pytest.fixture
def texts(text_file, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(sample_text(3_000, seed=3).upper())
    return f"text:{text_file}", f"text:{other}"


@pytest.fixture
def context(tmp_path):
    return Context(folder=tmp_path / "own", shared=tmp_path)


def tokens_of(context, corpus, split):
    base = finetune.base_folder(finetune.TINY, context)
    return finetune.prepare(finetune.data_config(base, corpus, 100, context.settings), 0).splits[split]


def test_each_text_is_measured_on_its_own(texts, context):
    """Losses of the model as it was are of the test split of each text, window by window."""
    found = finetune.measure_model(context, model=finetune.TINY, texts=list(texts), max_len=16, held_out=100)["texts"]
    from boosted_attention.pretrained.finetune import FinetuneConfig

    base = FinetuneConfig(base=str(context.shared / "tiny-llama"), max_len=16, train="all").build()
    for text in texts:
        tokens = tokens_of(context, text, "test")
        assert found[text]["loss"] == pytest.approx(evaluate(base, tokens).loss)
        assert len(found[text]["windows"]) == 7
        assert found[text]["windows"][1] == pytest.approx(evaluate(base, tokens[16:33]).loss)
    assert abs(found[texts[0]]["loss"] - found[texts[1]]["loss"]) > 1e-3


def test_a_tuned_model_is_measured_on_both_texts(texts, context):
    """The loss on the watched text is that of the trained weights on that text, and not on the new one."""
    new, watched = texts
    arm, told = {"boost": {}, "lr": 1e-3}, []
    context = replace(context, progress=told.append)
    found = finetune.tune_model(context, model=finetune.TINY, arm=arm, size=SIZE, corpus=new, watched=watched, seed=0)
    tuned = load_run(context.folder / "training").model
    assert told == sorted(told)
    assert (round(told[0], 3), told[-1]) == (finetune.TRAINING, 1.0)
    expected = {text: evaluate(tuned, tokens_of(context, text, "test")).loss for text in texts}
    assert found["watched"] == pytest.approx(expected[watched])
    assert found["new"] == pytest.approx(expected[new])
    assert abs(expected[watched] - expected[new]) > 1e-3


def test_a_rate_is_judged_on_validation_text(texts, context):
    arm = {"boost": {}, "lr": 1e-3}
    found = finetune.tune_at_rate(context, model=finetune.TINY, arm=arm, size=SIZE, corpus=texts[0], seed=0)
    tuned = load_run(context.folder / "training").model
    assert found["loss"] == pytest.approx(evaluate(tuned, tokens_of(context, texts[0], "validation")).loss)
    assert found["diverged"] is None


def test_a_training_that_diverges_is_a_result(texts, context, monkeypatch):
    def diverge(trainer, resume):
        raise TrainingError("step 1: loss nan")

    monkeypatch.setattr(Trainer, "run", diverge)
    same = {"model": finetune.TINY, "arm": {"boost": {}, "lr": 1e9}, "size": SIZE, "corpus": texts[0], "seed": 0}
    trained = finetune.tune_model(context, **same, watched=None)
    assert trained["diverged"] == "step 1: loss nan"
    assert isinstance(finetune.outcome_of(trained), finetune.Diverged)
    point = finetune.tune_at_rate(context, **same)
    assert (point["loss"], point["diverged"]) == (None, "step 1: loss nan")
    assert point["data"] == trained["data"] != ""


def test_a_loss_that_is_no_number_is_a_divergence(texts, context, monkeypatch):
    nothing = finetune.TextLoss(loss=math.nan, windows=[math.nan])
    monkeypatch.setattr(finetune, "loss_on", lambda *args: nothing)
    same = {"model": finetune.TINY, "arm": {"boost": {}, "lr": 1e-3}, "size": SIZE, "corpus": texts[0], "seed": 0}
    assert finetune.tune_at_rate(context, **same)["diverged"] == "after the last step: loss nan"
    assert finetune.tune_model(context, **same, watched=None)["diverged"] == "after the last step: loss nan"


def test_a_trial_that_only_measures_again_keeps_the_memory_of_its_training(texts, context, monkeypatch):
    same = {"model": finetune.TINY, "arm": {"boost": {}, "lr": 1e-3}, "size": SIZE, "corpus": texts[0], "seed": 0}
    monkeypatch.setattr(finetune, "peak_memory", lambda: 7)
    first = finetune.tune_model(context, **same, watched=None)
    monkeypatch.setattr(finetune, "peak_memory", lambda: 5)
    assert finetune.tune_model(context, **same, watched=None) == first
    assert first["measured"] == {"peak_memory": 7}


def test_a_training_begun_with_another_torch_begins_anew(texts, context):
    same = {"model": finetune.TINY, "arm": {"boost": {}, "lr": 1e-3}, "size": SIZE, "corpus": texts[0], "seed": 0}
    finetune.tune_at_rate(context, **same)
    stamp = context.folder / "training" / "versions.json"
    stamp.write_text('{"torch": "0.1"}')
    finetune.tune_at_rate(context, **same)
    kept = [path.name for path in context.folder.iterdir() if path.name.startswith("training")]
    assert len(kept) == 2
    assert "0.1" not in stamp.read_text()
