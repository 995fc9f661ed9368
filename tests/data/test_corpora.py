"""Corpora: every kind of file, the same text; splits that do not overlap; and what is wrong is named."""

import bz2
import gzip
import json
import lzma
from pathlib import Path

import pytest
import zstandard

from boosted_attention.data.corpora import SPLITS, CorpusConfig, corpora_folder
from boosted_attention.data.reading import BLOCK_CHARACTERS, read_blocks
from tests.text import sample_text

TEXT = sample_text(12_000)  # more than one block
WRITERS = {
    "a.txt": lambda data: data,
    "a.md": lambda data: data,
    "a.txt.gz": gzip.compress,
    "a.txt.xz": lzma.compress,
    "a.txt.bz2": bz2.compress,
    "a.txt.zst": zstandard.compress,
}


def open_corpus(path, **options):
    return CorpusConfig(corpus=f"text:{path}", **options).open()


def texts(corpus) -> dict[str, str]:
    return {split: "".join(block.text for block in corpus.blocks(split)) for split in SPLITS}


@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_of_file_gives_the_same_text(name, tmp_path):
    (tmp_path / name).write_bytes(WRITERS[name](TEXT.encode()))
    blocks = list(read_blocks(tmp_path / name))
    assert "".join(block.text for block in blocks) == TEXT
    assert [block.ends_document for block in blocks] == [False] * (len(blocks) - 1) + [True]
    assert all(block.text.endswith("\n") for block in blocks)
    assert blocks[-1].consumed == (tmp_path / name).stat().st_size
    assert "".join(texts(open_corpus(tmp_path)).values()) == TEXT


def test_characters_across_reads_and_lines_without_end(tmp_path):
    text = "ä🙂" * BLOCK_CHARACTERS + "\n" + "x" * (3 * BLOCK_CHARACTERS)
    (tmp_path / "a.txt").write_text(text)
    assert "".join(block.text for block in read_blocks(tmp_path / "a.txt")) == text


def test_jsonl_has_a_document_per_line(tmp_path):
    documents = ["one\ntwo", "", "drei 🙂", "y" * (2 * BLOCK_CHARACTERS + 5)]
    rows = "\n".join(json.dumps({"body": text}) for text in documents) + "\n\n"
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    blocks = list(read_blocks(tmp_path / "a.jsonl.gz", "body"))
    assert sum(block.ends_document for block in blocks) == len(documents)
    assert "".join(block.text for block in blocks) == "".join(documents)
    with pytest.raises(ValueError, match=r"a\.jsonl\.gz, line 1: field='text' holds no text"):
        list(read_blocks(tmp_path / "a.jsonl.gz"))


def test_a_line_may_be_as_long_as_the_limit_and_no_longer(tmp_path, monkeypatch):
    monkeypatch.setattr("boosted_attention.data.reading.LONGEST_LINE", 100)
    path = tmp_path / "text.jsonl"
    path.write_text(json.dumps({"text": "a" * 88}))
    assert path.stat().st_size == 100
    assert [block.text.strip() for block in read_blocks(path)] == ["a" * 88]
    path.write_text(json.dumps({"text": "a" * 89}))
    with pytest.raises(ValueError, match="a line of more than 100 characters"):
        list(read_blocks(path))


def test_a_single_file_is_cut_at_lines_into_shares(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    found = texts(open_corpus(tmp_path / "a.txt", held_out=0.2))
    assert found["train"] + found["validation"] + found["test"] == TEXT
    assert all(part.endswith("\n") for part in found.values())
    for split in ("validation", "test"):
        assert len(found[split]) == pytest.approx(0.1 * len(TEXT), rel=0.05)


def test_many_files_are_held_out_whole(tmp_path):
    for i in range(20):
        (tmp_path / f"{i}.txt").write_text(f"file {i}\n")
    corpus = open_corpus(tmp_path)
    assert {split: len(files) for split, files in corpus.files.items()} == {"train": 18, "validation": 1, "test": 1}
    assert sorted("".join(texts(corpus).values()).split("\n")) == sorted([*(f"file {i}" for i in range(20)), ""])
    assert open_corpus(tmp_path).files == corpus.files
    more = open_corpus(tmp_path, held_out=0.4).files
    assert {split: len(files) for split, files in more.items()} == {"train": 12, "validation": 4, "test": 4}
    assert len(open_corpus(f"{tmp_path}/1*.txt").files["train"]) == 9  # a glob: 1, 10 to 19


def test_files_named_after_splits_are_the_splits(tmp_path):
    for name in ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"):
        (tmp_path / name).write_text(name)
    expected = {"train": "wiki.train.tokens", "validation": "wiki.valid.tokens", "test": "wiki.test.tokens"}
    assert texts(open_corpus(tmp_path)) == expected


def test_a_readme_beside_the_splits_is_no_text_of_theirs(tmp_path):
    for name in ("train.txt", "valid.txt", "test.txt", "README.md"):
        (tmp_path / name).write_text(name)
    assert texts(open_corpus(tmp_path)) == {"train": "train.txt", "validation": "valid.txt", "test": "test.txt"}
    (tmp_path / "valid.txt").unlink()
    with pytest.raises(ValueError, match="no validation file"):
        open_corpus(tmp_path)


def test_a_held_out_file_is_known_by_any_path(tmp_path, monkeypatch):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name * 50)
    monkeypatch.chdir(tmp_path)
    corpus = open_corpus(".", validation=str(tmp_path / "b.txt"), test=str(tmp_path / "b.txt"))
    assert texts(corpus)["train"] == "a.txt" * 50


def test_long_lines_take_time_in_proportion(tmp_path):
    import time

    seconds = []
    for size in (2**21, 2**23):
        (tmp_path / "a.jsonl").write_text(json.dumps({"text": "x" * size}) + "\n")
        started = time.perf_counter()
        assert sum(len(block.text) for block in read_blocks(tmp_path / "a.jsonl")) == size
        seconds.append(time.perf_counter() - started)
    assert seconds[1] < 12 * seconds[0] + 0.5  # four times the size; quadratic would be sixteen times


def test_named_files_for_validation_and_test(tmp_path):
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).write_text(name)
    corpus = open_corpus(tmp_path, validation=str(tmp_path / "b.txt"), test=str(tmp_path / "c.txt"))
    assert texts(corpus) == {"train": "a.txt", "validation": "b.txt", "test": "c.txt"}
    (tmp_path / "a.txt").write_text(TEXT)
    half = texts(open_corpus(tmp_path / "a.txt", validation=str(tmp_path / "b.txt")))
    assert half["validation"] == "b.txt"
    assert half["train"] + half["test"] == TEXT


def test_names_are_folders_under_the_data_root(tmp_path, monkeypatch):
    for split in ("train", "valid", "test"):
        (tmp_path / "wikitext-2").mkdir(exist_ok=True)
        (tmp_path / "wikitext-2" / f"{split}.txt").write_text(split)
    assert texts(CorpusConfig(corpus="wikitext-2", data_root=str(tmp_path)).open())["validation"] == "valid"
    monkeypatch.setenv("BOOSTED_ATTENTION_DATA", str(tmp_path))
    assert texts(CorpusConfig(corpus="wikitext-2").open())["train"] == "train"
    (tmp_path / "wikitext-2" / "train.txt").unlink()
    with pytest.raises(ValueError, match=r"corpus='wikitext-2' has files named after splits but no train file; add it"):
        CorpusConfig(corpus="wikitext-2").open()


def test_the_standard_library_is_always_there():
    corpus = CorpusConfig().open()
    assert CorpusConfig().open().files == corpus.files
    names = [path.name for split in corpus.files.values() for path in split]
    assert "argparse.py" in names
    assert not any(name.startswith("test_") for name in names)
    sizes = {split: sum(path.stat().st_size for path in files) for split, files in corpus.files.items()}
    assert sizes["train"] > 10 * sizes["validation"] > 0
    assert sizes["test"] > 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda folder: CorpusConfig(corpus=f"text:{folder}/none"),
            "none does not exist; give a file, a folder or a glob",
        ),
        (lambda folder: CorpusConfig(corpus=f"text:{folder}"), "holds no text file"),
        (lambda folder: CorpusConfig(corpus="text:"), "needs a path"),
        (lambda folder: CorpusConfig(corpus="stdlb"), "did you mean 'stdlib'"),
        (lambda folder: CorpusConfig(held_out=1.5), "held_out=1.5"),
        (lambda folder: CorpusConfig(held_out=0.2), "held_out= is for corpus=text:PATH"),
        (lambda folder: CorpusConfig(corpus="text:" + "x" * 5000), "is too long for a path"),
        (lambda folder: CorpusConfig(validation="x"), "validation= and test= name files for"),
    ],
)
def test_what_cannot_be_is_named(make, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        make(tmp_path).open()


def test_a_corpus_of_the_hub_says_how_to_point_at_local_files():
    corpus = CorpusConfig(corpus="wikitext-103").open()
    with pytest.raises(ValueError, match=r"data_root=FOLDER \(FOLDER/wikitext-103/train\.txt.*BOOSTED_ATTENTION_DATA"):
        next(corpus.blocks("train"))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", b"good\n" * 20_000 + b"b\xffad", "byte 0xff at offset 100001"),
        ("a.txt", b"cut \xf0\x9f\x99", "byte 0xf0 at offset 4"),
        ("a.txt.gz", b"no gzip", r"a\.txt\.gz cannot be read"),
        ("a.txt.xz", b"no xz", r"a\.txt\.xz cannot be read"),
        ("a.txt.bz2", b"no bz2", r"a\.txt\.bz2 cannot be read"),
        ("a.txt.zst", b"no zst", r"a\.txt\.zst cannot be read"),
        ("a.txt.gz", gzip.compress(TEXT.encode())[:-20], r"a\.txt\.gz cannot be read"),
        ("a.txt.gz", gzip.compress(TEXT.encode())[:30] + b"\0" * 99, r"a\.txt\.gz cannot be read"),
        (
            "a.txt.zst",
            zstandard.compress(TEXT.encode())[:-20],
            r"a\.txt\.zst cannot be read: the file ends in the middle",
        ),
        ("a.jsonl", b"{broken\n", r"a\.jsonl, line 1, is not JSON"),
        ("a.jsonl", b'{"text": "bad \\ud800"}\n', r"a\.jsonl, line 1: the text holds a lone surrogate"),
    ],
)
def test_files_that_are_not_what_they_say_are_named(name, data, message, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message):
        list(read_blocks(tmp_path / name))


def test_the_folder_of_corpora_is_given_or_the_environments(tmp_path, monkeypatch):
    assert corpora_folder(None) is None
    monkeypatch.setenv("BOOSTED_ATTENTION_DATA", str(tmp_path))
    assert corpora_folder(None) == tmp_path
    assert corpora_folder("here") == Path("here")
    monkeypatch.setenv("BOOSTED_ATTENTION_DATA", "")
    assert corpora_folder(None) is None
