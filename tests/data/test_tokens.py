"""Token files: exact, kept, made anew when they must be, and built in bounded memory."""

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from boosted_attention.data import tokens
from boosted_attention.data.batches import Batches, batch_hash
from boosted_attention.data.tokens import DataConfig, prepare
from tests.text import sample_text


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BOOSTED_ATTENTION_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text(sample_text(6000))
    return path


def data_of(path, **options):
    return prepare(DataConfig(corpus=f"text:{path}", **options), 400)


def test_the_files_hold_the_text(source):
    data = data_of(source)
    assert data.manifest.tokenizer.vocab_size == 400
    decoded = {}
    for split, array in data.splits.items():
        assert array.dtype == np.uint16
        about = data.manifest.splits[split]
        assert about.tokens == len(array)
        ids = array.tolist()
        assert ids[-1] == data.tokenizer.end_of_text
        decoded[split] = data.tokenizer.decode(ids[:-1])
        assert about.bytes == len(decoded[split].encode())
    assert "".join(decoded[split] for split in ("train", "validation", "test")) == source.read_text()


def test_groups_encoded_at_the_same_time_are_written_in_order(tmp_path, monkeypatch):
    """Documents of very different lengths, so that later groups are ready before earlier ones."""
    texts = [sample_text(n, seed=n) for n in (3000, 1, 2000, 5, 700, 2, 1500, 30, 900, 1)]
    rows = (json.dumps({"text": text}) for text in texts)
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.jsonl").write_text("\n".join(rows if split == "train" else ['{"text": "held out"}']))
    monkeypatch.setattr(tokens, "GROUP_CHARACTERS", 10)
    data = data_of(tmp_path, tokenizer="bytes")
    ends = np.flatnonzero(data.splits["train"] == data.tokenizer.end_of_text)
    documents = np.split(data.splits["train"], ends + 1)[:-1]
    assert [data.tokenizer.decode(document[:-1].tolist()) for document in documents] == texts


def test_they_are_made_once_and_again_when_the_source_changes(source, monkeypatch):
    first = data_of(source)
    made = os.stat(first.folder).st_mtime_ns
    assert data_of(source).folder == first.folder
    assert os.stat(first.folder).st_mtime_ns == made
    source.write_text(sample_text(6000, seed=1))
    changed = data_of(source)
    assert changed.folder != first.folder
    assert changed.fingerprint != first.fingerprint


def test_the_fingerprint_is_of_the_content_alone(source, tmp_path):
    copy = tmp_path / "elsewhere" / "other.txt"
    copy.parent.mkdir()
    copy.write_text(source.read_text())
    assert data_of(copy).fingerprint == data_of(source).fingerprint
    assert data_of(source, train_tokens=500).fingerprint != data_of(source).fingerprint


@pytest.mark.parametrize("name", ["train.bin", "validation.bin", "manifest.json", "tokenizer.json"])
def test_damaged_files_are_made_again(name, source):
    data = data_of(source)
    expected, path = data.fingerprint, data.folder / name
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    again = data_of(source)
    assert again.fingerprint == expected
    assert (again.folder / name).read_bytes() != bytes(raw)
    (data.folder / name).write_bytes(raw[: len(raw) // 2])
    assert data_of(source).fingerprint == expected


def build(path, queue):
    queue.put(data_of(path).fingerprint)


def test_two_builders_at_once(source, tmp_path):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    builders = [context.Process(target=build, args=(source, queue)) for _ in range(3)]
    for builder in builders:
        builder.start()
    found = {queue.get(timeout=60) for _ in builders}
    for builder in builders:
        builder.join()
    assert len(found) == 1
    folders = [p for p in (tmp_path / "cache" / "data").iterdir() if p.is_dir()]
    assert len(folders) == 1
    assert json.loads((folders[0] / "manifest.json").read_text())["format"] == 1


# VmHWM is of this program alone; ru_maxrss begins with the memory of the process that started it. A tokenizer in
# training buffers 256 blocks, and what threads encode at once is a few groups: with small ones, what is left of the
# peak is what the corpus adds.
PEAK = """
import re, sys
from boosted_attention.data import reading, tokens
reading.BLOCK_CHARACTERS, tokens.GROUP_CHARACTERS = 2**12, 2**14
tokens.prepare(tokens.DataConfig(corpus=f"text:{sys.argv[1]}"), 400)
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a program is read from /proc")
def test_the_peak_does_not_grow_with_the_corpus(tmp_path):
    peaks = []
    for times in (1, 6):
        path = tmp_path / f"{times}.txt"
        path.write_text(sample_text(400_000) * times)  # 2 and 12 MB
        # One heap: with one per thread, what lies idle in them depends on how the threads take turns.
        environment = {**os.environ, "RAYON_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
        command = [sys.executable, "-c", PEAK, str(path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout) / 1024)
    assert peaks[1] < peaks[0] + 4, peaks  # MB, for 10 MB more text, or 5.5 MB of its tokens


def test_a_cache_that_cannot_be_is_named(source, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BOOSTED_ATTENTION_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ValueError, match=r"token files cannot be kept in .*BOOSTED_ATTENTION_CACHE names another"):
        data_of(source)


def test_what_a_dead_builder_left_is_removed(source):
    folder = data_of(source).folder
    left = folder.with_name(f".{folder.name}.123")
    left.mkdir()
    shutil.rmtree(folder)
    data_of(source)
    assert not left.exists()


def test_subsets_are_the_first_tokens(source):
    whole, part = data_of(source), data_of(source, train_tokens=1000, held_out_tokens=50)
    assert np.array_equal(part.splits["train"], whole.splits["train"][:1000])
    assert np.array_equal(part.splits["test"], whole.splits["test"][:50])
    with pytest.raises(ValueError, match=r"train_tokens=9999999: the training split of text:.* has \d+ tokens"):
        data_of(source, train_tokens=9_999_999)


def test_an_empty_corpus_is_named(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(ValueError, match="is empty: its training split has no text"):
        data_of(tmp_path / "empty.txt")


def test_large_vocabularies_take_four_bytes(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"w{i}": i for i in range(70_000)}
    core = Tokenizer(models.WordLevel(words))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "a.txt").write_text("w69999 w1\n" * 40)
    data = data_of(tmp_path / "a.txt", tokenizer=str(tmp_path / "tokenizer.json"))
    assert data.splits["train"].dtype == np.uint32
    assert data.splits["train"][0] == 69_999


TOKENS = np.arange(1000, dtype=np.uint16)


@pytest.mark.parametrize("layout", ["rows", "windows"])
def test_batches_are_a_function_of_seed_and_step(layout):
    def batches(seed):
        return Batches(TOKENS, layout=layout, batch_size=4, length=10, seed=seed)

    forward = [batches(0)(step)[0] for step in range(60)]
    backward = [batches(0)(step)[0] for step in reversed(range(60))][::-1]
    assert [batch_hash(a) for a in forward] == [batch_hash(b) for b in backward]
    assert batch_hash(batches(1)(0)[0]) != batch_hash(forward[0])
    per_epoch = batches(0).steps_per_epoch
    assert batch_hash(forward[0]) != batch_hash(forward[per_epoch])


def test_rows_are_the_papers():
    batches = Batches(TOKENS, layout="rows", batch_size=4, length=10, seed=0)
    assert batches.steps_per_epoch == 25
    seen = []
    for step in range(25):
        ids, targets, _ = batches(step)
        assert ids.shape == targets.shape == (4, 9)
        assert (targets == ids + 1).all()
        assert (ids[:, 0] % 10 == 0).all()
        seen += ids[:, 0].tolist()
    assert sorted(seen) == list(range(0, 1000, 10))


def test_windows_predict_at_every_position():
    batches = Batches(TOKENS, layout="windows", batch_size=3, length=10, seed=5)
    for epoch in range(4):
        starts = []
        for step in range(batches.steps_per_epoch):
            ids, targets, _ = batches(epoch * batches.steps_per_epoch + step)
            assert ids.shape == targets.shape == (3, 10)
            assert (targets == ids + 1).all()
            starts += ids[:, 0].tolist()
        assert len(set(starts)) == len(starts) == 99
        assert len({start % 10 for start in starts}) == 1


def test_a_text_smaller_than_a_batch_is_named():
    with pytest.raises(ValueError, match=r"has 1000 tokens; one batch of 32 rows of 128 needs 4224"):
        Batches(TOKENS, layout="windows", batch_size=32, length=128, seed=0)
    with pytest.raises(ValueError, match="did you mean 'rows'"):
        Batches(TOKENS, layout="row", batch_size=1, length=8, seed=0)


def test_a_folder_may_be_given_for_token_files(source, tmp_path):
    config = DataConfig(corpus=f"text:{source}")
    usual, own = prepare(config, 400), prepare(config, 400, cache=tmp_path / "own")
    assert own.folder.parent == tmp_path / "own" / "data"
    assert usual.folder.parent != own.folder.parent
    assert own.fingerprint == usual.fingerprint
    assert own.manifest == usual.manifest


def test_the_manifest_is_written_under_the_names_of_its_fields(source):
    data = data_of(source)
    text = (data.folder / "manifest.json").read_text()
    stored = json.loads(text)
    assert text == json.dumps(stored, indent=1, sort_keys=True) + "\n"
    assert sorted(stored) == ["corpus", "format", "sha256", "source", "splits", "tokenizer"]
    assert sorted(stored["tokenizer"]) == ["kind", "sha256", "vocab_size"]
    assert {tuple(sorted(split)) for split in stored["splits"].values()} == {
        ("bytes", "characters", "documents", "dtype", "sha256", "tokens")
    }
