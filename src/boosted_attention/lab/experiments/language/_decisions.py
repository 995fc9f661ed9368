"""What results decide, by rule: learning rates, the number of seeds that a pilot asks for, and steps of equal time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments._grid import grown
from boosted_attention.lab.experiments.language import _tournament, equal_cost, pilot, sweep
from boosted_attention.lab.experiments.language._arms import BOOSTED, FAIR, STANDARD, arm_model, main_arms
from boosted_attention.lab.presets import Decided, Preset, UndecidedError
from boosted_attention.lab.work.timing import StepRatios
from boosted_attention.records import from_json


def settled(preset: Preset, results: Results) -> Preset:
    """The preset with everything that the results decide; what they do not decide yet stays open.

    Args:
        preset: what it says of decisions is not looked at.
        results: results of trials; KeyError for those that are not there.
    """
    open_one = with_decided(preset, Decided(forms=_tournament.decided(preset, results)))
    if not preset.text.tuned:
        return open_one
    grids, rates = {}, {}
    for one in (open_one, *(open_one.at(size) for size in preset.text.sizes)):
        found = {name: swept(one, results, name) for name in sweep.arms(one)}
        grids[one.text.recipe] = {name: tried for name, (tried, _) in found.items()}
        rates[one.text.recipe] = {name: best for name, (_, best) in found.items() if best is not None}
    known = with_decided(open_one, replace(open_one.text.decided, grids=grids, rates=rates))
    decided = replace(known.text.decided, pair_seeds=pair_seeds(known, results), step_times=step_times(known, results))
    return with_decided(known, decided)


def with_decided(preset: Preset, decided: Decided) -> Preset:
    return replace(preset, text=replace(preset.text, decided=decided))


def swept(preset: Preset, results: Results, name: str) -> tuple[tuple[float, ...], float | None]:
    """The factors to be tried for an arm, and the best of them once all have been."""
    first = preset.text.corpora[0]
    return grown(preset.text.rates, partial(sweep.points_at, preset, results, first, name), sweep.STEP)


def pair_seeds(preset: Preset, results: Results) -> int | None:
    """The number of seeds that the pilot asks for."""
    if preset.text.pilot is None:
        return None
    try:
        found = pilot.scatter(preset, results)
    except (KeyError, UndecidedError):
        return None
    return pilot.seeds_asked(preset.text.pilot, preset.text.arms[BOOSTED], found)


def step_times(preset: Preset, results: Results) -> dict[str, float]:
    """The step times of models that are trained as long as the boosted one, as multiples of its own."""
    try:
        found = from_json(StepRatios, results(equal_cost.timings(preset))).measured
    except KeyError:
        return {}
    return {name: found[name] for name in equal_cost.LONGER}


def assumed(preset: Preset, *, most: bool = True) -> Preset:
    """The preset as it may be settled, for an estimate: no grid grows, and FLOPs are time.

    Args:
        preset: what it says of decisions is not looked at.
        most: whether the pilot asks for the most seeds, or for no more than the arms have in any case.
    """
    text, of_forms = preset.text, _tournament.assumed(preset)
    if not text.tuned:
        return with_decided(preset, Decided(forms=of_forms))
    names = {one.text.recipe: list(sweep.arms(one)) for one in (preset, *(preset.at(size) for size in text.sizes))}
    flops = {name: arm_model(preset, arm).flops() for name, arm in main_arms(preset).items()}
    return with_decided(
        preset,
        Decided(
            grids={},
            rates={recipe: dict.fromkeys(own, 1.0) for recipe, own in names.items()},
            pair_seeds=None if text.pilot is None else text.pilot.most if most else text.arms[BOOSTED],
            step_times={name: flops[name] / flops[BOOSTED] for name in (STANDARD, FAIR)},
            forms=of_forms,
        ),
    )
