import shutil

import pytest

from boosted_attention.cli.main import main
from tests.report.made import EXPERIMENTS, HOSTILE
from tests.text import sample_text


@pytest.fixture(scope="session")
def made_report(made_once, synthetic_smoke):
    """The folder of a reproduction at the smallest preset, with its report."""

    def make(folder):
        text = folder / "<b>&'x.txt"
        text.write_text(sample_text(4_000).replace(" ", f" {HOSTILE} "))
        out = str(folder / "out")
        shutil.copytree(synthetic_smoke / "trials", folder / "out" / "trials")  # computed already
        with pytest.raises(SystemExit) as stop:
            main(["reproduce", *EXPERIMENTS, "--preset", "smoke", "--corpus", f"text:{text}", "--out", out])
        assert stop.value.code == 0

    return made_once("reported", make) / "out"
