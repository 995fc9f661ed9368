"""Numbers of results in prose: blocks that are generated, and numbers that say which quantity they are.

    <!-- results -->                              a block, which ``fill`` writes and ``problems`` compares
    ...
    <!-- /results -->

    <!-- table finetune finetune -->              the same with one table: folder, experiment
    ...
    <!-- /table finetune finetune -->

    7.8 [6.6, 9.1]<!--= quick rounds: M=2 - M=1 -->      a mean with its interval: folder, experiment, quantity
    9.5<!--= paper's rounds: M=2 - M=1 -->               what the paper has for it: experiment, quantity

``problems`` recomputes blocks and means from the records that ship, reads the paper's values from the claims of the
experiment, and names every number that is another; ``fill`` writes blocks and numbers anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from boosted_attention.lab.experiments import EXPERIMENTS
from boosted_attention.lab.judging.error_rates import error_rates
from boosted_attention.lab.judging.table import grids
from boosted_attention.lab.reproduce import Reproduction, reread, stored_preset
from boosted_attention.lab.shipped import folders, shipped, table_of
from boosted_attention.statistics import Estimate
from boosted_attention.validation import require

# What stands in a block, given the folder of results and the words after the block's kind.
BLOCKS: dict[str, Callable[..., str]] = {
    "results": shipped,
    "error rates": lambda results: error_rates(),
    "table": lambda results, folder, experiment: one_table(results, folder, experiment),
}
BLOCK = re.compile(
    rf"(?P<open><!-- (?P<mark>(?P<kind>{'|'.join(BLOCKS)})(?P<words>(?: [^\s>]+)*)) -->\n)"
    r"(?P<inside>.*?)(?P<close><!-- /(?P=mark) -->)",
    re.DOTALL,
)
PAPER = "paper's"  # in the place of a folder, and no folder's name: results of the preset "paper" may ship
NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?")
VALUE = r"[-+]?\d[\d.,]*(?: \[[-+\d., ]+\])?"
REFERENCE = re.compile(rf"(?P<value>{VALUE})(?: ?[%a-z]*)?<!--= (?P<folder>\S+) (?P<experiment>\S+): (?P<name>.+?) -->")
INTERVAL = re.compile(r"[-+]?\d[\d.]* \[[-+]?\d[\d.]*, [-+]?\d[\d.]*\]")
EXEMPT = re.compile(r"<!-- without references -->.*?<!-- /without references -->|```.*?```", re.DOTALL)
# Where a page states results, so that every decimal or percent number is one: README's section, and a whole page.
STATING = {
    "README.md": re.compile(r"^## What holds\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE),
    "docs/results.md": re.compile(r".*", re.DOTALL),
}
DECIMAL = re.compile(r"[-+]?\d[\d,]*(?:\.\d+(?: ?%)?| ?%)")
# Numbers that are no results: sizes of models, the level of intervals, the noise of the task.
SETTINGS = re.compile(r"\b[\d.]+ M\b|\b95 %|\bsigma = [\d.]+(?: to [\d.]+)?")


def made(match: re.Match[str], results: Path) -> str:
    """Return what a block would hold if it were written now."""
    return BLOCKS[match["kind"]](results, *match["words"].split())


def shows_all(text: str) -> bool:
    """Whether a page has the block with all results."""
    return any(match["kind"] == "results" for match in BLOCK.finditer(text))


def one_table(results: Path, folder: str, experiment: str) -> str:
    """Return a table with its comparisons, without its heading and notes."""
    found = table_of(results, folder, experiment)
    require(found is not None, f"results/{folder} has no table {experiment!r}, which a page asks for")
    assert found is not None
    return f"\n{grids(found)}\n"


def fill(text: str, results: Path, what: str) -> str:
    """Return a page with its blocks, and its numbers at references, written anew.

    Args:
        text: the page.
        results: the folder of results that ship.
        what: the page's name, for messages.
    """
    outside, known = blanked(text), Known(results)
    references = list(REFERENCE.finditer(outside))
    require(
        BLOCK.search(text) is not None or bool(references),
        f"{what} has no place for results: it needs lines such as <!-- results --> and <!-- /results -->",
    )
    for match in reversed(references):  # from the end, so that places before stay where they are
        low, high = match.span("value")
        right = known.numbers(*match.group("folder", "experiment", "name"))
        text = text[:low] + rewritten(match["value"], right) + text[high:]
    return BLOCK.sub(lambda match: match["open"] + made(match, results) + match["close"], text)


def rewritten(value: str, right: Sequence[float]) -> str:
    """Return a mean, alone or with its interval, with other numbers and as many decimals.

    What the results do not have stays, for ``problems`` to name.

    Args:
        value: how it is written now.
        right: its numbers by the results.
    """
    if len(NUMBER.findall(value)) > len(right):
        return value
    numbers = iter(right)
    return NUMBER.sub(lambda old: like(old[0], next(numbers)), value)


def like(old: str, number: float) -> str:
    """Write a number with the decimals, the plus sign and the separators of another."""
    decimals = len(old.partition(".")[2])
    return f"{number:{'+' if old.startswith('+') else ''}{',' if ',' in old else ''}.{decimals}f}"


def problems(text: str, results: Path, what: str) -> list[str]:
    """Name every number of a page that does not follow from the results: in blocks, at references, and without any.

    Args:
        text: the page.
        results: the folder of results that ship.
        what: the page's name, for messages.
    """
    found = []
    for match in BLOCK.finditer(text):
        first = text.count("\n", 0, match.start("inside")) + 1
        said = differences(match["inside"], made(match, results))
        found += [f"{what}:{first + line}: {difference}" for line, difference in said]
    outside = blanked(text)
    known = Known(results)
    referenced = set()
    for match in REFERENCE.finditer(outside):
        referenced.add(match.start())
        line = text.count("\n", 0, match.start()) + 1
        found += [f"{what}:{line}: {said}" for said in known.wrong(**match.groupdict())]
    for match in INTERVAL.finditer(outside):
        if match.start() not in referenced:
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{what}:{line}: {match[0]} is a result without a reference to its quantity")
    for match in unreferenced(outside, what):
        line = text.count("\n", 0, match.start()) + 1
        found.append(f"{what}:{line}: {match[0]} is a number without a reference to its quantity")
    return found


def blanked(text: str) -> str:
    """Return a page with everything blank that is generated, code, or from before numbers had references."""
    return BLOCK.sub(blank, EXEMPT.sub(blank, text))


def blank(match: re.Match[str]) -> str:
    """Return as many spaces and ends of lines as a match has."""
    return re.sub(r"[^\n]", " ", match[0])


def unreferenced(outside: str, what: str) -> Iterator[re.Match[str]]:
    """Yield the decimal and percent numbers without a reference, where the page states results."""
    for pattern in (REFERENCE, INTERVAL, SETTINGS):
        outside = pattern.sub(blank, outside)
    for page, part in STATING.items():
        section = part.search(outside) if what.endswith(page) else None
        if section is not None:
            yield from DECIMAL.finditer(outside, *section.span())


def differences(here: str, made: str) -> Iterator[tuple[int, str]]:
    """Yield (line, what differs) for every number of a block that would be written otherwise."""
    for i, (old, new) in enumerate(zip_longest(here.splitlines(), made.splitlines(), fillvalue="")):
        if old == new:
            continue
        ours, theirs = NUMBER.findall(old), NUMBER.findall(new)
        if len(ours) != len(theirs) or NUMBER.sub("", old) != NUMBER.sub("", new):
            yield i, f"{old!r} would be written as {new!r}"
        else:
            yield from ((i, f"{a} is {b} by the results") for a, b in zip(ours, theirs, strict=True) if a != b)


@dataclass
class Known:
    """What the folders of results say, each read when it is first asked for."""

    results: Path
    read: dict[str, Reproduction] = field(default_factory=dict)

    def wrong(self, value: str, folder: str, experiment: str, name: str) -> Iterator[str]:
        """Yield what is wrong with a referenced value."""
        source = "claims" if folder == PAPER else "results"
        right = self.numbers(folder, experiment, name)
        written = NUMBER.findall(value)
        if not right:
            yield f"{value} refers to {folder} {experiment}: {name}, which the {source} do not have"
        elif len(written) > len(right):
            yield f"{value} has an interval, which the {source} do not have ({folder} {experiment}: {name})"
        for here, number in zip(written, right, strict=False):
            decimals = len(here.partition(".")[2])
            there = f"{number:.{decimals}f}"
            if float(here.replace(",", "")) != float(there):
                yield f"{here} is {there} by the {source} ({folder} {experiment}: {name})"

    def numbers(self, folder: str, experiment: str, name: str) -> tuple[float, ...]:
        """Mean and ends of the interval, or the paper's one value; empty where there is no such quantity."""
        if folder == PAPER:
            claims = EXPERIMENTS[experiment].claims if experiment in EXPERIMENTS else ()
            values = {str(c.quantity): c.quantity.paper for c in claims if c.quantity.paper is not None}
            return (values[name],) if name in values else ()
        e = self.quantities(folder, experiment).get(name)
        return () if e is None else (e.mean, e.low, e.high)

    def quantities(self, folder: str, experiment: str) -> Mapping[str, Estimate]:
        """The quantities of one table, by name."""
        places = folders(self.results)
        if folder not in places:
            return {}
        if folder not in self.read:
            self.read[folder] = reread(stored_preset(places[folder]), places[folder])
        table = self.read[folder].tables.get(experiment)
        return {} if table is None else {str(quantity): e for quantity, e in table.quantities.items()}
