"""Work on language models: what it decides before training, when it begins anew, when it trains again."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from boosted_attention.analysis.importance import LayerImportance
from boosted_attention.analysis.survey import BrokenModelError
from boosted_attention.lab.experiments.language import analysis
from boosted_attention.lab.experiments.language._arms import PLAIN
from boosted_attention.lab.experiments.language._trials import training_trial
from boosted_attention.lab.presets import PRESETS
from boosted_attention.lab.reproduce import reproduce
from boosted_attention.lab.trials.trial import WORKS, Context, Finished
from boosted_attention.lab.work import language
from boosted_attention.lab.work.language import (
    Diverged,
    analysis_of,
    outcome_of,
    start_anew_with_another_torch,
    timed_outcome_of,
    train_time_matched,
)
from boosted_attention.records import to_json
from boosted_attention.storage.sealing import write_sealed
from boosted_attention.train.loop import TrainingError
from tests.lab.experiments.language.test_analysis import one
from tests.lab.experiments.made import language_result


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
    """And an analysis is made of a model as before, or not at all; one that differs by rounding is told."""
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
    loss = record["result"]["test"]["loss"]
    found = []
    for change in (0.02, 1.0):
        record["result"]["test"]["loss"] = loss + change
        write_sealed(boosted, record)
        shutil.rmtree(boosted.parent / "training")
        path.unlink()
        found.append(reproduce(["analysis"], one, tmp_path, workers=2))
    assert any("by at most 0.0200 nats" in note for note in found[0].tables["analysis"].notes)
    assert "came out otherwise" in next(iter(found[1].outcome.failures.values()))


@pytest.mark.parametrize(("ratio", "width"), [(0.82, 20), (0.1, 16)])
def test_no_width_may_take_the_time_of_a_boosted_step(tmp_path, ratio, width):
    far = {"boosted": 1.0, "16": 0.3, "20": ratio}
    timed = Finished(config={}, result={"measured": far}, folder=tmp_path)
    context = Context(folder=tmp_path, shared=tmp_path, earlier=(timed,))
    result = train_time_matched(context, model={}, training={}, data={})
    assert result == {"measured": {"width": width, "step_time": far[str(width)]}, "trained": None}
    assert not any(tmp_path.iterdir())


MISSED = (0.01, 0.04, 0.02, 0.03)  # loss without each layer's correction: layers 1 and 3 matter most


@pytest.fixture
def chosen(monkeypatch, tmp_path):
    """``chosen(choose, seed)``: the model that would be trained, and the result."""

    def run(choose, seed=42):
        found = one(0)
        layers = [LayerImportance(layer=i, mean=mean, low=0.0, high=1.0, n=5) for i, mean in enumerate(MISSED)]
        worth = to_json(replace(found.importance, layers=layers))
        seen = []

        def instead(context, model, training, data):
            seen.append(model)
            return language_result(50.0)

        monkeypatch.setattr(language, "train_model", instead)
        earlier = Finished(config={}, result=worth, folder=tmp_path)
        context = Context(folder=tmp_path, shared=tmp_path, earlier=(earlier,))
        result = language.train_selected(
            context, choose=choose, model={"d_model": 16}, training={"seed": seed}, data={}
        )
        return seen[0], result

    return run


def test_the_layers_that_matter_most_are_boosted(chosen):
    model, result = chosen("importance")
    assert model == {"d_model": 16, "attention": "boosted", "boosted_layers": [1, 3]}
    assert result["layers"] == [1, 3]


def test_layers_are_weighed_on_validation_text(monkeypatch, tmp_path):
    """What is chosen by it is scored on the test split, which it must not see."""
    splits = {"train": np.zeros(99), "validation": np.arange(50), "test": np.arange(100, 150)}
    tokens = SimpleNamespace(splits=splits)
    config = SimpleNamespace(model=SimpleNamespace(vocab_size=300, max_len=4))
    trained = SimpleNamespace(module="the model", config=config)
    seen = []

    def importance(module, rows, progress):
        seen.append((module, rows))
        return one(0).importance

    monkeypatch.setattr(language, "trained_again", lambda earlier, context: trained)
    monkeypatch.setattr(language, "prepare", lambda data, vocab_size: tokens)
    monkeypatch.setattr(language, "importance", importance)
    earlier = Finished(config={}, result={}, folder=tmp_path)
    context = Context(folder=tmp_path, shared=tmp_path, earlier=(earlier,))
    result = language.measure_importance(context, model={"data": {}}, sequences=3)
    ((module, rows),) = seen
    assert module == "the model"
    assert rows.shape == (3, 5)
    assert int(rows.max()) < 50
    assert result == to_json(one(0).importance)


def test_random_layers_are_as_many_others_and_differ_by_seed(chosen):
    drawn = [chosen("random", seed)[1]["layers"] for seed in range(12)]
    assert all(len(layers) == 2 and layers != [1, 3] for layers in drawn)
    assert len({tuple(layers) for layers in drawn}) > 2
    assert drawn[3] == chosen("random", 3)[1]["layers"]


def test_the_width_nearest_in_time_is_trained(monkeypatch, tmp_path):
    ratios = {"boosted": 1.0, "16": 0.8, "20": 0.95, "24": 1.1}
    seen = []
    monkeypatch.setattr(language, "train_model", lambda *args: seen.append(args[1]) or language_result(50.0))
    context = Context(
        folder=tmp_path, shared=tmp_path, earlier=(Finished(config={}, result={"measured": ratios}, folder=tmp_path),)
    )
    result = language.train_time_matched(context, model={"attention": "boosted"}, training={}, data={})
    assert seen == [{"attention": "standard", "d_model": 20}]
    assert result["measured"] == {"width": 20, "step_time": 0.95}


def test_a_training_that_diverges_is_a_result_and_read_as_one(tmp_path, text_file):
    preset = PRESETS["smoke"].with_corpora([f"text:{text_file}"])
    config = training_trial(preset, preset.text.corpora[0], PLAIN["standard"], 42, "").config
    wild = {**config, "training": {**config["training"], "lr": 1e30, "matrix_lr": 1e30}}
    result = WORKS["language.train"].perform(Context(folder=tmp_path, shared=tmp_path), **wild)
    found = outcome_of(result)
    assert isinstance(found, Diverged)
    assert "NaN" in found.diverged
    assert found.data


def test_the_analysis_of_a_pair_that_diverged_says_so(tmp_path):
    told = {"diverged": "step 7: loss NaN", "data": "d"}
    pair = [Finished(config={}, result=result, folder=tmp_path) for result in ({"test": {}}, told)]
    context = Context(folder=tmp_path, shared=tmp_path, earlier=tuple(pair))
    options = {"sequences": 1, "pairs": 1, "with_explorer": False}
    result = WORKS["language.analyse"].perform(context, model={}, against={}, **options)
    assert analysis_of(result) == Diverged(**told)


@pytest.mark.parametrize(
    ("work", "options"),
    [
        ("language.train-selected", {"choose": "importance", "model": {}, "training": {}, "data": {}}),
        ("language.importance", {"model": {}, "sequences": 1}),
        ("language.halting", {"model": {}, "sequences": 1}),
    ],
)
def test_what_builds_on_a_model_that_diverged_says_so(work, options, tmp_path):
    told = {"diverged": "step 7: loss NaN", "data": "d"}
    context = Context(folder=tmp_path, shared=tmp_path, earlier=(Finished(config={}, result=told, folder=tmp_path),))
    assert WORKS[work].perform(context, **options) == told


@pytest.fixture
def diverging(monkeypatch):
    """Every training ends at its second step, and every text is called "d"."""

    def train_model(*args):
        raise TrainingError("step 2: loss nan")

    monkeypatch.setattr(language, "train_model", train_model)
    monkeypatch.setattr(language, "fingerprint", lambda context, model, data: f"{model['name']}, {data['corpus']}")
    return {"diverged": "step 2: loss nan", "data": "m, text"}


def test_a_time_matched_model_that_diverges_is_a_result(diverging, tmp_path):
    timing = Finished(config={}, result={"measured": {"boosted": 1.0, "20": 0.95}}, folder=tmp_path)
    context = Context(folder=tmp_path, shared=tmp_path, earlier=(timing,))
    result = train_time_matched(context, model={"name": "m"}, training={}, data={"corpus": "text"})
    assert result == diverging
    assert timed_outcome_of(result) == Diverged(**diverging)


def test_a_model_with_chosen_layers_that_diverges_is_a_result(diverging, tmp_path):
    worth = Finished(config={}, result=to_json(one(0).importance), folder=tmp_path)
    context = Context(folder=tmp_path, shared=tmp_path, earlier=(worth,))
    given = {"model": {"name": "m"}, "training": {"seed": 1}, "data": {"corpus": "text"}}
    assert language.train_selected(context, choose="importance", **given) == diverging


@pytest.mark.usefixtures("diverging")
def test_a_model_whose_corrections_cannot_be_weighed_is_a_result(monkeypatch, tmp_path):
    def importance(module, rows, progress):
        raise BrokenModelError("loss NaN")

    config = SimpleNamespace(model=SimpleNamespace(vocab_size=300, max_len=4))
    trained = SimpleNamespace(module="the model", config=config)
    tokens = SimpleNamespace(splits={"validation": np.arange(50)})
    monkeypatch.setattr(language, "trained_again", lambda earlier, context: trained)
    monkeypatch.setattr(language, "prepare", lambda data, vocab_size: tokens)
    monkeypatch.setattr(language, "importance", importance)
    earlier = Finished(config={}, result={"test": {}}, folder=tmp_path)
    context = Context(folder=tmp_path, shared=tmp_path, earlier=(earlier,))
    result = language.measure_importance(
        context, model={"model": {"name": "m"}, "data": {"corpus": "text"}}, sequences=3
    )
    assert result == {"diverged": "loss NaN", "data": "m, text"}
