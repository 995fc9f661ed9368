"""The stages of the tournament of forms: who enters, what is trained, and what each stage decides.

Stage 1 trains every form at a few rates with one seed, each for as long as a shortened training of the standard model
takes; those with the lowest validation loss go on at their best rate. Stage 2 trains these at full length with fresh
seeds, each beside the standard model that trains as long. Stage 3 confirms the best with fresh seeds again: at most
two, and the second only if it was ahead of standard.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments._grid import Points, best_factor
from boosted_attention.lab.experiments.language._arms import PLAIN, STANDARD, Arm, arm_model, matched_to
from boosted_attention.lab.experiments.language._shared import by_seed, validation_loss
from boosted_attention.lab.experiments.language._trials import preset_steps, sweep_trial, timing_trial, training_trial
from boosted_attention.lab.presets import DecidedForms, Preset, Tournament
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.language import SweepPoint
from boosted_attention.lab.work.timing import StepRatios
from boosted_attention.records import from_json

ONE_LAYER = {"boosted_layers": (1,)}  # the layer whose correction was worth most in trained models
HEADWISE: Arm = {"attention_options": {"gate": "headwise"}}  # of cheap rounds, which the paper's gate would double
SHARED_HEADWISE: Arm = {"attention": "boosted-shared", **HEADWISE}
FORMS: dict[str, Arm] = {
    "local": {"attention": "local"},
    "exclusive": {"attention": "exclusive"},
    "value residual": {**PLAIN[STANDARD], "value_residual": True},
    "local, exclusive, value residual": {"attention": "local-exclusive", "value_residual": True},
    "value-basis": {"attention": "value-basis"},
    "value-basis, one layer": {"attention": "value-basis", **ONE_LAYER},
    "Parallax": {"attention": "parallax"},
    "low-rank correction, headwise gate": {"attention": "boosted-low-rank", **HEADWISE},
    "normalised residual": {"attention": "boosted-normalised"},
    "shared K/V, headwise gate": SHARED_HEADWISE,
    "shared K/V, headwise gate, one layer": {**SHARED_HEADWISE, **ONE_LAYER},
}
GATED: Arm = {"attention": "gated-headwise"}
USUAL = Tournament(  # of presets that have none
    forms=("local", "exclusive"),
    rates=(1.0,),
    first_seed=1,
    first_share=0.5,
    second_seeds=(2,),
    into_second=1,
    final_seeds=(3, 4),
    into_final=1,
)
EQUAL_FLOPS, EQUAL_PARAMETERS, GATED_STANDARD = "equal FLOPs", "equal parameters", "gated standard"


def plan(preset: Preset) -> Tournament:
    return preset.text.tournament or USUAL


def text_of(preset: Preset) -> str:
    """The text of the tournament: the preset's first."""
    return preset.text.corpora[0]


def with_standard(forms: Sequence[str]) -> dict[str, Arm]:
    """The standard model, and forms by name."""
    return {STANDARD: PLAIN[STANDARD], **{name: FORMS[name] for name in forms}}


# Trials of the stages


def widths(preset: Preset) -> dict[str, Arm]:
    """Wider standard models: the line to beat, since width can be bought in any amount."""
    model = preset.text.configuration().model
    wider = [model.d_model + k * model.n_heads for k in (2, 4, 8)]
    return {f"standard, d={width}": {**PLAIN[STANDARD], "d_model": width} for width in wider}


def timings(preset: Preset) -> Trial:
    return timing_trial(preset, with_standard(plan(preset).forms) | widths(preset), "forms")


def width_trials(preset: Preset) -> dict[str, dict[int, Trial]]:
    """The standard model by width, at full length with the seeds of stage 2."""
    arms, factor = {STANDARD: PLAIN[STANDARD], **widths(preset)}, factor_of(preset, STANDARD)
    return {
        name: full_length(preset, arm, plan(preset).second_seeds, f"{name}, widths", factor)
        for name, arm in arms.items()
    }


def screening(preset: Preset, name: str, factor: float, times: Mapping[str, float]) -> Trial:
    """A training of stage 1, which takes as long as the standard model's."""
    stage = plan(preset)
    arm, steps = with_standard(stage.forms)[name], round(stage.first_share * preset_steps(preset) / times[name])
    return sweep_trial(
        preset, text_of(preset), arm, f"{name}, stage 1", factor, steps=max(1, steps), seed=stage.first_seed
    )


def contestants(preset: Preset, name: str, seeds: Sequence[int], stage: str) -> dict[int, Trial]:
    """A form at full length, by seed."""
    return full_length(preset, FORMS[name], seeds, f"{name}, {stage}", factor_of(preset, name))


def rivals(preset: Preset, name: str, seeds: Sequence[int], stage: str, times: Mapping[str, float]) -> dict[int, Trial]:
    """The standard model that trains as long as a form, by seed."""
    label = f"standard, as long as {name}, {stage}"
    return full_length(preset, PLAIN[STANDARD], seeds, label, factor_of(preset, STANDARD), times[name])


def pair(preset: Preset, name: str, stage: str) -> list[dict[int, Trial]]:
    """A form and the standard model that trains as long, in a stage at full length."""
    own, times = plan(preset), preset.text.decided.forms.times
    seeds = {"stage 2": own.second_seeds, "stage 3": own.final_seeds}[stage]
    return [contestants(preset, name, seeds, stage), rivals(preset, name, seeds, stage, times)]


def beside(preset: Preset, name: str) -> dict[str, dict[int, Trial]]:
    """The secondary rivals of a form that is confirmed."""
    seeds, standard = plan(preset).final_seeds, factor_of(preset, STANDARD)
    arms = {
        EQUAL_FLOPS: equal_cost(preset, name, "flops"),
        EQUAL_PARAMETERS: equal_cost(preset, name, "parameters"),
        GATED_STANDARD: GATED,
    }
    return {
        rival: full_length(preset, arm, seeds, f"standard, {rival}, {name}", standard) for rival, arm in arms.items()
    }


def full_length(
    preset: Preset, arm: Arm, seeds: Sequence[int], label: str, factor: float, share: float = 1.0
) -> dict[int, Trial]:
    steps = round(share * preset_steps(preset))
    return {
        seed: training_trial(preset, text_of(preset), arm, seed, label, steps=steps, factor=factor) for seed in seeds
    }


def equal_cost(preset: Preset, name: str, by: str) -> Arm:
    """The standard model that costs what a form costs."""
    return matched_to(arm_model(preset, {**FORMS[name], "value_residual": False}), {}, by)


def factor_of(preset: Preset, name: str) -> float:
    return preset.text.decided.forms.rates[name]


def wider(preset: Preset) -> Preset | None:
    """The preset at the further size; None if it has none."""
    size = plan(preset).wide
    return None if size is None else preset.at(size)


def wide_timings(preset: Preset) -> Trial | None:
    """Step times at the further size, of the forms that are confirmed."""
    wide, final = wider(preset), preset.text.decided.forms.final
    return None if wide is None or not final else timing_trial(wide, with_standard(final), "forms, wider")


def wide_pair(preset: Preset, name: str) -> list[dict[int, Trial]]:
    """A form and the standard model that trains as long, at the further size; none while step times are unknown."""
    wide, size, times = wider(preset), plan(preset).wide, preset.text.decided.forms.wide_times
    if wide is None or size is None or name not in times:
        return []
    seeds = plan(preset).final_seeds[: size.seeds]
    return [contestants(wide, name, seeds, "wider"), rivals(wide, name, seeds, "wider", times)]


def trials(preset: Preset) -> list[Trial]:
    """Everything that is known to be done; each stage follows from the one before.

    In turn: what decides, then rivals of equal cost and the gated one, then the standard model by width, then the
    further size.
    """
    stage, known = plan(preset), preset.text.decided.forms
    second, final = known.second or (), known.final or ()
    names = with_standard(stage.forms) if known.times else ()
    screened = [screening(preset, name, factor, known.times) for name in names for factor in stage.rates]
    pairs = [own for name in second for own in pair(preset, name, "stage 2")]
    pairs += [own for name in final for own in pair(preset, name, "stage 3")]
    timed = wide_timings(preset)
    in_turn = [
        [timings(preset), *screened, *of_groups(pairs)],
        of_groups(own for name in final for own in beside(preset, name).values()),
        of_groups(width_trials(preset).values() if second else ()),
        [*([] if timed is None else [timed]), *of_groups(own for name in final for own in wide_pair(preset, name))],
    ]
    return [replace(trial, turn=turn) for turn, own in enumerate(in_turn) for trial in own]


def of_groups(groups: Iterable[Mapping[int, Trial]]) -> list[Trial]:
    """The trials of groups that each have one per seed."""
    return [trial for by_seed in groups for trial in by_seed.values()]


def needed(preset: Preset) -> list[Trial]:
    """The first stage; what follows is shown as it is there."""
    return trials(preset)[: 1 + len(plan(preset).rates) * (1 + len(plan(preset).forms))]


# What the stages decide


def decided(preset: Preset, results: Results) -> DecidedForms:
    """What the results of the stages decide, as far as they are there.

    Args:
        preset: what it says of decisions is not looked at.
        results: results of trials; KeyError for those that are not there.
    """
    found = DecidedForms()
    with suppress(KeyError):
        found = DecidedForms(times=from_json(StepRatios, results(timings(preset))).measured)
        screened = {name: points(preset, results, name, found.times) for name in with_standard(plan(preset).forms)}
        found = after_first(plan(preset), found, screened)
        leads = {name: lead(as_decided(preset, found), results, name) for name in found.second or ()}
        found = after_second(plan(preset), found, leads)
        timed = wide_timings(as_decided(preset, found))
        if timed is not None:
            found = replace(found, wide_times=from_json(StepRatios, results(timed)).measured)
    return found


def as_decided(preset: Preset, found: DecidedForms) -> Preset:
    """The preset with what is decided of its forms."""
    return replace(preset, text=replace(preset.text, decided=replace(preset.text.decided, forms=found)))


def points(preset: Preset, results: Results, name: str, times: Mapping[str, float]) -> dict[float, float | None]:
    """Validation perplexity of a form in stage 1, by factor; None where training diverged."""
    found = {
        factor: from_json(SweepPoint, results(screening(preset, name, factor, times))) for factor in plan(preset).rates
    }
    return {factor: None if p.best is None else p.best.validation_perplexity for factor, p in found.items()}


def lowest(points: Points) -> float | None:
    """The lowest perplexity of a grid, which need not be that of the rate taken; None where every training diverged."""
    return min((value for value in points.values() if value is not None), default=None)


def after_first(stage: Tournament, known: DecidedForms, screened: Mapping[str, Points]) -> DecidedForms:
    """Choose rates, and the forms of stage 2: those with the lowest validation perplexity, whichever rate has it."""
    rates = {name: best_factor(found) or min(found) for name, found in screened.items()}
    best = {name: lowest(found) for name, found in screened.items() if name != STANDARD}
    ranked = sorted((value, name) for name, value in best.items() if value is not None)
    second = tuple(name for _, name in ranked[: stage.into_second])
    return replace(known, rates=rates, second=second)


def lead(preset: Preset, results: Results, name: str) -> float | None:
    """Mean validation loss of a form above that of the standard model of equal time; None where one diverged."""
    form, rival = (
        by_seed(results, who, own) for who, own in zip((name, STANDARD), pair(preset, name, "stage 2"), strict=True)
    )
    if form.diverged or rival.diverged:
        return None
    ours, theirs = validation_loss(form[name]), validation_loss(rival[STANDARD])
    return statistics.fmean(ours[seed] - theirs[seed] for seed in ours)


def after_second(stage: Tournament, known: DecidedForms, leads: Mapping[str, float | None]) -> DecidedForms:
    """Choose the forms to be confirmed: the best, and further ones that are ahead of standard."""
    ranked = sorted((value, name) for name, value in leads.items() if value is not None)
    chosen = [name for i, (value, name) in enumerate(ranked[: stage.into_final]) if i == 0 or value < 0]
    return replace(known, final=tuple(chosen))


def assumed(preset: Preset) -> DecidedForms:
    """What may be decided, for an estimate: FLOPs are time, and the costliest forms go on."""
    stage = plan(preset)
    flops = {name: arm_model(preset, arm).flops() for name, arm in with_standard(stage.forms).items()}
    times = {name: value / flops[STANDARD] for name, value in flops.items()}
    times |= dict.fromkeys(widths(preset), 1.0)
    costliest = sorted(stage.forms, key=lambda name: -times[name])
    return DecidedForms(
        times=times,
        wide_times=times,
        rates=dict.fromkeys(times, 1.0),
        second=tuple(costliest[: stage.into_second]),
        final=tuple(costliest[: stage.into_final]),
    )
