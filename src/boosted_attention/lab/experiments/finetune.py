"""Corrections of a pretrained model against LoRA and against training everything: what is learned, forgotten and paid.

Texts: the last one is watched, those before it are learned, and one alone is learned; every arm learns the first, light
ones all of them. Rates: every arm at its own best, found on validation text of the first text with a seed that nothing
else uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from boosted_attention.chart import Figure, Panel, measured
from boosted_attention.lab.experiment import Experiment, Results
from boosted_attention.lab.experiments._grid import CLOSE, best_factor, grown, is_inside
from boosted_attention.lab.experiments.language._shared import short
from boosted_attention.lab.judging.claim import Role, claim
from boosted_attention.lab.judging.facts import FINETUNING
from boosted_attention.lab.judging.place import Kind, Place
from boosted_attention.lab.judging.quantity import Quantity
from boosted_attention.lab.judging.table import BySeed, Cell, Paired, Table, exactly
from boosted_attention.lab.judging.verdicts import below
from boosted_attention.lab.presets import DecidedRates, Preset
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work.finetune import (
    AS_LARGE,
    TINY,
    DecodeCosts,
    FinetunePoint,
    FinetuneResult,
    TextLoss,
    UntouchedResult,
    outcome_of,
)
from boosted_attention.lab.work.language import Diverged
from boosted_attention.lab.work.timing import StepRatios
from boosted_attention.records import from_json
from boosted_attention.statistics import Estimate, estimate
from boosted_attention.train.evaluation import perplexity_of
from boosted_attention.validation import require

TITLE = "Fine-tuning a pretrained model"
PERPLEXITY, WATCHED, TRAINED = "perplexity", "other text", "trained (M)"
STEP_TIME, DECODE = "step time (full = 1)", "decode time (base = 1)"
COLUMNS = [PERPLEXITY, WATCHED, TRAINED, STEP_TIME, DECODE, "cache per token (kB)", "peak memory (GB)"]
AS_IT_WAS = "as it was"
FULL, LOW_RANK, SHARED = "full corrections", "low-rank corrections", "low-rank corrections, shared K/V"
LORA, LARGE_LORA, EVERYTHING = "LoRA", "LoRA, as large as full corrections", "everything"
LIGHT = (LOW_RANK, SHARED, LORA)  # learn every text; the others the first alone
STEP = 3.0  # between neighbours of a grid that is extended
RANK, TINY_RANK = 16, 4  # of light corrections and of LoRA; of the tiny model's


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


def swept_texts(preset: Preset, results: Results, text: str) -> dict[str, str]:
    """Fingerprints of the text that rates were tuned on, each with an arm that has it; none of another text."""
    if text != learned(preset)[0]:
        return {}
    tried = [(name, factor) for name in arms(preset) for factor in grid(preset, name)]
    return {from_json(FinetunePoint, results(sweep_trial(preset, *one))).data: f"rates of {one[0]}" for one in tried}


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
    if len(seeds(preset)) == 1:
        told.append("One seed: how much of a difference is chance is not known.")
    if not sweeps(preset):
        rates = ", ".join(f"{name} {arm['lr']:g}" for name, arm in arms(preset).items())
        return [*told, f"One learning rate each, not tuned: {rates}."]
    return [*told, *(describe_sweep(preset, results, name) for name in arms(preset))]


def describe_sweep(preset: Preset, results: Results, name: str) -> str:
    """The rates tried for an arm."""
    points, lr = points_at(preset, results, name, grid(preset, name)), arms(preset)[name]["lr"]
    tried = ", ".join(f"{f * lr:.2g} {'diverged' if v is None else f'{v:.3f}'}" for f, v in sorted(points.items()))
    edge = "" if is_inside(points) else ", at the edge of the grid"
    return (
        f"{name}: validation perplexity by learning rate, seed {preset.text.sweep_seed}: {tried}; taken "
        f"{(best_factor(points) or min(points)) * lr:.2g}{edge} (of two within {100 * CLOSE:g} % the smaller)."
    )


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
                    ticks={cost: f"{cost:.2g}" for cost, _ in known.values()} if heading == TRAINED else None,
                    log_x=heading == TRAINED,
                )
            )
    return Figure(
        name="finetune",
        title="Fine-tuning: what is learned, and what a token and the training cost",
        caption=f"Not in the paper. {pretrained(preset)['name']}; 95 % intervals over seeds.",
        panels=panels,
    )


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
