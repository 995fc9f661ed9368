"""Build the files of a release and try them."""

from __future__ import annotations

import argparse
import platform
import tempfile
from pathlib import Path

from boosted_attention.storage.writing import staged_folder
from release.contents import sdist_problems, wheel_problems
from release.readiness import readiness, version_of
from release.trial import build, install, use

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--clean", action="store_true", help="dependencies installed anew, instead of those here")
    clean = parser.parse_args().clean
    refuse_any(readiness(ROOT))
    version = version_of(ROOT)
    with tempfile.TemporaryDirectory() as folder, staged_folder(ROOT / "dist", replace=True) as out:
        scratch = Path(folder)
        wheel, sdist = build(ROOT, out, scratch / "builder")
        print(f"built {sized(wheel)} and {sized(sdist)}", flush=True)
        refuse_any(wheel_problems(wheel, ROOT) + sdist_problems(sdist, ROOT))
        print("they hold the files and metadata of the commit", flush=True)
        programs = install(wheel, ROOT, scratch / "user", clean=clean)
        refuse_any(use(programs, version, scratch))
        print(
            f"the wheel works on Python {platform.python_version()}, without extras: import, every command, one check",
            flush=True,
        )
    print(f"dist/ holds boosted-attention {version}")
    return 0


def refuse_any(problems: list[str]) -> None:
    """End with the problems, if there are any; dist/ stays what it was."""
    if problems:
        raise SystemExit("\n".join(f"release: {problem}" for problem in problems))


def sized(path: Path) -> str:
    """Return a file's name and size."""
    return f"{path.name} ({path.stat().st_size / 1e6:.1f} MB)"


if __name__ == "__main__":
    raise SystemExit(main())
