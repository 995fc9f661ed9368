"""The fine-tunings that are compared: arms, texts and seeds, and the learning rates that their sweeps decide.

Texts: the last one is watched, those before it are learned, and one alone is learned; every arm learns the first, light
ones all of them. Rates: every arm at its own best, found on validation text of the first text with a seed that nothing
else uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments._grid import grown
from boosted_attention.lab.experiments.language._shared import short
from boosted_attention.lab.presets import DecidedRates, Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.finetune import AS_LARGE, TINY, FinetunePoint
from boosted_attention.records import from_json
from boosted_attention.train.evaluation import perplexity_of

AS_IT_WAS = "as it was"
FULL, LOW_RANK, SHARED = "full corrections", "low-rank corrections", "low-rank corrections, shared K/V"
LORA, LARGE_LORA, EVERYTHING = "LoRA", "LoRA, as large as full corrections", "everything"
LIGHT = (LOW_RANK, SHARED, LORA)  # learn every text; the others the first alone
STEP = 3.0  # between neighbours of a grid that is extended
RANK, TINY_RANK = 16, 4  # of light corrections and of LoRA; of the tiny model's


def arms(preset: Preset) -> dict[str, Mapping[str, Any]]:
    """Ways to train the model, with their options; the learning rate is the one in the middle of the first grid."""
    rank = RANK if preset.finetune.pretrained else TINY_RANK
    return {
        FULL: {"boost": {}, "lr": 1e-4},
        LOW_RANK: {"boost": {"rank": rank}, "lr": 1e-3},
        SHARED: {"boost": {"rank": rank, "kv": "shared"}, "lr": 1e-3},
        LORA: {"train": "lora", "lora_rank": rank, "lr": 1e-3},
        LARGE_LORA: {"train": "lora", "lora_rank": AS_LARGE, "lr": 3e-4},
        EVERYTHING: {"train": "all", "lr": 3e-5},
    }


def at_rate(arm: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """An arm with its learning rate multiplied; six digits of it are kept."""
    return {**arm, "lr": float(f"{arm['lr'] * factor:.6g}")}


def seeds(preset: Preset) -> tuple[int, ...]:
    return preset.text.seeds[: preset.finetune.n_seeds]


def learned(preset: Preset) -> tuple[str, ...]:
    """The texts that are learned: all but the last, or the only one."""
    return preset.text.corpora[:-1] or preset.text.corpora


def watched(preset: Preset) -> str | None:
    """The text on which forgetting shows; None where there is one text alone."""
    return preset.text.corpora[-1] if len(preset.text.corpora) > 1 else None


def arms_on(preset: Preset, text: str) -> list[str]:
    """The arms that learn a text."""
    return [name for name in arms(preset) if text == learned(preset)[0] or name in LIGHT]


def pretrained(preset: Preset) -> dict[str, str]:
    """Name and hash of the model, wherever it lies."""
    return dict(preset.finetune.pretrained) or TINY


def training(preset: Preset, arm: Mapping[str, Any], text: str, seed: int) -> dict[str, Any]:
    """What a fine-tuning is."""
    sizes = {key: getattr(preset.finetune, key) for key in ("steps", "batch_size", "max_len", "held_out")}
    return {"model": pretrained(preset), "arm": dict(arm), "size": sizes, "corpus": text, "seed": seed}


def sweep_trial(preset: Preset, name: str, factor: float) -> Trial:
    """One arm at one rate, on the first text."""
    arm = at_rate(arms(preset)[name], factor)
    return Trial(
        work="finetune.sweep",
        config=training(preset, arm, learned(preset)[0], preset.text.sweep_seed),
        label=f"fine-tuning, {name}, rate {arm['lr']:g}",
        group=f"{name}, sweep",
        seconds=expected(preset, 10.0, 700.0),
    )


def tuning(preset: Preset, name: str, text: str, seed: int) -> Trial:
    """One arm with one seed on one text, at the rate that was decided; KeyError if none was."""
    arm = at_rate(arms(preset)[name], preset.finetune.decided.rates[name])
    return Trial(
        work="finetune.train",
        config={**training(preset, arm, text, seed), "watched": watched(preset)},
        label=f"fine-tuning, {name}, {short(preset, text)}, seed {seed}",
        group=name,
        seconds=expected(preset, 15.0, 900.0),
    )


def untouched(preset: Preset) -> Trial:
    """The model as it was."""
    size = preset.finetune
    return Trial(
        work="finetune.measure",
        config={
            "model": pretrained(preset),
            "texts": list(preset.text.corpora),
            "max_len": size.max_len,
            "held_out": size.held_out,
        },
        label="the model before fine-tuning",
        seconds=expected(preset, 5.0, 500.0),
    )


def timed(preset: Preset) -> dict[str, Any]:
    """The model, and every arm of it, for trials that take their times in turn in one process."""
    return {"model": pretrained(preset), "arms": [[name, dict(arm)] for name, arm in arms(preset).items()]}


def timing(preset: Preset) -> Trial:
    """A training step of every arm."""
    size = preset.finetune
    return Trial(
        work="finetune.time",
        config={**timed(preset), "batch_size": size.batch_size, "max_len": size.max_len, "repeats": size.timed_steps},
        label="step times of fine-tuning",
        seconds=expected(preset, 10.0, 600.0),
    )


def decoding(preset: Preset) -> Trial:
    """Decoded tokens of every arm."""
    size = preset.finetune
    return Trial(
        work="finetune.decode",
        config={**timed(preset), "base": AS_IT_WAS, "tokens": size.decoded, "repeats": size.timed_steps},
        label="decode times of fine-tuned models",
        seconds=expected(preset, 5.0, 120.0),
    )


def expected(preset: Preset, tiny: float, real: float) -> float:
    """Seconds a trial takes with the tiny model or a real one."""
    return real if preset.finetune.pretrained else tiny


def grid(preset: Preset, name: str) -> tuple[float, ...]:
    """The factors that are tried for an arm: the preset's, and those by which results made it longer.

    None is tried where the preset has one alone.
    """
    return tuple(preset.finetune.decided.grids.get(name, preset.finetune.rates)) if sweeps(preset) else ()


def sweeps(preset: Preset) -> bool:
    """Whether rates are tried before the arms are compared."""
    return len(preset.finetune.rates) > 1


def tunings(preset: Preset, text: str) -> list[Trial]:
    """The fine-tunings on a text whose rates are decided."""
    known = preset.finetune.decided.rates
    names = [name for name in arms_on(preset, text) if name in known]
    return [tuning(preset, name, text, seed) for seed in seeds(preset) for name in names]


def needed(preset: Preset) -> list[Trial]:
    """Everything but the further texts, each of which is shown as far as it is there."""
    swept = [sweep_trial(preset, name, factor) for name in arms(preset) for factor in grid(preset, name)]
    return [untouched(preset), *swept, *tunings(preset, learned(preset)[0]), timing(preset), decoding(preset)]


def trials(preset: Preset) -> list[Trial]:
    return needed(preset) + [trial for text in learned(preset)[1:] for trial in tunings(preset, text)]


def points_at(preset: Preset, results: Results, name: str, factors: Sequence[float]) -> dict[float, float | None]:
    """Validation perplexities of an arm's sweep; KeyError if one is not there."""
    found = {f: from_json(FinetunePoint, results(sweep_trial(preset, name, f))) for f in factors}
    return {f: None if point.loss is None else perplexity_of(point.loss) for f, point in found.items()}


def settled(preset: Preset, results: Results) -> Preset:
    """The preset with the rates that the results decide.

    Args:
        preset: what it says of decisions is not looked at.
        results: results of trials; KeyError for those that are not there.
    """
    size = preset.finetune
    if not sweeps(preset):
        only = DecidedRates(rates=dict.fromkeys(arms(preset), size.rates[0]))
        return replace(preset, finetune=replace(size, decided=only))
    found = {name: grown(size.rates, partial(points_at, preset, results, name), STEP) for name in arms(preset)}
    decided = DecidedRates(
        grids={name: tried for name, (tried, _) in found.items()},
        rates={name: best for name, (_, best) in found.items() if best is not None},
    )
    return replace(preset, finetune=replace(size, decided=decided))
