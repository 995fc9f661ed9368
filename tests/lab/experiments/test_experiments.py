"""All experiments together; they are imported inside the tests, so that one that cannot be imported fails a test."""

import importlib
import pkgutil

import pytest

FOLDER = "boosted_attention.lab.experiments"


def test_every_claim_has_an_id_of_its_own_and_names_its_experiment():
    experiments = importlib.import_module(FOLDER).EXPERIMENTS
    claims = [claim for experiment in experiments.values() for claim in experiment.claims]
    assert len({claim.id for claim in claims}) == len(claims) > 150
    assert all(claim in experiments[claim.experiment].claims for claim in claims)


def test_figures_of_the_paper_are_judged_by_the_papers_numbers():
    experiments = importlib.import_module(FOLDER).EXPERIMENTS
    for experiment in experiments.values():
        for claim in experiment.claims:
            if claim.criterion.rule in ("number", "digits"):
                assert claim.criterion.target == claim.quantity.paper, claim.id


@pytest.mark.parametrize("preset", ["smoke", "quick", "paper"])
def test_expected_durations_are_above_zero_and_trials_have_labels(preset):
    presets = importlib.import_module("boosted_attention.lab.presets").PRESETS
    for experiment in importlib.import_module(FOLDER).EXPERIMENTS.values():
        trials = experiment.trials(presets[preset])
        assert trials
        assert all(trial.seconds > 0 and trial.label for trial in trials), experiment.name
        keys = {trial.key for trial in trials}
        assert {trial.key for trial in experiment.required(presets[preset])} <= keys, experiment.name


def test_every_file_is_an_experiment():
    package = importlib.import_module(FOLDER)
    files = [m.name for m in pkgutil.walk_packages(package.__path__, f"{FOLDER}.") if not m.ispkg]
    named = [name for name in files if not name.rpartition(".")[2].startswith("_")]
    assert len(named) == len(package.EXPERIMENTS)
    orders = [experiment.order for experiment in package.EXPERIMENTS.values()]
    assert orders == sorted(set(orders))


def test_by_default_the_synthetic_half_and_the_main_table():
    package = importlib.import_module(FOLDER)
    assert [name for name in package.DEFAULT if name in package.LANGUAGE] == ["lm-main", "analysis"]
