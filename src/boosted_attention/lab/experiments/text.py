"""What the language-model experiments share: arms, results by seed, relative differences, and what must agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.language import Arm, arm_model, text_run
from boosted_attention.lab.matching import matched
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Cell, Table, exact, trained
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.statistics import estimate
from boosted_attention.validation import InputError, shortened

STANDARD: Arm = {"attention": "standard"}
TWICING: Arm = {"attention": "twicing"}
BOOSTED: Arm = {"attention": "boosted"}
THE_PAPERS = ("wikitext-103", "openwebtext")
FULL_SIZE = "paper-small"  # the recipe that is the paper's own
COLUMNS = ["test perplexity", "validation perplexity", "parameters (M)", "MFLOPs per token"]

Found = dict[str, dict[int, dict[str, Any]]]  # arm: {seed: result}
BySeed = dict[int, float]
Pair = tuple[str, BySeed, BySeed, float | None]  # (label, a, b, the paper's a - b)

find_matched = lru_cache(maxsize=64)(matched)


def matched_arm(preset: Preset, arm: Arm, by: str) -> dict[str, Any]:
    """The standard model that costs what ``arm`` costs."""
    given = arm_model(preset, arm)
    model = find_matched(given, by)
    found = {**arm, "attention": "standard", "d_model": model.d_model}
    return found if model.ffn_multiple == given.ffn_multiple else {**found, "ffn_multiple": model.ffn_multiple}


def main_arms(preset: Preset) -> dict[str, Arm]:
    """Table 3."""
    return {
        "standard": STANDARD,
        "twicing": TWICING,
        "param-fair": matched_arm(preset, BOOSTED, "parameters"),
        "boosted": BOOSTED,
    }


def text_runs(preset: Preset, arms: Mapping[str, Arm]) -> list[Run]:
    """Every arm with every seed on every corpus."""
    return [
        text_run(preset, corpus, arm, seed, name)
        for corpus in preset.text.corpora
        for seed in preset.text.seeds
        for name, arm in arms.items()
    ]


def read(preset: Preset, results: Results, corpus: str, arms: Mapping[str, Arm]) -> Found:
    """The arms' results by seed; they must have seen the same data in the same order."""
    found = {
        name: {seed: results(text_run(preset, corpus, arm, seed, name)) for seed in preset.text.seeds}
        for name, arm in arms.items()
    }
    require_alike(found, corpus)
    return found


def require_alike(found: Found, corpus: str) -> None:
    """One text for all, and one order for every seed's runs of the same length."""
    texts: dict[str, list[str]] = {}
    orders: dict[tuple[int, int], dict[str, list[str]]] = {}
    for name, by_seed in found.items():
        for seed, result in by_seed.items():
            texts.setdefault(result["data"], []).append(f"{name} (seed {seed})")
            orders.setdefault((seed, result["steps"]), {}).setdefault(result["order"], []).append(
                f"{name} (seed {seed})"
            )
    for groups, what in [(texts, "different texts"), *((group, "different batches") for group in orders.values())]:
        if len(groups) > 1:
            listed = "; ".join(f"{key}: {shortened(names)}" for key, names in groups.items())
            raise InputError(f"results on {corpus} are of {what} and cannot be compared: {listed}; use another --out")


def perplexity(by_seed: Mapping[int, dict[str, Any]]) -> BySeed:
    return {seed: result["test"]["perplexity"] for seed, result in by_seed.items()}


def percent(a: Mapping[int, float], b: Mapping[int, float]) -> BySeed:
    """How much larger a is than b, in percent, seed by seed."""
    return {seed: 100 * (a[seed] / b[seed] - 1) for seed in a}


def zero(values: Mapping[int, float]) -> BySeed:
    return dict.fromkeys(values, 0.0)


def relative(values: Mapping[str, BySeed], a: str, b: str, paper: float | None = None, label: str = "") -> Pair:
    """The relative difference of two arms in percent."""
    difference = percent(values[a], values[b])
    return label or f"{a} - {b}", difference, zero(difference), paper


def scale_of(preset: Preset) -> str | None:
    """None where size and text are the paper's own, otherwise what was run instead."""
    text = preset.text
    if text.recipe == FULL_SIZE and text.corpora[0] == THE_PAPERS[0] and set(text.corpora) <= set(THE_PAPERS):
        return None
    return f"{text.recipe}, {', '.join(short(preset, corpus) for corpus in text.corpora)}"


def short(preset: Preset, corpus: str) -> str:
    """A corpus by name; a path without its folders, where that tells it from the others."""
    names = [c.rstrip("/").rpartition("/")[2].removeprefix("text:") for c in preset.text.corpora]
    name = corpus.rstrip("/").rpartition("/")[2].removeprefix("text:")
    return f"text:{name}" if corpus.startswith("text:") and names.count(name) == 1 else corpus


def tag(preset: Preset, corpus: str) -> str:
    """What is put behind a label where there are several corpora."""
    return f" | {short(preset, corpus)}" if len(preset.text.corpora) > 1 else ""


def stands_for(preset: Preset) -> dict[str, str]:
    """Which of the paper's corpora each of ours is compared with: itself, or one that is not there."""
    own = {corpus: corpus for corpus in preset.text.corpora if corpus in THE_PAPERS}
    if preset.text.recipe == FULL_SIZE or own:
        return own
    return dict(zip(preset.text.corpora, THE_PAPERS, strict=False))


def compare(table: Table, preset: Preset, corpus: str, pairs: Sequence[Pair]) -> None:
    """Add the differences on one corpus. Claims about a single text mean the first corpus, and so do their names."""
    first = corpus == preset.text.corpora[0]
    table.compare([(f"{name}{tag(preset, corpus)}", a, b, paper if first else None) for name, a, b, paper in pairs])
    if first:
        for name, *_ in pairs:
            table.quantities[name] = table.quantities[f"{name}{tag(preset, corpus)}"]


def add_arms(table: Table, preset: Preset, corpus: str, found: Found, paper: Mapping[str, float] | None = None) -> None:
    """A row per arm: test perplexity, validation perplexity, parameters, FLOPs per token."""
    paper = paper if paper is not None and preset.text.recipe == FULL_SIZE else {}
    for name, by_seed in found.items():
        one = next(iter(by_seed.values()))
        cells = [
            trained(perplexity(by_seed), paper.get(name)),
            trained(validation(by_seed)),
            count(one["parameters"] / 1e6),
            count(one["flops_per_token"] / 1e6),
        ]
        table.add_row(f"{name}{tag(preset, corpus)}", cells)
        if corpus == preset.text.corpora[0]:
            table.quantities[f"perplexity, {name}"] = estimate(list(perplexity(by_seed).values()))
            table.quantities[f"validation perplexity, {name}"] = estimate(list(validation(by_seed).values()))


def validation(by_seed: Mapping[int, dict[str, Any]]) -> BySeed:
    return {seed: result["best"]["validation_perplexity"] for seed, result in by_seed.items()}


def count(value: float) -> Cell:
    return exact(round(value, 3))


def text_table(title: str, preset: Preset, columns: list[str] | None = None, unit: str = "percent") -> Table:
    table = Table(title, COLUMNS if columns is None else columns, precision=2)
    table.scale = scale_of(preset)
    training = "the paper's training" if preset.text.recipe == FULL_SIZE else f"preset {preset.name}"
    seeds = ", ".join(map(str, preset.text.seeds))
    table.notes.append(
        f"Differences are in {unit} of perplexity, paired over seeds {seeds}; {training} on "
        f"{', '.join(short(preset, corpus) for corpus in preset.text.corpora)}."
    )
    return table


def describe_matched(preset: Preset, arms: Mapping[str, Arm]) -> str:
    """The shapes of matched arms, which are not always a width alone."""
    shapes = []
    for name, arm in arms.items():
        model: LanguageModelConfig = arm_model(preset, arm)
        shapes.append(f"{name}: d_model={model.d_model}, feed-forward {model.d_ffn}")
    return f"Standard models of equal cost: {'; '.join(shapes)}."
