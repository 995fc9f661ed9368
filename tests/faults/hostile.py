"""Hostile files in the place of what commands read: nothing runs, nothing hangs, one line."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.faults.disks import call
from tests.faults.hunt import Hunt
from tests.faults.watching import watched
from tests.faults.workshop import Workshop

SECONDS = 20.0  # of one core


class Exploit:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return (os.mkdir, (str(self.path),))


def deep(path: Path, draw: random.Random) -> None:
    path.write_bytes(draw.choice((b"[", b'{"a":')) * draw.choice((2000, 100_000)))


def huge_number(path: Path, draw: random.Random) -> None:
    path.write_bytes(b'{"model": {"d_model": ' + b"9" * draw.choice((20, 400, 5000)) + b"}}")


def sparse(path: Path, draw: random.Random) -> None:
    with path.open("wb") as file:
        file.truncate(2 ** draw.choice((33, 40)))


def pickled(path: Path, draw: random.Random) -> None:
    path.write_bytes(pickle.dumps(Exploit(path.parent / "exploited"), protocol=draw.choice((0, 2, 4))))


def torch_archive(path: Path, draw: random.Random) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Exploit(path.parent / "exploited"), protocol=2))
        archive.writestr("archive/version", "3\n")


def header_bomb(path: Path, draw: random.Random) -> None:
    """A safetensors file whose header claims to be as long as it likes."""
    path.write_bytes(struct.pack("<Q", draw.choice((2**31, 2**62, 2**64 - 1, 50))) + b"{" * 50)


def tensor_bomb(path: Path, draw: random.Random) -> None:
    """A safetensors file with a tensor that is larger than the file."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [2**20, 2**20], "data_offsets": [0, 2**42]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)


def pipe(path: Path, draw: random.Random) -> None:
    os.mkfifo(path)


def device(path: Path, draw: random.Random) -> None:
    path.symlink_to(draw.choice(("/dev/zero", "/dev/random", "/dev/full", "/proc/self/mem", "/etc")))


def circle(path: Path, draw: random.Random) -> None:
    path.symlink_to(path)


def noise(path: Path, draw: random.Random) -> None:
    path.write_bytes(draw.randbytes(draw.choice((1, 100, 10_000))))


def bomb(path: Path, draw: random.Random) -> None:
    with gzip.open(path, "wb", 9) as file:
        for _ in range(128):
            file.write(bytes(2**20))


FILES = (deep, huge_number, sparse, pickled, torch_archive, header_bomb, tensor_bomb, pipe, device, circle, noise)


def plant(draw: random.Random, workshop: Workshop, place: Path) -> str | None:
    """Put a hostile file where a command reads one."""
    import shutil

    kind, name, args = draw.choice(
        (
            ("run", "config.json", ["evaluate", place / "run"]),
            ("run", "tokenizer.json", ["evaluate", place / "run"]),
            ("run", "metrics.jsonl", ["analyze", place / "run", "--sequences", 2, "--pairs", 2]),
            ("run", "checkpoints/{best}/state.json", ["evaluate", place / "run"]),
            ("run", "checkpoints/{best}/model.safetensors", ["generate", place / "run", "--tokens", 1]),
            ("base", "config.json", ["boost", place / "base", place / "out"]),
            ("base", "model.safetensors", ["boost", place / "base", place / "out"]),
            ("base", "model.safetensors.index.json", ["boost", place / "base", place / "out"]),
            ("base", "pytorch_model.bin", ["boost", place / "base", place / "out"]),
            ("results", "claims.json", ["report", place / "results"]),
            ("text", "text.txt", ["data", f"text:{place / 'text' / 'text.txt'}"]),
            ("text", "text.jsonl", ["data", f"text:{place / 'text' / 'text.jsonl'}"]),
            ("text", "text.txt.gz", ["data", f"text:{place / 'text' / 'text.txt.gz'}"]),
            ("text", "tokenizer.json", ["data", f"text:{workshop.text}", "--tokenizer", place / "text/tokenizer.json"]),
        )
    )
    if kind == "text":
        (place / "text").mkdir()
    else:
        shutil.copytree(getattr(workshop, kind), place / kind)
    if "{best}" in name:
        name = name.replace("{best}", max(p.name for p in (place / "run" / "checkpoints").glob("best-*")))
    path, made = place / kind / name, bomb if name.endswith(".gz") else draw.choice(FILES)
    if name in ("text.txt", "text.jsonl", "text.txt.gz") and made in (sparse, device, pipe):
        made = noise  # a text may be of any size, and be read from anywhere
    harmless = kind == "base" and name == "pytorch_model.bin"  # beside safetensors it plays no part
    if path.exists():
        path.unlink()
    made(path, draw)
    started = time.process_time()
    with watched() as seen:
        code, said = call(args)
    spent = time.process_time() - started
    what = f"{kind}/{name}, {made.__name__}"
    if seen or (place / kind / "exploited").exists():
        return f"{what}: {seen[:1]} or a file that only an exploit makes"
    if spent > SECONDS:
        return f"{what}: took {spent:.0f} s"
    lines = [line for line in said.splitlines() if line.startswith("boosted-attention: ")]
    ended_well = code == 2 and len(lines) == 1 and "Traceback" not in said
    return None if ended_well or (harmless and code == 0) else f"{what}: exit code {code}, {said[-300:]!r}"


HUNTS = (
    Hunt(
        name="hostile files",
        promise="Pickles, bombs, devices and circles in the place of files are refused in one line; no bytes of a file "
        "are unpickled and no socket is opened.",
        attempts=200,
        attempt=plant,
    ),
)
