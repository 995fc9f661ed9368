"""What the language-model experiments share: arms, results by seed, relative differences, and what must agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.language import Arm, arm_model, text_run
from boosted_attention.lab.matching import matched
from boosted_attention.lab.presets import PRESETS, Preset
from boosted_attention.lab.runs import Run
from boosted_attention.lab.table import Cell, Table, exact, trained
from boosted_attention.names import InputError, shortened

STANDARD: Arm = {"attention": "standard"}
TWICING: Arm = {"attention": "twicing"}
BOOSTED: Arm = {"attention": "boosted"}
THE_PAPERS = ("wikitext-103", "openwebtext")
FULL_SIZE = "paper-small"  # the recipe that is the paper's own

Found = dict[str, dict[int, dict[str, Any]]]  # arm: {seed: result}
BySeed = dict[int, float]


def matched_arm(preset: Preset, arm: Arm, by: str) -> dict[str, Any]:
    """The standard model that costs what ``arm`` costs."""
    return dict(_matched(preset.name, tuple(sorted(arm.items())), by))


@lru_cache(maxsize=64)
def _matched(preset_name: str, arm: tuple[tuple[str, Any], ...], by: str) -> tuple[tuple[str, Any], ...]:
    given = arm_model(PRESETS[preset_name], dict(arm))
    model = matched(given, by)
    found = {**dict(arm), "attention": "standard", "d_model": model.d_model}
    if model.ffn_multiple != given.ffn_multiple:
        found["ffn_multiple"] = model.ffn_multiple
    return tuple(found.items())


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
    orders: dict[tuple[int, int], set[str]] = {}
    for name, by_seed in found.items():
        for seed, result in by_seed.items():
            texts.setdefault(result["data"], []).append(f"{name} (seed {seed})")
            orders.setdefault((seed, result["steps"]), set()).add(result["order"])
    if len(texts) > 1:
        listed = "; ".join(f"{data}: {shortened(names)}" for data, names in texts.items())
        raise InputError(
            f"results on {corpus} are of different texts and cannot be compared: {listed}; use another --out"
        )
    assert all(len(seen) == 1 for seen in orders.values()), f"{corpus}: arms of a seed saw different batches"


def perplexity(by_seed: Mapping[int, dict[str, Any]]) -> BySeed:
    return {seed: result["test"]["perplexity"] for seed, result in by_seed.items()}


def percent(a: Mapping[int, float], b: Mapping[int, float]) -> BySeed:
    """How much larger a is than b, in percent, seed by seed."""
    return {seed: 100 * (a[seed] / b[seed] - 1) for seed in a}


def zero(values: Mapping[int, float]) -> BySeed:
    return dict.fromkeys(values, 0.0)


def scale_of(preset: Preset) -> str | None:
    """None at the paper's own scale, otherwise what was run instead."""
    if preset.text.recipe == FULL_SIZE:
        return None
    return f"{preset.text.recipe}, {', '.join(label(corpus) for corpus in preset.text.corpora)}"


def label(corpus: str) -> str:
    """A corpus by name; a path without its folders."""
    return (
        corpus
        if not corpus.startswith("text:")
        else f"text:{corpus.rstrip('/').rpartition('/')[2].removeprefix('text:')}"
    )


def stands_for(preset: Preset) -> dict[str, str]:
    """Which of the paper's corpora each of ours is compared with."""
    if preset.text.recipe == FULL_SIZE:
        return {corpus: corpus for corpus in preset.text.corpora}
    return dict(zip(preset.text.corpora, THE_PAPERS, strict=False))


def differences(
    table: Table,
    preset: Preset,
    corpus: str,
    values: Mapping[str, BySeed],
    pairs: Sequence[tuple[str, str, float | None]],
) -> None:
    """Relative differences in percent of (a, b, the paper's), under the corpus's own name and the paper's."""
    shown = [(f"{a} - {b} | {label(corpus)}", percent(values[a], values[b]), paper) for a, b, paper in pairs]
    table.compare([(name, difference, zero(difference), paper) for name, difference, paper in shown])
    theirs = stands_for(preset).get(corpus)
    if theirs is not None:
        for (a, b, _), (name, _, _) in zip(pairs, shown, strict=True):
            table.quantities[f"{a} - {b} | {theirs}"] = table.quantities[name]


def add_arms(table: Table, preset: Preset, corpus: str, found: Found, paper: Mapping[str, float] | None = None) -> None:
    """A row per arm: test perplexity, validation perplexity, parameters, FLOPs per token."""
    paper = paper if paper is not None and preset.text.recipe == FULL_SIZE else {}
    several = len(preset.text.corpora) > 1
    for name, by_seed in found.items():
        one = next(iter(by_seed.values()))
        validation = {seed: result["best"]["validation_perplexity"] for seed, result in by_seed.items()}
        cells = [
            trained(perplexity(by_seed), paper.get(name)),
            trained(validation),
            count(one["parameters"] / 1e6),
            count(one["flops_per_token"] / 1e6),
        ]
        table.add_row(f"{name} | {label(corpus)}" if several else name, cells)


COLUMNS = ["test perplexity", "validation perplexity", "parameters (M)", "MFLOPs per token"]


def count(value: float) -> Cell:
    return exact(round(value, 3))


def text_table(title: str, preset: Preset, columns: list[str] | None = None) -> Table:
    table = Table(title, COLUMNS if columns is None else columns, precision=2)
    table.scale = scale_of(preset)
    training = "the paper's training" if table.scale is None else f"preset {preset.name}"
    seeds = ", ".join(map(str, preset.text.seeds))
    table.notes.append(
        f"Differences are in percent of perplexity, paired over seeds {seeds}; {training} on "
        f"{', '.join(label(corpus) for corpus in preset.text.corpora)}."
    )
    return table
