"""Ways to wrong numbers, lost data, tracebacks and hangs that were found once: each is refused, and stays so."""

import bz2
import gzip
import json
import lzma
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from boosted_attention.cli.main import main
from boosted_attention.cli.terminal import escaped
from boosted_attention.data.reading import LONGEST_LINE, read_blocks
from boosted_attention.data.tokens import DataConfig, prepare
from boosted_attention.storage.sealing import FILES, SEAL, FileEntry, listing, write_sealed
from boosted_attention.train import checkpoint
from boosted_attention.train.folder import load_run
from boosted_attention.train.loop import TrainingLoop
from boosted_attention.train.observer import Unwatched
from boosted_attention.validation import InputError
from tests.train.driver import STEPS, small_trainer


@pytest.fixture(scope="module")
def made(tmp_path_factory, text_file):
    """A finished run that no test changes."""
    folder = tmp_path_factory.mktemp("faults") / "run"
    small_trainer(folder, text_file).run()
    return folder


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made, tmp_path / "run")


def said(args, capsys) -> str:
    """The one line with which a command refuses, with exit code 2 and nothing else."""
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    printed = capsys.readouterr()
    assert stop.value.code == 2, printed
    assert printed.out == ""
    assert printed.err.startswith("boosted-attention: ")
    assert printed.err.count("\n") == 1, printed.err
    return printed.err


def reseal(path: Path, **changes) -> None:
    """Change a sealed document and the files it lists, and seal it again as somebody who knows how would."""
    document = {key: value for key, value in json.loads(path.read_text()).items() if key != SEAL}
    names = document.pop(FILES, {})
    write_sealed(path, {**document, **changes}, listing(path.parent, names))


# Wrong numbers


def test_a_folder_whose_configuration_is_gone_takes_no_new_run(run, text_file):
    (run / "config.json").unlink()
    before = sorted(run.rglob("*"))
    for resume in (True, False):
        with pytest.raises(InputError, match=r"has checkpoints of a run but no config\.json"):
            small_trainer(run, text_file).run(resume=resume)
    assert set(before) <= set(run.rglob("*"))


def test_a_damaged_last_checkpoint_is_not_replaced_by_another(run, capsys):
    last = run / "checkpoints" / f"step-{STEPS:08d}"
    (last / "model.safetensors").write_bytes(b"torn")
    message = said(["evaluate", run, "--checkpoint", "last"], capsys)
    assert f"{last}/model.safetensors is damaged" in message
    assert "step-00000020 is whole" in message
    main_code(["evaluate", run], 0)


def main_code(args, code) -> None:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    assert stop.value.code == code


@pytest.mark.parametrize(
    ("option", "value"), [("norm", "post"), ("n_heads", 1), ("attention", "twicing"), ("max_len", 8)]
)
@pytest.mark.parametrize("command", ["evaluate", "generate", "analyze", "export"])
def test_a_configuration_that_was_changed_by_hand_is_refused(option, value, command, run, tmp_path, capsys):
    path = run / "config.json"
    changed = json.loads(path.read_text())
    changed["model"][option] = value
    path.write_text(json.dumps(changed))
    out = [tmp_path / "out"] if command == "export" else []
    assert "config.json is not what was written" in said([command, run, *out], capsys)
    reseal(path)  # now the checkpoint's own settings tell
    assert "was trained with other settings than config.json" in said([command, run, *out], capsys)
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_of_the_same_size_is_refused(run, capsys):
    path = run / "tokenizer.json"
    text = json.loads(path.read_text())
    vocabulary = text["model"]["vocab"]
    first, second = list(vocabulary)[5:7]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    path.write_text(json.dumps(text))
    assert "tokenizer.json is damaged" in said(["evaluate", run], capsys)


def test_an_index_that_nobody_sealed_is_not_obeyed(run, tmp_path):
    best = max((run / "checkpoints").glob("best-*"))
    weights = load_file(best / "model.safetensors")
    other = tmp_path / "other.safetensors"
    save_file({name: torch.zeros_like(t) for name, t in weights.items()}, other)
    index = {"weight_map": dict.fromkeys(weights, "../../../other.safetensors")}
    (best / "model.safetensors.index.json").write_text(json.dumps(index))
    loaded = load_run(run).model.state_dict()
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)


def test_a_manifest_with_another_number_format_is_built_anew(text_file, tmp_path):
    config = DataConfig(corpus=f"text:{text_file}")
    before = prepare(config, 300, cache=tmp_path)
    path = before.folder / "manifest.json"
    text = path.read_text()
    path.write_text(text.replace('"<u2"', '"<f2"'))
    after = prepare(config, 300, cache=tmp_path)
    assert path.read_text() == text
    assert after.splits["train"].dtype == np.uint16
    assert np.array_equal(after.splits["train"], before.splits["train"])


@pytest.mark.parametrize("harm", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_wherever_they_enter(harm, run, capsys):
    for folder in (run / "checkpoints").iterdir():
        path = folder / "model.safetensors"
        weights = load_file(path)
        name = max(weights, key=lambda key: weights[key].numel())
        weights[name].view(-1)[3] = harm
        save_file(weights, path)
        reseal(folder / "state.json")
    for command in ("evaluate", "generate", "analyze"):
        assert f"values of {name} are infinite or NaN" in said([command, run], capsys)


# Lost data


def test_an_empty_folder_behind_dots_stays(run, tmp_path, capsys):
    keep = tmp_path / "keep"
    keep.mkdir()
    for command in (["export", run / "absent", tmp_path / "new" / ".." / "keep"], ["analyze", run, "--corpus", "nope"]):
        more = ["--out", f"{tmp_path}/new/../keep"] if command[0] == "analyze" else []
        said([*command, *more], capsys)
        assert keep.is_dir()
        assert not (tmp_path / "new").exists()


class AtStep(Unwatched):
    """Does something when a step is done."""

    def __init__(self, step, act):
        self.at, self.act = step, act

    def step(self, row):
        if row.step == self.at:
            self.act()


@pytest.mark.parametrize("harm", ["removed", "replaced"])
def test_a_run_whose_folder_is_gone_ends_without_leaving_parts(harm, text_file, tmp_path):
    folder = tmp_path / "run"

    def act():
        if harm == "removed":
            shutil.rmtree(folder)
        else:
            reseal(folder / "config.json", fingerprint="another")

    trainer = small_trainer(folder, text_file, observer=AtStep(6, act), eval_every=0)
    with pytest.raises(InputError, match=r"gets no checkpoint|cannot be written to"):
        trainer.run()
    assert not (folder / "checkpoints" / "step-00000008").exists()
    assert not (folder / "result.json").exists()


def test_a_copied_checkpoint_is_neither_used_nor_removed(run, text_file):
    steps = run / "checkpoints"
    for copy in ("step-00000002", "step-00000099", "best-00000099", "my-copy"):
        shutil.copytree(steps / f"step-{STEPS:08d}", steps / copy)
    found, problems = checkpoint.latest(steps, "step")
    assert found.step == STEPS
    assert problems == []
    assert load_run(run, "last").step == STEPS
    assert load_run(run).step <= STEPS
    small_trainer(run, text_file).run(resume=True)
    assert {"step-00000002", "step-00000099", "best-00000099", "my-copy"} <= {p.name for p in steps.iterdir()}


def test_a_leftover_of_an_older_version_does_not_matter(run, text_file):
    (run / "probe.json").write_text("{")
    assert small_trainer(run, text_file).run(resume=True).probe.past == 0.0


# Memory


def bomb(path: Path, size: int) -> None:
    """Write many zero bytes, compressed as the file's ending says."""
    opened = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}.get(path.suffix)
    if opened is None:
        import zstandard

        path.write_bytes(zstandard.ZstdCompressor(level=3).compress(bytes(size)))
        return
    with opened(path, "wb") as file:
        for _ in range(size // 2**20):
            file.write(bytes(2**20))


@pytest.mark.parametrize("ending", ["gz", "xz", "bz2", "zst"])
def test_an_archive_that_grows_beyond_all_text_is_refused(ending, tmp_path):
    if ending == "zst":
        pytest.importorskip("zstandard")
    path = tmp_path / f"small.txt.{ending}"
    bomb(path, 2**27)
    with pytest.raises(InputError, match="grows to more than 1000 times its size"):
        for _ in read_blocks(path):
            pass


def test_an_endless_line_of_json_is_refused(tmp_path, monkeypatch):
    assert LONGEST_LINE <= 2**27
    monkeypatch.setattr("boosted_attention.data.reading.LONGEST_LINE", 2**20)
    path = tmp_path / "long.jsonl"
    path.write_text('{"text": "' + "a" * 2**21 + '"}\n')
    with pytest.raises(InputError, match="has a line of more than 1048576 characters"):
        list(read_blocks(path))


# The terminal


def test_names_and_text_cannot_speak_to_the_terminal(capsys, tmp_path):
    assert escaped("a\tb\nc ü \x1b[2J\x07\x9b\u202e") == "a\tb\nc ü \\x1b[2J\\x07\\x9b\\u202e"
    message = said(["evaluate", tmp_path / "\x1b]0;title\x07"], capsys)
    assert "\x1b" not in message
    assert "\\x1b]0;title\\x07" in message


def test_a_full_device_and_a_terminal_of_ascii_are_no_tracebacks():
    here = [sys.executable, "-m", "boosted_attention"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*here, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "the output cannot be written: No space left on device" in done.stderr
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = subprocess.run([*here, "evaluate", "ü"], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "boosted-attention: \\xfc is not a run folder\n")


# Absurd sizes and values: refused at once


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--d-model", 10**12], "--d-model 1000000000000 is more than 131,072"),
        (["--n-layers", 10**8], "--n-layers 100000000 is more than 1,024"),
        (["--attention-options", f"n_rounds={10**5}"], "n_rounds=100000 is more than 256"),
        (["--vocab-size", 4 * 10**9], "--vocab-size 4000000000 is more than 4,194,304"),
        (["--steps", 10**15], "--steps 1000000000000000 is more than 1,000,000,000"),
        (["--d-model", 2**17, "--n-layers", 2**10], "GiB of memory and this machine has"),
        (["--attention-options", "n_rounds=" + "[" * 10_000], "n_rounds="),
    ],
)
def test_absurd_sizes_are_refused_at_once(args, message, tmp_path, capsys):
    assert message in said(["train", *args, "--out", tmp_path / "run"], capsys)
    assert not (tmp_path / "run").exists()


def test_absurd_numbers_of_seeds_and_temperatures_are_refused(made, tmp_path, capsys):
    assert "--seeds 100000000000 is more than 10,000" in said(
        ["reproduce", "--seeds", 10**11, "--out", tmp_path / "out"], capsys
    )
    assert "--temperature 1e-320 must be 0" in said(["generate", made, "--temperature", "1e-320"], capsys)


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"model": 3}', b"null", b"\xff", b'{"model": {"d_model": 1e999}}', b""]
)
@pytest.mark.parametrize("command", ["evaluate", "generate", "analyze", "plan"])
def test_any_content_of_a_configuration_is_one_line(content, command, run, capsys):
    (run / "config.json").write_bytes(content)
    assert "config.json" in said([command, run], capsys)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config.json", "config.json is a folder"),
        ("tokenizer.json", "tokenizer.json is missing"),
        ("checkpoints", "has no checkpoint yet"),
    ],
)
def test_folders_and_files_in_each_others_place_are_one_line(name, message, run, capsys):
    path = run / name
    if path.is_dir():
        shutil.rmtree(path)
        path.touch()
    else:
        path.unlink()
        path.mkdir()
    assert message in said(["evaluate", run], capsys)


# Reading beside writing


def test_a_whole_cache_is_read_where_nothing_can_be_written(text_file, tmp_path, monkeypatch):
    config = DataConfig(corpus=f"text:{text_file}")
    before = prepare(config, 300, cache=tmp_path)

    def read_only(*args, **kwargs):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", read_only)
    monkeypatch.setattr("boosted_attention.data.tokens.FileLock", read_only)
    assert prepare(config, 300, cache=tmp_path).fingerprint == before.fingerprint
    with pytest.raises(InputError, match="Read-only file system"):
        prepare(config, 299, cache=tmp_path)


def test_a_reader_beside_a_writer_never_fails(text_file, tmp_path):
    folder, loaded, failures = tmp_path / "run", [], []

    def read():
        while writer.is_alive():
            try:
                if checkpoint.steps_of(folder / "checkpoints", "step"):
                    loaded.append(load_run(folder, "last").step)
            except Exception as error:
                failures.append(error)

    folder.mkdir()
    trainer = small_trainer(folder, text_file, checkpoint_every=1, steps=40)
    loop = TrainingLoop(trainer, False, lambda: None)
    writer = threading.Thread(target=loop.finish)
    writer.start()
    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for thread in (writer, *readers):
        thread.join()
    assert failures == []
    assert len(loaded) > 8
    assert len(set(loaded)) > 3


def test_sizes_that_were_sealed_are_checked_before_anything_is_read(run, monkeypatch):
    best = max((run / "checkpoints").glob("best-*"))
    path = best / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"\0")

    def hashed(path):
        assert path.name != "model.safetensors", "hashed although its size is wrong"
        return FileEntry(bytes=path.stat().st_size, sha256="")

    monkeypatch.setattr("boosted_attention.storage.sealing.entry_of", hashed)
    assert "model.safetensors is damaged: it has" in (checkpoint.opened(best)[1] or "")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "../other.safetensors", "/etc/passwd", "absent.safetensors"])
def test_an_index_names_safetensors_of_its_own_folder_or_is_refused(name, tmp_path, capsys):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    save_file({"w": torch.zeros(1)}, folder / "model.safetensors")
    torch.save({"w": torch.zeros(1)}, folder / "pytorch_model.bin")
    save_file({"w": torch.zeros(1)}, tmp_path / "other.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": name}}))
    message = said(["boost", folder, tmp_path / "out"], capsys)
    assert ("is never loaded" if name != "absent.safetensors" else "it has no absent.safetensors") in message
    assert not (tmp_path / "out").exists()
