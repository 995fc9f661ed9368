"""Trials of language models: which options name them, what they build on, how long they take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from functools import lru_cache
from typing import Any

from boosted_attention.data.tokens import DataConfig
from boosted_attention.lab.experiments.language._arms import Arm, arm_model, rate_of
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.language import planned_steps
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.train.config import TrainingConfig

CORE_FLOPS = 3e10  # per second and core, for a rough time; measured on small models
STEP_SECONDS = 0.2  # of a step that is timed, roughly
# Options that always stand in a trial's configuration; the others only where they differ from the defaults below, so
# that a new option does not make old results nameless.
STATED = {
    LanguageModelConfig: ("vocab_size", "d_model", "n_layers", "n_heads", "max_len", "attention"),
    TrainingConfig: ("steps", "batch_size", "lr", "layout", "seed"),
    DataConfig: ("corpus", "tokenizer"),
}
# The defaults that results were made with. An option whose default changes one day then stands in the configuration,
# and no old result passes for a new one.
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
        "qk_norm": False,
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
        "optimizer": "adamw",
        "lr": 1e-3,
        "matrix_lr": None,
        "correction_lr_factor": 1.0,
        "gate_lr_factor": 1.0,
        "schedule": "cosine",
        "warmup": None,
        "horizon": 1600,
        "weight_decay": 0.01,
        "weight_decay_on": None,
        "beta2": 0.999,
        "stagewise": False,
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


def stated(config: LanguageModelConfig | TrainingConfig | DataConfig) -> dict[str, Any]:
    """The options that make a trial what it is, as JSON values."""
    always, known = STATED[type(config)], DEFAULTS[type(config)]
    values = config.to_dict() if isinstance(config, LanguageModelConfig) else vars(config)
    kept = {}
    for f in fields(config):
        own = f.default_factory() if f.default_factory is not MISSING else f.default
        if f.name in always or values[f.name] != known.get(f.name, own):
            kept[f.name] = values[f.name]
    return kept


def training_trial(
    preset: Preset,
    corpus: str,
    arm: Arm,
    seed: int,
    name: str,
    *,
    steps: int | None = None,
    factor: float | None = None,
) -> Trial:
    """One model on one corpus with one seed.

    Args:
        preset: the recipe, and the factors on its rates that results have decided.
        corpus: the text.
        arm: options of the model.
        seed: of start and batches.
        name: for labels and groups.
        steps: number that the whole schedule is shortened or lengthened to, in proportion.
        factor: on the recipe's rates, instead of the arm's own.
    """
    base = preset.text.configuration()
    model = arm_model(preset, arm)
    own = rate_of(preset, arm) if factor is None else factor
    training = replace(with_rates(base.training, own), seed=seed)
    data = replace(base.data, corpus=corpus)
    if steps is not None:
        training = replace(stretched(preset, training, steps), eval_every=max(1, steps // 8))
    return Trial(
        work="language.train",
        config={"model": stated(model), "training": stated(training), "data": stated(data)},
        label=f"{name}, {corpus}, seed {seed}",
        group=name,
        seconds=cost(model, training, data),
    )


def preset_steps(preset: Preset) -> int:
    """Steps of a training of the preset."""
    base = preset.text.configuration()
    return planned_steps(base.model, base.training, base.data)


def stretched(preset: Preset, training: TrainingConfig, steps: int) -> TrainingConfig:
    """The preset's training with another number of steps, its schedule in proportion."""
    horizon = round(training.horizon * steps / preset_steps(preset))
    return replace(training, steps=steps, epochs=None, horizon=horizon, eval_unit="steps")


def stagewise_trial(preset: Preset, corpus: str, arm: Arm, seed: int, name: str) -> Trial:
    """The same model, text and seed as ``training_trial``'s, its rounds trained one after the other."""
    joint = training_trial(preset, corpus, arm, seed, name)
    return replace(joint, config={**joint.config, "training": {**joint.config["training"], "stagewise": True}})


def with_rates(training: TrainingConfig, factor: float) -> TrainingConfig:
    """The training with all its learning rates multiplied by a factor."""
    matrix_lr = None if training.matrix_lr is None else training.matrix_lr * factor
    return replace(training, lr=training.lr * factor, matrix_lr=matrix_lr)


def sweep_trial(
    preset: Preset,
    corpus: str,
    arm: Arm,
    name: str,
    factor: float,
    *,
    steps: int | None = None,
    seed: int | None = None,
) -> Trial:
    """One model with all its learning rates multiplied by a factor, judged on validation text at its end.

    Args:
        preset: the recipe.
        corpus: the text.
        arm: options of the model.
        name: for labels and groups.
        factor: on all rates.
        steps: number that the whole schedule is shortened or lengthened to, in proportion.
        seed: of start and batches; that of sweeps by default.
    """
    base = preset.text.configuration()
    model, data = arm_model(preset, arm), replace(base.data, corpus=corpus)
    own = preset.text.sweep_seed if seed is None else seed
    training = replace(with_rates(base.training, factor), seed=own, eval_every=0)
    if steps is not None:
        training = stretched(preset, training, steps)
    return Trial(
        work="language.sweep",
        config={"model": stated(model), "training": stated(training), "data": stated(data)},
        label=f"{name}, rates x {factor:g}, d={base.model.d_model}, {corpus}",
        group=f"{name}, sweep at d={base.model.d_model}",
        seconds=cost(model, training, data),
    )


def timing_trial(preset: Preset, arms: Mapping[str, Arm], name: str) -> Trial:
    """Step times of several models beside the first one's."""
    return Trial(
        work="language.time",
        config={
            "models": [[label, stated(arm_model(preset, arm))] for label, arm in arms.items()],
            "training": stated(preset.text.configuration().training),
            "repeats": preset.text.timed_steps,
        },
        label=f"step times, {name}",
        seconds=STEP_SECONDS * preset.text.timed_steps * len(arms),
    )


def derived_trial(
    preset: Preset, corpus: str, seed: int, name: str, work: str, after: Trial, options: Mapping[str, Any], rate: float
) -> Trial:
    """A model that another trial's result decides upon; ``rate`` is the factor on the recipe's rates."""
    plain = training_trial(preset, corpus, {}, seed, name, factor=rate)
    return Trial(
        work=work,
        config={**plain.config, **options},
        after=(after.key,),
        label=plain.label,
        group=name,
        seconds=plain.seconds,
    )


def analysis_trial(preset: Preset, corpus: str, arm: Arm, against: Arm, seed: int) -> Trial:
    """All analyses of one trained model beside another, both of one seed."""
    models = [training_trial(preset, corpus, chosen, seed, "") for chosen in (arm, against)]
    text = preset.text
    return Trial(
        work="language.analyse",
        config={
            "model": models[0].config,
            "against": models[1].config,
            "sequences": text.analysed_sequences,
            "pairs": text.hull_pairs,
            "with_explorer": seed == text.seeds[0],
        },
        after=tuple(trial.key for trial in models),
        label=f"analysis, {corpus}, seed {seed}",
        seconds=text.analysed_sequences * 0.4,
    )


def importance_trial(preset: Preset, corpus: str, arm: Arm, seed: int) -> Trial:
    """What each layer's correction is worth to a trained model, on validation text."""
    return trial_of_trained("language.importance", f"importance, {corpus}", 0.1, preset, corpus, arm, seed)


def halting_trial(preset: Preset, corpus: str, arm: Arm, seed: int, name: str) -> Trial:
    """How many rounds, or repeats, the tokens of test text take in a trained model that halts."""
    return trial_of_trained("language.halting", f"rounds taken, {name}, {corpus}", 0.05, preset, corpus, arm, seed)


def trial_of_trained(work: str, label: str, seconds: float, preset: Preset, corpus: str, arm: Arm, seed: int) -> Trial:
    """Work on one trained model and some sequences of text, which take ``seconds`` each."""
    trained, sequences = training_trial(preset, corpus, arm, seed, ""), preset.text.analysed_sequences
    return Trial(
        work=work,
        config={"model": trained.config, "sequences": sequences},
        after=(trained.key,),
        label=f"{label}, seed {seed}",
        seconds=sequences * seconds,
    )


@lru_cache(maxsize=256)
def flops_of(items: str) -> int:
    return LanguageModelConfig.from_dict(json.loads(items)).flops()


def cost(model: LanguageModelConfig, training: TrainingConfig, data: DataConfig) -> float:
    """Seconds on one core, roughly."""
    per_token = flops_of(json.dumps(model.to_dict(), sort_keys=True))
    steps = planned_steps(model, training, data)
    return 5.0 + 3 * per_token * steps * training.batch_size * model.max_len / CORE_FLOPS
