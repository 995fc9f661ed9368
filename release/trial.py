"""Build the files, and use the wheel in an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import tomllib
import venv
from importlib.metadata import packages_distributions
from pathlib import Path

IMPORT = "import boosted_attention, importlib.metadata as m; print(boosted_attention.__file__); "
IMPORT += "print(boosted_attention.__version__, m.version('boosted-attention'))"
NAMES = "from boosted_attention.cli.main import COMMANDS; print(*COMMANDS)"


def run(*words: str | Path, cwd: Path | None = None) -> str:
    """Return what a command prints; end with its complaint if it fails."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # which could hide the wheel
    command = [str(word) for word in words]
    done = subprocess.run(command, cwd=cwd, env=own, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["without a word"]
        raise SystemExit(f"release: {' '.join(command)} failed: {said[0]}")
    return done.stdout


def build(root: Path, out: Path, scratch: Path) -> tuple[Path, Path]:
    """Build the source archive, and the wheel from it, by ``build`` in an environment of its own.

    Args:
        root: the checkout.
        out: folder for the two files.
        scratch: folder for the environment.
    """
    venv.create(scratch, with_pip=True)
    python = scratch / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "build")
    run(python, "-m", "build", "--outdir", out, root)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


def install(wheel: Path, root: Path, scratch: Path, *, clean: bool) -> Path:
    """Install a wheel without extras, and return the folder of its environment's programs.

    Args:
        wheel: the wheel.
        root: the checkout, with constraints.txt.
        scratch: folder for the environment.
        clean: whether dependencies are installed anew; else those of this environment are seen, without the extras.
    """
    venv.create(scratch, with_pip=True)
    python = scratch / "bin" / "python"
    if clean:
        run(python, "-m", "pip", "install", "-q", "-c", root / "constraints.txt", wheel)
    else:
        run(python, "-m", "pip", "install", "-q", "--no-deps", wheel)
        place = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        hidden = dict.fromkeys(modules_of_extras(root))
        (place / "borrowed.pth").write_text(
            f"{sysconfig.get_path('purelib')}\nimport sys; sys.modules.update({hidden})\n", encoding="utf-8"
        )
    return scratch / "bin"


def modules_of_extras(root: Path) -> list[str]:
    """Return the names under which packages of this environment are imported that only extras ask for."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = {named(requirement) for requirement in project["dependencies"]}
    extras = {named(one) for listed in project["optional-dependencies"].values() for one in listed} - core
    found = packages_distributions()
    return sorted(module for module, owners in found.items() if {named(owner) for owner in owners} <= extras)


def named(requirement: str) -> str:
    """Return the normalised name of a distribution, without versions and extras."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0]).lower()


def use(programs: Path, version: str, elsewhere: Path) -> list[str]:
    """Return what is wrong with an installed wheel: its place, its version, or a command that does not start.

    Args:
        programs: folder of its environment's programs.
        version: the version it should have.
        elsewhere: folder to work in, which is no checkout.
    """
    python, command, problems = programs / "python", programs / "boosted-attention", []
    place, versions = run(python, "-I", "-c", IMPORT, cwd=elsewhere).splitlines()
    if not Path(place).is_relative_to(programs.parent):
        problems.append(f"boosted_attention comes from {place}, and not from the wheel")
    if versions.split() != [version, version]:
        problems.append(f"the installed package has versions {versions}; expected {version} twice")
    if run(command, "--version", cwd=elsewhere).split() != ["boosted-attention", version]:
        problems.append(f"boosted-attention --version does not say {version}")
    names = run(python, "-I", "-c", NAMES, cwd=elsewhere).split()
    for words in ([], *([name] for name in names)):
        if "usage" not in run(command, *words, "--help", cwd=elsewhere).lower():
            problems.append(f"boosted-attention {' '.join([*words, '--help'])} shows no usage")
    run(command, "check", "boosted", cwd=elsewhere)
    return problems
