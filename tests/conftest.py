import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from filelock import FileLock
from hypothesis import HealthCheck, settings

from boosted_attention import AttentionLayer, attention_layer, list_attention
from boosted_attention.attention.checks import CHECK_OPTIONS, awakened
from boosted_attention.attention.learner import Learner
from boosted_attention.attention.options import HEADWISE_GATES, ZERO_GATES
from tests.text import sample_text

Module = TypeVar("Module", bound=torch.nn.Module)
D_MODEL, N_HEADS = 32, 4
SECONDS: Counter[str] = Counter()  # by folder
LONGEST_FIRST = (
    "lab/trials/test_slurm",
    "test_docs",
    "train/test_parallel",
    "lab/test_reproduce",
    "train/test_training",
)
MIXED = {  # layers with a learner per round
    "softmax+twicing": {"learner": ("softmax", "twicing")},
    "differential+gated": {"learner": ("differential", "gated"), "learner_options": ({}, {"headwise": True})},
    "differential-v2+softmax+hopfield": {"learner": ("differential-v2", "softmax", "hopfield"), "n_steps": 2},
    "gated+hopfield, shared": {"learner": ("gated", "hopfield"), "kv_source": "shared"},
    "twicing+differential-v2, shared, output": {
        "learner": ("twicing", "differential-v2"),
        "kv_source": "shared",
        "space": "output",
    },
    "softmax+differential, input, output": {
        "learner": ("softmax", "differential"),
        "kv_source": "input",
        "space": "output",
    },
    "parallax+delta, shared": {"learner": ("parallax", "delta"), "kv_source": "shared"},
    "composition+low-rank, input, output": {
        "learner": ("composition", "low-rank"),
        "kv_source": "input",
        "space": "output",
    },
    "local-keys+gated, shared": {"learner": ("local-keys", "gated"), "kv_source": "shared", "gate": "headwise"},
    "differential-v2+local, output": {"learner": ("differential-v2", "local"), "space": "output", "gate": "vector"},
    "equilibrium+softmax": {"learner": ("equilibrium", "softmax"), "max_steps": 40, "tol": 0.0},
}

# Random drawing is fixed: a failure is found again by the next run.
settings.register_profile(
    "exact", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.load_profile("exact")


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="all grids and counts at full size")


def pytest_configure(config):
    torch.set_num_threads(1)  # the workers share the cores
    os.environ |= {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}  # and so do their processes
    os.environ["HF_HUB_OFFLINE"] = "1"  # before it is imported, or the hub's library tries again and again
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a hundred processes would each compile the package


def pytest_collection_modifyitems(items):
    """Begin with the modules that take longest, so that no core idles at the end."""
    order = {f"tests/{name}.py": i for i, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: order.get(item.location[0], len(order)))


def pytest_runtest_logreport(report):
    """Add up the time of every folder; fixtures count where they are made."""
    folder = Path(report.location[0]).parts[1:-1]
    SECONDS["/".join(folder) or "(the package as a whole)"] += report.duration


def pytest_terminal_summary(terminalreporter):
    """Say where the time went, summed over workers."""
    if len(SECONDS) > 1:
        terminalreporter.section("minutes per folder, summed over workers")
        for folder, seconds in SECONDS.most_common():
            terminalreporter.write_line(f"{seconds / 60:6.1f}  {folder}")
        terminalreporter.write_line(f"{SECONDS.total() / 60:6.1f}  all")


@pytest.fixture(scope="session")
def full(request) -> bool:
    return request.config.getoption("--full")


@pytest.fixture(scope="session", autouse=True)
def own_cache(made_once):
    """Token files of the tests stay out of the user's cache; all workers share them."""
    os.environ["BOOSTED_ATTENTION_CACHE"] = str(made_once("cache", lambda folder: None))
    os.environ.pop("BOOSTED_ATTENTION_DATA", None)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """``made_once(name, make)``: a folder that ``make(folder)`` fills once for all workers of a test run."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # of all workers

    def folder(name: str, make: Callable[[Path], object]) -> Path:
        made, done = base / name, base / f"{name}.done"
        with FileLock(base / f"{name}.lock"):
            if not done.exists():
                made.mkdir()
                make(made)
                done.touch()
        return made

    return folder


@pytest.fixture(scope="module")
def browser():
    """Debian's chromium, driven by playwright; tests that ask for it are skipped where it is not installed."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed (apt install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def text_file(made_once) -> Path:
    folder = made_once("text", lambda folder: (folder / "words.txt").write_text(sample_text(20_000)))
    return folder / "words.txt"


@pytest.fixture(scope="session")
def documents_file(made_once) -> Path:
    """The same text as some hundred documents, of one to eight lines each."""

    def write(folder: Path) -> None:
        lines, draw = sample_text(20_000).splitlines(), random.Random(0)
        with (folder / "words.jsonl").open("w") as file:
            while lines:
                n = draw.randint(1, 8)
                file.write(json.dumps({"text": " ".join(lines[:n])}) + "\n")
                del lines[:n]

    return made_once("documents", write) / "words.jsonl"


@pytest.fixture(scope="session")
def synthetic_smoke(made_once) -> Path:
    """The folder of a reproduction of the synthetic half at the smallest preset."""
    from boosted_attention.lab.experiment import Kind
    from boosted_attention.lab.experiments import EXPERIMENTS
    from boosted_attention.lab.presets import PRESETS
    from boosted_attention.lab.reproduce import reproduce

    def make(out):
        names = [name for name, e in EXPERIMENTS.items() if e.kind in (Kind.THEORY, Kind.SYNTHETIC)]
        assert not reproduce(names, PRESETS["smoke"], out, workers=2).outcome.failures

    return made_once("synthetic-smoke", make)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def every_layer() -> list[str]:
    """Names that ``build`` knows: the catalog's, and those with a learner per round."""
    return [*list_attention(), *MIXED]


def build(name: str, dtype: torch.dtype = torch.float64, **options) -> AttentionLayer:
    """A small layer, with an even number of pairs so that every variant accepts it, and no weights at zero."""
    if name in MIXED:
        options = {"n_rounds": len(MIXED[name]["learner"]), **MIXED[name], **options}
        name = "boosted"
    options = {"d_model": D_MODEL, "n_heads": N_HEADS, **CHECK_OPTIONS.get(name, {}), **options}
    return awakened(attention_layer(name, **options).to(dtype))


@cache
def takes_memory() -> list[str]:
    """Names of layers that can read a memory."""
    return [name for name in every_layer() if not any(learner.needs_square_map for learner in build(name).rounds)]


def goes_with(gate: str, learner: type[Learner], space: str) -> bool:
    """Whether a gate may follow a learner: heads exist in head space only, and one of the two must not be at zero."""
    return not (gate in HEADWISE_GATES and space == "output") and not (gate in ZERO_GATES and learner.starts_at_zero)


def suited(name: str, options: dict) -> dict:
    """The options without those that a catalog entry excludes, as its learners say."""
    layer, options = build(name), dict(options)
    if not isinstance(layer.config.learner, str):  # one per round: their number is fixed
        options.pop("n_rounds", None)
    if any(learner.needs_heads for learner in layer.rounds):
        options.pop("space", None)
    if any(learner.starts_at_zero for learner in layer.rounds) and options.get("gate") in ZERO_GATES:
        del options["gate"]
    gate = options.get("gate", layer.config.gate)
    if any(learner.needs_estimate for learner in layer.rounds) and gate not in ZERO_GATES:  # nothing to start at zero
        options.pop("correction_start", None)
    return options


def disturbed(module: Module) -> Module:
    """Move weights that start at a constant (biases, norms, maps from zero) away from it, in place."""
    awakened(module)
    with torch.no_grad():
        for p in module.parameters():
            if p.ndim < 2:
                p.add_(0.2 * torch.randn_like(p))
    return module


def randn(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype)
