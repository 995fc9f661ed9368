"""``boosted-attention data``: corpora into token files."""

from __future__ import annotations

from boosted_attention.validation import require


def run(
    corpus: str = "stdlib",
    /,
    *,
    tokenizer: str = "bpe",
    vocab_size: int = 2048,
    validation: str | None = None,
    test: str | None = None,
    held_out: float = 0.1,
    field: str = "text",
    data_root: str | None = None,
) -> int:
    """Tokenize a corpus, or find it tokenized already, and say what is in it.

    Token files are kept in the cache (BOOSTED_ATTENTION_CACHE), one folder per corpus and tokenizer, and made anew
    when the source changes. ``train`` does this by itself.

    Example: boosted-attention data text:notes/ --vocab-size 1024

    Args:
        corpus: text: stdlib, text:PATH (a file, a folder or a glob), or a name such as wikitext-2.
        tokenizer: tokenizer: bpe, paper, bytes, or the path of a tokenizer.json.
        vocab_size: tokens of a trained tokenizer.
        validation: files of the validation split, for text:PATH.
        test: files of the test split, for text:PATH.
        held_out: share for validation and test, half each, where no files are named for them.
        field: name of the field with the text in .jsonl files.
        data_root: folder of corpora by name; BOOSTED_ATTENTION_DATA by default.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from boosted_attention.cli.preparing import prepared
    from boosted_attention.data.tokens import DataConfig

    require(vocab_size > 1, f"vocab_size={vocab_size} must be at least 2")
    config = DataConfig(
        corpus=corpus,
        tokenizer=tokenizer,
        validation=validation,
        test=test,
        held_out=held_out,
        field=field,
        data_root=data_root,
    )
    data = prepared(config, vocab_size, Console(stderr=True))
    title = f"{corpus}: {data.tokenizer.vocab_size} tokens of kind {tokenizer!r}, data {data.fingerprint}"
    table = Table(title=Text(title))
    for heading in ("split", "documents", "bytes", "tokens", "bytes per token"):
        table.add_column(heading, justify="left" if heading == "split" else "right")
    for name, split in data.manifest.splits.items():
        ratio = split.bytes / max(split.tokens, 1)
        table.add_row(name, f"{split.documents:,}", f"{split.bytes:,}", f"{split.tokens:,}", f"{ratio:.2f}")
    console = Console()
    console.print(table)
    console.print(f"in {data.folder}", markup=False, soft_wrap=True)
    return 0
