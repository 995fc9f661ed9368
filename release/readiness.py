"""What is wrong with a commit that is to be released."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

VERSION = re.compile(r'^__version__ = "(.+)"$', flags=re.MULTILINE)


def version_of(root: Path) -> str:
    """Return the version that the package states."""
    found = VERSION.search((root / "src" / "boosted_attention" / "__init__.py").read_text(encoding="utf-8"))
    if found is None:
        raise SystemExit("release: src/boosted_attention/__init__.py states no __version__")
    return found[1]


def readiness(root: Path) -> list[str]:
    """Return what keeps a checkout from being released: one line each.

    A commit with a tag is a release, and one without a rehearsal, whose changelog may call the version unreleased.
    """
    version, problems = version_of(root), []
    changed = git(root, "status", "--porcelain")
    if changed:
        problems.append(f"{len(changed)} files are not committed, such as {changed[0][3:]}; commit or remove them")
    tags = git(root, "tag", "--points-at", "HEAD")
    if tags and f"v{version}" not in tags:
        problems.append(f"the commit's tag is {tags[0]}, the package's version {version}; the tag should be v{version}")
    lines = (root / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    headings = [line for line in lines if re.match(rf"## {re.escape(version)}(\s|$)", line)]
    if not headings:
        problems.append(f"CHANGELOG.md has no heading '## {version}'; say there what is new")
    elif tags and "unreleased" in headings[0]:
        problems.append(f"CHANGELOG.md calls {version} unreleased; give it a date")
    return problems


def tracked(root: Path, *below: str) -> set[str]:
    """Return the files of the commit, by their paths."""
    return set(git(root, "ls-files", "--", *below))


def git(root: Path, *words: str) -> list[str]:
    """Return the lines that git prints."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"release: git {words[0]} failed in {root}: {done.stderr.strip()}")
    return done.stdout.splitlines()
