"""Arms: the language models that are compared, by name; how many seeds each gets, and whose rate it trains at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from boosted_attention.lab.presets import PAIR, Preset, UndecidedError
from boosted_attention.lab.trials.trial import canonical
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.planning.matching import matched

Arm = Mapping[str, Any]  # options of the model that differ from the preset's

BOOSTED, FAIR = PAIR
STANDARD, TWICING = "standard", "twicing"
PARALLEL, SEQUENTIAL, SHARED, INPUT = "parallel", "sequential", "shared K/V", "input K/V"
THREE, UNGATED, SCALAR = "three rounds", "no gate", "scalar gate"
EQUAL_FLOPS, WIDE = "FLOP-matched width", "half as wide again"
DEEPER, MORE_HEADS, LATE_TWICING = "one more layer", "twice the heads", "twicing in the last layers"
DIFFERENTIAL, GATED = "differential-v2", "gated"
OTHER_FORMS = ("differential", DIFFERENTIAL, GATED, "boosted-differential")
UNIVERSAL, DEEP_CROSS = "Universal Transformer", "DeepCrossAttention"
ATTENTION_RESIDUALS = "Attention Residuals"
POST = {arm: f"{arm}, post" for arm in (STANDARD, FAIR, BOOSTED)}

BOOSTING: Arm = {"attention": "boosted"}
PLAIN: dict[str, Arm] = {  # arms of the preset's own size
    **{name: {"attention": name} for name in (STANDARD, TWICING, BOOSTED, PARALLEL, SEQUENTIAL, *OTHER_FORMS)},
    SHARED: {"attention": "boosted-shared"},
    INPUT: {"attention": "boosted-input"},
    THREE: {**BOOSTING, "attention_options": {"n_rounds": 3}},
    UNGATED: {**BOOSTING, "attention_options": {"gate": "none"}},
    SCALAR: {**BOOSTING, "attention_options": {"gate": "scalar"}},
    UNIVERSAL: {"attention": STANDARD, "n_repeats": 3, "halting": "act"},
    DEEP_CROSS: {"attention": STANDARD, "feed": "cross"},
    ATTENTION_RESIDUALS: {"attention": STANDARD, "feed": "attention"},
}
TUNED = (STANDARD, BOOSTED, FAIR, TWICING, PARALLEL, EQUAL_FLOPS, DEEPER, SHARED)  # arms that have a sweep of their own
RELATIVES = {  # the tuned arm whose rate another one trains at
    **dict.fromkeys((SEQUENTIAL, INPUT, THREE, UNGATED, SCALAR, "boosted-differential"), BOOSTED),
    **dict.fromkeys((MORE_HEADS, "differential", DIFFERENTIAL, GATED), STANDARD),
    **dict.fromkeys((UNIVERSAL, DEEP_CROSS, ATTENTION_RESIDUALS), STANDARD),
    WIDE: EQUAL_FLOPS,
    LATE_TWICING: TWICING,
    **{post: arm for arm, post in POST.items()},
}

find_matched = lru_cache(maxsize=64)(matched)


def arm_model(preset: Preset, arm: Arm) -> LanguageModelConfig:
    """The preset's model with an arm's options."""
    return replace(preset.text.configuration().model, **arm)


def matched_arm(preset: Preset, arm: Arm, by: str) -> Arm:
    """The standard model that costs what ``arm`` costs."""
    return matched_to(arm_model(preset, arm), arm, by)


def matched_to(given: LanguageModelConfig, arm: Arm, by: str) -> Arm:
    model = find_matched(given, by)
    found = {**arm, "attention": "standard", "d_model": model.d_model}
    return found if model.ffn_multiple == given.ffn_multiple else {**found, "ffn_multiple": model.ffn_multiple}


def main_arms(preset: Preset) -> dict[str, Arm]:
    """The arms of Table 3."""
    known = all_arms(preset)
    return {name: known[name] for name in (STANDARD, TWICING, FAIR, BOOSTED)}


def all_arms(preset: Preset) -> dict[str, Arm]:
    """Every arm that has a name."""
    return dict(arms_of(preset.text.configuration().model))


@lru_cache(maxsize=64)
def arms_of(model: LanguageModelConfig) -> dict[str, Arm]:
    """Every arm that has a name, as a change of a model."""
    standard, boosted = PLAIN[STANDARD], PLAIN[BOOSTED]
    fair, equal_flops = (matched_to(replace(model, **boosted), boosted, by) for by in ("parameters", "flops"))
    normalised = {STANDARD: standard, FAIR: fair, BOOSTED: boosted}
    return {
        **PLAIN,
        FAIR: fair,
        EQUAL_FLOPS: equal_flops,
        WIDE: {**standard, "d_model": 3 * model.d_model // 2},
        DEEPER: {**standard, "n_layers": model.n_layers + 1},
        MORE_HEADS: {**standard, "n_heads": 2 * model.n_heads},
        LATE_TWICING: {**PLAIN[TWICING], "boosted_layers": f"last:{max(1, model.n_layers // 2)}"},
        **{POST[name]: {**arm, "norm": "post"} for name, arm in normalised.items()},
    }


@lru_cache(maxsize=64)
def names_of(model: LanguageModelConfig) -> dict[str, str]:
    """The names of arms by their options; of two that are alike, the first."""
    return {canonical(arm): name for name, arm in reversed(arms_of(model).items())}


def name_of(preset: Preset, arm: Arm) -> str | None:
    """The name under which seeds and rates of an arm are fixed; None where it has none."""
    return names_of(preset.text.configuration().model).get(canonical(arm))


def tuned_as(name: str) -> str:
    """The tuned arm whose rate an arm trains at: its own, or its nearest relative's."""
    return RELATIVES.get(name, name)


def seeds_of(preset: Preset, corpus: str, arm: Arm) -> tuple[int, ...]:
    """The seeds of an arm on a text; none where the preset does not name it.

    Raises:
        UndecidedError: a pilot, which is not finished, decides how many.
    """
    text = preset.text
    if not text.arms:
        return text.seeds
    return seeds_named(preset, corpus, name_of(preset, arm) or "")


def seeds_named(preset: Preset, corpus: str, name: str) -> tuple[int, ...]:
    """The seeds that the preset gives an arm's name on a text."""
    text, given = preset.text, preset.text.arms_on(corpus).get(name, 0)
    if text.pilot is not None and name in PAIR and corpus == text.corpora[0]:
        if text.decided.pair_seeds is None:
            raise UndecidedError("lm-pilot")
        given = text.decided.pair_seeds
    return text.seeds[:given]


def rate_of(preset: Preset, arm: Arm) -> float:
    """The factor on the recipe's rates at which an arm trains.

    Raises:
        UndecidedError: a sweep, which is not finished, decides it.
    """
    text = preset.text
    if not text.tuned:
        return 1.0
    is_boosted = arm_model(preset, arm).attention.startswith(BOOSTED)
    name = name_of(preset, arm) or (BOOSTED if is_boosted else STANDARD)  # an arm without a name is a form of these
    known = text.decided.rates.get(text.recipe, {})
    if tuned_as(name) not in known:
        raise UndecidedError("lm-sweep")
    return known[tuned_as(name)]
