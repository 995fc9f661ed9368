"""How train, data and pretrained import: no cycles, and no torch where only options are needed."""

import ast
from functools import cache
from pathlib import Path

import pytest

import boosted_attention

SOURCE = Path(boosted_attention.__file__).parent


def name_of(path: Path) -> str:
    return ".".join(("boosted_attention", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {name_of(path): path for path in SOURCE.rglob("*.py")}


def imported(nodes) -> set[str]:
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in inside}
    return found


@cache
def imports(module: str, at_start: bool = False) -> frozenset[str]:
    tree = ast.parse(MODULES[module].read_text())
    return frozenset(imported(tree.body if at_start else ast.walk(tree)))


@pytest.mark.parametrize("room", ["train", "data", "pretrained"])
def test_no_import_cycles(room):
    """Imports inside functions and for the type checker count too."""
    done: set[str] = set()

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, " -> ".join((*above, module))
        if module not in done:
            for other in sorted(imports(module)):
                if other in MODULES and other.startswith(f"boosted_attention.{room}"):
                    visit(other, (*above, module))
            done.add(module)

    for module in MODULES:
        if module.startswith(f"boosted_attention.{room}"):
            visit(module, ())


@pytest.mark.parametrize("module", ["train", "train.config", "train.recipes", "data", "data.tokens", "cli.train"])
def test_options_are_known_without_torch(module):
    """As far as these rooms decide it: attention and model are left to their own tests."""
    left, seen = [f"boosted_attention.{module}"], set()
    while left:
        current = left.pop()
        if current in seen or current.split(".")[1:2] in (["attention"], ["model"]) or current == "boosted_attention":
            continue
        seen.add(current)
        used = imports(current, at_start=True)
        assert not any(name.split(".")[0] == "torch" for name in used), current
        left += [name for name in used if name in MODULES]


def test_public_names_are_found():
    import boosted_attention.data
    import boosted_attention.train

    for package in (boosted_attention.data, boosted_attention.train):
        assert sorted(package.HOMES) == sorted(package.__all__)
        for name in package.__all__:
            assert getattr(package, name) is not None
        with pytest.raises(AttributeError, match="no attribute 'nonesuch'"):
            package.nonesuch  # noqa: B018
