"""Results made by hand, for tests of what experiments make of them: numbers in, quantities and verdicts out.

Results are found by the configuration that a trial states, written out in the test once more: a table that reads
another arm, seed, text or task than it says meets another number, or none.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.judging.judge import Ledger, judge
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Table
from boosted_attention.lab.presets import PRESETS, Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.language import BestStep, Diverged, LanguageResult, Measured
from boosted_attention.records import to_json
from boosted_attention.retrieval.scoring import Baselines, RetrievalResult, RoundDistances
from boosted_attention.retrieval.task import Score
from boosted_attention.statistics import Estimate
from boosted_attention.train.results import SplitScore

# The paper's number of steps, so that figures are judged; seeds of the long controls are fewer than the others.
RETRIEVAL = replace(PRESETS["smoke"], seeds=4, long_seeds=3, steps=150, long_steps=3000)
SEEDS, CORPORA = (42, 123, 7), ("stdlib", "wikitext-103")
TEXT = replace(PRESETS["smoke"], text=replace(PRESETS["smoke"].text, seeds=SEEDS, corpora=CORPORA))
# The paper's recipe by name, and so its place, with models small enough to be counted in no time.
PAPERS_TEXT = replace(TEXT, text=replace(TEXT.text, recipe="paper-small", corpora=("wikitext-103", "openwebtext")))

Values = Sequence[float]  # one per seed
WILD = Diverged(diverged="step 7: loss NaN", data="one text")


def of_config(answer: Callable[[str, dict[str, Any]], Any]) -> Results:
    """Results that a function of work and configuration gives, as JSON."""
    return lambda trial: to_json(answer(trial.work, trial.config))


def of_key(known: Mapping[str, Any]) -> Results:
    """Results of the trials with these keys, and of no other."""
    return lambda trial: to_json(known[trial.key])


def retrieval(
    right: Callable[[dict[str, Any]], Values],
    baselines: Callable[[dict[str, Any]], Baselines] | None = None,
    distances: Values = (),
) -> Results:
    """Results of retrieval trials.

    Args:
        right: accuracies by seed, from a trial's configuration; the squared error is a hundredth of each.
        baselines: scores of the untrained predictors, from the task.
        distances: ||x - F|| after each round of a model with so many; seeds add their number.
    """

    def answer(work: str, config: dict[str, Any]) -> Any:
        if work == "retrieval.baselines":
            assert baselines is not None
            return baselines(config["task"])
        by_seed = dict(zip(config["seeds"], right(config), strict=True))
        rounds = distances if config["model"]["n_rounds"] == len(distances) else ()
        return {  # in an order that says nothing about seeds
            seed: RetrievalResult(accuracy=value, mse=value / 100, rounds=after(rounds, seed))
            for seed, value in sorted(by_seed.items(), key=lambda item: item[1])
        }

    return of_config(answer)


def after(distances: Values, seed: int) -> list[RoundDistances]:
    return [RoundDistances(to_query=d + seed, to_pattern=-1.0, cosine=0.0, gate=None) for d in distances]


def untrained(*, chance: float = -1.0, raw: float = -2.0, best: float = -3.0, bayes: float) -> Baselines:
    """Accuracies of the untrained predictors; the squared error is a hundredth of each."""
    scores = {"chance": chance, "raw": raw, "map": best, "bayes": bayes}
    return Baselines(**{name: Score(accuracy=value, mse=value / 100) for name, value in scores.items()})


def language_result(test: float, **other: Any) -> LanguageResult:
    """A trained model with this test perplexity; its validation perplexity is 1,000 more."""
    made = LanguageResult(
        test=SplitScore(loss=math.log(test), tokens=99, bits_per_byte=None, perplexity=test),
        best=BestStep(step=2, validation_loss=math.log(test + 1000), validation_perplexity=test + 1000),
        curve=[(0, 9.0), (3, 8.0)],
        final_validation_loss=8.0,
        steps=3,
        tokens=192,
        parameters=1_000_000,
        flops_per_token=2_000_000,
        data="one text",
        order="",
        measured=Measured(seconds=1.0, curve_seconds=[0.5, 1.0]),
    )
    return replace(made, **other)


def text_results(
    preset: Preset,
    made: Callable[[str, dict[str, Any], int], LanguageResult | Diverged | None],
    others: Mapping[str, Any] = {},
) -> Results:
    """Results of language models, each of the text and the batches that its configuration names.

    Args:
        preset: whose model's options an arm differs from.
        made: the result from the text, the options that differ from the preset's model, and the number of the seed in
            the preset; None where there is none.
        others: results of other trials, by key.
    """
    base = preset.text.configuration().model.to_dict()

    def results(trial: Trial) -> Any:
        if trial.work != "language.train":
            return to_json(others[trial.key])
        model, training, data = (trial.config[part] for part in ("model", "training", "data"))
        options = {key: value for key, value in model.items() if key == "attention" or base[key] != value}
        result = made(data["corpus"], options, preset.text.seeds.index(training["seed"]))
        if result is None:
            raise KeyError(trial.key)
        if isinstance(result, Diverged):
            return to_json(result)
        return to_json(replace(result, data=data["corpus"], order=f"{training['seed']}, {result.steps}"))

    return results


def perplexities(
    preset: Preset,
    table: Mapping[str, Mapping[str, Values]],
    arm_of: Callable[[dict[str, Any]], str],
    others: Mapping[str, Any] = {},
) -> Results:
    """Results of language models with these test perplexities: text, arm, one per seed; and others by key."""
    return text_results(preset, lambda corpus, options, i: language_result(table[corpus][arm_of(options)][i]), others)


def shifted(values: Mapping[str, Values], by: float) -> dict[str, list[float]]:
    """The same numbers, all larger by so much: for a second text."""
    return {arm: [v + by for v in row] for arm, row in values.items()}


def percent(a: Values, b: Values) -> list[float]:
    """How much larger a is than b, in percent, seed by seed."""
    return [100 * (x / y - 1) for x, y in zip(a, b, strict=True)]


def minus(a: Values, b: Values) -> list[float]:
    return [x - y for x, y in zip(a, b, strict=True)]


def is_estimate(found: Estimate, values: Values) -> bool:
    """Whether an estimate is that of these values, one per seed."""
    expected = (statistics.mean(values), statistics.stdev(values), len(values))
    return (found.mean, found.std, found.n) == pytest.approx(expected, abs=1e-9)


def check(table: Table, expected: Mapping[Quantity, Values | float]) -> None:
    """Assert the table's quantities: an estimate over seeds, or a number without randomness."""
    for quantity, values in expected.items():
        found = table.quantities[quantity]
        if isinstance(values, float):
            assert (found.mean, found.std, found.n) == (pytest.approx(values), 0.0, 0), quantity
        else:
            assert is_estimate(found, values), (str(quantity), found, statistics.mean(values))


def compared(table: Table) -> dict[Quantity, float]:
    """The means of the table's comparisons, in their order."""
    return {c.quantity: c.difference.mean for c in table.comparisons}


def row(table: Table, label: str) -> list[float | None]:
    """The means in a row."""
    return [None if cell is None else pytest.approx(cell.ours.mean) for cell in table.rows[label]]


def papers(table: Table, label: str) -> list[float | None]:
    """The paper's numbers beside a row."""
    return [None if cell is None else cell.paper for cell in table.rows[label]]


def ledger(experiment: Experiment, table: Table) -> Ledger:
    """The experiment's claims, judged by one table; KeyError where it lacks a claim's quantity."""
    return judge(experiment.claims, {experiment.name: table})


def verdicts(experiment: Experiment, table: Table, text: str = "") -> dict[str, str]:
    """Verdicts by claim, on one text where there are several; claims that are not judged there are left out."""
    return {
        judged.claim.id: judged.verdict
        for judged in ledger(experiment, table).rows
        if judged.place is not None and judged.place.text == text
    }


def main_arm(options: dict[str, Any]) -> str:
    """The arm of Table 3 that a model's options make it."""
    return "param-fair" if options["attention"] == "standard" and len(options) > 1 else options["attention"]
