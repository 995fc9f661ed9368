import os

import pytest
from filelock import FileLock

from boosted_attention.cli.main import main
from tests.report.made import EXPERIMENTS, HOSTILE
from tests.text import sample_text


@pytest.fixture(scope="session")
def made_report(tmp_path_factory):
    """The folder of a reproduction at the smallest preset, with its report; made once for all workers of a test run."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # of all workers
    out = base / "reported"
    with FileLock(base / "reported.lock"):
        if not (out / "report.html").exists():
            make(base, out)
    return out


def make(base, out):
    text = base / "<b>&'x.txt"
    text.write_text(sample_text(4_000).replace(" ", f" {HOSTILE} "))
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", *EXPERIMENTS, "--preset", "smoke", "--corpus", f"text:{text}", "--out", str(out)])
    assert stop.value.code == 0
