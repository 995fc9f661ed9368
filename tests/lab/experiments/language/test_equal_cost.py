"""Equal tokens, parameters, FLOPs and time beside each other, from perplexities made by hand."""

from dataclasses import replace

from boosted_attention.lab.experiments.language._arms import BOOSTED, EQUAL_FLOPS, FAIR, STANDARD
from boosted_attention.lab.experiments.language.equal_cost import EXPERIMENT, LONGER, OVER, arms, timings, trials
from boosted_attention.lab.presets import Decided
from boosted_attention.lab.work.timing import StepRatios
from tests.lab.experiments.made import TEXT, check, language_result, percent, text_results

OPEN = replace(TEXT, text=replace(TEXT.text, corpora=("stdlib",)))
PRESET = replace(OPEN, text=replace(OPEN.text, decided=Decided(step_times={STANDARD: 0.5, FAIR: 0.75})))
VALUES = {
    BOOSTED: (60.0, 61.0, 62.0),
    STANDARD: (70.0, 71.5, 71.0),
    FAIR: (66.0, 67.5, 67.0),
    EQUAL_FLOPS: (65.0, 66.0, 65.5),
    LONGER[STANDARD]: (59.0, 59.5, 60.0),
    LONGER[FAIR]: (61.0, 61.5, 62.5),
}
STEPS = {3: {}, 6: {STANDARD: LONGER[STANDARD]}, 4: {FAIR: LONGER[FAIR]}}
NAMES = {str(sorted(arm.items())): name for name, arm in arms(PRESET).items()}


def made(preset=PRESET):
    def results(trial):
        if trial.work == "language.time":
            return known(trial)
        steps = trial.config["training"]["steps"]

        def result(corpus, options, i):
            name = NAMES[str(sorted(options.items()))]
            return language_result(VALUES[STEPS[steps].get(name, name)][i], steps=steps)

        return text_results(preset, result)(trial)

    known = text_results(preset, lambda *_: None, {timings(preset).key: StepRatios(measured={BOOSTED: 1.0})})
    return results


def test_every_kind_of_cost_has_its_rival():
    table = EXPERIMENT.table(PRESET, made())
    rivals = (STANDARD, FAIR, EQUAL_FLOPS, LONGER[STANDARD], LONGER[FAIR])
    assert tuple(r.b for r in OVER) == rivals
    check(table, {r.quantity.on("stdlib"): percent(VALUES[BOOSTED], VALUES[r.b]) for r in OVER})
    assert "standard, equal time: 6 steps, since one takes 0.50" in table.notes[-1]


def test_without_step_times_nothing_trains_longer_and_the_table_says_so():
    assert {t.config["training"]["steps"] for t in trials(OPEN) if t.work == "language.train"} == {3}
    assert {t.config["training"]["steps"] for t in trials(PRESET) if t.work == "language.train"} == {3, 4, 6}
    table = EXPERIMENT.table(OPEN, made(OPEN))
    missing = {str(q): why for q, why in table.missing.items()}
    assert missing["boosted - standard, equal time | stdlib"] == "standard, equal time was not run"


def test_a_longer_training_stretches_its_schedule():
    by_steps = {
        t.config["training"]["steps"]: t.config["training"] for t in trials(PRESET) if t.work == "language.train"
    }
    assert {steps: training["horizon"] for steps, training in by_steps.items()} == {3: 0, 4: 0, 6: 0}  # the run itself
    assert by_steps[6]["lr"] == by_steps[3]["lr"]
