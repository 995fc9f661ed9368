"""Perplexity against cost, from numbers made by hand."""

from dataclasses import replace

from boosted_attention.lab.experiments.language.pareto import EXPERIMENT, WIDTH_CURVE, arms, dominated, timings, widths
from boosted_attention.lab.work.timing import StepRatios
from tests.lab.experiments.made import TEXT, language_result, row, text_results

NAMES = list(arms(TEXT))
OPTIONS = {str(sorted((k, str(v)) for k, v in arm.items())): name for name, arm in arms(TEXT).items()}
VALUES = {name: (50.0 + i, 52.0 + i, 51.0 + i) for i, name in enumerate(NAMES)}
RATIOS = {name: 1.0 + i / 10 for i, name in enumerate(NAMES)}


def made(preset=TEXT, values=VALUES):
    def result(corpus, options, i):
        name = OPTIONS[str(sorted((k, str(v)) for k, v in options.items()))]
        value = values[name][i] + 10 * preset.text.corpora.index(corpus)
        return language_result(value, flops_per_token=1_000_000 * (20 - NAMES.index(name)), tokens=500_000)

    return EXPERIMENT.table(preset, text_results(preset, result, {timings(preset).key: StepRatios(measured=RATIOS)}))


def test_every_model_has_its_perplexity_flops_and_time():
    table = made()
    for n, text in enumerate(TEXT.text.corpora):
        for i, name in enumerate(NAMES):
            assert row(table, f"{name} | {text}") == [51.0 + i + 10 * n, 3 * (20 - i) * 0.5, 1 + i / 10]


def test_fronts_are_told_by_cost():
    """The first model is fastest and best; by FLOPs it is the dearest, so that none dominates another."""
    notes = made().notes
    assert f"stdlib, FLOPs, by the means: on the front {', '.join(NAMES)}. Dominated: none." in notes
    assert any(note.startswith("stdlib, step time, by the means: on the front standard. Dominated:") for note in notes)


def test_means_are_over_the_seeds_that_all_models_have():
    """A third seed that only the standard model has would move its mean, and with it who dominates whom."""
    seeds = {"standard": 3, "twicing": 2}
    preset = replace(TEXT, text=replace(TEXT.text, arms=seeds))
    values = {"standard": (50.0, 51.0, 95.0), "twicing": (52.0, 53.0)}
    table = made(preset, values)
    for name, own in values.items():
        cell = table.rows[f"{name} | stdlib"][0]
        assert (cell.ours.mean, cell.ours.n) == (sum(own[:2]) / 2, 2)
    assert "stdlib, step time, by the means: on the front standard. Dominated: twicing by standard." in table.notes
    assert "stdlib: perplexities are over the seeds that all models of the table have: 42, 123." in table.notes


def test_a_model_is_dominated_by_those_that_cost_no_more_and_do_better():
    points = {"a": (1.0, 5.0), "b": (2.0, 6.0), "c": (2.0, 4.0), "d": (2.0, 4.0)}
    assert dominated(points) == {"a": [], "b": ["a", "c", "d"], "c": [], "d": []}


def test_the_width_curve_is_a_line_and_the_others_are_points():
    results = {timings(TEXT).key: StepRatios(measured=RATIOS)}
    assert EXPERIMENT.figure is not None
    figure = EXPERIMENT.figure(TEXT, made(), lambda trial: results[trial.key])
    line, *points = figure.panels[1].series
    assert (line.name, line.style, len(line.x)) == (WIDTH_CURVE, "line", len(widths(TEXT)))
    assert list(line.x) == sorted(RATIOS[name] for name in widths(TEXT))
    assert {series.name for series in points} == set(NAMES) - set(widths(TEXT))
