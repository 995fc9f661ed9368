"""Corpora by name or path, divided into training, validation and test text.

    stdlib              the source of the running Python's standard library, tests excluded: on every machine
    text:PATH           a file, a folder or a glob
    NAME                the folder NAME under the data root, or a known corpus from the Hugging Face hub

Splits are files named after them where there are such files; otherwise whole files of many, or the last part of few.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boosted_attention.data.reading import TextBlock, is_text_file, read_blocks
from boosted_attention.documentation import documented
from boosted_attention.validation import InputError, nearest, require

SPLITS = ("train", "validation", "test")
SPLIT_WORDS = {"train": "train", "valid": "validation", "val": "validation", "validation": "validation", "test": "test"}
DEFAULT_HELD_OUT = 0.1
MANY_FILES = 10  # from here on whole files are held out
HUB: dict[str, dict[str, Any]] = {
    "wikitext-2": {"path": "Salesforce/wikitext", "name": "wikitext-2-raw-v1"},
    "wikitext-103": {"path": "Salesforce/wikitext", "name": "wikitext-103-raw-v1"},
    "openwebtext": {"path": "Skylion007/openwebtext", "revision": "refs/convert/parquet"},
}


@documented
@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """A corpus and its division; every option below is a keyword argument."""

    corpus: str = "stdlib"
    """Text: stdlib, text:PATH (a file, a folder or a glob), or a name such as wikitext-2."""
    validation: str | None = None
    """Files of the validation split (a path or glob), for text:PATH."""
    test: str | None = None
    """Files of the test split (a path or glob), for text:PATH."""
    held_out: float = DEFAULT_HELD_OUT
    """Share kept for validation and test, half each, where no files are named for them."""
    field: str = "text"
    """Name of the field with the text in .jsonl files."""
    data_root: str | None = None
    """Folder of corpora by name; BOOSTED_ATTENTION_DATA by default."""

    def __post_init__(self) -> None:
        require(0 < self.held_out < 1, f"held_out={self.held_out} must lie between 0 and 1")
        if not self.corpus.startswith("text:"):
            require(not (self.validation or self.test), "validation= and test= name files for corpus=text:PATH")
            require(self.held_out == DEFAULT_HELD_OUT, "held_out= is for corpus=text:PATH")

    def open(self) -> Corpus:
        """Find the files of the corpus."""
        if self.corpus == "stdlib":
            return stdlib()
        if self.corpus.startswith("text:"):
            return self._from_path(self.corpus.removeprefix("text:"))
        return self._by_name()

    def _from_path(self, path: str) -> Corpus:
        require(bool(path), "corpus=text:PATH needs a path behind the colon")
        files = find_files(path)
        named = {
            split: find_files(value) for split, value in (("validation", self.validation), ("test", self.test)) if value
        }
        if not named and (splits := by_name_of_split(files, self.corpus)):
            return Corpus(name=self.corpus, files=splits, field=self.field)
        taken = {file.resolve() for group in named.values() for file in group}
        rest = tuple(file for file in files if file.resolve() not in taken)
        require(bool(rest), f"corpus={self.corpus!r}: no file is left for training beside validation= and test=")
        missing = tuple(split for split in SPLITS[1:] if split not in named)
        if not missing:
            return Corpus(name=self.corpus, files={"train": rest, **named}, field=self.field)
        if len(rest) >= MANY_FILES:
            return Corpus(name=self.corpus, files={**spread(rest, missing, self.held_out), **named}, field=self.field)
        tail = dict.fromkeys(missing, self.held_out / 2)
        return Corpus(name=self.corpus, files={"train": rest, **named}, tail=tail, field=self.field)

    def _by_name(self) -> Corpus:
        root = corpora_folder(self.data_root)
        if root is not None and (root / self.corpus).is_dir():
            return self._from_path(str(root / self.corpus))
        known = ["stdlib", "text:PATH", *HUB]
        if root is not None and root.is_dir():
            known += sorted(p.name for p in root.iterdir() if p.is_dir() and p.name not in HUB)
        require(
            self.corpus in HUB,
            f"corpus={self.corpus!r} is not one of {', '.join(known)}{nearest(self.corpus, known)}; "
            "a path is given as text:PATH",
        )
        return HubCorpus(name=self.corpus, files={}, field="text")


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The files of each split; ``tail`` takes further splits from the end of the training files, by share."""

    name: str
    files: dict[str, tuple[Path, ...]]
    tail: dict[str, float] = field(default_factory=dict)
    field: str = "text"

    def blocks(self, split: str) -> Iterator[TextBlock]:
        """Yield the text of a split; ``consumed`` counts the bytes of all its files so far."""
        if not self.tail or split not in ("train", *self.tail):
            yield from self._stream(self.files[split])
            return
        total = sum(len(block.text) for block in self._stream(self.files["train"]))
        start, end = self._marks(total)[split]
        position = 0
        for block in self._stream(self.files["train"]):
            low, high = (forward(block.text, mark - position) for mark in (start, end))
            position += len(block.text)
            if low < high:
                whole = high == len(block.text)
                yield block._replace(text=block.text[low:high], ends_document=block.ends_document or not whole)

    def _marks(self, total: int) -> dict[str, tuple[int, int]]:
        """Return (from, to) in characters for each split, the training text first."""
        marks, position = {}, round(total * (1 - sum(self.tail.values())))
        marks["train"] = (0, position)
        for split, share in self.tail.items():
            end = min(total, position + round(total * share)) if split != list(self.tail)[-1] else total
            marks[split] = (position, end)
            position = end
        return marks

    def _stream(self, files: tuple[Path, ...]) -> Iterator[TextBlock]:
        before = 0
        for path in files:
            for block in read_blocks(path, self.field):
                yield block._replace(consumed=before + block.consumed)
            before += path.stat().st_size

    def stored_bytes(self, split: str) -> int:
        """Return the size of the files that hold the split, for progress."""
        return sum(path.stat().st_size for path in self.files["train" if split in self.tail else split])

    def source(self) -> dict[str, Any]:
        """Describe the source without reading it, so that a change of it is noticed."""
        files = {
            split: [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in paths]
            for split, paths in self.files.items()
        }
        return {"files": files, "tail": self.tail, "field": self.field, "name": self.name}


@dataclass(frozen=True, kw_only=True)
class HubCorpus(Corpus):
    """A corpus of the Hugging Face hub, streamed through ``datasets``; its own splits, or held-out documents."""

    def blocks(self, split: str) -> Iterator[TextBlock]:
        has_splits = self.name != "openwebtext"
        for i, text in enumerate(self._documents(split if has_splits else "train")):
            held_out = i % 200 if not has_splits else -1  # one document in 200 for each of validation and test
            own = {0: "validation", 1: "test"}.get(held_out, "train") if not has_splits else split
            if own == split:
                yield TextBlock(text, not has_splits, 0)  # WikiText's rows are lines of one text

    def _documents(self, split: str) -> Iterator[str]:
        try:
            from datasets import load_dataset  # type: ignore[import-not-found]
        except ImportError:
            raise InputError(
                f"{self._missing()} or install the hub's library (pip install 'boosted-attention[data]')"
            ) from None
        try:
            for row in load_dataset(**HUB[self.name], split=split, streaming=True):
                yield row[self.field]  # type: ignore[index]
        except (OSError, ValueError) as error:  # what it raises without a network, or without the dataset
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(f"{self._missing()}; the hub cannot be reached ({first})") from None

    def _missing(self) -> str:
        return (
            f"corpus={self.name!r} is not under the data root: give its files with data_root=FOLDER "
            f"(FOLDER/{self.name}/train.txt, valid.txt, test.txt) or BOOSTED_ATTENTION_DATA"
        )

    def stored_bytes(self, split: str) -> int:
        return 0

    def source(self) -> dict[str, Any]:
        return {"hub": HUB[self.name], "name": self.name}


def corpora_folder(data_root: str | None) -> Path | None:
    """Return the folder of corpora by name: the given one, or BOOSTED_ATTENTION_DATA; None where neither is named."""
    named = data_root or os.environ.get("BOOSTED_ATTENTION_DATA")
    return Path(named) if named else None


def forward(text: str, mark: int) -> int:
    """Move a mark inside the text behind the next newline, if there is one; one outside, to the nearer end."""
    if mark <= 0 or mark >= len(text):
        return min(max(mark, 0), len(text))
    return text.find("\n", mark - 1) + 1 or mark


def find_files(path: str) -> tuple[Path, ...]:
    """Return a file, a folder's text files, or what a glob matches, in order of name."""
    path = os.path.expanduser(path)
    try:
        os.stat(path)
    except OSError as error:
        require(error.errno != errno.ENAMETOOLONG, f"{path[:60]}... is too long for a path")
    if Path(path).is_file():
        return (Path(path),)
    if Path(path).is_dir():
        found = [p for p in Path(path).rglob("*") if p.is_file() and is_text_file(p)]
        require(bool(found), f"{path} holds no text file (.txt, .md, .jsonl, also .gz, .xz, .bz2, .zst)")
    else:
        found = [Path(p) for p in glob.glob(path, recursive=True) if Path(p).is_file()]
        require(bool(found), f"{path} does not exist; give a file, a folder or a glob")
    return tuple(sorted(found))


def split_of(path: Path) -> str | None:
    """Return the split that a file is named after, if it is."""
    words = path.name.lower().replace("-", ".").replace("_", ".").split(".")
    return next((SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS), None)


def by_name_of_split(files: tuple[Path, ...], corpus: str) -> dict[str, tuple[Path, ...]] | None:
    """Group files by split, if several are named after splits; others, such as a README, are left out."""
    groups: dict[str, list[Path]] = {}
    for file in files:
        groups.setdefault(split_of(file) or "", []).append(file)
    present = set(groups) - {""}
    if len(files) < 2 or not present or present == {"test"}:
        return None
    lacking = [split for split in SPLITS if split not in present]
    require(
        not lacking,
        f"corpus={corpus!r} has files named after splits but no {' and no '.join(lacking)} file; add it, or give the "
        "files as corpus=text:PATH validation=PATH test=PATH",
    )
    return {split: tuple(groups[split]) for split in SPLITS}


def spread(files: tuple[Path, ...], held: tuple[str, ...], share: float) -> dict[str, tuple[Path, ...]]:
    """Hold out whole files, evenly over their order by a hash of the name; every split gets at least one."""
    ordered = sorted(files, key=lambda path: hashlib.sha256(path.name.encode()).hexdigest())
    count = max(1, round(len(files) * share / 2))
    groups = {split: tuple(sorted(ordered[i * count : (i + 1) * count])) for i, split in enumerate(held)}
    return {"train": tuple(sorted(ordered[len(held) * count :])), **groups}


def stdlib() -> Corpus:
    """Return the standard library's modules, divided by a hash of the name: one file in 20 for each held-out split."""
    root = Path(sysconfig.get_paths()["stdlib"])
    groups: dict[str, list[Path]] = {split: [] for split in SPLITS}
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if EXCLUDED & set(name.parts[:-1]) or name.name.startswith("test") or not is_utf8(path):
            continue
        digest = hashlib.sha256(name.as_posix().encode()).digest()[0] % 20
        groups[{0: "validation", 1: "test"}.get(digest, "train")].append(path)
    require(bool(groups["train"]), f"corpus='stdlib': no Python source under {root}")
    return Corpus(name="stdlib", files={split: tuple(paths) for split, paths in groups.items()})


EXCLUDED = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "ensurepip"}


def is_utf8(path: Path) -> bool:
    try:
        return bool(path.read_bytes().decode("utf-8"))  # an empty file teaches nothing
    except (UnicodeDecodeError, OSError):
        return False
