"""Corrections of a pretrained model against LoRA and against training everything: what is learned, forgotten and paid.

What is trained, on which texts and at which rates, is in ``_finetunings.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from boosted_attention.chart import Figure, Panel, measured
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments._finetunings import (
    AS_IT_WAS,
    EVERYTHING,
    FULL,
    LARGE_LORA,
    LORA,
    LOW_RANK,
    RANK,
    SHARED,
    TINY_RANK,
    arms,
    arms_on,
    decoding,
    grid,
    learned,
    needed,
    points_at,
    pretrained,
    seeds,
    sweep_trial,
    sweeps,
    timing,
    trials,
    tuning,
    untouched,
    watched,
)
from boosted_attention.lab.experiments._grid import described
from boosted_attention.lab.experiments.language._shared import short
from boosted_attention.lab.judging.claim import Role, claim
from boosted_attention.lab.judging.facts import FINETUNING
from boosted_attention.lab.judging.place import Kind, Place
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import BySeed, Cell, Paired, Table, exactly
from boosted_attention.lab.judging.verdicts import below
from boosted_attention.lab.presets import Preset
from boosted_attention.lab.work.finetune import (
    DecodeCosts,
    FinetunePoint,
    FinetuneResult,
    TextLoss,
    UntouchedResult,
    outcome_of,
)
from boosted_attention.lab.work.language import Diverged
from boosted_attention.lab.work.timing import StepRatios, with_quartiles
from boosted_attention.records import from_json
from boosted_attention.statistics import Estimate, estimate
from boosted_attention.train.evaluation import perplexity_of
from boosted_attention.validation import require

TITLE = "Fine-tuning a pretrained model"
PERPLEXITY, WATCHED, TRAINED = "perplexity", "other text", "trained (M)"
STEP_TIME, DECODE = "step time (full = 1)", "decode time (base = 1)"
COLUMNS = [PERPLEXITY, WATCHED, TRAINED, STEP_TIME, DECODE, "cache per token (kB)", "peak memory (GB)"]


@dataclass(frozen=True)
class Versus:
    """How much larger the loss of arm a is than that of arm b, on the text they learned or on the watched one."""

    a: str
    b: str
    quantity: Quantity
    is_watched: bool = False


OVER_LORA = Versus(SHARED, LORA, Quantity(f"loss, {SHARED} - {LORA}"))
SECONDARY = {
    "low-rank": Versus(LOW_RANK, LORA, Quantity(f"loss, {LOW_RANK} - {LORA}")),
    "lora": Versus(FULL, LARGE_LORA, Quantity(f"loss, {FULL} - {LARGE_LORA}")),
    "everything": Versus(FULL, EVERYTHING, Quantity(f"loss, {FULL} - {EVERYTHING}")),
    "forgetting": Versus(SHARED, LORA, Quantity(f"loss on the other text, {SHARED} - {LORA}"), is_watched=True),
}
COMPARED = (OVER_LORA, *SECONDARY.values())


def swept_texts(preset: Preset, results: Results, text: str) -> dict[str, str]:
    """Fingerprints of the text that rates were tuned on, each with an arm that has it; none of another text."""
    if text != learned(preset)[0]:
        return {}
    tried = [(name, factor) for name in arms(preset) for factor in grid(preset, name)]
    return {from_json(FinetunePoint, results(sweep_trial(preset, *one))).data: f"rates of {one[0]}" for one in tried}


@dataclass
class Found:
    """Results on one text, by arm and seed; an arm of which a training diverged is in ``diverged`` alone."""

    tuned: dict[str, dict[int, FinetuneResult]] = field(default_factory=dict)
    diverged: dict[str, str] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)  # fingerprints of the text, each with an arm that has it

    def losses(self, versus: Versus, arm: str) -> BySeed:
        """Losses of an arm, on the text that a comparison is about."""
        found = {s: r.watched if versus.is_watched else r.new for s, r in self.tuned[arm].items()}
        return {seed: loss for seed, loss in found.items() if loss is not None}


def read(preset: Preset, results: Results, text: str) -> Found:
    """The arms that are there with all their seeds."""
    found = Found()
    for name in arms_on(preset, text):
        try:
            there = {seed: results(tuning(preset, name, text, seed)) for seed in seeds(preset)}
        except KeyError:
            continue  # not there yet
        by_seed = {seed: outcome_of(result) for seed, result in there.items()}
        found.data |= {one.data: name for one in by_seed.values()}
        lost = {seed: one.diverged for seed, one in by_seed.items() if isinstance(one, Diverged)}
        if lost:
            found.diverged[name] = "; ".join(f"seed {seed}: {what}" for seed, what in lost.items())
        else:
            found.tuned[name] = {s: one for s, one in by_seed.items() if isinstance(one, FinetuneResult)}
    return found


def require_one_text(preset: Preset, text: str, fingerprints: Mapping[str, str]) -> None:
    """Raise InputError unless all results on a text are of one text, as their fingerprints tell.

    Args:
        preset: whose results these are.
        text: the corpus.
        fingerprints: fingerprints of the text, each with one of the results that have it.
    """
    listed = "; ".join(f"{data}: {name}" for data, name in fingerprints.items())
    require(
        len(fingerprints) <= 1,
        f"results on {short(preset, text)} are of different texts and cannot be compared: {listed}; use another folder",
    )


def collect(preset: Preset, results: Results) -> Table:
    name = pretrained(preset)["name"]
    table = Table(TITLE, COLUMNS, precision=3)
    base = from_json(UntouchedResult, results(untouched(preset)))
    before = base.texts
    times = from_json(StepRatios, results(timing(preset))).measured
    decoded = from_json(DecodeCosts, results(decoding(preset)))
    other = None if watched(preset) is None else over_windows(before[watched(preset) or ""])
    for text in learned(preset):
        own = short(preset, text)
        table.places[own] = Place(kind=Kind.FINETUNE, text=own, size=name)
        found = read(preset, results, text)
        require_one_text(preset, text, {base.data[text]: AS_IT_WAS, **swept_texts(preset, results, text), **found.data})
        cache = Cell(exactly(decoded.cache_bytes[AS_IT_WAS] / 1000))
        row = [over_windows(before[text]), other, None, None, Cell(exactly(1.0)), cache, None]
        table.add_row(row_label(preset, text, AS_IT_WAS), row)
        for arm, by_seed in found.tuned.items():
            tuned = list(by_seed.values())
            row = [
                perplexity([r.new for r in tuned]),
                perplexity([r.watched for r in tuned]),
                Cell(exactly(tuned[0].trained_parameters / 1e6)),
                Cell(exactly(times[arm])),
                Cell(exactly(decoded.measured[arm])),
                Cell(exactly(decoded.cache_bytes[arm] / 1000)),
                Cell(estimate([r.measured.peak_memory / 1e9 for r in tuned])),
            ]
            table.add_row(row_label(preset, text, arm), row)
        compare(table, preset, text, found)
    table.notes += notes(preset, results, read(preset, results, learned(preset)[0]))
    return table


def row_label(preset: Preset, text: str, arm: str) -> str:
    """The row of an arm on a text."""
    return f"{arm} | {short(preset, text)}" if len(learned(preset)) > 1 else arm


def compare(table: Table, preset: Preset, text: str, found: Found) -> None:
    """Add the comparisons whose arms are there, and say of the others why they are not."""
    for versus in COMPARED:
        quantity, both = versus.quantity.on(short(preset, text)), (versus.a, versus.b)
        diverged = [arm for arm in both if arm in found.diverged]
        absent = [arm for arm in both if arm not in found.tuned]
        if diverged:
            table.failed[quantity] = f"{' and '.join(diverged)} diverged"
        elif absent:
            table.missing[quantity] = f"not run: {', '.join(absent)}"
        elif versus.is_watched and watched(preset) is None:
            table.missing[quantity] = "there is no other text"
        else:
            table.compare([Paired(quantity, *(found.losses(versus, arm) for arm in both))])
    for arm, told in found.diverged.items():
        table.notes.append(f"{short(preset, text)}, {arm} diverged and has no row: {told}.")


def notes(preset: Preset, results: Results, found: Found) -> list[str]:
    """What was done, at which rates, and what the columns are."""
    size, texts = preset.finetune, ", ".join(short(preset, text) for text in learned(preset))
    other = "none" if watched(preset) is None else short(preset, watched(preset) or "")
    own = {arm: next(iter(found.tuned[arm].values())).rank for arm in (LORA, LARGE_LORA) if arm in found.tuned}
    light = RANK if size.pretrained else TINY_RANK
    ranks = [f"{arm} {rank}" for arm, rank in {"light corrections": light, **own}.items()]
    told = [
        f"{pretrained(preset)['name']} on {texts}: {size.steps} steps of {size.batch_size * size.max_len} tokens; "
        f"seeds {', '.join(map(str, seeds(preset)))}, which change the order of the batches and the new weights; "
        f"perplexity over the first {size.held_out:,} tokens of each text, other text: {other}; ranks: "
        f"{'; '.join(ranks)}. Ranks beyond the width of keys and values bring nothing there. The interval of the model "
        f"as it was is over windows of {size.max_len} tokens. Further texts are learned at the rates of the first.",
        "Times: of interleaved steps and decoded tokens in one process, one thread; a training step as a multiple of "
        "that of full corrections, a decoded token of the model as it was. LoRA is not merged, which would make it as "
        "fast as the model as it was; corrections cannot be. Peak memory: of the training's process.",
    ]
    timed = from_json(StepRatios, results(timing(preset)))
    decoded = from_json(DecodeCosts, results(decoding(preset)))
    for what, ratios in (("Training steps", timed), ("Decoded tokens", decoded)):
        if ratios.measured_quartiles is not None:
            spread = with_quartiles(ratios.measured, ratios.measured_quartiles)
            told.append(f"{what}, median and quartiles of {size.timed_steps} turns: {spread}.")
    if len(seeds(preset)) == 1:
        told.append("One seed: how much of a difference is chance is not known.")
    if not sweeps(preset):
        rates = ", ".join(f"{name} {arm['lr']:g}" for name, arm in arms(preset).items())
        return [*told, f"One learning rate each, not tuned: {rates}."]
    return [*told, *(describe_sweep(preset, results, name) for name in arms(preset))]


def describe_sweep(preset: Preset, results: Results, name: str) -> str:
    """The rates tried for an arm."""
    points, lr = points_at(preset, results, name, grid(preset, name)), arms(preset)[name]["lr"]
    found = described(points, lambda factor: f"{factor * lr:.2g}")
    return f"{name}: validation perplexity by learning rate, seed {preset.text.sweep_seed}: {found}."


def over_windows(found: TextLoss) -> Cell:
    """Perplexity with an interval over the windows of the text."""
    e = estimate(found.windows)
    mean, low, high = (
        perplexity_of(v) for v in (found.loss, found.loss + e.low - e.mean, found.loss + e.high - e.mean)
    )
    return Cell(Estimate(mean=mean, low=low, high=high, std=e.std * mean, n=e.n, over="windows"))


def perplexity(losses: Sequence[float | None]) -> Cell | None:
    known = [loss for loss in losses if loss is not None]
    return None if len(known) < len(losses) else Cell(estimate([perplexity_of(loss) for loss in known]))


def figure(preset: Preset, table: Table, results: Results) -> Figure:
    """Draw perplexity against decode time and against trained parameters."""
    panels = []
    for text in learned(preset):
        rows = {arm: row for arm in arms(preset) if (row := table.rows.get(row_label(preset, text, arm))) is not None}
        before = table.rows[row_label(preset, text, AS_IT_WAS)][0]
        assert before is not None
        title = f"{short(preset, text)} ({before.ours.mean:.1f} {AS_IT_WAS})"  # a line would dwarf the differences
        for heading in (DECODE, TRAINED) if rows else ():
            column = COLUMNS.index(heading)
            points = {arm: (row[column], row[0]) for arm, row in rows.items()}
            known = {arm: (cost.ours.mean, value.ours) for arm, (cost, value) in points.items() if cost and value}
            panels.append(
                Panel(
                    x_label=heading,
                    y_label=PERPLEXITY,
                    series=[measured(arm, [cost], [value], "points") for arm, (cost, value) in known.items()],
                    title=title,
                    ticks=ticks([cost for cost, _ in known.values()]) if heading == TRAINED else None,
                    log_x=heading == TRAINED,
                )
            )
    return Figure(
        name="finetune",
        title="Fine-tuning: what is learned, and what a token and the training cost",
        caption=f"Not in the paper. {pretrained(preset)['name']}; 95 % intervals over seeds.",
        panels=panels,
    )


def ticks(costs: Sequence[float]) -> dict[float, str]:
    """Names of the costs, of those with the same name the first alone."""
    named = {f"{cost:.1f}" if cost < 10 else f"{cost:.0f}": cost for cost in reversed(costs)}
    return {cost: name for name, cost in named.items()}


SAID = {
    "low-rank": "Low-rank corrections with own keys and values reach a lower loss on the new text than LoRA of their "
    "rank.",
    "lora": "Full corrections reach a lower loss on the new text than LoRA with as many parameters.",
    "everything": "Full corrections reach a lower loss on the new text than training everything.",
    "forgetting": "Low-rank corrections with shared keys and values forget less of another text than LoRA.",
}
CLAIMS = [
    claim(
        "finetune-shared",
        FINETUNING,
        OVER_LORA.quantity,
        below(),
        "Low-rank corrections with shared keys and values reach a lower loss on the new text than LoRA of their rank.",
        paper="not tested",
    ),
    *(
        claim(f"finetune-{tag}", FINETUNING, versus.quantity, below(), SAID[tag], paper="not tested", role=Role.CONTROL)
        for tag, versus in SECONDARY.items()
    ),
]

EXPERIMENT = Experiment(
    name="finetune",
    title=TITLE,
    kind=Kind.FINETUNE,
    order=210,
    trials=trials,
    collect=collect,
    claims=CLAIMS,
    figure=figure,
    needed=needed,
)
