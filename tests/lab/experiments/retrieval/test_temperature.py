"""The map of inverse temperatures, from accuracies made by hand."""

import pytest

from boosted_attention.lab.experiments.retrieval._shared import MAIN_CONFIGURATION, SIX, where
from boosted_attention.lab.experiments.retrieval.temperature import BETAS, COLLAPSED, EXPERIMENT, KEPT, STEPS
from boosted_attention.retrieval.iteration import TemperatureMap
from tests.lab.experiments.made import RETRIEVAL, check, of_config, row, verdicts


def accuracy(beta, steps, configuration):
    """A number that tells where it stands in the map."""
    return beta + steps / 100 + SIX.index(configuration) / 1000


def the_map(config, bayes):
    task, seeds = config["task"], config["seeds"]
    c = task["d"], task["n_patterns"], task["sigma"]
    identity = [[accuracy(beta, n, c) for n in config["steps"]] for beta in config["betas"]]
    return TemperatureMap(
        identity=identity,
        default=[[{seed: 50 + value + seed for seed in seeds} for value in values] for values in identity],
        fixed_points=[[100 * i + j for j in range(len(values))] for i, values in enumerate(identity)],
        contraction=[beta / 10 for beta in config["betas"]],
        critical_beta=4.5 + SIX.index(c),
        bayes=bayes + SIX.index(c),
    )


def made(bayes=60.0):
    return EXPERIMENT.table(RETRIEVAL, of_config(lambda work, config: the_map(config, bayes)))


def test_what_is_kept_is_read_at_beta_8_and_what_collapses_at_beta_2():
    table = made()
    for i, c in enumerate(SIX):
        check(table, {KEPT[c]: accuracy(8.0, 1000, c) - (60.0 + i), COLLAPSED[c]: accuracy(2.0, 1000, c) - 100 / c[1]})


def test_rows_are_of_the_last_step():
    table = made()
    assert (STEPS[-1], len(BETAS)) == (1000, 8)
    for i, c in enumerate(SIX):
        last = [accuracy(beta, 1000, c) for beta in BETAS]
        assert row(table, f"identity, {where(c)}") == [*last, 60.0 + i, 4.5 + i]
        assert row(table, f"default, {where(c)}") == [*(51 + value for value in last), 60.0 + i, None]  # seeds 0, 1, 2
        default = table.rows[f"default, {where(c)}"][0]
        assert default is not None
        assert default.ours.n == RETRIEVAL.long_seeds


def test_phases_are_counted_by_steps():
    (phases,) = {note for note in made().notes if note.startswith("| |")}
    assert "| after 5 steps | 1 | 101 | 201 | 301 | 401 | 501 | 601 | 701 |" in phases
    assert "| spectral radius at rest | 0.10 | 0.20 | 0.30 | 0.40 | 0.50 | 0.60 | 0.80 | 1.60 |" in phases


@pytest.mark.parametrize(("lost", "verdict"), [(10.5, "reproduced"), (9.5, "contradicted")])
def test_ten_points_lost_at_beta_8_decide(lost, verdict):
    kept = accuracy(8.0, 1000, MAIN_CONFIGURATION)
    table = made(bayes=kept + lost - SIX.index(MAIN_CONFIGURATION))
    assert verdicts(EXPERIMENT, table) == {"iteration-temperature": verdict}
