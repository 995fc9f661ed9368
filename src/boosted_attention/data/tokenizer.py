"""Tokenizers: byte-level BPE, the paper's, bytes, or any tokenizer.json of the ``tokenizers`` library."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from boosted_attention.storage.documents import read_bytes
from boosted_attention.validation import InputError, require, require_choice

END_OF_TEXT = "<|endoftext|>"
ENDS = (END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>")  # what others call it
TOKENIZERS = ("bpe", "paper", "bytes")
TRAINING_TEXT = 2**26  # characters a tokenizer learns from at most, so that memory is bounded
MOST_TOKENS = 2**22  # of a vocabulary; the largest in use have 2**18
LARGEST_FILE = 2**28  # bytes of a tokenizer.json
PAPER_LINES = 100_000  # non-empty lines the paper's tokenizer learns from


class Tokenizer:
    """Turns text into token ids and back. Special tokens in a text are encoded as the characters they are.

    Args:
        core: a tokenizer of the ``tokenizers`` library.
        kind: a name from TOKENIZERS, or "file".
    """

    def __init__(self, core: tokenizers.Tokenizer, kind: str):
        self.core, self.kind = core, kind
        self.core.encode_special_tokens = True
        self.core.no_truncation()  # a file may bring both, and either would change the text
        self.core.no_padding()
        self.vocab_size = 1 + max(core.get_vocab(with_added_tokens=True).values(), default=0)  # ids may have holes
        require(
            self.vocab_size <= MOST_TOKENS,
            f"the tokenizer has token ids up to {self.vocab_size - 1}; at most {MOST_TOKENS} tokens are possible",
        )
        ends = (core.token_to_id(name) for name in ENDS)
        self.end_of_text: int | None = next((i for i in ends if i is not None), None)

    @property
    def invertible(self) -> bool:
        """Whether decode(encode(text)) == text for every text."""
        return self.kind in ("bpe", "bytes")

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.core.to_str().encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without special tokens."""
        require_unicode(text)
        return self.core.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [e.ids for e in self.core.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        wrong = [i for i in ids if not 0 <= i < self.vocab_size]
        require(not wrong, f"token id {wrong[:1]} is outside the vocabulary of {self.vocab_size} tokens")
        if self.kind == "paper":  # it forgets where words begin; a space between tokens keeps the text readable
            return " ".join(self.core.id_to_token(i) or "" for i in ids)
        return self.core.decode(list(ids), skip_special_tokens=False)

    def vocabulary(self) -> list[str]:
        """Return the text of every token id; part of a character is shown as U+FFFD."""
        known = set(self.core.get_vocab(with_added_tokens=True).values())
        apart = " " if self.kind == "paper" else ""  # its tokens lose the spaces before them
        return [apart + self.decode([i]) if i in known else "" for i in range(self.vocab_size)]

    def byte_lengths(self) -> np.ndarray | None:
        """Return the bytes of text behind each token id, (V,); None where tokens do not stand for bytes."""
        if not self.invertible:
            return None
        lengths = np.zeros(self.vocab_size, dtype=np.int64)
        for token, i in self.core.get_vocab(with_added_tokens=True).items():
            lengths[i] = 0 if i == self.end_of_text else len(token)  # one character is written per byte
        return lengths

    def save(self, path: Path) -> str:
        """Write the tokenizer's file, and return its ``sha256``."""
        text = self.core.to_str().encode()
        path.write_bytes(text)
        return hashlib.sha256(text).hexdigest()

    @classmethod
    def load(cls, path: Path, kind: str = "file") -> Tokenizer:
        require(path.is_file(), f"tokenizer={str(path)!r} is neither a file nor one of {', '.join(TOKENIZERS)}")
        content = read_bytes(path, LARGEST_FILE)
        try:
            core = tokenizers.Tokenizer.from_str(content.decode("utf-8"))
        except Exception as error:  # the library raises plain Exception
            first = str(error).splitlines()[0]
            raise InputError(
                f"tokenizer={str(path)!r} is not a tokenizer.json of the tokenizers library: {first}"
            ) from None
        return cls(core, kind)


def require_unicode(text: str) -> None:
    """Raise InputError for text that cannot be written as UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise InputError(
            f"text holds a lone surrogate, U+{code:04X}, at character {error.start}; it is no valid Unicode text"
        ) from None


def build_tokenizer(kind: str, vocab_size: int, blocks: Iterable[str]) -> Tokenizer:
    """Make a tokenizer.

    Args:
        kind: a name from TOKENIZERS, or the path of a tokenizer.json.
        vocab_size: tokens of a tokenizer that is trained.
        blocks: the text it is trained on.
    """
    if kind == "bytes":
        return Tokenizer(byte_tokenizer(), kind)
    require(vocab_size <= MOST_TOKENS, f"vocab_size={vocab_size} is more than the {MOST_TOKENS} that are possible")
    if kind not in TOKENIZERS:
        if os.sep not in kind and not kind.endswith(".json"):
            require_choice("tokenizer", kind, (*TOKENIZERS, "a path to tokenizer.json"))
        return Tokenizer.load(Path(kind))
    core = tokenizers.Tokenizer(models.BPE())
    if kind == "bpe":
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        core.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        smallest = len(alphabet) + 1
        require(vocab_size >= smallest, f"vocab_size={vocab_size}: byte-level BPE needs at least {smallest}, all bytes")
        special, text = [END_OF_TEXT], first_characters(blocks, TRAINING_TEXT)
    else:
        core.pre_tokenizer = pre_tokenizers.Whitespace()
        alphabet, special, text = [], [], first_lines(blocks, PAPER_LINES)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator(text, trainer=trainer)
    made = Tokenizer(core, kind)
    require(
        made.vocab_size <= vocab_size,
        f"vocab_size={vocab_size}: the text has {made.vocab_size} different characters; ask for more than that",
    )
    require(
        made.vocab_size == vocab_size,
        f"vocab_size={vocab_size}: the text supports only {made.vocab_size} tokens; "
        f"ask for at most {made.vocab_size}, or give more text",
    )
    return made


def byte_tokenizer() -> tokenizers.Tokenizer:
    """Make the tokenizer whose ids 0 to 255 are the bytes, and 256 the end of a document."""
    vocab = {character: byte for byte, character in enumerate(byte_characters())}
    core = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([END_OF_TEXT])
    return core


def byte_characters() -> list[str]:
    """Return the printable character that byte-level tokenizers write for each byte (GPT-2's table)."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def first_characters(blocks: Iterable[str], limit: int) -> Iterator[str]:
    """Yield blocks until ``limit`` characters are reached."""
    for block in blocks:
        yield block
        limit -= len(block)
        if limit <= 0:
            return


def first_lines(blocks: Iterable[str], limit: int) -> Iterator[str]:
    """Yield the first non-empty lines of a text."""
    held = ""
    for block in blocks:
        *whole, held = (held + block).split("\n")
        for line in whole:
            if line.strip():
                yield line
                limit -= 1
                if limit == 0:
                    return
    if held.strip():
        yield held
