"""Promises of the package as a whole: what importing it pulls in, and which way imports flow."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import boosted_attention

SOURCE = Path(boosted_attention.__file__).parent
# Each room may import from those before it; rooms in one set do not know each other.
ROOMS = [
    {"validation"},
    {"compat", "files", "lazy", "records", "statistics"},
    {"attention"},
    {"model"},
    {"data"},
    {"analysis"},
    {"train"},
    {"pretrained"},
    {"retrieval"},
    {"theory"},
    {"lab"},
    {"report"},
    {"cli"},
]
CORE = {"torch", "numpy", "scipy", "safetensors", "tokenizers", "filelock", "tyro", "rich", "jinja2", "markupsafe"}
OPTIONAL = {
    "submitit",
    "matplotlib",
    "datasets",
    "zstandard",
    "tensorboard",
    "transformers",
    "peft",
}  # imported inside functions only


def imports(path: Path) -> set[str]:
    """Every module a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
    return found


def room(module: str) -> str:
    return module.removeprefix("boosted_attention").removeprefix(".").split(".")[0]


FILES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem in ROOMS[0] | ROOMS[1])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_flow_one_way(path):
    own = path.relative_to(SOURCE).with_suffix("").parts[0]
    level = next(i for i, rooms in enumerate(ROOMS) if own in rooms)
    allowed = {own}.union(*ROOMS[:level]) | ({""} if own in ("lab", "cli") else set())  # these ask for the version
    used = {room(module) for module in imports(path) if module.startswith("boosted_attention")}
    assert used <= allowed


def test_only_core_dependencies_are_imported():
    used = set().union(*(imports(path) for path in SOURCE.rglob("*.py")))
    foreign = {name.split(".")[0] for name in used} - sys.stdlib_module_names - {"boosted_attention"}
    assert foreign <= CORE | OPTIONAL


def test_optional_packages_are_imported_inside_functions():
    for path in set(SOURCE.rglob("*.py")) - set((SOURCE / "pretrained").rglob("*.py")):  # which is loaded on demand
        outside = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
        named = {alias.name for node in outside if isinstance(node, ast.Import) for alias in node.names}
        named |= {node.module or "" for node in outside if isinstance(node, ast.ImportFrom)}
        assert not {name.split(".")[0] for name in named} & OPTIONAL, path


def test_importing_the_package_pulls_in_nothing_optional():
    """In a new process, what ``import boosted_attention`` adds to ``import torch`` is this package alone."""
    script = (
        "import sys, torch; before = set(sys.modules); import boosted_attention; "
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    added = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert set(added) - sys.stdlib_module_names == {"boosted_attention"}


def test_public_names_exist_and_are_documented():
    for name in boosted_attention.__all__:
        assert getattr(boosted_attention, name).__doc__, name


def test_every_module_says_what_it_is():
    for path in SOURCE.rglob("*.py"):
        if path.stem != "__main__":
            assert ast.get_docstring(ast.parse(path.read_text())), path
