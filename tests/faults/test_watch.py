"""No command unpickles bytes of a file, and none opens a socket; torchrun's jobs and the explorer's own are apart."""

import pickle
import socket

import pytest
import torch

from tests.faults.disks import call
from tests.faults.disturbances import training
from tests.faults.watching import watched
from tests.faults.workshop import Workshop


@pytest.fixture(scope="module")
def workshop(made_once):
    return Workshop(made_once("workshop", lambda folder: None))


def commands(workshop, out):
    return {
        "train": training(workshop, out / "run")[3:],
        "evaluate": ["evaluate", workshop.run],
        "generate": ["generate", workshop.run, "--tokens", 3],
        "analyze": ["analyze", workshop.run, "--sequences", 2, "--pairs", 2, "--out", out / "analysis"],
        "export": ["export", workshop.run, out / "exported"],
        "boost": ["boost", workshop.base, out / "boosted"],
        "data": ["data", f"text:{workshop.text}", "--vocab-size", 299],
        "report": ["report", workshop.results],
        "claims": ["claims", "--out", workshop.results],
        "plan": ["plan", "mini"],
    }


NAMES = ("train", "evaluate", "generate", "analyze", "export", "boost", "data", "report", "claims", "plan")


@pytest.mark.parametrize("name", NAMES)
def test_a_command_neither_unpickles_nor_calls_out(name, workshop, tmp_path):
    chosen = commands(workshop, tmp_path)[name]
    with watched() as seen:
        code, said = call(chosen)
    assert (code, seen) == (0, []), said


def bind():
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))


def test_the_watch_sees_what_it_looks_for(tmp_path):
    torch.save({"a": torch.ones(1)}, tmp_path / "a.pt")
    for act, what in (
        (lambda: torch.load(tmp_path / "a.pt", weights_only=True), "load was called"),
        (lambda: pickle.loads(pickle.dumps(1)), "pickle.loads was called"),
        (bind, "socket.bind was called"),
    ):
        with watched() as seen:
            act()
        assert any(what in line for line in seen), seen
