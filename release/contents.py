"""What is wrong with the built files: compared with the commit and with pyproject.toml."""

from __future__ import annotations

import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

from markdown_it import MarkdownIt

from release.readiness import tracked, version_of

NOT_ARCHIVED = {".ci", ".pre-commit-config.yaml"}  # of the commit: what serves its own hosts and editors
METADATA = "PKG-INFO"  # what the builder adds


def wheel_problems(wheel: Path, root: Path) -> list[str]:
    """Return how a wheel differs from the commit's package, its pages, styles and pictures, and in metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        described = BytesParser().parsebytes(archive.read(metadata))
    held = {f"src/{name}" for name in names if ".dist-info/" not in name}
    return differences("the wheel", held, tracked(root, "src")) + metadata_problems("the wheel", described, root)


def sdist_problems(sdist: Path, root: Path) -> list[str]:
    """Return how a source archive differs from the commit, with whose files the tests must run."""
    with tarfile.open(sdist) as archive:
        held = {member.name.partition("/")[2]: member for member in archive.getmembers() if member.isfile()}
        file = archive.extractfile(held[METADATA]) if METADATA in held else None
        described = BytesParser().parsebytes(b"" if file is None else file.read())
    expected = {path for path in tracked(root) if path.partition("/")[0] not in NOT_ARCHIVED} | {METADATA}
    problems = differences("the source archive", set(held), expected)
    return problems + metadata_problems("the source archive", described, root)


def differences(what: str, held: set[str], expected: set[str]) -> list[str]:
    """Return a line for files that are missing, and one for files that are not of the commit."""
    problems = []
    for files, verb in ((expected - held, "lacks"), (held - expected, "has, beyond the commit,")):
        if files:
            problems.append(f"{what} {verb} {len(files)} files, such as {min(files)}")
    return problems


def metadata_problems(what: str, described: Message, root: Path) -> list[str]:
    """Return how metadata differ from the project's own, and whether an index could show the README."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stated = {
        "Name": project["name"],
        "Version": version_of(root),
        "Requires-Python": project["requires-python"],
        "License-Expression": project["license"],
        "Description-Content-Type": "text/markdown",
    }
    problems = [
        f"{what} has {name}: {described[name]}; the project says {value}"
        for name, value in stated.items()
        if described[name] != value
    ]
    extras = set(described.get_all("Provides-Extra", []))
    if extras != set(project["optional-dependencies"]):
        problems.append(f"{what} has other extras than pyproject.toml: {', '.join(sorted(extras)) or 'none'}")
    page = MarkdownIt("commonmark").enable("table").render(str(described.get_payload()))
    if "<h1>" not in page or "<table>" not in page:
        problems.append(f"{what} describes the project by a text that is not the README")
    return problems
