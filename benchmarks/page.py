"""docs/benchmarks.md and its plots, as a function of the results alone: every figure in them is in the JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.results import Results
from benchmarks.section import table
from benchmarks.sections import SECTIONS
from benchmarks.sections.steps import STEPS
from benchmarks.targets import Target, fairness, targets
from boosted_attention.report.standalone import standalone

PAGE, PLOTS = "benchmarks.md", "benchmarks"  # in the folder of the docs
INTRODUCTION = """# Benchmarks

Made by `make bench` from benchmarks/results.json; nothing here is typed. Candidates take turns in one process, and
what is reported is the ratio of two of them within a turn: the median, with quartiles in brackets. Times are CPU
seconds of one thread unless a section says otherwise. No turn counts in which another process took more than a tenth of
a core.
"""
QUICK = """
**These numbers mean nothing:** they are of tiny models, on a machine that need not have been quiet.
"""
RERUN = """
## How to measure again

```bash
make bench
```

measures everything; what is above took {minutes:.0f} minutes. `python -m benchmarks decoding memory` measures some
sections anew and keeps the others, `python -m benchmarks --page-only` writes this page from the JSON, and
`python -m benchmarks --quick` tries everything with tiny models, into out/benchmarks.
"""


def render(results: Results) -> dict[str, str]:
    """Return the text of every file, by its path in the folder of the docs: the page, and its plots.

    Args:
        results: what was measured.
    """
    files = {}
    parts = [INTRODUCTION, QUICK if results.quick else "", "\n## What it must show\n\n", must_show(results)]
    for name, measured in results.sections.items():
        section = SECTIONS[name]
        shown = section.show(measured.result)
        parts.append(f"\n## {section.title}\n\n{shown.text}")
        for figure in shown.figures:
            path = f"{PLOTS}/{figure.name}.svg"
            files[path] = standalone(figure)
            parts.append(f"\n![{figure.caption}]({path})\n")
    parts.append(f"\n## The machine\n\n{machines(results)}")
    parts.append(RERUN.format(minutes=sum(measured.minutes for measured in results.sections.values())))
    return {PAGE: "".join(parts), **files}


def must_show(results: Results) -> str:
    """Return the table of targets, and whether the plain model is a fair rival."""
    found = targets(results)
    missed = sum(not target.reached for target in found)
    text = target_table(found) + f"\n{len(found) - missed} of {len(found)} reached.\n"
    steps = results.of(STEPS)
    if steps is not None:
        fair = fairness(steps.settings[0])
        verdict = "is" if all(target.reached for target in fair) else "is **not**"
        text += f"\nThe plain model {verdict} a fair rival by the rule that was set:\n\n" + target_table(fair)
    lacking = [name for name in SECTIONS if name not in results.sections]
    return text + (f"\nNot measured: {', '.join(lacking)}.\n" if lacking else "")


def target_table(found: Sequence[Target]) -> str:
    """Return targets as a table."""
    rows = [
        [
            target.what,
            f"at {'most' if target.at_most else 'least'} {target.written(target.limit, 2)}",
            target.written(target.measured, 3) + (f" ({target.case})" if target.case else ""),
            "yes" if target.reached else "**no**",
        ]
        for target in found
    ]
    return table(["", "target", "measured", "reached"], rows)


def machines(results: Results) -> str:
    """Return each machine with the sections that were measured on it."""
    held: dict[str, list[str]] = {}
    for name, measured in results.sections.items():
        held.setdefault(str(measured.machine), []).append(name)
    if len(held) == 1:
        return f"{next(iter(held))}.\n"
    return "".join(f"- {', '.join(names)}: {machine}.\n" for machine, names in held.items())


def write(results: Results, docs: Path) -> None:
    """Write the page and its plots, and remove plots that it no longer has.

    Args:
        results: what was measured.
        docs: the folder of the docs.
    """
    files = render(results)
    (docs / PLOTS).mkdir(parents=True, exist_ok=True)
    for old in (docs / PLOTS).glob("*.svg"):
        if f"{PLOTS}/{old.name}" not in files:
            old.unlink()
    for path, text in files.items():
        (docs / path).write_text(text, encoding="utf-8")
