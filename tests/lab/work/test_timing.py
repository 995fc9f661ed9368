"""Step times: the median of ratios with its quartiles, and results from before quartiles were kept."""

import json
from pathlib import Path

import pytest

from boosted_attention.lab.presets import PRESETS
from boosted_attention.lab.trials.trial import Context
from boosted_attention.lab.work.timing import StepRatios, time_models
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.records import from_json, to_json

STORED = sorted((Path(__file__).parents[3] / "results").glob("*/trials/language.time-*/result.json"))


def test_step_ratios_come_with_their_quartiles(tmp_path):
    small = LanguageModelConfig(vocab_size=16, d_model=8, n_layers=1, n_heads=2, max_len=8, attention="standard")
    models = [(name, small.to_dict()) for name in ("first", "second")]
    made = time_models(
        Context(folder=tmp_path, shared=tmp_path), models=models, training={"steps": 1, "batch_size": 2}, repeats=5
    )
    found = from_json(StepRatios, json.loads(json.dumps(made)))
    assert found.measured_quartiles is not None
    assert found.measured_quartiles["first"] == (1.0, 1.0)
    low, high = found.measured_quartiles["second"]
    assert low <= found.measured["second"] <= high


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.parents[2].name)
def test_results_without_quartiles_are_still_read_and_written_as_they_were(path):
    stored = json.loads(path.read_text())["result"]
    assert to_json(from_json(StepRatios, stored)) == stored


def test_the_tournament_whose_lengths_rest_on_step_times_has_more_of_them_than_the_arena():
    assert {name: PRESETS[name].text.timed_steps for name in ("arena", "forms")} == {"arena": 40, "forms": 200}
