"""Token files: flat arrays on disk, made once for a corpus and a tokenizer, and mapped into memory.

    CACHE/data/<corpus>-<key>/   tokenizer.json   train.bin   validation.bin   test.bin   manifest.json

They are built block by block into a folder of their own, which is renamed when it is whole; a second builder waits for
the first. The manifest is sealed and says what the other files hold. The key covers names, sizes and times of the
source files, so that a changed source is built anew; the ``fingerprint`` covers the content, and is what runs record.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from filelock import FileLock

from boosted_attention.data.corpora import SPLITS, Corpus, CorpusConfig
from boosted_attention.data.reading import TextBlock
from boosted_attention.data.tokenizer import LARGEST_FILE, TOKENIZERS, Tokenizer, build_tokenizer
from boosted_attention.documentation import documented
from boosted_attention.records import to_json
from boosted_attention.storage.documents import DamagedError, read_bytes, typed
from boosted_attention.storage.sealing import SEAL, entry_of, read_sealed, write_sealed
from boosted_attention.storage.writing import staged_folder
from boosted_attention.validation import InputError, require

FORMAT = 1
MANIFEST, TOKENIZER = "manifest.json", "tokenizer.json"
GROUP_CHARACTERS = 2**19  # encoded at once, at least
GROUPS_AHEAD = 2  # encoded at the same time: while ids of one are copied, the other keeps the cores busy
HASHED_ON_OPENING = 2**30  # bytes; larger files are checked by their size alone

Report = Callable[[str, float], None]  # (what is being done, how far)
SplitBlock = tuple[str, TextBlock]


@documented
@dataclass(frozen=True, kw_only=True)
class DataConfig(CorpusConfig):
    """A corpus, its division and its tokenizer; every option below is a keyword argument."""

    tokenizer: str = "bpe"
    """Tokenizer: bpe (byte-level, trained on the text), paper (words and punctuation), bytes, or a tokenizer.json."""
    train_tokens: int | None = None
    """Number of tokens used of the training split; all by default."""
    held_out_tokens: int | None = None
    """Number of tokens used of the validation and test splits each; all by default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("train_tokens", "held_out_tokens"):
            value = getattr(self, option)
            require(value is None or value > 0, f"{option}={value} must be positive")


@dataclass(frozen=True, kw_only=True)
class SplitSummary:
    """What the manifest says of one split."""

    tokens: int
    bytes: int  # of the text
    characters: int
    documents: int
    dtype: Literal["<u2", "<u4"]  # of the numbers in the token file, as numpy writes it
    sha256: str  # of the token file


@dataclass(frozen=True, kw_only=True)
class TokenizerSummary:
    """What the manifest says of the tokenizer."""

    kind: str
    sha256: str
    vocab_size: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What is in a folder of token files; its fields are the keys of manifest.json."""

    format: int
    corpus: str
    source: str  # sha256 of what is known of the source without reading it
    tokenizer: TokenizerSummary
    splits: dict[str, SplitSummary]

    def write(self, folder: Path) -> None:
        write_sealed(folder / MANIFEST, to_json(self))

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of a folder; DamagedError if it is not what was written."""
        document = read_sealed(folder / MANIFEST)
        manifest = typed(cls, {key: value for key, value in document.items() if key != SEAL}, folder / MANIFEST)
        if manifest.format != FORMAT or set(manifest.splits) != set(SPLITS):
            raise DamagedError(f"{folder / MANIFEST} is of another format, or lacks a split")
        return manifest


@documented
@dataclass(frozen=True, kw_only=True)
class TokenData:
    """The token arrays of a corpus and the tokenizer that made them."""

    folder: Path  # Folder of the token files.
    manifest: Manifest  # Content of manifest.json: the hash and size of each split, and the tokenizer.
    tokenizer: Tokenizer  # Tokenizer that made the tokens.
    splits: dict[str, np.ndarray]  # Token ids (N,) of each split: train, validation and test.

    @property
    def fingerprint(self) -> str:
        """Hash of the content: the same text, tokenizer and subset have the same, wherever the files are."""
        shas = {name: split.sha256 for name, split in self.manifest.splits.items()}
        parts = [self.manifest.tokenizer.sha256, shas, {name: len(split) for name, split in self.splits.items()}]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def cache_folder() -> Path:
    """Return BOOSTED_ATTENTION_CACHE, or a folder of our own in the user's cache."""
    if named := os.environ.get("BOOSTED_ATTENTION_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "boosted-attention"


def prepare(
    config: DataConfig, vocab_size: int, report: Report = lambda what, fraction: None, *, cache: Path | None = None
) -> TokenData:
    """Return the tokens of a corpus, from the cache or made now.

    Args:
        config: the corpus and its tokenizer.
        vocab_size: tokens of a tokenizer that is trained; ignored for one that is read from a file.
        report: called with what is being done and the fraction that is done.
        cache: folder for token files; BOOSTED_ATTENTION_CACHE, or one in the user's cache, by default.
    """
    corpus, cache = config.open(), cache or cache_folder()
    key = cache_key(corpus, config.tokenizer, vocab_size)
    slug = re.sub(r"[^\w.-]+", "-", config.corpus.removeprefix("text:")).strip("-.")[-40:] or "text"
    folder = cache / "data" / f"{slug}-{key}"
    with suppress(DamagedError):  # it is not there yet, or will be built again
        return load(folder, config)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            for left in folder.parent.glob(f".{folder.name}.*"):  # by a builder that died
                shutil.rmtree(left, ignore_errors=True)
            with suppress(DamagedError):  # another process may have built it meanwhile
                return load(folder, config)
            build(corpus, config.tokenizer, vocab_size, folder, report)
        return load(folder, config)
    except OSError as error:
        free = shutil.disk_usage(existing(folder)).free
        raise InputError(
            f"token files cannot be kept in {cache}: {error.strerror or error} ({free} bytes free); "
            "BOOSTED_ATTENTION_CACHE names another folder"
        ) from None


def existing(path: Path) -> Path:
    """Return the nearest folder above that exists."""
    return path if path.is_dir() else existing(path.parent)


def cache_key(corpus: Corpus, kind: str, vocab_size: int) -> str:
    tokenizer: list[Any] = [kind, vocab_size if kind != "bytes" else None]
    if kind not in TOKENIZERS and Path(kind).is_file():
        tokenizer = ["file", hashlib.sha256(read_bytes(Path(kind), LARGEST_FILE)).hexdigest()]
    parts = json.dumps([FORMAT, corpus.source(), tokenizer], sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def build(corpus: Corpus, kind: str, vocab_size: int, folder: Path, report: Report) -> None:
    """Write everything beside its place, then move it there, in place of what is damaged."""
    with staged_folder(folder, replace=True) as place:
        tokenizer = build_tokenizer(kind, vocab_size, training_text(corpus, report))
        sha256 = tokenizer.save(place / TOKENIZER)
        splits = write_splits(corpus, tokenizer, place, report)
        manifest = Manifest(
            format=FORMAT,
            corpus=corpus.name.partition(":")[0],
            source=hashlib.sha256(json.dumps(corpus.source(), sort_keys=True).encode()).hexdigest(),
            tokenizer=TokenizerSummary(kind=tokenizer.kind, sha256=sha256, vocab_size=tokenizer.vocab_size),
            splits=splits,
        )
        manifest.write(place)


def training_text(corpus: Corpus, report: Report) -> Iterator[str]:
    size = max(corpus.stored_bytes("train"), 1)
    empty = True
    for block in corpus.blocks("train"):
        empty = empty and not block.text
        report("training the tokenizer", min(1.0, block.consumed / size))
        yield block.text
    require(not empty, f"corpus={corpus.name!r} is empty: its training split has no text")


class SplitFile:
    """The token file of one split while it is written.

    Args:
        path: where it is.
        dtype: type of the numbers in it.
    """

    def __init__(self, path: Path, dtype: np.dtype):
        self.file, self.dtype, self.digest = path.open("wb"), dtype, hashlib.sha256()
        self.tokens = self.bytes = self.characters = self.documents = 0

    def add(self, block: TextBlock, ids: np.ndarray) -> None:
        """Write the tokens of a block."""
        self.digest.update(ids.data)
        self.file.write(ids.data)
        self.tokens += len(ids)
        self.bytes += len(block.text.encode())
        self.characters += len(block.text)
        self.documents += block.ends_document

    def finish(self) -> SplitSummary:
        """Flush the file to the disk and return what the manifest says of it."""
        self.file.flush()
        os.fsync(self.file.fileno())
        return SplitSummary(
            tokens=self.tokens,
            bytes=self.bytes,
            characters=self.characters,
            documents=self.documents,
            dtype=cast(Literal["<u2", "<u4"], self.dtype.str),
            sha256=self.digest.hexdigest(),
        )


def write_splits(corpus: Corpus, tokenizer: Tokenizer, folder: Path, report: Report) -> dict[str, SplitSummary]:
    """Write the token files of all splits, in one stream of blocks; return what the manifest says of them."""
    dtype = np.dtype(np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32).newbyteorder("<")
    sizes = {split: max(corpus.stored_bytes(split), 1) for split in SPLITS}
    with ExitStack() as opened:
        files = {split: SplitFile(folder / f"{split}.bin", dtype) for split in SPLITS}
        for file in files.values():
            opened.callback(file.file.close)
        for split, block, ids in encoded_blocks(blocks_of(corpus), tokenizer, dtype):
            files[split].add(block, ids)
            report(f"encoding {split}", min(1.0, block.consumed / sizes[split]))
        return {split: file.finish() for split, file in files.items()}


def blocks_of(corpus: Corpus) -> Iterator[SplitBlock]:
    """Yield the blocks of all splits."""
    for split in SPLITS:
        for block in corpus.blocks(split):
            yield split, block


def encoded_blocks(
    blocks: Iterator[SplitBlock], tokenizer: Tokenizer, dtype: np.dtype
) -> Iterator[tuple[str, TextBlock, np.ndarray]]:
    """Yield each block in order, with its split and its token ids (N,); the next ones are encoded meanwhile."""

    def encode(group: list[SplitBlock]) -> list[tuple[str, TextBlock, np.ndarray]]:
        encoded = tokenizer.encode_batch([block.text for _, block in group])
        for (_, block), ids in zip(group, encoded, strict=True):
            if block.ends_document and tokenizer.end_of_text is not None:
                ids.append(tokenizer.end_of_text)
        return [(*one, np.asarray(ids, dtype=dtype)) for one, ids in zip(group, encoded, strict=True)]

    with ThreadPoolExecutor(GROUPS_AHEAD) as threads:
        begun = deque()
        for group in grouped(blocks):
            begun.append(threads.submit(encode, group))
            if len(begun) > GROUPS_AHEAD:
                yield from begun.popleft().result()
        while begun:
            yield from begun.popleft().result()


def grouped(blocks: Iterator[SplitBlock]) -> Iterator[list[SplitBlock]]:
    """Yield lists of blocks with GROUP_CHARACTERS or more, save the last one."""
    group, characters = [], 0
    for split, block in blocks:
        group.append((split, block))
        characters += len(block.text)
        if characters >= GROUP_CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group


def load(folder: Path, config: DataConfig) -> TokenData:
    """Open the token files of a folder.

    Args:
        folder: what ``build`` wrote.
        config: how many of the tokens are used.

    Raises:
        DamagedError: a file is missing or not what was written.
    """
    manifest = Manifest.read(folder)
    tokenizer = read_tokenizer(folder, manifest.tokenizer)
    splits = {split: map_tokens(folder / f"{split}.bin", about) for split, about in manifest.splits.items()}
    if config.train_tokens is not None:
        wanted, have = config.train_tokens, len(splits["train"])
        require(wanted <= have, f"train_tokens={wanted}: the training split of {config.corpus} has {have} tokens")
    splits["train"] = splits["train"][: config.train_tokens]
    for split in ("validation", "test"):
        splits[split] = splits[split][: config.held_out_tokens]
    return TokenData(folder=folder, manifest=manifest, tokenizer=tokenizer, splits=splits)


def read_tokenizer(folder: Path, about: TokenizerSummary) -> Tokenizer:
    """Load the tokenizer of token files, which must be the one that the manifest names."""
    path = folder / TOKENIZER
    try:
        found = entry_of(path)
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror or error}") from None
    if found.sha256 != about.sha256:
        raise DamagedError(f"{path} is damaged")
    return Tokenizer.load(path, about.kind)


def map_tokens(path: Path, about: SplitSummary) -> np.ndarray:
    """Map the token ids (N,) of a split into memory, after a look at whether they are what was written."""
    try:
        size = path.stat().st_size
        if size != about.tokens * np.dtype(about.dtype).itemsize:
            raise DamagedError(f"{path} has another size than its manifest says")
        if size <= HASHED_ON_OPENING and entry_of(path).sha256 != about.sha256:
            raise DamagedError(f"{path} is damaged")
        empty = about.tokens == 0  # nothing can be mapped
        return np.zeros(0, about.dtype) if empty else np.memmap(path, dtype=about.dtype, mode="r")
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror or error}") from None
