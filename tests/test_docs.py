"""Every code block of the README and the docs runs, and what they say of commands is so."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from unittest.mock import patch

import pytest

import boosted_attention
from boosted_attention import list_attention, list_learners
from boosted_attention.attention.catalog import CATALOG
from boosted_attention.attention.learner import LEARNERS
from tests.processes import environment

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "pairs/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
# Packages of extras, each with the test that runs the blocks that import it.
ELSEWHERE = {
    "lm_eval": "tests/pretrained/test_lm_eval.py",
    "nnsight": "tests/analysis/test_interpretability.py",
    "bertviz": "tests/analysis/test_interpretability.py",
}


def blocks(language: str):
    for page in PAGES:
        found = re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for i, code in enumerate(found):
            if not any(f"from {package}" in code for package in ELSEWHERE):
                yield pytest.param(code, id=f"{page.relative_to(ROOT)}-{i}")


def recipe(target: str) -> list[str]:
    """What make would run for a target on a fresh checkout."""
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", target]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("code", list(blocks("python")))
def test_python_blocks_run(code, monkeypatch):
    monkeypatch.chdir(ROOT)
    list_attention(), list_learners()  # which find all of them
    names = {"__name__": "documentation"}
    with patch.dict(CATALOG), patch.dict(LEARNERS):  # what a block registers is gone after it
        exec(compile(code, "documentation", "exec"), names)
    assert len(names) > 2, "a block that defines nothing shows nothing"


@pytest.fixture(scope="module")
def run_once(tmp_path_factory):
    """``run_once(line)``: runs a command of ours in one folder for all pages, which may share what it makes."""
    folder, done = tmp_path_factory.mktemp("shell"), set()
    (folder / "pairs").symlink_to(ROOT / "pairs")

    def run(line: str, words: list[str]) -> None:
        if line not in done:
            command = [sys.executable, "-m", "boosted_attention", *words]
            ended = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
            assert ended.returncode == 0, f"{line}: {ended.stderr}"
            done.add(line)

    return run


@pytest.mark.parametrize("code", list(blocks("bash")))
def test_shell_blocks_are_true(code, run_once):
    everything = {line for target in ("reproduce", "test") for line in recipe(target)}
    for line in code.splitlines():
        command = shlex.split(line, comments=True)
        if command[0] == "make":
            assert recipe(command[1])
        elif command[0] == "boosted-attention":
            run_once(line, command[1:])
        else:  # the plain lines the make targets stand for
            assert line in everything


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not there")
def test_products_are_right_with_the_lines_for_amd_processors(tmp_path):
    section = (ROOT / "docs/how-to/train.md").read_text().split("## On AMD processors")[1].split("## ")[0]
    *prepare, train = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    told, command = train.split(" ", 1)
    assert command == "boosted-attention train"
    multiply = (
        "import torch; torch.manual_seed(0); a, b = torch.randn(300, 64), torch.randn(64, 500); "
        "torch.testing.assert_close(a @ b, (a.double() @ b.double()).float(), rtol=1e-4, atol=1e-4); "
        "print('intel.so' in open('/proc/self/maps').read())"
    )
    script = "\n".join([*prepare, f'{told} {shlex.quote(sys.executable)} -c "$MULTIPLY"'])
    given = {**environment(), "MULTIPLY": multiply}
    ended = subprocess.run(["sh", "-ec", script], cwd=tmp_path, env=given, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (0, "True"), ended.stderr


def test_blocks_of_extras_run_elsewhere():
    for package, test in ELSEWHERE.items():
        assert f'"{package}"' in (ROOT / test).read_text()


def test_every_language_of_a_block_is_tested():
    languages = {name for page in PAGES for name in re.findall(r"^```(\w+)$", page.read_text(), flags=re.MULTILINE)}
    assert languages <= {"python", "bash"}


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_readme_names_every_layer():
    table = {
        name
        for row in re.findall(r"^\| (`.*?) \|", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
        for name in re.findall(r"`([\w-]+)`", row)
    }
    assert table == set(list_attention())


def test_one_version():
    """The version stands in the package; the project's metadata read it from there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    place = ROOT / project["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{boosted_attention.__version__}"' in place.read_text()
    assert f"## {boosted_attention.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert (ROOT / "constraints.txt").read_text().strip() == "torch==2.13.0"
