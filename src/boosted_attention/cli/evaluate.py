"""``boosted-attention evaluate``: perplexity of a trained run or a boosted model, on its own text or another."""

from __future__ import annotations

from pathlib import Path

from boosted_attention.validation import require_choice

RENAMED = {"which": "checkpoint"}


def run(
    folder: Path,
    /,
    *,
    split: str = "test",
    protocol: str = "full",
    stride: int | None = None,
    checkpoint: str = "best",
    corpus: str | None = None,
    data_root: str | None = None,
    field: str = "text",
    batch_size: int | None = None,
    device: str = "cpu",
    json: bool = False,
) -> int:
    """Evaluate a run or a boosted model: loss, perplexity and bits per byte over every token of a split.

    Example: boosted-attention evaluate runs/mini-boosted-stdlib-0 --stride 32

    Args:
        folder: the run, or the folder of a boosted model, which needs --corpus.
        split: part of the text: train, validation or test.
        protocol: measure: full, paper (rows, incomplete last batch dropped) to compare with the paper's figures, or
            documents (each document alone, its first token not counted).
        stride: tokens that windows move by; less than the model's length gives each token more context.
        checkpoint: checkpoint of a run to load: best or last.
        corpus: another corpus than the run's own, read with the run's tokenizer.
        data_root: folder of corpora by name.
        field: name of the field with the text in .jsonl files, for --corpus.
        batch_size: rows at a time; the run's own by default.
        device: device to run on: cpu, cuda or mps.
        json: JSON instead of a sentence.
    """
    import json as codec
    from dataclasses import asdict

    from rich.console import Console
    from rich.progress import Progress

    from boosted_attention.attention.selfcheck import usable_dtypes
    from boosted_attention.cli.loading import load_trained
    from boosted_attention.cli.preparing import text_of
    from boosted_attention.data.corpora import SPLITS
    from boosted_attention.train.evaluation import evaluate

    require_choice("split", split, SPLITS)
    usable_dtypes(device)
    trained = load_trained(folder, checkpoint, device)
    live = Console(stderr=True)
    data = text_of(trained, corpus, data_root, field, live)
    rows = trained.config.training.batch_size if batch_size is None else batch_size
    with Progress(console=live, transient=True, disable=not live.is_terminal) as bar:
        task = bar.add_task(f"evaluating {split}", total=1.0)
        found = evaluate(
            trained.model,
            data.splits[split],
            byte_lengths=trained.tokenizer.byte_lengths(),
            stride=stride,
            batch_size=rows,
            protocol=protocol,
            end_of_text=trained.tokenizer.end_of_text,
            progress=lambda fraction: bar.update(task, completed=fraction),
        )
    if json:
        print(codec.dumps({**asdict(found), "perplexity": found.perplexity, "step": trained.step, "split": split}))
        return 0
    bits = "" if found.bits_per_byte is None else f", {found.bits_per_byte:.4f} bits per byte"
    Console().print(
        f"{split}, step {trained.step}: loss {found.loss:.4f}, perplexity {found.perplexity:.3f}{bits} "
        f"over {found.tokens:,} tokens",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    return 0
