"""A release is refused unless the commit is ready and the built files are its files; and it can be cited."""

import io
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import boosted_attention
from release.contents import NOT_ARCHIVED, sdist_problems, wheel_problems
from release.readiness import readiness, tracked, version_of
from release.trial import modules_of_extras, named

ROOT = Path(__file__).parents[1]
README = "# Name\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
PROJECT = """
[project]
name = "boosted-attention"
requires-python = ">=3.11"
license = "MIT"
[project.optional-dependencies]
hf = ["transformers"]
"""
METADATA = {
    "Name": "boosted-attention",
    "Version": "1.2.3",
    "Requires-Python": ">=3.11",
    "License-Expression": "MIT",
    "Description-Content-Type": "text/markdown",
    "Provides-Extra": "hf",
}
FILES = {
    "src/boosted_attention/__init__.py": '__version__ = "1.2.3"\n',
    "src/boosted_attention/page.css": "",
    "tests/test_it.py": "",
    "CHANGELOG.md": "# Changelog\n\n## 1.2.3 (unreleased)\n",
    "pyproject.toml": PROJECT,
    ".ci/run": "",
}


def git(root, *words):
    settings = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "tag.gpgsign=false"]
    subprocess.run(["git", *settings, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def root(tmp_path):
    """A small project in a commit of its own."""
    root = tmp_path / "project"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(tmp_path, "init", "-q", str(root))
    git(root, "add", "-A")
    git(root, "commit", "-qm", "all")
    return root


def described(**changed) -> str:
    return "".join(f"{name}: {value}\n" for name, value in {**METADATA, **changed}.items()) + f"\n{README}"


def make_wheel(folder, names, metadata=None):
    path = folder / "boosted_attention-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name.removeprefix("src/"), "")
        archive.writestr("boosted_attention-1.2.3.dist-info/METADATA", metadata or described())
    return path


def make_sdist(folder, names):
    path = folder / "boosted_attention-1.2.3.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            entry = tarfile.TarInfo(f"boosted_attention-1.2.3/{name}")
            content = described().encode() if name == "PKG-INFO" else b""
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


PACKAGED = [name for name in FILES if name.startswith("src/")]
ARCHIVED = [*(name for name in FILES if not name.startswith(".ci/")), "PKG-INFO"]


def test_a_commit_that_is_ready(root):
    assert version_of(root) == "1.2.3"
    assert readiness(root) == []


def test_a_dirty_tree_is_refused(root):
    (root / "notes.txt").write_text("")
    assert readiness(root) == ["1 files are not committed, such as notes.txt; commit or remove them"]


def test_a_changelog_without_the_version_is_refused(root):
    (root / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.30\n")
    git(root, "commit", "-qam", "changelog")
    assert readiness(root) == ["CHANGELOG.md has no heading '## 1.2.3'; say there what is new"]


def test_a_tag_makes_it_a_release(root):
    git(root, "tag", "v1.2.3")
    assert readiness(root) == ["CHANGELOG.md calls 1.2.3 unreleased; give it a date"]
    (root / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 (2026-12-01)\n")
    git(root, "commit", "-qam", "date")
    git(root, "tag", "v1.2.4")
    assert readiness(root) == ["the commit's tag is v1.2.4, the package's version 1.2.3; the tag should be v1.2.3"]
    git(root, "tag", "v1.2.3", "-f")
    assert readiness(root) == []


def test_files_of_the_wheel(root, tmp_path):
    assert wheel_problems(make_wheel(tmp_path, PACKAGED), root) == []
    lacking = make_wheel(tmp_path, [name for name in PACKAGED if not name.endswith(".css")])
    assert wheel_problems(lacking, root) == ["the wheel lacks 1 files, such as src/boosted_attention/page.css"]
    more = make_wheel(tmp_path, [*PACKAGED, "src/boosted_attention/secret.env"])
    assert wheel_problems(more, root) == [
        "the wheel has, beyond the commit, 1 files, such as src/boosted_attention/secret.env"
    ]


def test_files_of_the_source_archive(root, tmp_path):
    assert sdist_problems(make_sdist(tmp_path, ARCHIVED), root) == []
    lacking = make_sdist(tmp_path, [name for name in ARCHIVED if not name.startswith("tests/")])
    assert sdist_problems(lacking, root) == ["the source archive lacks 1 files, such as tests/test_it.py"]
    assert sdist_problems(make_sdist(tmp_path, ARCHIVED[:-1]), root)[0].endswith("such as PKG-INFO")


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        (described(Version="1.2.4"), "the wheel has Version: 1.2.4; the project says 1.2.3"),
        (described(**{"Provides-Extra": "fh"}), "the wheel has other extras than pyproject.toml: fh"),
        (described().replace(README, ""), "the wheel describes the project by a text that is not the README"),
        (
            described(**{"Description-Content-Type": "text/x-rst"}),
            "the wheel has Description-Content-Type: text/x-rst; the project says text/markdown",
        ),
    ],
)
def test_metadata(metadata, problem, root, tmp_path):
    assert wheel_problems(make_wheel(tmp_path, PACKAGED, metadata), root) == [problem]


def test_packages_of_extras_are_hidden_and_those_of_the_core_are_not():
    found = modules_of_extras(ROOT)
    assert {"pytest", "transformers"} <= set(found)
    assert not {"torch", "numpy", "tyro", "jinja2", "boosted_attention"} & set(found)
    assert named("pyright[nodejs]>=1.1.400") == "pyright"
    assert named("Axe_Playwright.python") == "axe-playwright-python"


def test_the_source_archive_is_to_hold_every_file_but_a_few():
    """Without building it: whatever stands at the top of the commit is listed, or left out on purpose."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    listed = {name.removeprefix("/") for name in targets["sdist"]["include"]}
    always = {"pyproject.toml", ".gitignore"}  # the builder's own choice
    assert {path.partition("/")[0] for path in tracked(ROOT)} == listed | always | NOT_ARCHIVED


def test_the_citation():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert (cited["cff-version"], cited["type"]) == ("1.2.0", "software")
    assert cited["version"] == boosted_attention.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (cited["title"], cited["abstract"]) == (project["name"], project["description"])
    assert (cited["license"], cited["keywords"]) == (project["license"], project["keywords"])
    assert cited["authors"] == [{"name": "boosted-attention contributors"}]
    (paper,) = cited["references"]
    assert f'"{paper["title"]}"' in " ".join((ROOT / "README.md").read_text().split())
    assert {"type", "authors", "year", "url"} <= paper.keys()
