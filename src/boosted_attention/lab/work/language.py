"""Work on language models: one model, one corpus, one seed each, resumable in the middle."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from boosted_attention.analysis.examine import Analysis, examine
from boosted_attention.analysis.halting import rounds_taken
from boosted_attention.analysis.importance import Importance, importance, most_important
from boosted_attention.analysis.survey import BrokenModelError, draw_rows
from boosted_attention.data.tokens import DataConfig, TokenData, prepare
from boosted_attention.lab.trials.store import versions
from boosted_attention.lab.trials.trial import Context, Finished, Settings, work
from boosted_attention.lab.work.timing import StepRatios
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.progress import Progress
from boosted_attention.records import from_json, to_json
from boosted_attention.storage.documents import DamagedError, read_json
from boosted_attention.storage.writing import free_name, write_json
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.folder import TrainedRun, load_run
from boosted_attention.train.loop import TrainingError
from boosted_attention.train.metrics import dynamics_of, evaluation_rows, read_result, step_rows
from boosted_attention.train.observer import TrainingObserver, Unwatched
from boosted_attention.train.results import SplitScore, StepRow
from boosted_attention.train.run_config import RunConfig
from boosted_attention.train.trainer import Trainer
from boosted_attention.validation import InputError, require

TIME_TOLERANCE = 0.15  # widths come in steps, and a shared machine is not a stop-watch
SAME_LOSS = 0.03  # nats between trainings that differ by rounding; seeds scatter by 0.01
Config = dict[str, Any]
DIVERGENCE = (TrainingError, BrokenModelError)  # met by a step, or by the analysis of an evaluation


@dataclass(frozen=True, kw_only=True)
class BestStep:
    """The evaluation with the lowest validation loss."""

    step: int
    validation_loss: float
    validation_perplexity: float


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What depends on the machine."""

    device: str = "cpu"  # which the first results do not say
    seconds: float
    curve_seconds: list[float]


@dataclass(frozen=True, kw_only=True)
class LanguageResult:
    """A trained language model. All but ``measured`` follows from the trial's configuration."""

    test: SplitScore
    best: BestStep
    curve: list[tuple[int, float]]  # (step, validation loss)
    final_validation_loss: float
    steps: int
    tokens: int
    parameters: int
    flops_per_token: int
    data: str  # fingerprint of the text
    order: str  # hash of all batches
    measured: Measured
    layers: list[int] | None = None  # those boosted, where an earlier trial chose them
    gates: list[float | None] | None = None  # by layer; in results from before the analysis was a trial


@dataclass(frozen=True, kw_only=True)
class Diverged:
    """A training that ended because its loss or gradient was no number any more."""

    diverged: str  # at which step, and what
    data: str = ""  # fingerprint of the text; empty where sequences are drawn


@dataclass(frozen=True, kw_only=True)
class NearestInTime:
    """The width whose step time is nearest, and that time as a multiple of the other model's."""

    width: int
    step_time: float


@dataclass(frozen=True, kw_only=True)
class TimeMatched:
    """The standard model whose training step takes as long as another's, if there is one."""

    measured: NearestInTime
    trained: LanguageResult | None  # None where no width is near enough


@dataclass(frozen=True, kw_only=True)
class SweepPoint:
    """A training at one learning rate, judged on validation text alone."""

    best: BestStep | None  # None where it diverged
    diverged: str | None  # what became infinite or NaN
    steps: int
    data: str  # fingerprint of the text


class Reporter(Unwatched):
    """Reports the trainer's steps as a trial's progress."""

    def __init__(self, progress: Progress):
        self.progress = progress

    def start(self, first: int, total: int) -> None:
        self.total = total

    def step(self, row: StepRow) -> None:
        self.progress(row.step / self.total)


@work("language.train", schema=3)  # 2: weights start as functions of seed, name and shape; 3: dropout by rows
def train(context: Context, *, model: Config, training: Config, data: Config) -> Config:
    """Train a model and test its best checkpoint. A killed trial goes on from its last checkpoint.

    A training that diverges is a result too.
    """
    try:
        return to_json(train_model(context, model, training, data))
    except DIVERGENCE as error:
        return ended(error, context, model, data)


def ended(error: Exception, context: Context, model: Config, data: Config) -> Config:
    """The result of a training that diverged: a ``Diverged``."""
    return to_json(Diverged(diverged=str(error), data=fingerprint(context, model, data)))


def fingerprint(context: Context, model: Config, data: Config) -> str:
    """The fingerprint of the text that a model is trained on."""
    return prepare(data_config(data, context.settings), LanguageModelConfig.from_dict(model).vocab_size).fingerprint


def outcome_of(result: Config) -> LanguageResult | Diverged:
    """Read the result of a training."""
    return from_json(Diverged if "diverged" in result else LanguageResult, result)


def trainer_of(
    folder: Path, model: Config, training: Config, data: Config, settings: Settings, observer: TrainingObserver
) -> Trainer:
    """What trains a model in ``folder``; the configurations hold the stated options of the three."""
    config = RunConfig(
        model=LanguageModelConfig.from_dict(model),
        training=TrainingConfig(**training),
        data=data_config(data, settings),
    )
    tokens = prepare(config.data, config.model.vocab_size)
    config = replace(config, model=replace(config.model, vocab_size=tokens.tokenizer.vocab_size))
    return Trainer(
        folder=folder, config=config, data=tokens, device=settings.device, checkpoint_every=100, observer=observer
    )


def train_model(context: Context, model: Config, training: Config, data: Config) -> LanguageResult:
    """Train in ``context.folder``, or go on there, and test the best checkpoint."""
    settings, place = context.settings, context.folder / "training"
    start_anew_with_another_torch(place)
    trainer = trainer_of(place, model, training, data, settings, Reporter(context.progress))
    found = trainer.run(resume=True)
    evaluations, best = evaluation_rows(place), found.best
    assert best is not None
    batches = "".join(row.batch for row in step_rows(place))
    return LanguageResult(
        test=found.tested(),
        best=BestStep(
            step=best.step, validation_loss=best.validation_loss, validation_perplexity=best.validation_perplexity
        ),
        curve=[(row.step, row.validation_loss) for row in evaluations],
        final_validation_loss=evaluations[-1].validation_loss,
        steps=found.steps,
        tokens=found.tokens,
        parameters=found.parameters,
        flops_per_token=found.flops_per_token,
        data=found.data,
        order=hashlib.sha256(batches.encode()).hexdigest()[:16],
        measured=Measured(
            device=settings.device, seconds=found.seconds, curve_seconds=[row.seconds for row in evaluations]
        ),
    )


@work("language.sweep", schema=2)  # 2: dropout by rows
def sweep_point(context: Context, *, model: Config, training: Config, data: Config) -> Config:
    """Train at one learning rate; a training that diverges is a result too."""
    try:
        found = train_model(context, model, training, data)
    except DIVERGENCE as error:
        steps, text = TrainingConfig(**training).steps, fingerprint(context, model, data)
        return to_json(SweepPoint(best=None, diverged=str(error), steps=steps, data=text))
    return to_json(SweepPoint(best=found.best, diverged=None, steps=found.steps, data=found.data))


def data_config(data: Config, settings: Settings) -> DataConfig:
    """The text, where this machine has it."""
    return replace(DataConfig(**data), data_root=settings.data_root)


def planned_steps(model: LanguageModelConfig, training: TrainingConfig, data: DataConfig) -> int:
    """Steps of a training, known before its text is."""
    rows = (data.train_tokens or 0) // model.max_len
    return training.total_steps(max(1, rows // training.batch_size))


def start_anew_with_another_torch(place: Path) -> None:
    """Put a training begun with another version of torch aside: its result would be of neither."""
    now = {"torch": versions()["torch"]}
    stamp = place / "versions.json"
    if stamp.exists() and not is_stamp(stamp, now):
        place.rename(free_name(place))
    place.mkdir(parents=True, exist_ok=True)
    write_json(stamp, now)


def is_stamp(path: Path, versions: dict[str, str]) -> bool:
    """Say whether a file names these versions; a damaged one does not."""
    try:
        return read_json(path) == versions
    except DamagedError:
        return False


@work("language.train-time-matched", schema=3)
def train_time_matched(context: Context, *, model: Config, training: Config, data: Config) -> Config:
    """Train the standard model whose measured step time is nearest to that of an earlier timing trial's first model.

    Nothing is trained where no width is near, as with models so small that a step's time hardly depends on the width.
    The result is a TimeMatched, or a Diverged.
    """
    ratios = from_json(StepRatios, context.earlier[0].result).measured
    widths = {int(label): ratio for label, ratio in ratios.items() if label.isdigit()}
    width = min(widths, key=lambda d: abs(widths[d] - 1))
    trained = None
    if abs(widths[width] - 1) <= TIME_TOLERANCE:
        try:
            trained = train_model(context, {**model, "attention": "standard", "d_model": width}, training, data)
        except DIVERGENCE as error:
            return ended(error, context, model, data)
    nearest = NearestInTime(width=width, step_time=widths[width])
    return to_json(TimeMatched(measured=nearest, trained=trained))


def timed_outcome_of(result: Config) -> TimeMatched | Diverged:
    """Read the result of a training that was matched in time."""
    return from_json(Diverged if "diverged" in result else TimeMatched, result)


@work("language.train-selected", schema=3)
def train_selected(context: Context, *, choose: str, model: Config, training: Config, data: Config) -> Config:
    """Train with half of the layers boosted: those whose corrections matter most, or as many others at random.

    The result is a LanguageResult, or what became of a model that diverged: this one, or the one that was weighed.
    """
    if (before := diverged_before(context)) is not None:
        return before
    found = from_json(Importance, context.earlier[0].result)
    n_layers = len(found.layers)
    require(n_layers > 1, "a choice among layers needs a model with at least two")
    count = max(1, n_layers // 2)
    layers = most_important(found, count)
    if choose == "random":
        others = [list(c) for c in combinations(range(n_layers), count) if list(c) != layers]
        draw = torch.Generator().manual_seed(training["seed"] + 1)
        layers = others[int(torch.randint(len(others), (), generator=draw))]
    chosen = {**model, "attention": "boosted", "boosted_layers": layers}
    try:
        return to_json(replace(train_model(context, chosen, training, data), layers=layers))
    except DIVERGENCE as error:
        return ended(error, context, model, data)


def diverged_before(context: Context) -> Config | None:
    """The first earlier result that is a ``Diverged``, which is then the result of what builds on it."""
    return next((trial.result for trial in context.earlier if "diverged" in trial.result), None)


@work("language.importance")
def measure_importance(context: Context, *, model: Config, sequences: int) -> Config:
    """Measure what each layer's correction is worth, on validation text: what is chosen by it is scored on the test.

    The result is an Importance, or what became of a model that diverged.
    """
    if (before := diverged_before(context)) is not None:
        return before
    (earlier,) = context.earlier
    trained = trained_again(earlier, context)
    tokens = prepare(data_config(model["data"], context.settings), trained.config.model.vocab_size)
    rows = draw_rows(tokens.splits["validation"], trained.config.model.max_len, sequences)
    try:
        return to_json(importance(trained.module, rows, progress=context.progress))
    except DIVERGENCE as error:
        return ended(error, context, model["model"], model["data"])


@work("language.halting")
def count_rounds(context: Context, *, model: Config, sequences: int) -> Config:
    """Count the rounds, or repeats, that tokens of test text take in a trained model that halts.

    The result is a RoundsTaken, or what became of a model that diverged.
    """
    if (before := diverged_before(context)) is not None:
        return before
    (earlier,) = context.earlier
    trained = trained_again(earlier, context)
    tokens = prepare(data_config(model["data"], context.settings), trained.config.model.vocab_size)
    rows = draw_rows(tokens.splits["test"], trained.config.model.max_len, sequences)
    return to_json(rounds_taken(trained.module, rows, trained.tokenizer.vocabulary(), progress=context.progress))


@work("language.analyse", schema=3)
def analyse_models(
    context: Context, *, model: Config, against: Config, sequences: int, pairs: int, with_explorer: bool
) -> Config:
    """Analyse a trained model on its test split, beside another; both are earlier trials.

    The result is an Analysis, or what became of a model that diverged.
    """
    if (before := diverged_before(context)) is not None:
        return before
    mine, theirs = (trained_again(trial, context) for trial in context.earlier)
    tokens: TokenData = prepare(data_config(model["data"], context.settings), mine.config.model.vocab_size)
    rows = draw_rows(tokens.splits["test"], mine.config.model.max_len, sequences)
    found = examine(
        mine.module,
        rows,
        mine.tokenizer.vocabulary(),
        against=theirs.module,
        pairs=pairs,
        with_explorer=with_explorer,
        progress=context.progress,
    )
    changes = [abs(tested_loss(earlier.folder) - earlier.result["test"]["loss"]) for earlier in context.earlier]
    found = replace(found, training=dynamics_of(mine.folder), data=tokens.fingerprint, retrained=max(changes) or None)
    return to_json(found)


def analysis_of(result: Config) -> Analysis | Diverged:
    """Read the result of an analysis."""
    return from_json(Diverged if "diverged" in result else Analysis, result)


def trained_again(earlier: Finished, context: Context) -> TrainedRun:
    """Load the model of a finished trial. One whose weights are gone is trained again, and must come out alike.

    On the processor that trained it first it comes out the same; another one adds up in another order.
    """
    try:
        return load_run(earlier.folder / "training")
    except InputError:
        again = train_model(replace(context, folder=earlier.folder, progress=lambda fraction: None), **earlier.config)
    before = from_json(LanguageResult, earlier.result)
    require(
        abs(again.test.loss - before.test.loss) <= SAME_LOSS,
        f"{earlier.folder.name} was trained again, since its weights are gone, and came out otherwise (test loss "
        f"{again.test.loss}, {before.test.loss} before): remove its result.json",
    )
    return load_run(earlier.folder / "training")


def tested_loss(folder: Path) -> float:
    """The test loss of the training in a trial's folder."""
    result = read_result(folder / "training")
    assert result is not None
    return result.tested().loss
