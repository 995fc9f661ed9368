import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from boosted_attention.explore.explorer import Explorer
from boosted_attention.explore.questions import Question
from boosted_attention.explore.server import Server
from boosted_attention.explore.views import SideView, View, layer_view, look_at
from boosted_attention.train import load_run

PAIR = Path(__file__).parents[2] / "pairs" / "stdlib-1"


@pytest.fixture(scope="session")
def runs():
    """The boosted and the standard model of a pair that comes with the project."""
    return [load_run(PAIR / name) for name in ("boosted", "standard")]


@pytest.fixture(scope="session")
def explorer(runs):
    return Explorer(runs, ["boosted", "standard"], "boosted-attention explore 'a run' --against another")


def nothing() -> None:
    """The check of a question whose reader waits."""


def whole_view(explorer: Explorer, question: Question) -> View:
    """A view with its layers, as the page puts it together."""
    view, *layers = explorer.parts(question, nothing)
    for part in layers:
        assert len(view.sides[part.side].layers) == part.layer  # they come in order
        view.sides[part.side].layers.append(part.rounds)
    return view


def side_view(model, ids, position, factors, vocabulary) -> SideView:
    """One model's part of a view, with its layers."""
    looked = look_at(model, ids, position, factors, vocabulary, nothing)
    layers = [layer_view(looked, i, position, vocabulary) for i in range(len(looked.done.layers))]
    return replace(looked.side, layers=layers)


@contextmanager
def served(explorer, port=0):
    """A server in a thread, until the end of the block."""
    with Server(explorer, port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="session")
def server(explorer):
    with served(explorer) as running:
        yield running
