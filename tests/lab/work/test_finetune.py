"""Work on fine-tuning: each text is measured on its own."""

import pytest

from boosted_attention.lab.trials.trial import Context
from boosted_attention.lab.work import finetune
from boosted_attention.train.folder import load_run
from tests.text import sample_text


def test_each_text_is_measured_on_its_own(monkeypatch, tmp_path):
    """After fine-tuning and before it: the loss on the watched text is of that text."""
    losses = {"new": 3.0, "other": 5.0}
    monkeypatch.setattr(finetune, "base_folder", lambda model, context: str(tmp_path))
    monkeypatch.setattr(finetune, "prepare", lambda data, size: data)
    monkeypatch.setattr(finetune, "loss_on", lambda model, data: losses[data.corpus])
    monkeypatch.setattr("boosted_attention.pretrained.finetune.FinetuneConfig", Untrained)
    context = Context(folder=tmp_path, shared=tmp_path)
    found = finetune.measure_model(context, model={}, corpus="new", watched="other", max_len=8, held_out=9)
    assert (found["new"], found["watched"]) == (3.0, 5.0)
    assert (
        finetune.measure_model(context, model={}, corpus="new", watched=None, max_len=8, held_out=9)["watched"] is None
    )


class Untrained:
    """A configuration of a model that is not built."""

    def __init__(self, **options):
        self.options = options

    def build(self):
        return None

    def num_params(self):
        return 7


def test_a_tuned_model_is_measured_on_both_texts(text_file, tmp_path):
    """The loss on the watched text is that of the trained weights on that text, and not on the new one."""
    other = tmp_path / "other.txt"
    other.write_text(sample_text(3_000, seed=3).upper())
    new, watched = f"text:{text_file}", f"text:{other}"
    context = Context(folder=tmp_path / "own", shared=tmp_path)
    found = finetune.tune_model(
        context,
        model=finetune.TINY,
        arm={"boost": {}, "lr": 1e-3},
        size={"steps": 1, "batch_size": 1, "max_len": 16, "held_out": 100},
        corpus=new,
        watched=watched,
        seed=0,
    )
    tuned = load_run(tmp_path / "own" / "training").model
    base = str(tmp_path / "tiny-llama")
    expected = {
        text: finetune.loss_on(tuned, finetune.prepare(finetune.data_config(base, text, 100, context.settings), 0))
        for text in (new, watched)
    }
    assert found["watched"] == pytest.approx(expected[watched])
    assert abs(expected[watched] - expected[new]) > 1e-3
