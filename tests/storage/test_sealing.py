"""Seals: what was written is read, and every change of a document or of a file it lists is found."""

import json
import random

import pytest

from boosted_attention.storage.documents import DamagedError
from boosted_attention.storage.sealing import (
    FileEntry,
    entry_of,
    files_of,
    listing,
    read_sealed,
    seal_of,
    sealed,
    verify,
    write_sealed,
)

CONTENT = {"step": 12, "lr": 0.1, "name": "ü", "rows": [1, 2.5, None], "inner": {"b": True, "a": {}}}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "weights").write_bytes(bytes(range(256)) * 9000)  # more than one piece
    (tmp_path / "empty").touch()
    write_sealed(tmp_path / "state.json", CONTENT, listing(tmp_path, ["weights", "empty"]))
    return tmp_path


def test_what_was_sealed_is_read(folder):
    document = read_sealed(folder / "state.json")
    files = files_of(document, folder / "state.json")
    assert {key: document[key] for key in CONTENT} == CONTENT
    assert files == {
        "empty": FileEntry(bytes=0, sha256="e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        "weights": entry_of(folder / "weights"),
    }
    assert files["weights"].bytes == 256 * 9000
    verify(folder, files)


def test_the_order_of_keys_does_not_matter_and_everything_else_does():
    shuffled = dict(reversed(CONTENT.items()))
    assert seal_of(CONTENT) == seal_of(shuffled) == seal_of({**CONTENT, "sha256": "anything"})
    changes = ({"step": 13}, {"lr": 0.1000000001}, {"name": "u"}, {"rows": [1, 2.5]}, {"new": None}, {"step": "12"})
    assert len({seal_of({**CONTENT, **change}) for change in changes} | {seal_of(CONTENT)}) == 1 + len(changes)


def test_no_flipped_byte_of_a_document_passes(folder):
    path = folder / "state.json"
    whole, before = path.read_bytes(), read_sealed(path)
    drawn = random.Random(0)
    passed = 0
    for _ in range(400):
        content = bytearray(whole)
        content[drawn.randrange(len(whole))] ^= 1 << drawn.randrange(8)
        path.write_bytes(content)
        try:
            passed += read_sealed(path) != before  # white space may change
        except DamagedError:
            continue
    assert passed == 0


@pytest.mark.parametrize("harm", ["flip", "cut", "longer", "missing", "folder"])
@pytest.mark.parametrize("name", ["weights", "empty"])
def test_no_changed_file_passes(name, harm, folder):
    path = folder / name
    if harm == "flip":
        content = bytearray(path.read_bytes() or b"x")
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:-1] or b"x")
    elif harm == "longer":
        path.write_bytes(path.read_bytes() + b"\0")
    else:
        path.unlink()
        if harm == "folder":
            path.mkdir()
    document = read_sealed(folder / "state.json")
    with pytest.raises(DamagedError, match=name):
        verify(folder, files_of(document, folder / "state.json"))


def test_a_file_that_is_not_listed_is_refused(folder):
    (folder / "index").write_text("{}")
    files = files_of(read_sealed(folder / "state.json"), folder / "state.json")
    with pytest.raises(DamagedError, match="index is not among the files that were sealed"):
        verify(folder, files, ["index"])


@pytest.mark.parametrize("name", ["../weights", "/etc/passwd", "a/b", "..", ""])
def test_a_listing_stays_in_its_folder(name, tmp_path):
    write_sealed(tmp_path / "a.json", {}, {name: FileEntry(bytes=0, sha256="")})
    with pytest.raises(DamagedError, match="which is no file of its folder"):
        files_of(read_sealed(tmp_path / "a.json"), tmp_path / "a.json")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([1], "holds no object"),
        ({"a": 1}, "has no seal"),
        ({"a": 1, "sha256": None}, "does not match its seal"),
        ({**sealed({"a": 1}), "a": 2}, "does not match its seal"),
    ],
)
def test_a_document_without_its_own_seal_is_refused(document, said, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(document))
    with pytest.raises(DamagedError, match=said):
        read_sealed(tmp_path / "a.json")


@pytest.mark.parametrize("files", [None, [], {"a": 1}, {"a": {"bytes": "1", "sha256": ""}}, {"a": {"bytes": 1}}])
def test_a_listing_of_another_form_is_refused(files, tmp_path):
    path = tmp_path / "a.json"
    write_sealed(path, {"files": files})
    with pytest.raises(DamagedError, match="is damaged"):
        files_of(read_sealed(path), path)


def test_a_number_beyond_all_bounds_does_not_pass(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": 1e999, "sha256": "x"}')
    with pytest.raises(DamagedError, match="does not match its seal"):
        read_sealed(path)
