"""What a model card says of the run that trained a model, as Markdown; what is not known is left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from boosted_attention.data.corpora import HUB
from boosted_attention.pretrained.card import Known
from boosted_attention.pretrained.finetune import FinetuneConfig
from boosted_attention.pretrained.markdown import code
from boosted_attention.train.config import PROTOCOLS, TrainingConfig
from boosted_attention.train.folder import TrainedRun
from boosted_attention.train.results import RunResult

UNKNOWN = ""  # in a table
PARTS = {
    "correction": "the corrections alone; the base was frozen",
    "all": "every parameter",
    "lora": "adapters of rank {rank} on the attention, merged into the model",
}


def with_run(known: Known, run: TrainedRun, result: RunResult | None) -> Known:
    """Return what is known of a model, and what is known of its run added.

    Args:
        known: what is known beside the run.
        run: the run, with the weights of one checkpoint.
        result: what came out of it; None where it has not come to its end.
    """
    corpus = run.config.data.corpus
    return replace(
        known,
        datasets=[HUB[corpus]["path"]] if corpus in HUB else [],
        training=about_training(run, result),
        scores=scores_of(run, result),
        protocol=about_protocol(run),
    )


def about_training(run: TrainedRun, result: RunResult | None) -> list[str]:
    """Return lines on text, recipe and checkpoint."""
    config: Any = run.config.model
    training = run.config.training
    lines = [about_text(run)]
    if isinstance(config, FinetuneConfig):
        lines.append(f"trained: {PARTS[config.train].format(rank=config.lora_rank)}")
        lines.append(f"base: weight files of hash {code(config.weights[:16])}")
    lines.append(f"optimizer: {', '.join(about_optimizer(training))}")
    length = f"{training.epochs} epochs" if training.epochs is not None else f"{training.steps:,} steps"
    packed = ", packed with whole documents" if training.pack == "documents" else ""
    stages = ", rounds one after the other" if training.stagewise else ""
    lines.append(
        f"length: {length} with {training.batch_size} rows of {config.max_len:,} tokens each{packed}{stages}; "
        f"{training.precision}; seed {training.seed}"
    )
    if result is not None:
        lines.append(f"tokens seen, repetitions included: {result.tokens:,} in {result.steps:,} steps")
    return [*lines, f"checkpoint: after step {run.step:,}"]


def about_text(run: TrainedRun) -> str:
    """Return a line on the text of a run; of a path, which belongs to one machine, the last part alone."""
    corpus, known = run.config.data.corpus, f"fingerprint of its tokens {code(run.fingerprint)}"
    if corpus.startswith("text:"):
        name = Path(corpus.removeprefix("text:")).name
        return f"text: files of the author's own, {code(name)}; {known}"
    if corpus == "stdlib":
        return f"text: {code(corpus)}, the source of Python's standard library; {known}"
    hub = f" ({code(HUB[corpus]['path'])})" if corpus in HUB else ""
    return f"text: {code(corpus)}{hub}; {known}"


def about_optimizer(training: TrainingConfig) -> Iterator[str]:
    """Yield the settings of an optimizer that decide how fast a model learns."""
    yield code(training.optimizer)
    yield f"highest learning rate {training.lr:g}"
    if training.matrix_lr is not None:
        yield f"that of hidden matrices {training.matrix_lr:g}"
    yield f"{training.schedule} decay"
    yield f"weight decay {training.weight_decay:g}"


def scores_of(run: TrainedRun, result: RunResult | None) -> list[list[str]]:
    """Return rows of split, perplexity, nats per token, bits per byte and tokens; none for weights not measured.

    Args:
        run: the run, with the weights of one checkpoint.
        result: what came out of it, which was measured with the best checkpoint.
    """
    if result is None or run.step != (result.steps if result.best is None else result.best.step):
        return []
    rows = []
    if result.test is not None:
        test = result.test
        rows.append(["test", *measured(test.perplexity, test.loss, test.bits_per_byte), f"{test.tokens:,}"])
    if result.best is not None:
        best = result.best
        scores = measured(best.validation_perplexity, best.validation_loss, best.validation_bits_per_byte)
        rows.append(["validation, by which the checkpoint was chosen", *scores, UNKNOWN])
    return rows


def measured(perplexity: float, loss: float, bits: float | None) -> list[str]:
    """Return one split's numbers as text."""
    return [f"{perplexity:.4f}", f"{loss:.4f}", UNKNOWN if bits is None else f"{bits:.4f}"]


def about_protocol(run: TrainedRun) -> str:
    """Return sentences on how perplexity was measured."""
    protocol = run.config.training.protocol
    return (
        f"Protocol {code(protocol)}: {PROTOCOLS[protocol]}, in rows of {run.config.model.max_len:,} tokens of the "
        "model's own tokenizer. Perplexities with other tokenizers, texts or protocols cannot be compared with these."
    )
