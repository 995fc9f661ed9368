"""Where a run goes on: its last whole checkpoint, if its settings are the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from boosted_attention.storage.documents import is_there
from boosted_attention.train import checkpoint
from boosted_attention.train.settings import CONFIG, Settings, read_settings, settings_differ
from boosted_attention.validation import require


def find_checkpoint(
    folder: Path, config: Settings, resume: bool, remark: Callable[[str], None]
) -> checkpoint.Checkpoint | None:
    """Return the checkpoint to go on from, None for a new run, and remove what lies beyond it.

    Args:
        folder: the run's folder.
        config: the settings of the run as config.json would hold them.
        resume: whether a run that is there already may go on.
        remark: told of damaged checkpoints.
    """
    used, name = is_there(folder / CONFIG), f"folder={str(folder)!r}"
    checkpoints = folder / "checkpoints"
    require(resume or not used, f"{name} holds a run already; resume=True continues it, or give another folder")
    if not used:
        left = [kind for kind in ("step", "best") if checkpoint.steps_of(checkpoints, kind)]
        require(not left, f"{name} has checkpoints of a run but no {CONFIG}; put it back, or give another folder")
        return None
    require_same(folder, config, read_settings(folder).settings)
    found, problems = checkpoint.latest(checkpoints, "step")
    for problem in problems:
        use = "starting anew" if found is None else f"going on from {found.folder.name}"
        remark(f"{problem}; {use}")
    if found is not None:
        require_same(folder, config, found.state.get("config"))
    checkpoint.clear(checkpoints, 0 if found is None else found.step)
    if found is not None and found.best_step is not None:
        _, problem = checkpoint.opened(checkpoint.place(checkpoints, "best", found.best_step))
        if problem is not None:
            remark(f"{problem}; the run goes on, but it can be tested only if a later evaluation is better")
    return found


def require_same(folder: Path, ours: Settings, theirs: Any) -> None:
    """Raise InputError unless settings and text are the same; where the text lies does not matter."""
    found = settings_differ(ours, theirs)
    require(not found, f"resume=True: folder={str(folder)!r} was made with other settings: {'; '.join(found)}")


def best_to_test(checkpoints: Path, step: int) -> tuple[checkpoint.Checkpoint | None, str | None]:
    """Return the run's best checkpoint, or why nothing can be tested and what to do about it.

    Args:
        checkpoints: folder of the run's checkpoints.
        step: step of the best evaluation.
    """
    found, problem = checkpoint.opened(checkpoint.place(checkpoints, "best", step))
    if problem is None:
        return found, None
    return None, (
        f"{problem}; the best checkpoint, of step {step}, is lost and no other is tested in its place; put it back and "
        "continue with resume=True, or train again in another folder"
    )
