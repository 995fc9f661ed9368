"""The pilot: how many seeds the comparison with equal parameters needs, from the scatter of seeds used nowhere else."""

from __future__ import annotations

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._arms import BOOSTED, Arm, main_arms
from boosted_attention.lab.experiments.language._shared import by_seed, located, percent, perplexity, places, short
from boosted_attention.lab.experiments.language._trials import training_trial
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import Cell, Table, cell, exactly
from boosted_attention.lab.presets import PAIR, Pilot, Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.statistics import Estimate, estimate, seeds_needed

TITLE = "Pilot: seeds for the comparison with equal parameters"
DIFFERENCE = Quantity("boosted - param-fair, pilot")
ASKED = Quantity("seeds that the pilot asks for")
USUAL = Pilot(seeds=(1, 2, 3), effect=1.5, most=16)  # of presets that have none: it is shown and decides nothing


def plan(preset: Preset) -> Pilot:
    return preset.text.pilot or USUAL


def pair(preset: Preset) -> dict[str, Arm]:
    arms = main_arms(preset)
    return {name: arms[name] for name in PAIR}


def trials_by_seed(preset: Preset, name: str) -> dict[int, Trial]:
    """The trainings of one of the two arms, by seed."""
    corpus, arm = preset.text.corpora[0], pair(preset)[name]
    return {seed: training_trial(preset, corpus, arm, seed, f"{name}, pilot") for seed in plan(preset).seeds}


def trials(preset: Preset) -> list[Trial]:
    return [trial for name in PAIR for trial in trials_by_seed(preset, name).values()]


def scatter(preset: Preset, results: Results) -> Estimate | None:
    """The paired difference in percent; None where a training diverged. KeyError if a result is not there."""
    found = {name: by_seed(results, name, trials_by_seed(preset, name)) for name in PAIR}
    if any(one.diverged for one in found.values()):
        return None
    ours, theirs = (perplexity(found[name][name]) for name in PAIR)
    return estimate(list(percent(ours, theirs).values()))


def seeds_asked(pilot: Pilot, fewest: int, found: Estimate | None) -> int:
    """The number of seeds that show the effect in four cases of five, between the fewest and the most allowed.

    Args:
        pilot: effect and most.
        fewest: seeds that the two arms have in any case.
        found: the pilot's paired difference; None where a training diverged, which asks for the most.
    """
    needed = None if found is None else seeds_needed(pilot.effect, found.std)
    return min(max(fewest, needed or pilot.most), pilot.most)


def collect(preset: Preset, results: Results) -> Table:
    pilot, corpus = plan(preset), preset.text.corpora[0]
    found = scatter(preset, results)
    table = Table(TITLE, ["difference (%)", "standard deviation (%)", "seeds"], precision=2, places=places(preset))
    fewest = preset.text.arms.get(BOOSTED, 0)
    asked = cell(located(preset, corpus, ASKED), exactly(seeds_asked(pilot, fewest, found)))
    shown: list[Cell | None] = [None, None]
    if found is not None:
        shown = [cell(located(preset, corpus, DIFFERENCE), found), Cell(exactly(found.std))]
    table.add_row("boosted - param-fair", [*shown, asked])
    table.notes.append(
        f"{short(preset, corpus)}, seeds {', '.join(map(str, pilot.seeds))}, which no table uses. Asked for: as many "
        f"as show {pilot.effect} % in four cases of five, at least {fewest} and at most {pilot.most}."
        + (" A training diverged." if found is None else "")
    )
    return table


EXPERIMENT = Experiment(name="lm-pilot", title=TITLE, kind=Kind.LANGUAGE, order=107, trials=trials, collect=collect)
