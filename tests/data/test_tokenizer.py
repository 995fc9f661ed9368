"""Tokenizers: what comes back is what went in."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing

from boosted_attention.data.corpora import CorpusConfig
from boosted_attention.data.reading import read_blocks
from boosted_attention.data.tokenizer import END_OF_TEXT, Tokenizer, build_tokenizer, byte_characters, first_lines
from tests.text import sample_text

TEXT = sample_text(5000)


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return build_tokenizer("bpe", 400, [TEXT])


def test_kinds(bpe):
    assert bpe.vocab_size == 400
    assert bpe.decode(bpe.encode(TEXT)) == TEXT
    assert len(bpe.encode(TEXT)) < len(TEXT) / 2
    raw = build_tokenizer("bytes", 0, [])
    assert raw.encode("héllo\0") == list("héllo\0".encode())
    assert (raw.vocab_size, raw.end_of_text) == (257, 256)
    paper = build_tokenizer("paper", 150, [TEXT])
    assert paper.decode(paper.encode("ba  ba\n")).replace(" ", "") == "baba"  # spaces and newlines vanish
    assert paper.encode("☃") == []  # and characters it never saw
    assert not paper.invertible


def test_bytes_are_written_as_gpt_2_does():
    table = byte_characters()
    assert set(table) == set(ByteLevel.alphabet())
    assert (table[0], table[ord("A")], table[0x7F], table[0xFF]) == ("Ā", "A", "ġ", "ÿ")


def test_nothing_is_added_to_a_text(bpe):
    core = type(bpe.core).from_str(bpe.core.to_str())
    core.post_processor = TemplateProcessing(single=f"{END_OF_TEXT} $A", special_tokens=[(END_OF_TEXT, 0)])
    assert len(core.encode("ba").ids) == 1 + len(bpe.encode("ba"))
    foreign = Tokenizer(core, "file")
    assert foreign.encode("ba") == foreign.encode_batch(["ba"])[0] == bpe.encode("ba")


@settings(max_examples=300)
@given(st.text(st.characters(codec="utf-8")))
def test_every_text_comes_back(text):
    for tokenizer in TRAINED:
        assert tokenizer.decode(tokenizer.encode(text)) == text


TRAINED = [build_tokenizer("bpe", 400, [TEXT]), build_tokenizer("bytes", 0, [])]


@pytest.mark.parametrize(
    "text",
    ["\0", "a\0b", "🙂👩‍👩‍👧", "line\r\nline\r", "\ufeffbom", "  \t\n ", "", "İ ﬁ", "<|endoftext|>", "\U0010ffff"],
)
def test_awkward_texts_come_back(text):
    for tokenizer in TRAINED:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert tokenizer.end_of_text not in ids  # what looks like a special token is text


def test_lone_surrogates_are_refused(bpe):
    with pytest.raises(ValueError, match=r"lone surrogate, U\+D800, at character 2"):
        bpe.encode("ab\ud800c")


def test_every_file_of_the_standard_library_comes_back(full):
    corpus = CorpusConfig().open()
    files = [path for split in corpus.files.values() for path in split]
    assert sum(path.stat().st_size for path in files) > 5e6
    sample = "".join(block.text for path in files[:40] for block in read_blocks(path))
    tokenizer = build_tokenizer("bpe", 1000, [sample])
    for path in files if full else files[::5]:
        text = "".join(block.text for block in read_blocks(path))
        (ids,) = tokenizer.encode_batch([text])
        assert tokenizer.decode(ids) == text == path.read_bytes().decode()


def test_byte_lengths_count_the_text(bpe):
    text = "sälü 🙂 " + TEXT[:500]
    ids = bpe.encode(text)
    assert bpe.byte_lengths()[ids].sum() == len(text.encode())
    assert bpe.byte_lengths()[bpe.end_of_text] == 0


def test_files_keep_the_tokenizer(bpe, tmp_path):
    bpe.save(tmp_path / "tokenizer.json")
    again = build_tokenizer(str(tmp_path / "tokenizer.json"), 0, [])
    assert again.encode(TEXT) == bpe.encode(TEXT)
    assert again.sha256 == bpe.sha256
    assert json.loads((tmp_path / "tokenizer.json").read_text())["added_tokens"][0]["content"] == END_OF_TEXT


def test_a_file_that_truncates_or_pads_does_neither_here(bpe, tmp_path):
    from tokenizers import Tokenizer as Core

    core = Core.from_str(bpe.core.to_str())
    core.enable_truncation(5)
    core.enable_padding(length=9000)
    core.save(str(tmp_path / "tokenizer.json"))
    again = build_tokenizer(str(tmp_path / "tokenizer.json"), 0, [])
    assert again.encode(TEXT) == bpe.encode(TEXT)
    assert again.encode_batch([TEXT]) == [bpe.encode(TEXT)]


def test_the_papers_tokenizer_learns_from_its_first_lines():
    assert list(first_lines(["a\n\n b", "c\n", "\nd\ne"], 3)) == ["a", " bc", "d"]
    assert list(first_lines(["a\nb"], 5)) == ["a", "b"]


@pytest.mark.parametrize(
    ("kind", "size", "text", "message"),
    [
        ("bpe", 5000, "only a few words here", "the text supports only 2[67]. tokens; ask for at most"),
        ("bpe", 100, TEXT, "needs at least 257"),
        ("paper", 5, "abcdefgh", "different characters"),
        ("bqe", 400, TEXT, "did you mean 'bpe'"),
        ("nowhere/tokenizer.json", 400, TEXT, "is neither a file nor one of"),
    ],
)
def test_what_cannot_be_is_named(kind, size, text, message):
    with pytest.raises(ValueError, match=message):
        build_tokenizer(kind, size, [text])


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"not": "one"}')
    with pytest.raises(ValueError, match=r"is not a tokenizer\.json"):
        build_tokenizer(str(tmp_path / "tokenizer.json"), 0, [])
