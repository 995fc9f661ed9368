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
from boosted_attention import AttentionLayer
from boosted_attention.attention import discovery
from boosted_attention.attention.boosting import boosting
from boosted_attention.cli.main import COMMANDS
from boosted_attention.cli.wording import Wording
from boosted_attention.documentation import argument_texts
from boosted_attention.lazy import stated_names

SOURCE = Path(boosted_attention.__file__).parent
# Each room may import from those before it; rooms in one set do not know each other.
ROOMS = [
    {"validation", "lazy", "registration", "autoload", "progress", "compat", "documentation", "shapes"},
    {"records", "statistics", "timing"},
    {"storage"},
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
    {"report", "explore"},
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
    {"claims", "decisions"},
    {"reproduce"},
    {"estimate", "figures", "shipped"},
    {"pages"},
]
# Cycles that are meant: each of these imports happens inside a function, when the modules are whole.
MAY_CLOSE_A_CYCLE = {
    ("boosted_attention.model.config", "boosted_attention.model.language_model"): "a configuration builds its class",
    ("boosted_attention.attention.discovery", "boosted_attention.attention.learners"): "registries find their entries",
}
CORE = {"torch", "numpy", "scipy", "safetensors", "tokenizers", "filelock", "tyro", "rich", "jinja2", "markupsafe"}
OPTIONAL = {
    "sklearn",
    "threadpoolctl",
    "submitit",
    "matplotlib",
    "datasets",
    "zstandard",
    "tensorboard",
    "trackio",
    "transformers",
    "huggingface_hub",
    "peft",
    "bitsandbytes",
}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


@cache
def stated(package: str) -> dict[str, str]:
    """The names that a package imports when they are first used, each with its module."""
    path = MODULES.get(package)
    return stated_names(path.read_text()) if path is not None and path.stem == "__init__" else {}


def holder(module: str, name: str) -> str:
    """The module that ``from module import name`` reaches: a submodule, the one that a package states, or itself."""
    inside = f"{module}.{name}"
    return inside if inside in MODULES else stated(module).get(name, module)


def imported(nodes) -> set[str]:
    """Every module that some nodes import: ours by the module that holds a name, others by their own name."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            assert node.module
            found |= {holder(node.module, alias.name) for alias in node.names}
    return found


def found_in_folder(module: str) -> set[str]:
    """What a package imports by ``import_folder(__name__)``: every module below it without an underscore."""
    if not any(ast.unparse(node) == "import_folder(__name__)" for node in ast.walk(tree(module))):
        return set()
    below = [name for name in MODULES if name.startswith(f"{module}.") and MODULES[name].stem != "__init__"]
    return {name for name in below if not MODULES[name].stem.startswith("_")}


@cache
def imports(module: str) -> frozenset[str]:
    """What a module imports anywhere: at its start, inside functions, for the type checker, and by its folder."""
    return frozenset(imported(ast.walk(tree(module))) | found_in_folder(module))


def room(module: str, below: str) -> str:
    return module.removeprefix(below).removeprefix(".").split(".")[0]


def against_the_flow(module: str, below: str, rooms: list[set[str]]) -> set[str]:
    """The rooms that a module uses and may not."""
    own = room(module, below)
    level = next(i for i, names in enumerate(rooms) if own in names)
    allowed = {own}.union(*rooms[:level])
    used = {room(name, below) for name in imports(module) if name.startswith(f"{below}.")}
    return used - allowed


@pytest.mark.parametrize("module", [name for name in MODULES if name not in ("boosted_attention",)])
def test_imports_flow_one_way(module):
    """Between packages there is no cycle of any kind."""
    if module != "boosted_attention.__main__":
        assert against_the_flow(module, "boosted_attention", ROOMS) == set()
    if module.startswith("boosted_attention.lab."):
        assert against_the_flow(module, "boosted_attention.lab", LAB) == set()


def test_no_cycle_inside_a_package():
    """Imports inside functions and for the type checker count, and so does a package's own code.

    Names that a package states are imported by whoever uses them: they count there.
    """
    done: set[str] = set()
    taken: set[tuple[str, str]] = set()

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, " -> ".join((*above[above.index(module) :], module))
        if module not in done:
            for other in sorted(imports(module) & MODULES.keys() - set(stated(module).values())):
                if (module, other) in MAY_CLOSE_A_CYCLE:
                    taken.add((module, other))
                else:
                    visit(other, (*above, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())
    assert taken == MAY_CLOSE_A_CYCLE.keys()


def test_a_name_leads_to_the_module_that_holds_it():
    """Also a name that is taken from a package, which states where it is."""
    lines = "from boosted_attention import LanguageModel, __version__\nfrom boosted_attention.train import checkpoint"
    assert imported(ast.walk(ast.parse(lines))) == {
        "boosted_attention.model.language_model",
        "boosted_attention",
        "boosted_attention.train.checkpoint",
    }
    assert "boosted_attention.lab.experiments.language.forms" in imports("boosted_attention.lab.experiments")
    assert "boosted_attention.lab.experiments.language._arms" not in imports("boosted_attention.lab.experiments")


FINDERS = {"autoload", "lazy", "registration", "cli.main"}


def test_modules_are_found_by_name_in_known_places_only():
    """Names of packages, files of folders, commands and families; no other module is imported by a string."""
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


ENVIRONMENT = ("os.environ", "environ")
WRITING = {f"{held}.{method}" for held in ENVIRONMENT for method in ("update", "setdefault", "pop", "popitem", "clear")}
WRITING |= {f"{prefix}{function}" for prefix in ("os.", "") for function in ("putenv", "unsetenv")}
# torchrun and OpenMP take the number of threads from nowhere else.
MAY_PASS_AN_ENVIRONMENT = {"benchmarks/sections/parallel.py"}


def environment_writes(source: str) -> list[str]:
    """Where a module writes to the environment, or gives a process another one."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign | ast.Delete):
            targets = node.targets
        else:
            targets = [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []
        found += [text for t in targets if (text := ast.unparse(t)).partition("[")[0] in ENVIRONMENT]
        if isinstance(node, ast.Call):
            found += [text for text in [ast.unparse(node.func)] if text in WRITING]
            found += ["env=" for keyword in node.keywords if keyword.arg == "env"]
    return found


@pytest.mark.parametrize(
    "line",
    [
        "os.environ['A'] = '1'",
        "environ['A'] = '1'",
        "del os.environ['A']",
        "os.environ |= {'A': '1'}",
        "os.environ['A'] += '1'",
        "os.environ.pop('A', None)",
        "os.environ.update(A='1')",
        "os.environ.setdefault('A', '1')",
        "os.putenv('A', '1')",
        "subprocess.run(['a'], env={'A': '1'})",
    ],
)
def test_a_write_to_the_environment_is_found(line):
    assert environment_writes(line)
    assert not environment_writes("x = os.environ.get('A', os.environ['B'])")


def test_no_environment_variable_between_our_own_parts():
    """The environment is the user's to set: nothing here writes to it, and processes get it as it is."""
    root = Path(__file__).parents[1]
    paths = [*MODULES.values(), *sorted((root / "benchmarks").rglob("*.py"))]
    assert len(paths) > len(MODULES)
    for path in paths:
        if not any(path == root / name for name in MAY_PASS_AN_ENVIRONMENT):
            assert not environment_writes(path.read_text()), path


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
    """Each exported class and function has a docstring, which lists the arguments of its signature and no others."""
    module = importlib.import_module(package)
    assert module.__all__
    for name in module.__all__:
        exported = getattr(module, name)
        assert not inspect.ismodule(exported), f"{package}.{name} is hidden by the module of that name"
        if inspect.isclass(exported) or inspect.isfunction(exported):
            text = inspect.getdoc(exported) or ""
            assert text, f"{package}.{name} has no docstring"
            assert list(argument_texts(text)) == arguments(exported), f"{package}.{name}"


def test_help_shows_shapes_formula_and_the_papers_address():
    """Of every layer, of the loop and of boosting a pretrained model, before their arguments."""
    shown = {name: getattr(boosted_attention, name) for name in boosted_attention.__all__ if "Attention" in name}
    shown |= {"boost": boosted_attention.boost, "boosting": boosting}
    assert len(shown) >= 18
    for name, exported in shown.items():
        text = inspect.getdoc(exported) or ""
        about = text.partition("\nArgs:\n")[0]
        assert "https://arxiv.org/abs/" in about, name
        assert re.search(r"softmax\(|[)<] [Vv](_\w)?\b|\bF_\w", about), f"{name}: softmax, weights times values, or F"
        assert re.search(r"\([A-Z], [A-Z], \w+\)", text), name


def test_layer_classes_of_learners_are_found_by_name():
    """What is read from the files without importing them is what importing them defines."""
    discovery.discover()
    defined = {
        name: value
        for module in [name for name in sys.modules if name.startswith(f"{discovery.LEARNERS}.")]
        for name, value in vars(sys.modules[module]).items()
        if inspect.isclass(value) and issubclass(value, AttentionLayer) and value.__module__ == module
    }
    assert discovery.layer_classes() == {name: layer.__module__ for name, layer in defined.items()}
    for package in (boosted_attention, boosted_attention.attention):
        assert defined.keys() <= set(package.__all__)
        assert all(getattr(package, name) is layer for name, layer in defined.items())


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
