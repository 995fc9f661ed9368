"""``boosted-attention report``: the whole reproduction as one page."""

from __future__ import annotations

from pathlib import Path

RENAMED = {"folder": "out"}


def run(out: Path = Path("out"), /) -> int:
    """Make OUT/report.html from what ``reproduce`` computed: one file, opened straight from disk, without a network.

    The same results give the same bytes. ``reproduce`` ends by doing this itself.

    Example: boosted-attention report out

    Args:
        out: folder that ``reproduce`` wrote to.
    """
    from boosted_attention.cli.commands import reproduce_command
    from boosted_attention.report.page import write_report

    path = write_report(out, command=reproduce_command)
    print(f"written: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    return 0
