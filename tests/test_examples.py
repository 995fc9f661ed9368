"""Every script of examples/ runs, except the one that needs the weights of SmolLM2."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name != "finetune_smollm2.py")


def test_the_readme_names_every_script():
    readme = (EXAMPLES.parent / "README.md").read_text()
    assert all(f"`examples/{path.name}`" in readme for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_it_runs(script, tmp_path):
    done = subprocess.run(
        [sys.executable, EXAMPLES / script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
