"""No module of attention or model imports, directly or by way of others, a module that imports it.

Imports inside functions and below TYPE_CHECKING count. A configuration may build its own class.
"""

import ast
from pathlib import Path

import boosted_attention

SOURCE = Path(boosted_attention.__file__).parent
ALLOWED = {("model.config", "model.language_model"), ("model.config", "model.memory")}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def graph() -> dict[str, set[str]]:
    modules = {module_name(p): p for room in ("attention", "model") for p in (SOURCE / room).rglob("*.py")}
    edges = {}
    for name, path in modules.items():
        if path.stem == "__init__":
            continue  # it states the names of its package
        edges[name] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("boosted_attention"):
                base = (node.module or "").removeprefix("boosted_attention").removeprefix(".")
                edges[name] |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return {name: (used & set(edges)) - {u for a, u in ALLOWED if a == name} for name, used in edges.items()}


def test_no_cycles():
    edges, done = graph(), set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in done:
            for used in sorted(edges[name]):
                visit(used, (*path, name))
            done.add(name)

    for name in sorted(edges):
        visit(name, ())


def test_private_parts_of_torch_are_in_one_place():
    paths = {p for room in ("attention", "model") for p in (SOURCE / room).rglob("*.py")}
    for path in paths - {SOURCE / "model" / "memory.py"}:
        assert "torch._" not in path.read_text(), path
        assert "._cdata" not in path.read_text(), path
