"""The arena at a size of seconds, and results made by hand for the rules that decide about it."""

import math
from dataclasses import replace

from boosted_attention.lab.experiments.language import sweep
from boosted_attention.lab.experiments.language._trials import sweep_trial
from boosted_attention.lab.presets import PRESETS, Pilot, Size
from boosted_attention.lab.reproduce import all_trials, settle
from boosted_attention.lab.trials.store import FOLDER, write_record
from boosted_attention.lab.work.language import BestStep, SweepPoint
from boosted_attention.lab.work.timing import StepRatios
from boosted_attention.records import to_json
from tests.lab.experiments.made import language_result

ARENA = PRESETS["arena"]
SMALL = replace(
    ARENA,
    name="arena",
    text=replace(
        ARENA.text,
        model={"vocab_size": 300, "n_layers": 2, "n_heads": 2, "max_len": 16},
        training={"steps": 3, "batch_size": 4, "eval_every": 1},
        data={"train_tokens": 4096, "held_out_tokens": 512},
        rates=(0.5, 1.0, 2.0),
        seeds=(101, 102, 103),
        arms={name: 2 if seeds > 5 else 1 for name, seeds in ARENA.text.arms.items()},
        arms_elsewhere=dict.fromkeys(ARENA.text.arms_elsewhere, 1),
        reward_seeds=(201, 202),
        pilot=Pilot(seeds=(301, 302), effect=1.5, most=3),
        sizes=(Size(recipe="arena-128", seeds=2),),
        analysed_seeds=1,
        timed_steps=2,
        analysed_sequences=4,
        hull_pairs=12,
    ),
)


def sweep_point(perplexity):
    """A point of a sweep, as JSON; None is a training that diverged."""
    best = perplexity and BestStep(step=3, validation_loss=1.0, validation_perplexity=perplexity)
    return to_json(SweepPoint(best=best, diverged=None if best else "step 2: loss NaN", steps=3, data="d"))


def swept(preset, curves):
    """Results of sweeps: the perplexity of an arm by factor, as far as it is given."""
    known = {}
    for name, points in curves.items():
        for factor, value in points.items():
            trial = sweep_trial(preset, preset.text.corpora[0], sweep.arms(preset)[name], name, factor)
            known[trial.key] = sweep_point(value)
    return known


def results_of(known):
    return lambda trial: known[trial.key]


def made_result(trial):
    """A result of a sweep, a timing or a training, as JSON: rates are best at x 1, and seeds scatter a little."""
    config = trial.config
    if trial.work == "language.time":
        return to_json(StepRatios(measured={name: 1.0 + i / 10 for i, (name, _) in enumerate(config["models"])}))
    if trial.work == "language.sweep":
        factor = float(trial.label.partition("rates x ")[2].partition(",")[0])
        return sweep_point(36.0 + abs(math.log2(factor)))
    model, training, data = (config[part] for part in ("model", "training", "data"))
    seed, steps = training["seed"], training["steps"]
    perplexity = 40.0 + len(model["attention"]) / 10 + seed % 3 / 100 - model["d_model"] / 100
    made = language_result(perplexity, steps=steps, data=data["corpus"], order=f"{seed}, {steps}")
    return to_json(replace(made, tokens=64 * steps, flops_per_token=10_000 * model["d_model"] * model["n_layers"]))


def write_made(preset, out, is_there=lambda trial: True):
    """Write made results of a preset's experiments, but for analyses, as far as they follow from one another.

    Args:
        preset: whose experiments are done.
        out: folder of results.
        is_there: whether a trial is finished.
    """
    while True:
        now, known = settle(preset.experiments, preset, out)
        left = [t for t in all_trials(preset.experiments, now) if t.key not in known.records and is_there(t)]
        left = [t for t in left if t.work != "language.analyse"]
        if not left:
            return
        for trial in left:
            (out / FOLDER / trial.key).mkdir(parents=True)
            write_record(out / FOLDER / trial.key, trial, made_result(trial), 1.0)
