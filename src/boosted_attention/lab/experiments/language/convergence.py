"""Appendix B: steps, FLOPs and seconds to reach each other's final validation loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from boosted_attention.chart import Figure, Panel, measured
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._arms import BOOSTED, FAIR, STANDARD, TWICING, main_arms
from boosted_attention.lab.experiments.language._shared import (
    WIKITEXT,
    against_zero,
    compare,
    describe_places,
    describe_times,
    described,
    located,
    note_diverged,
    on_first_text,
    read,
    short,
    tag,
    text_table,
    training_trials,
)
from boosted_attention.lab.experiments.language._trials import timing_trial
from boosted_attention.lab.judging.claim import claim
from boosted_attention.lab.judging.facts import FEWER_STEPS
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import BySeed, Cell, Table, over_seeds
from boosted_attention.lab.judging.verdicts import FEWEST_SEEDS, below, number
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.language import LanguageResult
from boosted_attention.lab.work.timing import StepRatios
from boosted_attention.records import from_json
from boosted_attention.statistics import estimate

TITLE = "Training needed to reach each other's final validation loss (Appendix B)"
STEPS_TO = {  # what the boosted model needs less, in percent of the other's whole run
    other: Quantity(f"steps to the {other} model's end", paper)
    for other, paper in ((FAIR, -20.0), (STANDARD, -33.0), (TWICING, None))
}
COSTS = ("steps", "FLOPs", "seconds")
GOALS = ((FAIR, "wide", "wider"), (STANDARD, "standard", "standard"))


def timings(preset: Preset) -> Trial:
    return timing_trial(preset, main_arms(preset), "convergence")


def trainings(preset: Preset) -> list[Trial]:
    return training_trials(preset, main_arms(preset))


def trials(preset: Preset) -> list[Trial]:
    return [timings(preset), *trainings(preset)]


def step_ratios(preset: Preset, results: Results) -> dict[str, float]:
    """Step times of the models beside one of them, timed in turn; none while they were not timed."""
    try:
        return from_json(StepRatios, results(timings(preset))).measured
    except KeyError:
        return {}


def steps_to(curve: list[tuple[int, float]], loss: float) -> float | None:
    """Where a validation curve first comes down to ``loss``, on a line between evaluations; None if it never does."""
    steps, losses = np.asarray(curve, dtype=float).T
    for i in range(1, len(steps)):
        if losses[i] <= loss:
            fraction = (losses[i - 1] - loss) / (losses[i - 1] - losses[i])
            return float(steps[i - 1] + fraction * (steps[i] - steps[i - 1]))
    return None


def share_of_steps(runner: Mapping[int, LanguageResult], goal: Mapping[int, LanguageResult]) -> dict[int, float | None]:
    """Steps by seed that ``runner`` needs to reach the end of ``goal``, over its whole run; None if it never does."""

    def share(seed: int) -> float | None:
        steps = steps_to(runner[seed].curve, goal[seed].final_validation_loss)
        return None if steps is None else steps / goal[seed].steps

    return {seed: share(seed) for seed in sorted(set(goal) & set(runner))}


def beyond(
    shares: Mapping[int, float],
    runner: Mapping[int, LanguageResult],
    goal: Mapping[int, LanguageResult],
    step_ratio: float | None,
) -> tuple[BySeed, BySeed, BySeed | None]:
    """Steps, FLOPs and seconds beyond the whole run of the model to be reached, in percent.

    Args:
        shares: steps that ``runner`` needs, over those of ``goal``, by seed.
        runner: results by seed of the model that runs.
        goal: results by seed of the model to be reached.
        step_ratio: time of a step of the runner as a multiple of the goal's; None where it was not measured.
    """

    def percent(factor: Callable[[int], float]) -> dict[int, float]:
        return {seed: 100 * (share * factor(seed) - 1) for seed, share in shares.items()}

    return (
        percent(lambda seed: 1.0),
        percent(lambda seed: runner[seed].flops_per_token / goal[seed].flops_per_token),
        None if step_ratio is None else percent(lambda seed: step_ratio),
    )


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset, [f"{cost} (%)" for cost in COSTS])
    table.precision = 1
    ratios = step_ratios(preset, results)
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, main_arms(preset))
        table.notes += described(preset, corpus, found, main_arms(preset))
        pairs, never = [], []
        for other, quantity in STEPS_TO.items():
            if BOOSTED not in found or other not in found:
                diverged = [arm for arm in (BOOSTED, other) if arm in found.diverged]
                reasons = table.failed if diverged else table.missing
                why = f"{' and '.join(diverged)} diverged" if diverged else "not run"
                reasons[located(preset, corpus, quantity)] = why
                continue
            for runner, goal in ((BOOSTED, other), (other, BOOSTED)):
                label = f"{runner}, to the end of {goal}{tag(preset, corpus)}"
                shares = share_of_steps(found[runner], found[goal])
                arrived = {seed: share for seed, share in shares.items() if share is not None}
                if len(arrived) < len(shares):
                    by = f"{len(arrived)} of {len(shares)} seeds"
                    never.append(f"{label} ({by})")
                    table.add_row(label, [None] * len(COSTS))
                    if runner == BOOSTED:
                        note_not_reached(table, located(preset, corpus, quantity), by, len(shares))
                    continue
                step_ratio = ratios[runner] / ratios[goal] if ratios else None
                columns = beyond(arrived, found[runner], found[goal], step_ratio)
                table.add_row(label, [None if values is None else Cell(over_seeds(values)) for values in columns])
                if runner == BOOSTED:
                    pairs.append(against_zero(quantity, columns[0]))
        compare(table, preset, corpus, pairs)
        note_diverged(table, preset, corpus, found)
        if never:
            table.notes.append(f"Not reached by every seed, so without figures: {'; '.join(never)}.")
    table.notes[0] = "What is needed less than (-) or beyond (+) the whole run of the model to be reached, in percent."
    table.notes.append(
        "Seconds follow from the steps and from the times of steps that the models made in turn."
        if ratios
        else "Steps were not timed: there are no seconds."
    )
    table.notes += describe_times(results, timings(preset))
    return table


def note_not_reached(table: Table, quantity: Quantity, by: str, seeds: int) -> None:
    """Say that an end was not reached: a failure, unless there are too few seeds to tell."""
    if seeds < FEWEST_SEEDS:
        table.undecided[quantity] = f"reached by {by}, {FEWEST_SEEDS} are needed"
    else:
        table.failed[quantity] = f"reached by {by}"


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    panels = []
    for corpus in preset.text.corpora:
        series, last = [], {}
        for arm, by_seed in read(preset, results, corpus, main_arms(preset)).items():
            curves = [result.curve for result in by_seed.values()]
            points = [(column[0][0], estimate([loss for _, loss in column])) for column in zip(*curves, strict=True)]
            points = points[len(points) > 3 :]  # the untrained model would flatten the rest
            series.append(measured(arm, [step for step, _ in points], [e for _, e in points]))
            last[arm] = points[-1][1].mean
        if not series:
            continue
        panels.append(
            Panel(
                x_label="step",
                y_label="validation loss (nats)",
                series=series,
                title=short(preset, corpus),
                levels={f"where {FAIR} ends": last[FAIR]} if FAIR in last else {},
            )
        )
    return Figure(
        name="convergence",
        title="Validation loss during training",
        caption=f"The paper's Figure 7, in nats, with intervals over seeds. {describe_places(table)}",
        panels=panels,
    )


def fewer(other: str) -> str:
    """The steps that the paper's boosted model needs less, in percent."""
    return f"{-(STEPS_TO[other].paper or 0.0):.0f}"


CLAIMS = [
    *(
        claim(
            f"lm-convergence-{tagged}",
            FEWER_STEPS,
            STEPS_TO[other],
            below(),
            f"The boosted model reaches the {said} model's final loss in fewer steps.",
            paper=f"{STEPS_TO[other].paper:.0f} %",
        )
        for other, tagged, said in GOALS
    ),
    *(
        claim(
            f"lm-convergence-{tagged}-size",
            FEWER_STEPS,
            STEPS_TO[other].on(WIKITEXT),
            number(runs=2),
            f"The boosted model reaches the {said} model's final perplexity in {fewer(other)} % fewer steps.",
            paper=f"{STEPS_TO[other].paper:.0f} %",
        )
        for other, tagged, said in GOALS
    ),
]

EXPERIMENT = Experiment(
    name="lm-convergence",
    title=TITLE,
    kind=Kind.LANGUAGE,
    order=140,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    figure=figure,
    needed=on_first_text(trainings),
)
