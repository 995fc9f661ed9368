"""Small bugs that a script can plant: another sign, comparison, index, constant, a dropped call, swapped arguments."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# Draws: the parts of the package that bugs are drawn from, and the seed.
DRAWS = {
    "d": (("lab", "analysis", "theory", "retrieval", "statistics.py"), 20261117),  # what computes results
    "f": (("train", "storage", "data", "attention", "pretrained"), 20261118),  # what keeps and carries them
}

Node = ast.expr | ast.stmt
Replacement = tuple[Node, str]  # a node, and the text that takes its place


@dataclass(frozen=True, kw_only=True)
class Site:
    """One bug that could be planted: a line of a file, as it is and as it would be."""

    kind: str
    file: str
    before: str
    after: str
    occurrence: int = 0  # which of the equal lines


def text_of(node: ast.AST) -> str:
    return ast.unparse(node)


def signs(node: ast.AST) -> Iterator[Replacement]:
    other: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}
    if isinstance(node, ast.BinOp) and type(node.op) in other and not is_text(node):
        yield node, f"{text_of(node.left)} {other[type(node.op)]} {text_of(node.right)}"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
        yield node, text_of(node.operand)


def is_text(node: ast.BinOp) -> bool:
    """Whether an operation puts texts or lists together, where another sign would not even run."""
    kinds = (ast.JoinedStr, ast.List, ast.ListComp, ast.Tuple)
    sides = (node.left, node.right)
    return any(isinstance(s, kinds) or (isinstance(s, ast.Constant) and isinstance(s.value, str)) for s in sides)


def comparisons(node: ast.AST) -> Iterator[Replacement]:
    other: dict[type[ast.cmpop], str] = {
        ast.Lt: ">=",
        ast.LtE: "<",
        ast.Gt: "<=",
        ast.GtE: ">",
        ast.Eq: "!=",
        ast.NotEq: "==",
    }
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in other:
        yield node, f"{text_of(node.left)} {other[type(node.ops[0])]} {text_of(node.comparators[0])}"


def indices(node: ast.AST) -> Iterator[Replacement]:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        for part in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
            index = part.operand if isinstance(part, ast.UnaryOp) else part
            value = index.value if isinstance(index, ast.Constant) else None
            if isinstance(value, int) and not isinstance(value, bool):
                yield part, str(1 - value if value in (0, 1) else value - 1)


def constants(node: ast.AST) -> Iterator[Replacement]:
    value = node.value if isinstance(node, ast.Constant) else None
    if not isinstance(node, ast.Constant) or not isinstance(value, bool | int | float):
        return
    if isinstance(value, bool):
        yield node, repr(not value)
    elif value not in (0, 1):
        yield node, repr(value * 2)


def dropped_calls(node: ast.AST) -> Iterator[Replacement]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield node, "pass"
    elif isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        inner = node.args[0]
        if not isinstance(inner, ast.GeneratorExp | ast.Starred | ast.Constant):
            yield node, f"({text_of(inner)})"


def swapped_arguments(node: ast.AST) -> Iterator[Replacement]:
    if isinstance(node, ast.Call) and len(node.args) >= 2 and not any(isinstance(a, ast.Starred) for a in node.args):
        first, second, *rest = map(text_of, node.args)
        more = [*rest, *(f"{k.arg}={text_of(k.value)}" if k.arg else f"**{text_of(k.value)}" for k in node.keywords)]
        if first != second:
            yield node, f"{text_of(node.func)}({', '.join([second, first, *more])})"


KINDS: dict[str, Callable[[ast.AST], Iterator[Replacement]]] = {
    "sign": signs,
    "comparison": comparisons,
    "index": indices,
    "constant": constants,
    "dropped call": dropped_calls,
    "swapped arguments": swapped_arguments,
}


def sites(package: Path, places: Sequence[str]) -> dict[str, list[Site]]:
    """Every bug that could be planted inside a function, by kind; one line long, so that it can be told by its line.

    Args:
        package: folder of the package.
        places: folders and files of it.
    """
    found: dict[str, list[Site]] = {kind: [] for kind in KINDS}
    for place in places:
        root = package / place
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            source = path.read_text(encoding="utf-8")
            lines = source.splitlines()
            for node in inside_functions(ast.parse(source)):
                for kind, propose in KINDS.items():
                    for target, text in propose(node):
                        if target.lineno == target.end_lineno:
                            found[kind].append(site(kind, path.relative_to(package), lines, target, text))
    return found


def inside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node of a function's body; figures, messages and checks of our own are left out."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and not function.name.startswith(("figure", "describe")):
            for statement in function.body:
                if isinstance(statement, ast.Assert | ast.FunctionDef | ast.Raise):
                    continue
                yield from (n for n in ast.walk(statement) if not isinstance(n, ast.JoinedStr))


def site(kind: str, file: Path, lines: list[str], node: Node, text: str) -> Site:
    before = lines[node.lineno - 1]
    raw = before.encode()  # columns of the syntax tree count bytes
    after = (raw[: node.col_offset] + text.encode() + raw[node.end_col_offset :]).decode()
    earlier = lines[: node.lineno - 1].count(before)
    return Site(kind=kind, file=file.as_posix(), before=before, after=after, occurrence=earlier)


def draw(package: Path, count: int, name: str = "d") -> list[Site]:
    """Draw bugs, kind by kind in turn, with the fixed seed; the first so many are the same however many are drawn.

    Args:
        package: folder of the package.
        count: number of bugs.
        name: which of DRAWS.
    """
    places, seed = DRAWS[name]
    found = {kind: list(dict.fromkeys(of_kind)) for kind, of_kind in sites(package, places).items()}
    chosen = random.Random(seed)
    for of_kind in found.values():
        chosen.shuffle(of_kind)
    turns = [kind for _ in range(count) for kind in KINDS]
    drawn = []
    for kind in turns[:count]:
        drawn.append(found[kind].pop())
    return drawn
