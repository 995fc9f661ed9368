"""``boosted-attention claims``: the ledger."""

from __future__ import annotations

from pathlib import Path

from boosted_attention.validation import require


def run(*, out: Path = Path("out"), json: bool = False, markdown: bool = False) -> int:
    """Show the paper's facts, and every claim behind them with our number, its interval and the verdict.

    Reads what ``reproduce`` computed under OUT; without any, every claim is "not run". How verdicts come about is in
    docs/judging.md.

    Example: boosted-attention claims --markdown

    Args:
        out: folder that ``reproduce`` wrote to.
        json: JSON output.
        markdown: Markdown output.
    """
    from rich.console import Console

    from boosted_attention.lab.judging import ledger
    from boosted_attention.lab.reproduce import reread, stored_preset

    require(not (json and markdown), "json=True and markdown=True exclude each other")
    require(not out.exists() or out.is_dir(), f"out={str(out)!r} is a file; give the folder that reproduce wrote to")
    found = reread(stored_preset(out), out)
    for remark in found.outcome.remarks:
        Console(stderr=True).print(f"left out: {remark}", markup=False, soft_wrap=True)
    if json:
        import json as codec

        print(codec.dumps(ledger.as_rows(found.ledger), indent=1, sort_keys=True))
    elif markdown:
        print(ledger.as_markdown(found.ledger), end="")
    else:
        console = Console()
        console.print(ledger.rows_table(found.ledger.rows))
        if ledger.ran(found.ledger):
            console.print(ledger.facts_table(found.ledger))
        for line in ledger.counts(found.ledger):
            console.print(line, markup=False)
    return 0
