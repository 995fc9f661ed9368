"""The workflows run what the Makefile has, with as few rights as they need."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text()) for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}


def steps():
    for name, workflow in WORKFLOWS.items():
        for job in workflow["jobs"].values():
            for step in job["steps"]:
                yield pytest.param(step, id=f"{name}-{step.get('uses') or step['run']}")


def test_there_are_two():
    assert WORKFLOWS.keys() == {"tests", "publish"}


@pytest.mark.parametrize("step", list(steps()))
def test_steps_are_targets_or_actions_of_a_major_version(step):
    if "run" in step:
        program, target = step["run"].split()
        assert program == "make"
        assert target in TARGETS
    else:
        assert re.fullmatch(r"actions/[a-z-]+@v\d+|pypa/gh-action-pypi-publish@release/v1", step["uses"])


@pytest.mark.parametrize("workflow", WORKFLOWS.values(), ids=WORKFLOWS)
def test_rights(workflow):
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job.get("permissions") == ({"id-token": "write"} if name == "publish" else None)
        assert job["timeout-minutes"]
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False


def test_every_python_is_tested():
    (job,) = WORKFLOWS["tests"]["jobs"].values()
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    assert [step["run"] for step in job["steps"] if "run" in step] == ["make install", "make lint", "make test"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={job['strategy']['matrix']['python'][0]}"


def test_only_a_published_release_is_published():
    publish = WORKFLOWS["publish"]
    assert publish[True] == {"release": {"types": ["published"]}}  # YAML takes the word "on" for a truth value
    job = publish["jobs"]["publish"]
    assert (job["needs"], job["environment"]) == ("build", "pypi")
    assert not any("run" in step for step in job["steps"])  # it has the right to publish, and runs nothing of ours
