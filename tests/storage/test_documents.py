"""JSON that others may have changed: whatever is wrong with a file, one line names it."""

import os
from dataclasses import dataclass

import pytest

from boosted_attention.storage.documents import DamagedError, is_there, parsed, read_bytes, read_document, read_json


@dataclass(frozen=True, kw_only=True)
class Size:
    width: int
    share: float = 0.5


def test_what_is_whole_is_read(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"width": 3, "share": 1}')
    assert read_json(path) == {"width": 3, "share": 1}
    assert read_document(Size, path) == Size(width=3, share=1.0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not JSON"),
        (b'{"width": 3', "is not JSON"),
        (b"\xff\xfe{", "codec"),
        (b"[" * 100_000, "is not JSON: it nests too deeply"),
        (b'{"a":' * 100_000, "is not JSON: it nests too deeply"),
        (b"1" * 5000, "integer string"),
        (b'{"width": NaN}', "NaN is no number of JSON"),
        (b'{"width": -Infinity}', "-Infinity is no number of JSON"),
        (b"[1, 2]", "must be an object"),
        (b'{"width": "3"}', "width must be int"),
        (b'{"width": true}', "width must be int"),
        (b'{"width": 3, "share": 1e999}', "share must be a finite number"),
        (b'{"width": 3, "share": ' + b"9" * 400 + b"}", "share must be a finite number"),
        (b'{"width": 3, "heigth": 1}', "an object without"),
        (b"{}", "an object with"),
    ],
)
def test_what_is_damaged_is_named(content, said, tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(DamagedError) as refused:
        read_document(Size, path)
    assert str(refused.value).startswith(str(path))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_no_file_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("link")
    for name, said in (("absent", "is missing"), (".", "is a folder"), ("pipe", "no regular file"), ("link", "read")):
        with pytest.raises(DamagedError, match=said):
            read_json(tmp_path / name)


def test_a_link_that_leads_nowhere_is_there(tmp_path):
    (tmp_path / "link").symlink_to("link")
    (tmp_path / "file").touch()
    assert [is_there(tmp_path / name) for name in ("link", "file", "absent")] == [True, True, False]


def test_size_is_known_before_anything_is_read(tmp_path):
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(2**40)  # has no blocks on the disk
    with pytest.raises(DamagedError, match=r"1,099,511,627,776 bytes; such a file has at most 268,435,456"):
        read_json(path)
    path.write_bytes(b"12345")
    assert read_bytes(path, 5) == b"12345"
    with pytest.raises(DamagedError, match="has 5 bytes"):
        read_bytes(path, 4)


def test_text_is_parsed_like_files():
    assert parsed('{"a": 1}', "a line") == {"a": 1}
    with pytest.raises(DamagedError, match="a line is not JSON"):
        parsed("{", "a line")
