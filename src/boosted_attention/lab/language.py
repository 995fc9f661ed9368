"""Runs of the language-model half: one model, one corpus, one seed each, resumable in the middle."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, replace
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from boosted_attention.analysis.examine import examine
from boosted_attention.analysis.importance import most_important
from boosted_attention.analysis.survey import draw_rows
from boosted_attention.data.tokens import DataConfig, prepare
from boosted_attention.files import write_json
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run, versions
from boosted_attention.lab.timing import step_time_ratios
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.records import to_json
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.folder import TrainedRun, load_run
from boosted_attention.train.metrics import dynamics_of, evaluation_rows, step_rows
from boosted_attention.train.observer import Unwatched
from boosted_attention.train.recipes import LanguageModelRun, find_recipe
from boosted_attention.train.results import StepRow
from boosted_attention.train.run_config import RunConfig
from boosted_attention.train.trainer import Trainer
from boosted_attention.validation import InputError, require

Arm = Mapping[str, Any]  # options of the model that differ from the preset's

# Always written down in a run's identity, whatever the defaults are; other options only where they differ from them, so
# that a new option does not make old results nameless.
STATED = {
    LanguageModelConfig: ("vocab_size", "d_model", "n_layers", "n_heads", "max_len", "attention"),
    TrainingConfig: ("steps", "batch_size", "lr", "layout", "seed"),
    DataConfig: ("corpus", "tokenizer"),
}
# The defaults that results were made with. An option whose default changes one day is then part of the identity, and
# no old result passes for a new one.
DEFAULTS: dict[type, dict[str, Any]] = {
    LanguageModelConfig: {
        "vocab_size": 2048,
        "d_model": 64,
        "n_layers": 4,
        "n_heads": 4,
        "n_kv_heads": None,
        "max_len": 128,
        "attention": "boosted",
        "attention_options": {},
        "boosted_layers": "all",
        "norm": "pre",
        "norm_kind": "layernorm",
        "positions": "learned",
        "rope_theta": 10_000.0,
        "ffn_multiple": 4.0,
        "dropout": 0.0,
        "tie_weights": True,
        "init": "normal",
    },
    TrainingConfig: {
        "steps": 1600,
        "epochs": None,
        "batch_size": 32,
        "accumulate": 1,
        "layout": "windows",
        "lr": 1e-3,
        "warmup": None,
        "horizon": 1600,
        "weight_decay": 0.01,
        "beta2": 0.999,
        "clip": 1.0,
        "eval_every": 200,
        "eval_unit": "steps",
        "protocol": "full",
        "precision": "float32",
        "compile": False,
        "seed": 0,
    },
    DataConfig: {
        "corpus": "stdlib",
        "validation": None,
        "test": None,
        "held_out": 0.1,
        "field": "text",
        "data_root": None,
        "tokenizer": "bpe",
        "train_tokens": None,
        "held_out_tokens": None,
    },
}
DEVICE = "BOOSTED_ATTENTION_DEVICE"  # in the environment, which the runs' processes inherit; no part of a result's name
CORE_FLOPS = 3e10  # per second and core, for a rough time; measured on small models


TIME_TOLERANCE = 0.15  # widths come in steps, and a shared machine is not a stop-watch


def recipe(preset: Preset) -> LanguageModelRun:
    """The preset's model, training and data."""
    text = preset.text
    base = find_recipe(text.recipe)
    model = replace(base.model, **text.model)
    training, data = replace(base.training, **text.training), replace(base.data, **text.data)
    return RunConfig(model=model, training=training, data=data)


def arm_model(preset: Preset, arm: Arm) -> LanguageModelConfig:
    return replace(recipe(preset).model, **arm)


def text_run(preset: Preset, corpus: str, arm: Arm, seed: int, name: str, *, steps: int | None = None) -> Run:
    """One model on one corpus with one seed."""
    base = recipe(preset)
    model = arm_model(preset, arm)
    training, data = replace(base.training, seed=seed), replace(base.data, corpus=corpus)
    if steps is not None:  # the whole schedule in proportion
        share = steps / planned_steps(base.model, base.training, base.data)
        every = max(1, steps // 8)
        training = replace(
            training,
            steps=steps,
            epochs=None,
            horizon=round(training.horizon * share),
            eval_every=every,
            eval_unit="steps",
        )
    return Run(
        work=f"{__name__}:train_model",
        config={"model": stated(model), "training": stated(training), "data": stated(data)},
        label=f"{name}, {corpus}, seed {seed}",
        seconds=cost(model, training, data),
    )


def timing_run(preset: Preset, arms: Mapping[str, Arm], name: str) -> Run:
    """Step times of several models beside the first one's."""
    base = recipe(preset)
    return Run(
        work=f"{__name__}:time_models",
        config={
            "models": [[label, stated(arm_model(preset, arm))] for label, arm in arms.items()],
            "batch_size": base.training.batch_size,
            "repeats": 3 if preset.name == "smoke" else 15,
        },
        label=f"step times, {name}",
        seconds=3.0 * len(arms),
    )


def derived_run(
    preset: Preset, corpus: str, seed: int, name: str, work: str, after: Run, options: dict[str, Any]
) -> Run:
    """A model that another run's result decides upon."""
    run = text_run(preset, corpus, {}, seed, name)
    return Run(
        work=f"{__name__}:{work}",
        config={**run.config, **options},
        after=(after.key,),
        label=run.label,
        seconds=run.seconds,
    )


def analysis_run(preset: Preset, corpus: str, arm: Arm, against: Arm, seed: int) -> Run:
    """All analyses of one trained model beside another, both of one seed."""
    runs = [text_run(preset, corpus, chosen, seed, "") for chosen in (arm, against)]
    small = preset.name == "smoke"
    return Run(
        work=f"{__name__}:analyse_models",
        config={
            "model": runs[0].config,
            "against": runs[1].config,
            "sequences": 4 if small else 50,
            "pairs": 12 if small else 600,
            "with_explorer": seed == preset.text.seeds[0],
        },
        after=tuple(run.key for run in runs),
        label=f"analysis, {corpus}, seed {seed}",
        seconds=1.0 if small else 20.0,
    )


def stated(config: LanguageModelConfig | TrainingConfig | DataConfig) -> dict[str, Any]:
    """The options that make a run what it is, as JSON values."""
    always, known = STATED[type(config)], DEFAULTS[type(config)]
    values = config.to_dict() if isinstance(config, LanguageModelConfig) else vars(config)
    kept = {}
    for f in fields(config):
        if f.name in known:
            if f.name in always or values[f.name] != known[f.name]:
                kept[f.name] = values[f.name]
            continue
        default = (
            f.default if f.default is not MISSING else f.default_factory() if f.default_factory is not MISSING else None
        )
        if f.name in always or values[f.name] != default:
            kept[f.name] = values[f.name]
    return kept


@lru_cache(maxsize=256)
def flops_of(items: str) -> int:
    return LanguageModelConfig.from_dict(json.loads(items)).flops()


def cost(model: LanguageModelConfig, training: TrainingConfig, data: DataConfig) -> float:
    """Seconds on one core, roughly."""
    per_token = flops_of(json.dumps(model.to_dict(), sort_keys=True))
    steps = planned_steps(model, training, data)
    return 5.0 + 3 * per_token * steps * training.batch_size * model.max_len / CORE_FLOPS


def planned_steps(model: LanguageModelConfig, training: TrainingConfig, data: DataConfig) -> int:
    """Steps of a run, known before its text is."""
    rows = (data.train_tokens or 0) // model.max_len
    return training.total_steps(max(1, rows // training.batch_size))


class Reporter(Unwatched):
    def __init__(self, progress: Callable[[float], None]):
        self.progress = progress

    def start(self, first: int, total: int) -> None:
        self.total = total

    def step(self, row: StepRow) -> None:
        self.progress(row.step / self.total)


def train_model(
    progress: Callable[[float], None],
    *,
    folder: Path,
    model: dict[str, Any],
    training: dict[str, Any],
    data: dict[str, Any],
) -> dict[str, Any]:
    """Train, test the best checkpoint, and say what came out. A killed run goes on from its last checkpoint.

    ``measured`` holds what depends on the machine; everything else follows from the configuration.
    """
    config = RunConfig(
        model=LanguageModelConfig.from_dict(model), training=TrainingConfig(**training), data=DataConfig(**data)
    )
    tokens = prepare(config.data, config.model.vocab_size)
    config = replace(config, model=replace(config.model, vocab_size=tokens.tokenizer.vocab_size))
    place = folder / "training"
    start_anew_with_other_versions(place)
    device = os.environ.get(DEVICE, "cpu")
    trainer = Trainer(
        folder=place, config=config, data=tokens, device=device, checkpoint_every=100, observer=Reporter(progress)
    )
    found = trainer.run(resume=True)
    evaluations = evaluation_rows(place)
    order = hashlib.sha256("".join(row.batch for row in step_rows(place)).encode()).hexdigest()[:16]
    best = to_json(found.best)
    return {
        "test": to_json(found.tested()),
        "best": {key: best[key] for key in ("step", "validation_loss", "validation_perplexity")},
        "curve": [[row.step, row.validation_loss] for row in evaluations],
        "final_validation_loss": evaluations[-1].validation_loss,
        "steps": found.steps,
        "tokens": found.tokens,
        "parameters": found.parameters,
        "flops_per_token": found.flops_per_token,
        "data": found.data,
        "order": order,
        "measured": {"device": device, "seconds": found.seconds, "curve_seconds": [row.seconds for row in evaluations]},
    }


def start_anew_with_other_versions(place: Path) -> None:
    """A run begun by another version does not go on: its result would be of neither."""
    now = {name: versions()[name] for name in ("boosted-attention", "torch")}
    stamp = place / "versions.json"
    if stamp.exists() and json.loads(stamp.read_text(encoding="utf-8")) != now:
        number = 1
        while (kept := place.with_name(f"training.old-{number}")).exists():
            number += 1
        place.rename(kept)
    place.mkdir(parents=True, exist_ok=True)
    write_json(stamp, now)


def time_models(
    progress: Callable[[float], None], *, models: list[tuple[str, dict[str, Any]]], batch_size: int, repeats: int
) -> dict[str, Any]:
    """Interleaved step times; all of it depends on the machine."""
    built = {label: LanguageModelConfig.from_dict(model) for label, model in models}
    return {"measured": step_time_ratios(built, batch_size, repeats, progress)}


def train_time_matched(
    progress: Callable[[float], None],
    *,
    folder: Path,
    earlier: list[dict[str, Any]],
    model: dict[str, Any],
    training: dict[str, Any],
    data: dict[str, Any],
) -> dict[str, Any]:
    """Train the standard model whose measured step time is nearest to the first one's of a timing run.

    Where none is near, as with models so small that a step's time hardly depends on the width, nothing is trained and
    the result says so.
    """
    ratios = earlier[0]["measured"]
    widths = {int(label): ratio for label, ratio in ratios.items() if label.isdigit()}
    width = min(widths, key=lambda d: abs(widths[d] - 1))
    if abs(widths[width] - 1) > TIME_TOLERANCE:
        return {"d_model": None, "measured": {"nearest": width, "step_time": widths[width]}}
    chosen = {**model, "attention": "standard", "d_model": width}
    result = train_model(progress, folder=folder, model=chosen, training=training, data=data)
    result["measured"] |= {"nearest": width, "step_time": widths[width]}
    return {**result, "d_model": width}


def train_selected(
    progress: Callable[[float], None],
    *,
    folder: Path,
    earlier: list[dict[str, Any]],
    choose: str,
    model: dict[str, Any],
    training: dict[str, Any],
    data: dict[str, Any],
) -> dict[str, Any]:
    """Train with half of the layers boosted: those whose corrections an analysis missed most, or as many at random."""
    found = earlier[0]["importance"]
    n_layers = len(found["layers"])
    require(n_layers > 1, "a choice among layers needs a model with at least two")
    count = max(1, n_layers // 2)
    layers = most_important(found, count)
    if choose == "random":
        others = [list(c) for c in combinations(range(n_layers), count) if list(c) != layers]
        draw = torch.Generator().manual_seed(training["seed"] + 1)
        layers = others[int(torch.randint(len(others), (), generator=draw))]
    chosen = {**model, "attention": "boosted", "boosted_layers": layers}
    return {**train_model(progress, folder=folder, model=chosen, training=training, data=data), "layers": layers}


def trained_again(runs: Path, config: dict[str, Any], result: dict[str, Any]) -> TrainedRun:
    """The model of a finished run. One whose weights are gone is trained again, and must come out the same."""
    place = runs / Run(work=f"{__name__}:train_model", config=config).key
    try:
        return load_run(place / "training")
    except InputError:
        again = train_model(lambda fraction: None, folder=place, **config)
    require(
        again["test"] == result["test"],
        f"{place.name} was trained again, since its weights are gone, and came out otherwise (test loss "
        f"{again['test']['loss']}, {result['test']['loss']} before): remove its result.json",
    )
    return load_run(place / "training")


def analyse_models(
    progress: Callable[[float], None],
    *,
    folder: Path,
    earlier: list[dict[str, Any]],
    model: dict[str, Any],
    against: dict[str, Any],
    sequences: int,
    pairs: int,
    with_explorer: bool,
) -> dict[str, Any]:
    """Analyse a trained model on its test split, beside another."""
    mine, theirs = (
        trained_again(folder.parent, config, result) for config, result in zip((model, against), earlier, strict=True)
    )
    tokens = prepare(DataConfig(**model["data"]), mine.config.model.vocab_size)
    rows = draw_rows(tokens.splits["test"], mine.config.model.max_len, sequences)
    found = examine(
        mine.module,
        rows,
        mine.tokenizer.vocabulary(),
        against=theirs.module,
        pairs=pairs,
        with_explorer=with_explorer,
        progress=progress,
    )
    return {**found, "training": dynamics_of(mine.folder), "data": tokens.fingerprint}
