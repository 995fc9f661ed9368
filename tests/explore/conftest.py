import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from boosted_attention.explore.explorer import Explorer
from boosted_attention.explore.server import Server
from boosted_attention.train import load_run

PAIR = Path(__file__).parents[2] / "pairs" / "stdlib-1"


@pytest.fixture(scope="session")
def runs():
    """The boosted and the standard model of a pair that comes with the project."""
    return [load_run(PAIR / name) for name in ("boosted", "standard")]


@pytest.fixture(scope="session")
def explorer(runs):
    return Explorer(runs, ["boosted", "standard"], "boosted-attention explore 'a run' --against another")


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
