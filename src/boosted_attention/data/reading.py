"""Text files as streams of blocks, in bounded memory: plain or compressed, UTF-8, one document or one per line."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from boosted_attention.storage.documents import parsed
from boosted_attention.validation import InputError, require

BLOCK_CHARACTERS = 2**16  # at least, per block; cut after a newline where there is one
TEXT_SUFFIXES = (".txt", ".md", ".tokens", ".jsonl")
COMPRESSED = (".gz", ".xz", ".bz2", ".zst")
MOST_GROWTH = 1000  # times the size of a compressed file; text grows tenfold
FREE_GROWTH = 2**26  # bytes that any compressed file may grow to
ZST_PIECE = 2**10  # compressed bytes at a time: 2**25 bytes of text at most
LONGEST_LINE = 2**27  # characters of a .jsonl document


class TextBlock(NamedTuple):
    """A piece of a text file."""

    text: str
    ends_document: bool
    consumed: int  # bytes of the file behind this block, as stored


def is_text_file(path: Path) -> bool:
    """Say whether a file in a folder counts as text, by its name."""
    suffixes = path.suffixes[-2:] if path.suffix in COMPRESSED else path.suffixes[-1:]
    return not path.name.startswith(".") and any(suffix in TEXT_SUFFIXES for suffix in suffixes)


def is_jsonl(path: Path) -> bool:
    return ".jsonl" in path.suffixes[-2:]


def read_blocks(path: Path, field: str = "text") -> Iterator[TextBlock]:
    """Yield the blocks of a file.

    Args:
        path: a text file, plain or compressed; a .jsonl file has one document per line.
        field: where the text of a .jsonl document is.
    """
    try:
        with path.open("rb") as raw:
            pieces = decode(Bounded(decompress(raw, path), raw, path), path)
            if is_jsonl(path):
                yield from json_documents(pieces, path, field, raw)
            else:
                yield from cut(pieces, raw)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


class Bounded:
    """A stream that ends in an InputError where a compressed file grows beyond all text.

    Args:
        stream: what is decompressed.
        raw: the file behind it.
        path: its name, for the message.
    """

    def __init__(self, stream: IO[bytes], raw: IO[bytes], path: Path):
        self.stream, self.raw, self.path, self.grown = stream, raw, path, 0

    def read(self, n: int) -> bytes:
        data = self.stream.read(n)
        self.grown += len(data)
        if self.stream is not self.raw and self.grown > FREE_GROWTH:
            require(
                self.grown <= MOST_GROWTH * self.raw.tell(),
                f"{self.path} grows to more than {MOST_GROWTH} times its size, which no text does; decompress it first",
            )
        return data


def decompress(raw: IO[bytes], path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return gzip.open(raw)  # type: ignore[return-value]
    if path.suffix == ".xz":
        return lzma.open(raw)
    if path.suffix == ".bz2":
        return bz2.open(raw)
    if path.suffix == ".zst":
        return open_zst(raw, path)
    return raw


def open_zst(raw: IO[bytes], path: Path) -> Any:
    try:
        import zstandard
    except ImportError:
        raise InputError(f"{path}: .zst files need zstandard (pip install 'boosted-attention[data]')") from None

    class Reader:
        """Reads frame after frame, in little pieces; zstandard's own reader takes a file cut short for a whole one."""

        frame, rest = None, b""

        def read(self, n: int) -> bytes:
            while True:
                data, self.rest = (self.rest or raw.read(ZST_PIECE))[:ZST_PIECE], self.rest[ZST_PIECE:]
                if not data:
                    if self.frame is not None:
                        raise EOFError("the file ends in the middle")
                    return b""
                self.frame = self.frame or zstandard.ZstdDecompressor().decompressobj()
                try:
                    text = self.frame.decompress(data)
                except zstandard.ZstdError as error:
                    raise EOFError(str(error)) from None
                if self.frame.eof:
                    self.rest, self.frame = self.frame.unused_data + self.rest, None
                if text:
                    return text

    return Reader()


def decode(stream: Bounded, path: Path) -> Iterator[str]:
    """Yield UTF-8 text, piece by piece; a byte that is not UTF-8 is named with its offset."""
    held, offset = b"", 0  # bytes of an unfinished character; where they start
    while True:
        chunk = stream.read(BLOCK_CHARACTERS)
        data = held + chunk
        try:
            text, used = data.decode("utf-8"), len(data)
        except UnicodeDecodeError as error:
            unfinished = chunk and error.reason == "unexpected end of data" and error.end == len(data)
            require(
                bool(unfinished),
                f"{path} is not UTF-8: byte 0x{data[error.start]:02x} at offset {offset + error.start}; "
                "convert it, for example with iconv",
            )
            text, used = data[: error.start].decode("utf-8"), error.start
        held, offset = data[used:], offset + used
        if text:
            yield text
        if not chunk:
            return


def cut(pieces: Iterator[str], raw: IO[bytes]) -> Iterator[TextBlock]:
    """Yield blocks of at least BLOCK_CHARACTERS, each ending in a newline if it has one: one document in all."""
    held = ""
    for piece in pieces:
        held += piece
        if len(held) >= BLOCK_CHARACTERS:
            end = held.rfind("\n") + 1 or len(held)
            yield TextBlock(held[:end], False, raw.tell())
            held = held[end:]
    yield TextBlock(held, True, raw.tell())


def json_documents(pieces: Iterator[str], path: Path, field: str, raw: IO[bytes]) -> Iterator[TextBlock]:
    for number, line in enumerate(lines(pieces, path), start=1):
        if not line.strip():
            continue
        row = parsed(line, f"{path}, line {number},")
        text = row.get(field) if isinstance(row, dict) else None
        if not isinstance(text, str):
            raise InputError(
                f"{path}, line {number}: field={field!r} holds no text; give the name of the field with the text"
            )
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise InputError(f"{path}, line {number}: the text holds a lone surrogate, which is no valid Unicode")
        for start in range(0, max(len(text), 1), BLOCK_CHARACTERS):
            end = start + BLOCK_CHARACTERS
            yield TextBlock(text[start:end], end >= len(text), raw.tell())


def lines(pieces: Iterator[str], path: Path) -> Iterator[str]:
    """Yield the lines of a text, each of bounded length."""
    held: list[str] = []
    length = 0
    for piece in pieces:
        first, *others = piece.split("\n")
        held.append(first)
        length = len(others[-1]) if others else length + len(first)
        require(length <= LONGEST_LINE, f"{path} has a line of more than {LONGEST_LINE} characters; divide it")
        if others:
            yield "".join(held)
            yield from others[:-1]
            held = [others[-1]]
    if last := "".join(held):
        yield last
