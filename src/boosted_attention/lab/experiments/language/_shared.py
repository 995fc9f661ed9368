"""What the language-model experiments share: arms, results by seed, relative differences, and what must agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from boosted_attention.analysis.halting import RoundsTaken
from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.language._arms import (
    BOOSTED,
    PLAIN,
    Arm,
    arm_model,
    name_of,
    rate_of,
    seeds_of,
    tuned_as,
)
from boosted_attention.lab.experiments.language._trials import halting_trial, training_trial
from boosted_attention.lab.judging.place import Kind, Place
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import BySeed, Cell, Paired, Table, exactly, over_seeds
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.language import Diverged, LanguageResult, outcome_of
from boosted_attention.lab.work.timing import StepRatios, with_quartiles
from boosted_attention.records import from_json
from boosted_attention.validation import InputError, shortened

WIKITEXT, OPENWEBTEXT = THE_PAPERS = ("wikitext-103", "openwebtext")
ALIKE = "All arms share weight decay and batch size."
COLUMNS = ["test perplexity", "validation perplexity", "parameters (M)", "MFLOPs per token"]


class Found(dict[str, dict[int, LanguageResult]]):
    """Results by arm and seed; an arm of which a training diverged is not among them, but in ``diverged``."""

    def __init__(self, results: Mapping[str, dict[int, LanguageResult]] = {}):
        super().__init__(results)
        self.diverged: dict[str, dict[int, Diverged]] = {}

    def add(self, other: Found) -> None:
        """Take the arms of others in."""
        self.update(other)
        self.diverged |= other.diverged


def training_trials(preset: Preset, arms: Mapping[str, Arm]) -> list[Trial]:
    """Every arm with its seeds on every corpus."""
    return [
        training_trial(preset, corpus, arm, seed, name)
        for corpus in preset.text.corpora
        for seed in preset.text.seeds
        for name, arm in arms.items()
        if seed in seeds_of(preset, corpus, arm)
    ]


def one_after_the_other(preset: Preset, arms: Mapping[str, Arm], order: Sequence[str]) -> list[Trial]:
    """Every arm with its seeds in turn, on the first text before the others, since an arm is shown once it is whole.

    Args:
        preset: whose arms these are.
        arms: the arms.
        order: their names, the most important first.
    """
    corpora = preset.text.corpora
    return [
        replace(trial, turn=len(order) * corpora.index(trial.config["data"]["corpus"]) + order.index(trial.group))
        for trial in training_trials(preset, arms)
    ]


def on_first_text(trials: Callable[[Preset], list[Trial]]) -> Callable[[Preset], list[Trial]]:
    """Those trials without which there is no table: a further text is shown when it is there."""

    def needed(preset: Preset) -> list[Trial]:
        return [trial for trial in trials(preset) if trial.config["data"]["corpus"] == preset.text.corpora[0]]

    return needed


def read(preset: Preset, results: Results, corpus: str, arms: Mapping[str, Arm]) -> Found:
    """Results of the arms that are there with all their seeds; they must have seen the same data in the same order."""
    found = Found()
    for name, arm in arms.items():
        with suppress(KeyError):  # not there yet
            found.add(
                by_seed(
                    results,
                    name,
                    {s: training_trial(preset, corpus, arm, s, name) for s in seeds_of(preset, corpus, arm)},
                )
            )
    require_alike(found, corpus)
    return found


def halting_trials(preset: Preset, corpus: str, arm: Arm, name: str) -> dict[int, Trial]:
    """What counts the rounds, or repeats, of a model that halts, by seed."""
    return {seed: halting_trial(preset, corpus, arm, seed, name) for seed in seeds_of(preset, corpus, arm)}


def rounds_taken_in(results: Results, trials: Mapping[int, Trial]) -> dict[int, RoundsTaken]:
    """The rounds, or repeats, that tokens took, by seed; KeyError if they were not counted."""
    return {seed: from_json(RoundsTaken, results(trial)) for seed, trial in trials.items()}


def is_there(results: Results, trial: Trial) -> bool:
    """Whether a trial has a result."""
    try:
        results(trial)
    except KeyError:
        return False
    return True


def by_seed(results: Results, name: str, trials: Mapping[int, Trial]) -> Found:
    """Results of one arm; KeyError if one is not there."""
    read = {seed: outcome_of(results(trial)) for seed, trial in trials.items()}
    diverged = {seed: one for seed, one in read.items() if isinstance(one, Diverged)}
    found = Found()
    if diverged:
        found.diverged[name] = diverged
    elif read:
        found[name] = {seed: one for seed, one in read.items() if isinstance(one, LanguageResult)}
    return found


def require_alike(found: Found, corpus: str) -> None:
    """Raise InputError unless all had one text, and all trials of a seed and length one order of batches."""
    texts: dict[str, list[str]] = {}
    orders: dict[tuple[int, int], dict[str, list[str]]] = {}
    for name, by_seed in found.items():
        for seed, result in by_seed.items():
            label = f"{name} (seed {seed})"
            texts.setdefault(result.data, []).append(label)
            orders.setdefault((seed, result.steps), {}).setdefault(result.order, []).append(label)
    for groups, what in [(texts, "different texts"), *((group, "different batches") for group in orders.values())]:
        if len(groups) > 1:
            listed = "; ".join(f"{key}: {shortened(names)}" for key, names in groups.items())
            raise InputError(f"results on {corpus} are of {what} and cannot be compared: {listed}; use another folder")


def perplexity(by_seed: Mapping[int, LanguageResult]) -> dict[int, float]:
    """Test perplexity of one arm."""
    return {seed: result.test.perplexity for seed, result in by_seed.items()}


def validation(by_seed: Mapping[int, LanguageResult]) -> dict[int, float]:
    """Validation perplexity of one arm, at its best step."""
    return {seed: result.best.validation_perplexity for seed, result in by_seed.items()}


def validation_loss(by_seed: Mapping[int, LanguageResult]) -> dict[int, float]:
    """Validation loss of one arm, at its best step."""
    return {seed: result.best.validation_loss for seed, result in by_seed.items()}


def perplexities(found: Found) -> dict[str, BySeed]:
    """Test perplexity of every arm."""
    return {name: perplexity(by_seed) for name, by_seed in found.items()}


def percent(a: BySeed, b: BySeed) -> dict[int, float]:
    """How much larger a is than b, in percent, for every seed that both have."""
    return {seed: 100 * (a[seed] / b[seed] - 1) for seed in a if seed in b}


def against_zero(quantity: Quantity, values: BySeed) -> Paired:
    """A quantity that is a difference already."""
    return Paired(quantity, values, dict.fromkeys(values, 0.0))


@dataclass(frozen=True)
class Relative:
    """How much larger arm a's perplexity is than arm b's, in percent."""

    a: str
    b: str
    quantity: Quantity

    @property
    def arms(self) -> tuple[str, ...]:
        """What must be there."""
        return (self.a, self.b)

    def of(self, values: Mapping[str, BySeed]) -> Paired:
        """The comparison, from every arm's perplexity."""
        return against_zero(self.quantity, percent(values[self.a], values[self.b]))


@dataclass(frozen=True)
class Points(Relative):
    """How much larger arm a's perplexity is than arm b's, in points."""

    def of(self, values: Mapping[str, BySeed]) -> Paired:
        """The comparison, from every arm's perplexity."""
        return Paired(self.quantity, values[self.a], values[self.b])


class Compared(Protocol):
    """A comparison of arms."""

    @property
    def quantity(self) -> Quantity: ...
    @property
    def arms(self) -> tuple[str, ...]: ...  # what must be there
    def of(self, values: Mapping[str, BySeed]) -> Paired: ...  # from every arm's perplexity


def relative(a: str, b: str, paper: float | None = None, name: str | None = None) -> Relative:
    """The comparison of two arms, named "a - b" unless another name is given."""
    return Relative(a, b, Quantity(f"{a} - {b}" if name is None else name, paper))


def place_of(preset: Preset, corpus: str) -> Place:
    """Where models of a preset on a corpus are measured; the size is the boosted model's."""
    own = preset.text.is_the_papers and corpus in THE_PAPERS
    parameters = arm_model(preset, PLAIN[BOOSTED]).num_params()
    size = f"{parameters / 1e6:.1f} M" if parameters >= 1e5 else f"{parameters / 1e3:.0f} k"
    return Place(kind=Kind.LANGUAGE, text=short(preset, corpus), size=size, is_the_papers=own)


def places(preset: Preset) -> dict[str, Place]:
    """The places of a table, by the text of its quantities."""
    return {short(preset, corpus): place_of(preset, corpus) for corpus in preset.text.corpora}


def describe_places(table: Table) -> str:
    """A sentence for captions."""
    if all(place.is_the_papers for place in table.places.values()):
        return "At the paper's own size."
    return f"At {'; '.join(map(str, table.places.values()))}; not the paper's size and text."


def short(preset: Preset, corpus: str) -> str:
    """A corpus by name; a path without its folders, where that tells it from the others."""
    names = [c.rstrip("/").rpartition("/")[2].removeprefix("text:") for c in preset.text.corpora]
    name = corpus.rstrip("/").rpartition("/")[2].removeprefix("text:")
    return f"text:{name}" if corpus.startswith("text:") and names.count(name) == 1 else corpus


def tag(preset: Preset, corpus: str) -> str:
    """What labels end in: " | corpus" where there are several corpora, nothing otherwise."""
    return f" | {short(preset, corpus)}" if len(preset.text.corpora) > 1 else ""


def row_label(preset: Preset, corpus: str, arm: str) -> str:
    """The row of an arm on a corpus."""
    return f"{arm}{tag(preset, corpus)}"


def located(preset: Preset, corpus: str, quantity: Quantity) -> Quantity:
    """A quantity on a corpus."""
    return quantity.on(short(preset, corpus))


def compare(table: Table, preset: Preset, corpus: str, pairs: Sequence[Paired]) -> None:
    """Add the differences on one corpus."""
    table.compare([Paired(located(preset, corpus, pair.quantity), pair.a, pair.b) for pair in pairs])


def compare_arms(table: Table, preset: Preset, corpus: str, found: Found, comparisons: Sequence[Compared]) -> None:
    """Add the comparisons whose arms are there, and say of the others why they are not."""
    values = perplexities(found)
    for compared in comparisons:
        quantity = located(preset, corpus, compared.quantity)
        diverged = [arm for arm in compared.arms if arm in found.diverged]
        absent = [arm for arm in compared.arms if arm not in values]
        if diverged:
            table.failed[quantity] = f"{' and '.join(diverged)} diverged"
        elif absent:
            table.missing[quantity] = f"{' and '.join(absent)} was not run"
        else:
            compare(table, preset, corpus, [compared.of(values)])


def add_arms(
    table: Table, preset: Preset, corpus: str, found: Found, quantities: Mapping[str, Quantity] | None = None
) -> None:
    """A row per arm: test perplexity, validation perplexity, parameters, FLOPs per token.

    Args:
        table: to be added to.
        preset: whose arms these are.
        corpus: the text of the results.
        found: results by arm and seed.
        quantities: test perplexities that claims or figures ask for, by arm.
    """
    asked = quantities or {}
    for name, by_seed in found.items():
        one, own = next(iter(by_seed.values())), over_seeds(perplexity(by_seed))
        quantity = asked.get(name)
        paper = quantity.paper if quantity is not None and preset.text.is_the_papers else None
        cells = [
            Cell(own, paper),
            Cell(over_seeds(validation(by_seed))),
            count(one.parameters / 1e6),
            count(one.flops_per_token / 1e6),
        ]
        table.add_row(row_label(preset, corpus, name), cells)
        if quantity is not None:
            table.quantities[located(preset, corpus, quantity)] = own
    for name, quantity in asked.items():
        if name not in found:
            reasons = table.failed if name in found.diverged else table.missing
            reasons[located(preset, corpus, quantity)] = "diverged" if name in found.diverged else "not run"
    note_diverged(table, preset, corpus, found)


def note_diverged(table: Table, preset: Preset, corpus: str, found: Found, so: str = "has no row") -> None:
    """Name the trainings that diverged, and what that means for their arm."""
    for name, by_seed in found.diverged.items():
        told = "; ".join(f"seed {seed}: {one.diverged}" for seed, one in by_seed.items())
        table.notes.append(f"{short(preset, corpus)}, {name} diverged and {so}: {told}.")


def count(value: float) -> Cell:
    """A number of parameters or operations."""
    return Cell(exactly(round(value, 3)))


def text_table(title: str, preset: Preset, columns: list[str] | None = None, unit: str = "percent") -> Table:
    """An empty table with its places, and a note on what its differences are."""
    table = Table(title, COLUMNS if columns is None else columns, precision=2, places=places(preset))
    training = "the paper's training" if preset.text.is_the_papers else f"preset {preset.name}"
    seeds = ", ".join(map(str, preset.text.seeds))
    paired = f"over the seeds that both arms have, the first of {seeds}" if preset.text.arms else f"over seeds {seeds}"
    table.notes.append(
        f"Differences are in {unit} of perplexity, paired {paired}; {training} on "
        f"{', '.join(short(preset, corpus) for corpus in preset.text.corpora)}."
    )
    return table


def described(preset: Preset, corpus: str, found: Found, arms: Mapping[str, Arm]) -> list[str]:
    """A note on the seeds of every arm and the rate it trained at; none where all have the same of both."""
    if not (preset.text.tuned and found):
        return []
    told = []
    for label, by_seed in found.items():
        name = name_of(preset, arms[label]) or label
        whose = "" if tuned_as(name) == name else f", that of {tuned_as(name)}"
        told.append(f"{label} {len(by_seed)} (x {rate_of(preset, arms[label]):g}{whose})")
    first = preset.text.corpora[0]  # the one text that rates are tuned on
    where = "" if corpus == first else f" on {short(preset, first)}"
    return [
        f"{short(preset, corpus)}: seeds of each arm, and the factor on the recipe's rates that the sweep found"
        f"{where}: {'; '.join(told)}. {ALIKE}"
    ]


def describe_times(results: Results, timed: Trial, where: str = "") -> list[str]:
    """A note on step times with their spread, as far as it was kept; none while they were not timed.

    Args:
        results: results of trials.
        timed: the trial that timed them.
        where: what follows "Step times", such as " at the further width".
    """
    if not is_there(results, timed):
        return []
    found = from_json(StepRatios, results(timed))
    ((first, _), *_), repeats = timed.config["models"], timed.config["repeats"]
    beside = f"{repeats} interleaved steps of each, as multiples of those of {first}"
    if found.measured_quartiles is None:
        told = "; ".join(f"{name} {ratio:.3f}" for name, ratio in found.measured.items())
        return [f"Step times{where}, median of {beside} (quartiles were not kept): {told}."]
    told = with_quartiles(found.measured, found.measured_quartiles)
    return [f"Step times{where}, median and quartiles of {beside}: {told}."]


def describe_matched(preset: Preset, arms: Mapping[str, Arm]) -> str:
    """The shapes of matched arms, which are not always a width alone."""
    models = {name: arm_model(preset, arm) for name, arm in arms.items()}
    shapes = [f"{name}: d_model={model.d_model}, feed-forward {model.d_ffn}" for name, model in models.items()]
    return f"Standard models of equal cost: {'; '.join(shapes)}."
