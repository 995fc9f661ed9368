"""Files and folders appear whole or not at all; what was there before is never lost."""

import errno
import os
from pathlib import Path

import pytest

from boosted_attention.storage.writing import (
    free_name,
    require_empty_folder,
    require_folder,
    staged_files,
    staged_folder,
    write_atomically,
    write_json,
    writing_to,
)
from boosted_attention.validation import InputError


def content(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder: files with their bytes, folders with None."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


class FullDiskError(OSError):
    def __init__(self):
        super().__init__(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fail_in(staged, error) -> None:
    """Write a part, then fail."""
    with staged as place:
        (place / "a.json").write_text("half")
        raise error


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_atomically(path, "old ü\n")
    for operation in ("fsync", "replace"):
        with monkeypatch.context() as patch:

            def full(*args, **kwargs):
                raise FullDiskError

            patch.setattr(*((os, "fsync") if operation == "fsync" else (Path, "replace")), full)
            with pytest.raises(OSError, match="No space"):
                write_atomically(path, "new\n")
        assert content(tmp_path) == {"a.txt": "old ü\n".encode()}
    write_json(path, {"b": 1, "a": [0.1]})
    assert path.read_text() == '{\n "a": [\n  0.1\n ],\n "b": 1\n}\n'
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, float("nan"))


@pytest.mark.parametrize("error", [FullDiskError, KeyboardInterrupt, ValueError])
def test_a_folder_that_fails_leaves_nothing(error, tmp_path):
    with pytest.raises(error):
        fail_in(staged_folder(tmp_path / "a" / "b" / "c"), error)
    assert content(tmp_path) == {}


def test_a_folder_that_succeeds_is_there_as_a_whole(tmp_path):
    final = tmp_path / "a" / "b"
    with staged_folder(final) as place:
        (place / "one").write_text("1")
        (place / "deep").mkdir()
        (place / "deep" / "two").write_text("2")
        assert not final.exists()
    assert content(tmp_path) == {"a": None, "a/b": None, "a/b/one": b"1", "a/b/deep": None, "a/b/deep/two": b"2"}


def test_an_empty_folder_may_be_there_and_a_full_one_only_if_asked(tmp_path):
    final = tmp_path / "a"
    final.mkdir()
    with staged_folder(final) as place:
        (place / "one").write_text("1")
    with pytest.raises(OSError, match="not empty"), staged_folder(final) as place:
        (place / "two").write_text("2")
    assert content(tmp_path) == {"a": None, "a/one": b"1"}
    with staged_folder(final, replace=True) as place:
        (place / "two").write_text("2")
    assert content(tmp_path) == {"a": None, "a/two": b"2"}


def test_files_come_together_over_older_ones(tmp_path):
    (tmp_path / "figures").mkdir()
    for name in ("a.json", "figures/one.png", "figures/other.png"):
        (tmp_path / name).write_text("old")
    before = content(tmp_path)
    with pytest.raises(FullDiskError):
        fail_in(staged_files(tmp_path), FullDiskError)
    assert content(tmp_path) == before
    with staged_files(tmp_path) as place:
        (place / "a.json").write_text("new")
        (place / "figures").mkdir()
        (place / "figures" / "one.png").write_text("new")
    assert content(tmp_path) == {**before, "a.json": b"new", "figures/one.png": b"new"}


def test_files_into_a_new_folder_that_fail_leave_no_folder(tmp_path):
    with pytest.raises(FullDiskError), staged_files(tmp_path / "a" / "b"):
        raise FullDiskError
    assert content(tmp_path) == {}


@pytest.mark.parametrize("given", ["keep", "new/../keep", "new/deeper/../../keep", "./new/.././keep"])
def test_a_folder_that_was_there_stays(given, tmp_path):
    keep = tmp_path / "keep"
    keep.mkdir()
    out = Path(f"{tmp_path}/{given}")
    require_folder(out, ["a.txt"])
    require_empty_folder(out)
    assert content(tmp_path) == {"keep": None}
    with pytest.raises(FullDiskError), staged_files(out):
        raise FullDiskError
    assert content(tmp_path) == {"keep": None}


def test_folders_that_cannot_be_written_are_named(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("link")
    (tmp_path / "full" / "a.txt").mkdir(parents=True)
    for out, said in (
        ("file", "is a file; give a folder"),
        ("file/inside", "cannot be written to: Not a directory"),
        ("link", "cannot be written to"),
        ("full", "a.txt is a folder there"),
        ("x" * 300, "cannot be written to: File name too long"),
    ):
        with pytest.raises(InputError, match=said):
            require_folder(tmp_path / out, ["a.txt"])
    with pytest.raises(InputError, match="is not an empty folder"):
        require_empty_folder(tmp_path / "full")
    assert not (tmp_path / "x").exists()


def test_failures_of_the_system_are_one_line(tmp_path):
    with pytest.raises(InputError, match=r"out='.*' was not written: No space left on device$"), writing_to(tmp_path):
        raise FullDiskError
    with pytest.raises(KeyError), writing_to(tmp_path):
        raise KeyError
    with pytest.raises(BrokenPipeError), writing_to(tmp_path):
        raise BrokenPipeError


def test_names_that_are_taken_are_counted_on(tmp_path):
    path = tmp_path / "a.json"
    assert free_name(path).name == "a.old-1.json"
    (tmp_path / "a.old-1.json").touch()
    assert free_name(path).name == "a.old-2.json"
