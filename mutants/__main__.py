"""Run the planted bugs."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from mutants.operators import DRAWS, draw

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "boosted_attention"
LIST = Path(__file__).with_name("planted.json")
TOLERATED = {"d": 3, "f": 3}  # unnoticed ones of a draw: of thirty, of sixty
SECONDS = 60  # in which a test must notice
SEARCH = 600  # seconds in which a folder of tests is searched for one
PYTEST = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider", "-p", "no:xdist"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("ids", nargs="*", help="bugs to run; all by default")
    parser.add_argument("--find", action="store_true", help="search for a test that notices where none is noted")
    parser.add_argument("--draw", type=int, metavar="N", help="print the first N bugs of a fixed draw as JSON")
    parser.add_argument("--from", dest="name", choices=list(DRAWS), default="d", help="which draw")
    options = parser.parse_args()
    if options.draw:
        print(json.dumps([vars(site) for site in draw(PACKAGE, options.draw, options.name)], indent=1))
        return 0
    planted = json.loads(LIST.read_text(encoding="utf-8"))
    chosen = [bug for bug in planted if not options.ids or bug["id"] in options.ids]
    unnoticed = []
    for bug in chosen:
        if "equivalent" in bug:
            print(f"{bug['id']:>4}  equivalent: {bug['equivalent']}")
            continue
        by = notice(bug, options.find)
        print(f"{bug['id']:>4}  {'noticed by ' + by if by else 'NOT NOTICED'}  ({bug['file']})", flush=True)
        unnoticed += [] if by else [bug["id"]]
        if options.find:
            LIST.write_text(json.dumps(planted, indent=1) + "\n", encoding="utf-8")
    count = sum("equivalent" not in bug for bug in chosen)
    print(f"{count - len(unnoticed)} of {count} noticed")
    return 1 if any(count > TOLERATED.get(kind, 0) for kind, count in Counter(id[0] for id in unnoticed).items()) else 0


def notice(bug: dict[str, Any], find: bool) -> str | None:
    """The test that fails with the bug and passes without it; None if there is none."""
    noted = bug.get("noticed by")
    if noted is None and not find:
        return None
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src" / "boosted_attention"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        plant(bug, copy)
        for tests in [noted] if noted else mirrored(bug["file"]):
            failed = first_failure([tests], copy.parent, SECONDS if noted else SEARCH)
            if failed and not first_failure([failed], PACKAGE.parent, SECONDS):
                bug["noticed by"] = failed
                return failed
    return None


def plant(bug: dict[str, Any], package: Path) -> None:
    """Write the bug into a copy of the package."""
    path = package / bug["file"]
    lines = path.read_text(encoding="utf-8").splitlines()
    places = [i for i, line in enumerate(lines) if line == bug["before"]]
    if len(places) <= bug.get("occurrence", 0):
        sys.exit(f"{bug['id']}: {bug['file']} has no line {bug['before']!r} any more; plant the bug anew")
    lines[places[bug.get("occurrence", 0)]] = bug["after"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def mirrored(file: str) -> list[str]:
    """Tests of a module, then of its folder, then of the folders above it; all within its part of the package."""
    path = Path("tests") / file
    own = path.with_name(f"test_{path.name}")
    if path.parent == Path("tests"):
        return [str(own)]
    folders = [path.parent, *path.parent.parents][: len(path.parts) - 2]
    return [str(p) for p in (own, *folders) if (ROOT / p).exists()]


def first_failure(tests: list[str], source: Path, seconds: float) -> str | None:
    """The first test that fails with the package of ``source``; None if all pass, or time runs out."""
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [*PYTEST, *tests], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    failed = [
        line.split(" ", 1)[1].split(" - ")[0]
        for line in done.stdout.splitlines()
        if line.startswith(("FAILED ", "ERROR "))
    ]
    if done.returncode not in (0, 1) and not failed:
        sys.exit(f"pytest could not run {' '.join(tests)}: {(done.stderr or done.stdout)[-500:]}")
    return failed[0] if failed else None


if __name__ == "__main__":
    sys.exit(main())
