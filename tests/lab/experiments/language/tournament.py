"""A tournament at a size of seconds, and results of its stages made by hand."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from boosted_attention.lab.experiments.language import _tournament
from boosted_attention.lab.experiments.language._arms import STANDARD
from boosted_attention.lab.experiments.language._decisions import settled
from boosted_attention.lab.experiments.language._tournament import pair, screening, timings, widths
from boosted_attention.lab.presets import PRESETS, Preset, Size, Tournament
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.language import Diverged
from boosted_attention.lab.work.timing import StepRatios
from boosted_attention.records import to_json
from tests.lab.experiments.language.arena import results_of, sweep_point
from tests.lab.experiments.made import language_result

Known = dict[str, Any]  # results as JSON, by the key of their trial
Tests = Sequence[float | Diverged]  # test perplexities by seed

STEPS, TEXT = 40, "wikitext-2"
STAGE = Tournament(
    forms=("local", "value-basis", "Parallax", "value residual"),
    rates=(0.5, 1.0, 2.0),
    first_seed=1,
    first_share=0.5,
    second_seeds=(2, 3),
    into_second=3,
    final_seeds=(4, 5, 6),
    into_final=2,
    wide=Size(recipe="arena-128", seeds=2),
)
PRESET = replace(
    PRESETS["forms"],
    text=replace(
        PRESETS["forms"].text,
        model={"vocab_size": 300, "n_layers": 2, "n_heads": 2, "max_len": 16},
        training={"steps": STEPS, "batch_size": 4},
        data={"train_tokens": 4096, "held_out_tokens": 512},
        tournament=STAGE,
    ),
)
TIMES = {STANDARD: 1.0, "local": 1.25, "value-basis": 1.1, "Parallax": 2.0, "value residual": 1.05}
WIDTH_TIME = 1.2  # of every wider standard model
WIDE_TIMES = {STANDARD: 1.0, "value-basis": 1.5, "local": 1.25}
SCREENED = {
    STANDARD: {0.5: 40.0, 1.0: 39.0, 2.0: 41.0},
    "local": {0.5: 38.0, 1.0: 37.0, 2.0: None},
    "value-basis": {0.5: 36.1, 1.0: 36.0, 2.0: 39.0},  # within half a per cent: the smaller rate
    "Parallax": {0.5: None, 1.0: None, 2.0: None},
    "value residual": {0.5: 45.0, 1.0: 44.0, 2.0: 46.0},
}
AHEAD = {"value-basis": (49.0, 50.0), "local": (49.9, 51.9), "value residual": (60.0, 60.0)}
BY_WIDTH = ((56.0, 58.0), (55.0, 57.0), (54.0, 56.0), (53.0, 55.0))  # of the standard model, the narrowest first


def with_stage(**changes: Any) -> Preset:
    """The preset with another tournament."""
    return replace(PRESET, text=replace(PRESET.text, tournament=replace(STAGE, **changes)))


def timed() -> Known:
    times = {**TIMES, **dict.fromkeys(widths(PRESET), WIDTH_TIME)}
    quartiles = {name: (value - 0.125, value + 0.25) for name, value in times.items()}
    return {timings(PRESET).key: to_json(StepRatios(measured=times, measured_quartiles=quartiles))}


def first_stage(screened: Mapping[str, Mapping[float, float | None]] = SCREENED) -> Known:
    points = {
        screening(PRESET, name, factor, TIMES).key: sweep_point(value)
        for name, curve in screened.items()
        for factor, value in curve.items()
    }
    return timed() | points


def trained(trials: Iterable[Trial], tests: Tests) -> Known:
    """Results of trainings, one after the other."""
    made = zip(trials, tests, strict=True)
    return {t.key: to_json(one if isinstance(one, Diverged) else language_result(one)) for t, one in made}


def stage(now: Preset, name: str, label: str, form: Tests, standard: Tests) -> Known:
    """Results of a form and its rival, by seed."""
    ours, theirs = pair(now, name, label)
    return trained(ours.values(), form) | trained(theirs.values(), standard)


def second_stage(forms: Mapping[str, Tests] = AHEAD) -> Known:
    """First stage, and the perplexities of forms in the second, whose rivals have 50 and 52."""
    known = first_stage()
    now = settled(PRESET, results_of(known))
    for name in now.text.decided.forms.second or ():
        known |= stage(now, name, "stage 2", forms[name], (50.0, 52.0))
    return known


FINAL = {"value-basis": (48.0, 49.0, 51.0), "local": (49.0, 50.5, 50.0)}  # beside rivals with 50
RIVALS = {  # the secondary ones, of either form
    _tournament.EQUAL_FLOPS: (47.0, 47.5, 49.0),
    _tournament.EQUAL_PARAMETERS: (49.5, 50.5, 52.0),
    _tournament.GATED_STANDARD: (48.5, 48.0, 50.0),
}
WIDE_FORM, WIDE_RIVAL = (38.0, 39.0), (40.0, 40.0)


def finished() -> tuple[Preset, Known]:
    """All stages of a tournament that confirms two forms: the preset as it is settled, and the results."""
    known = second_stage()
    now = settled(PRESET, results_of(known))
    for own, tests in zip(_tournament.width_trials(now).values(), BY_WIDTH, strict=True):
        known |= trained(own.values(), tests)
    for name, tests in FINAL.items():
        known |= stage(now, name, "stage 3", tests, (50.0, 50.0, 50.0))
        for rival, own in _tournament.beside(now, name).items():
            known |= trained(own.values(), RIVALS[rival])
    wide = _tournament.wide_timings(now)
    assert wide is not None
    known[wide.key] = to_json(StepRatios(measured=WIDE_TIMES))
    now = settled(PRESET, results_of(known))
    for name in FINAL:
        form, rival = _tournament.wide_pair(now, name)
        known |= trained(form.values(), WIDE_FORM) | trained(rival.values(), WIDE_RIVAL)
    return now, known
