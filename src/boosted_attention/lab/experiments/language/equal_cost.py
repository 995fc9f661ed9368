"""Equal tokens, equal parameters, equal FLOPs and equal time side by side: what the boosted model is better than.

Equal time means that the cheaper model trains more steps, its schedule stretched, by the ratio of interleaved step
times; equal FLOPs that it is wider.
"""

from __future__ import annotations

from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments.language._arms import (
    BOOSTED,
    EQUAL_FLOPS,
    FAIR,
    STANDARD,
    Arm,
    all_arms,
    seeds_named,
)
from boosted_attention.lab.experiments.language._shared import (
    Found,
    add_arms,
    by_seed,
    compare_arms,
    describe_times,
    described,
    is_there,
    on_first_text,
    read,
    relative,
    require_alike,
    text_table,
    training_trials,
)
from boosted_attention.lab.experiments.language._trials import preset_steps, timing_trial, training_trial
from boosted_attention.lab.judging.place import Kind
from boosted_attention.lab.judging.table import Table
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial

TITLE = "Equal tokens, equal parameters, equal FLOPs, equal time"
LONGER = {arm: f"{arm}, equal time" for arm in (STANDARD, FAIR)}
OVER = (
    relative(BOOSTED, STANDARD, name="boosted - standard, equal tokens"),
    relative(BOOSTED, FAIR, name="boosted - standard, equal tokens and parameters"),
    relative(BOOSTED, EQUAL_FLOPS, name="boosted - standard, equal tokens and FLOPs"),
    relative(BOOSTED, LONGER[STANDARD], name="boosted - standard, equal time"),
    relative(BOOSTED, LONGER[FAIR], name="boosted - standard, equal time and parameters"),
)


def arms(preset: Preset) -> dict[str, Arm]:
    known = all_arms(preset)
    return {name: known[name] for name in (STANDARD, FAIR, EQUAL_FLOPS, BOOSTED)}


def timings(preset: Preset) -> Trial:
    """Step times of the boosted model, and of those that are to train as long."""
    return timing_trial(preset, {name: arms(preset)[name] for name in (BOOSTED, *LONGER)}, "equal time")


def longer(preset: Preset, corpus: str, name: str) -> dict[int, Trial]:
    """The trainings of a model that take as long as the boosted one's, by seed; none while step times are unknown."""
    ratio = preset.text.decided.step_times.get(name)
    if ratio is None:
        return {}
    steps = round(preset_steps(preset) / ratio)
    seeds = seeds_named(preset, corpus, LONGER[name]) if preset.text.arms else preset.text.seeds
    return {seed: training_trial(preset, corpus, arms(preset)[name], seed, LONGER[name], steps=steps) for seed in seeds}


def trials(preset: Preset) -> list[Trial]:
    more = [t for corpus in preset.text.corpora for name in LONGER for t in longer(preset, corpus, name).values()]
    return [timings(preset), *training_trials(preset, arms(preset)), *more]


def needed(preset: Preset) -> list[Trial]:
    """The step times, and the trainings on the first text."""
    return [timings(preset), *on_first_text(lambda own: trials(own)[1:])(preset)]


def collect(preset: Preset, results: Results) -> Table:
    table = text_table(TITLE, preset)
    for corpus in preset.text.corpora:
        found = read(preset, results, corpus, arms(preset))
        table.notes += described(preset, corpus, found, arms(preset))
        found.add(in_time(preset, results, corpus))
        require_alike(found, corpus)
        add_arms(table, preset, corpus, found)
        compare_arms(table, preset, corpus, found, OVER)
    table.notes += describe_times(results, timings(preset))
    steps = preset_steps(preset)
    times = preset.text.decided.step_times
    told = [
        f"{LONGER[name]}: {round(steps / times[name]):,} steps, since one takes {times[name]:.2f}"
        for name in LONGER
        if name in times
    ]
    table.notes.append(f"Of the time of a boosted step, of which there are {steps:,}: {'; '.join(told) or 'unknown'}.")
    return table


def in_time(preset: Preset, results: Results, corpus: str) -> Found:
    """Results of the models that train longer, as far as they are there."""
    found = Found()
    for name in LONGER:
        trials = longer(preset, corpus, name)
        if all(is_there(results, trial) for trial in trials.values()):
            found.add(by_seed(results, LONGER[name], trials))
    return found


EXPERIMENT = Experiment(
    name="lm-equal-cost", title=TITLE, kind=Kind.LANGUAGE, order=165, trials=trials, collect=collect, needed=needed
)
