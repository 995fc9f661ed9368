"""Work on language models: trained again where weights are gone, begun anew with another torch."""

import json
import shutil

import pytest

from boosted_attention.lab.experiments.language import analysis
from boosted_attention.lab.reproduce import reproduce
from boosted_attention.lab.trials.store import checksum
from boosted_attention.lab.trials.trial import Context, Finished
from boosted_attention.lab.work.language import start_anew_with_another_torch, train_time_matched


def test_a_training_begun_with_another_torch_begins_anew(tmp_path):
    place = tmp_path / "training"
    start_anew_with_another_torch(place)
    (place / "weights").write_text("")
    start_anew_with_another_torch(place)
    assert (place / "weights").exists()
    (place / "versions.json").write_text('{"torch": "1.0"}')
    start_anew_with_another_torch(place)
    assert [p.name for p in place.iterdir()] == ["versions.json"]
    assert (tmp_path / "training.old-1" / "weights").exists()


def test_weights_that_are_gone_are_trained_again(text_preset, tmp_path):
    """And an analysis is made of the same model as before, or not at all."""
    one = text_preset.with_seeds(1)
    reproduce(["analysis"], one, tmp_path, workers=2)
    trial = analysis.needed(one)[0]
    path = tmp_path / "trials" / trial.key / "result.json"
    before = path.read_text()
    for checkpoints in tmp_path.glob("trials/language.train-*/training/checkpoints"):
        shutil.rmtree(checkpoints)
    path.unlink()
    assert not reproduce(["analysis"], one, tmp_path, workers=2).outcome.failures
    assert json.loads(path.read_text())["result"] == json.loads(before)["result"]
    boosted = tmp_path / "trials" / trial.after[0] / "result.json"
    record = json.loads(boosted.read_text())
    record["result"]["test"]["loss"] += 1.0
    boosted.write_text(json.dumps({**record, "sha256": checksum(record["result"])}))
    shutil.rmtree(boosted.parent / "training")
    path.unlink()
    failures = reproduce(["analysis"], one, tmp_path, workers=2).outcome.failures
    assert "came out otherwise" in next(iter(failures.values()))


@pytest.mark.parametrize(("ratio", "width"), [(0.82, 20), (0.1, 16)])
def test_no_width_may_take_the_time_of_a_boosted_step(tmp_path, ratio, width):
    far = {"boosted": 1.0, "16": 0.3, "20": ratio}
    timed = Finished(config={}, result={"measured": far}, folder=tmp_path)
    context = Context(folder=tmp_path, shared=tmp_path, earlier=(timed,))
    result = train_time_matched(context, model={}, training={}, data={})
    assert result == {"measured": {"width": width, "step_time": far[str(width)]}, "trained": None}
    assert not any(tmp_path.iterdir())
