"""What the language-model experiments share: arms, results by seed, relative differences, and what must agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from boosted_attention.lab.experiment import Results
from boosted_attention.lab.experiments.language._trials import Arm, arm_model, training_trial
from boosted_attention.lab.judging.place import Kind, Place
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import BySeed, Cell, Paired, Table, exactly, over_seeds
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.language import LanguageResult
from boosted_attention.planning.matching import matched
from boosted_attention.records import from_json
from boosted_attention.validation import InputError, shortened

STANDARD, TWICING, FAIR, BOOSTED = "standard", "twicing", "param-fair", "boosted"  # the arms of Table 3
PLAIN: dict[str, Arm] = {name: {"attention": name} for name in (STANDARD, TWICING, BOOSTED)}
WIKITEXT, OPENWEBTEXT = THE_PAPERS = ("wikitext-103", "openwebtext")
COLUMNS = ["test perplexity", "validation perplexity", "parameters (M)", "MFLOPs per token"]

Found = dict[str, dict[int, LanguageResult]]  # arm: {seed: result}

find_matched = lru_cache(maxsize=64)(matched)


def matched_arm(preset: Preset, arm: Arm, by: str) -> Arm:
    """The standard model that costs what ``arm`` costs."""
    given = arm_model(preset, arm)
    model = find_matched(given, by)
    found = {**arm, "attention": "standard", "d_model": model.d_model}
    return found if model.ffn_multiple == given.ffn_multiple else {**found, "ffn_multiple": model.ffn_multiple}


def main_arms(preset: Preset) -> dict[str, Arm]:
    """The arms of Table 3."""
    return {
        STANDARD: PLAIN[STANDARD],
        TWICING: PLAIN[TWICING],
        FAIR: matched_arm(preset, PLAIN[BOOSTED], "parameters"),
        BOOSTED: PLAIN[BOOSTED],
    }


def training_trials(preset: Preset, arms: Mapping[str, Arm]) -> list[Trial]:
    """Every arm with every seed on every corpus."""
    return [
        training_trial(preset, corpus, arm, seed, name)
        for corpus in preset.text.corpora
        for seed in preset.text.seeds
        for name, arm in arms.items()
    ]


def read(preset: Preset, results: Results, corpus: str, arms: Mapping[str, Arm]) -> Found:
    """Results of the arms by seed; they must have seen the same data in the same order."""
    found = {
        name: {
            seed: language_result(results, training_trial(preset, corpus, arm, seed, name))
            for seed in preset.text.seeds
        }
        for name, arm in arms.items()
    }
    require_alike(found, corpus)
    return found


def language_result(results: Results, trial: Trial) -> LanguageResult:
    return from_json(LanguageResult, results(trial))


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


def perplexities(found: Found) -> dict[str, BySeed]:
    """Test perplexity of every arm."""
    return {name: perplexity(by_seed) for name, by_seed in found.items()}


def percent(a: BySeed, b: BySeed) -> dict[int, float]:
    """How much larger a is than b, in percent, seed by seed."""
    return {seed: 100 * (a[seed] / b[seed] - 1) for seed in a}


def against_zero(quantity: Quantity, values: BySeed) -> Paired:
    """A quantity that is a difference already."""
    return Paired(quantity, values, dict.fromkeys(values, 0.0))


@dataclass(frozen=True)
class Relative:
    """How much larger arm a's perplexity is than arm b's, in percent."""

    a: str
    b: str
    quantity: Quantity

    def of(self, values: Mapping[str, BySeed]) -> Paired:
        """The comparison, from every arm's perplexity."""
        return against_zero(self.quantity, percent(values[self.a], values[self.b]))


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


def count(value: float) -> Cell:
    """A number of parameters or operations."""
    return Cell(exactly(round(value, 3)))


def text_table(title: str, preset: Preset, columns: list[str] | None = None, unit: str = "percent") -> Table:
    """An empty table with its places, and a note on what its differences are."""
    table = Table(title, COLUMNS if columns is None else columns, precision=2, places=places(preset))
    training = "the paper's training" if preset.text.is_the_papers else f"preset {preset.name}"
    seeds = ", ".join(map(str, preset.text.seeds))
    table.notes.append(
        f"Differences are in {unit} of perplexity, paired over seeds {seeds}; {training} on "
        f"{', '.join(short(preset, corpus) for corpus in preset.text.corpora)}."
    )
    return table


def describe_matched(preset: Preset, arms: Mapping[str, Arm]) -> str:
    """The shapes of matched arms, which are not always a width alone."""
    models = {name: arm_model(preset, arm) for name, arm in arms.items()}
    shapes = [f"{name}: d_model={model.d_model}, feed-forward {model.d_ffn}" for name, model in models.items()]
    return f"Standard models of equal cost: {'; '.join(shapes)}."
