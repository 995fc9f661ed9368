"""Trials of language models: known by what makes them, and alike but for what they compare."""

import json

from boosted_attention import LanguageModelConfig
from boosted_attention.lab.experiments.language import controls
from boosted_attention.lab.experiments.language._trials import DEFAULTS, stated, training_trial
from boosted_attention.lab.presets import PRESETS


def test_arms_of_a_seed_see_the_same_batches(language_smoke, text_preset):
    found, out = language_smoke
    arms, corpus = controls.arms(text_preset), text_preset.text.corpora[0]
    orders = {}
    for seed in text_preset.text.seeds:
        results = [found.outcome.result(training_trial(text_preset, corpus, arm, seed, "")) for arm in arms.values()]
        orders[seed] = {result["order"] for result in results}
        assert len(orders[seed]) == 1
        batches = set()
        for arm in arms.values():
            rows = (
                out / "trials" / training_trial(text_preset, corpus, arm, seed, "").key / "training" / "metrics.jsonl"
            ).read_text()
            batches.add(tuple(row["batch"] for row in map(json.loads, rows.splitlines()) if "batch" in row))
        assert len(batches) == 1
    assert orders[42] != orders[123]


def test_trials_are_named_by_what_makes_them():
    base = PRESETS["cpu"].text.configuration()
    assert stated(base.model) == {
        "vocab_size": 2048,
        "d_model": 64,
        "n_layers": 4,
        "n_heads": 4,
        "max_len": 128,
        "attention": "boosted",
        "positions": "rotary",
        "init": "zero",
    }
    assert stated(base.training) == {
        "steps": 1300,
        "batch_size": 32,
        "lr": 1.6e-2,
        "matrix_lr": 0.02,
        "optimizer": "muon",
        "schedule": "linear",
        "horizon": 0,
        "eval_every": 100,
        "layout": "windows",
        "seed": 0,
    }
    text = PRESETS["cpu"].text
    assert (text.seeds, text.training, text.model, text.data) == ((42, 123, 7), {}, {}, {})


def test_defaults_are_those_that_results_were_made_with():
    """A default that changes must not pass old results for new ones: see DEFAULTS."""
    for kind, known in DEFAULTS.items():
        values = kind().to_dict() if kind is LanguageModelConfig else vars(kind())
        assert {name: values[name] for name in known} == known
