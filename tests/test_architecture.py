"""Promises of the package as a whole: what importing it pulls in, which way imports flow, and what no part may do."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import boosted_attention
from boosted_attention.cli.main import COMMANDS
from boosted_attention.cli.wording import Wording

SOURCE = Path(boosted_attention.__file__).parent
# Each room may import from those before it; rooms in one set do not know each other.
ROOMS = [
    {"validation", "lazy", "autoload", "progress", "compat", "documentation", "shapes"},
    {"files", "records", "statistics", "timing"},
    {"chart"},
    {"attention"},
    {"model"},
    {"data"},
    {"analysis"},
    {"train"},
    {"pretrained"},
    {"planning"},
    {"retrieval", "recall"},
    {"theory"},
    {"lab"},
    {"report"},
    {"cli"},
]
# The same inside the lab, whose top-level modules stand between its folders.
LAB = [
    {"trials"},
    {"presets"},
    {"judging"},
    {"work"},
    {"experiment"},
    {"experiments"},
    {"claims"},
    {"reproduce"},
    {"estimate", "figures", "shipped"},
    {"pages"},
]
MAY_BUILD_ITS_CLASS = {("boosted_attention.model.config", "boosted_attention.model.language_model")}
CORE = {"torch", "numpy", "scipy", "safetensors", "tokenizers", "filelock", "tyro", "rich", "jinja2", "markupsafe"}
OPTIONAL = {
    "sklearn",
    "threadpoolctl",
    "submitit",
    "matplotlib",
    "datasets",
    "zstandard",
    "tensorboard",
    "transformers",
    "peft",
}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imported(nodes) -> set[str]:
    """Every module that some nodes import: ours by the module that holds a name, others by their own name."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module or "" for name in inside}
    return found


@cache
def imports(module: str) -> frozenset[str]:
    """What a module imports anywhere: at its start, inside functions, and for the type checker."""
    return frozenset(imported(ast.walk(ast.parse(MODULES[module].read_text()))))


def room(module: str, below: str) -> str:
    return module.removeprefix(below).removeprefix(".").split(".")[0]


def flows_one_way(module: str, below: str, rooms: list[set[str]]) -> None:
    own = room(module, below)
    level = next(i for i, names in enumerate(rooms) if own in names)
    allowed = {own}.union(*rooms[:level])
    used = {room(name, below) for name in imports(module) if name.startswith(f"{below}.")}
    assert used <= allowed, f"{module} uses {used - allowed}"


@pytest.mark.parametrize("module", [name for name in MODULES if name not in ("boosted_attention",)])
def test_imports_flow_one_way(module):
    """Between packages there is no cycle of any kind."""
    if module != "boosted_attention.__main__":
        flows_one_way(module, "boosted_attention", ROOMS)
    if module.startswith("boosted_attention.lab."):
        flows_one_way(module, "boosted_attention.lab", LAB)


def test_no_cycle_inside_a_package():
    """Imports inside functions and for the type checker count; a configuration may build its own class."""
    done: set[str] = set()

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, " -> ".join((*above[above.index(module) :], module))
        if module not in done:
            for other in sorted(imports(module) & MODULES.keys()):
                if (module, other) not in MAY_BUILD_ITS_CLASS and MODULES[other].stem != "__init__":
                    visit(other, (*above, module))
            done.add(module)

    for module, path in MODULES.items():
        if path.stem != "__init__":  # which states the names of its package
            visit(module, ())


FINDERS = {"autoload", "lazy", "attention.discovery", "attention.learners", "lab.experiments", "cli.main"}


def test_modules_are_found_by_name_in_known_places_only():
    """Names of packages, learners, experiments, commands and families; no other module is imported by a string."""
    users = {m for m, path in MODULES.items() if "import_module(" in path.read_text()}
    assert users <= {f"boosted_attention.{name}" for name in FINDERS}


def test_only_core_dependencies_are_imported():
    used = set().union(*(imports(module) for module in MODULES))
    foreign = {name.split(".")[0] for name in used} - sys.stdlib_module_names - {"boosted_attention"}
    assert foreign <= CORE | OPTIONAL


def test_optional_packages_are_imported_inside_functions():
    for module, path in MODULES.items():
        if not module.startswith("boosted_attention.pretrained"):  # which is loaded on demand
            used = {name.split(".")[0] for name in imported(ast.parse(path.read_text()).body)}
            assert not used & OPTIONAL, module


def added_modules(statement: str) -> set[str]:
    """The packages that a statement adds to a new process."""
    script = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    return {name.split(".")[0] for name in found} - sys.stdlib_module_names


def test_importing_the_package_pulls_in_nothing():
    assert added_modules("import boosted_attention") == {"boosted_attention"}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_does_not_wait_for_torch(name):
    help_of = f"from boosted_attention.cli.main import main\ntry: main([{name!r}, '--help'])\nexcept SystemExit: pass\n"
    script = f"import sys, io, contextlib\nwith contextlib.redirect_stdout(io.StringIO()):\n    exec({help_of!r})\n"
    script += "print('torch' in sys.modules, 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def strings(path: Path):
    """Every text in a module, docstrings included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def flags() -> set[str]:
    """The options of all commands."""
    found = set()
    for name in COMMANDS:
        command = importlib.import_module(f"boosted_attention.cli.{name}")
        wording = Wording(command.prepare([]) if hasattr(command, "prepare") else command.run)
        found |= {f"--{option.replace('_', '-')}" for option in wording.options}
    return found


def test_no_module_below_the_command_line_names_a_flag():
    ours = flags()
    assert {"--out", "--preset", "--batch-size", "--resume"} <= ours
    for module, path in MODULES.items():
        if not module.startswith("boosted_attention.cli"):
            for line, text in strings(path):
                named = ours & set(re.findall(r"--[a-z][a-z-]*[a-z]", text))
                assert not named, f"{module}:{line} names {named}"


def test_no_environment_variable_between_our_own_parts():
    """The environment is the user's to set: nothing here writes to it."""
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
            written = [ast.unparse(t) for t in targets if ast.unparse(t).startswith(("os.environ", "environ["))]
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            assert not written, module
            assert called not in ("os.putenv", "os.unsetenv", "os.environ.update", "os.environ.setdefault"), module


def test_private_parts_of_torch_stand_in_one_file():
    for module, path in MODULES.items():
        if module != "boosted_attention.compat":
            named = {name for name in imports(module) if name.startswith("torch.") and "._" in name}
            assert not named, module
            assert "._cdata" not in path.read_text(), module


ROOMS_OF_USERS = [
    "attention",
    "model",
    "data",
    "train",
    "analysis",
    "pretrained",
    "planning",
    "retrieval",
    "recall",
    "theory",
    "report",
]
PUBLIC = ["boosted_attention", *(f"boosted_attention.{name}" for name in ROOMS_OF_USERS)]


@pytest.mark.parametrize("package", PUBLIC)
def test_exported_names_are_documented(package):
    """Each exported class and function has a docstring, with an argument list where it takes arguments."""
    module = importlib.import_module(package)
    assert module.__all__
    for name in module.__all__:
        exported = getattr(module, name)
        if inspect.isclass(exported) or inspect.isfunction(exported):
            text = inspect.getdoc(exported) or ""
            assert text, f"{package}.{name} has no docstring"
            assert "Args:" in text or not arguments(exported), f"{package}.{name} describes no argument: {text[:60]}"


def test_layers_name_their_papers_address():
    for name in boosted_attention.__all__:
        if name.endswith("Attention") and name not in ("AttentionLayer", "BoostedMultiheadAttention"):
            assert "https://arxiv.org/abs/" in inspect.getdoc(getattr(boosted_attention, name)), name


def arguments(exported) -> list[str]:
    """The arguments that a user passes."""
    try:
        parameters = inspect.signature(exported).parameters.values()
    except ValueError:  # of a class of torch's or Python's own
        return []
    return [p.name for p in parameters if p.name not in ("self", "args", "kwargs")]


def test_every_module_says_what_it_is():
    for module, path in MODULES.items():
        if path.stem != "__main__":
            assert ast.get_docstring(ast.parse(path.read_text())), module
