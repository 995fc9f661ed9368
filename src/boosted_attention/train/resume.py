"""Where a run goes on: its last whole checkpoint, if its settings are the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from boosted_attention.train import checkpoint
from boosted_attention.train.folder import differences
from boosted_attention.train.run_config import RunConfig
from boosted_attention.validation import InputError, require


def find_checkpoint(
    folder: Path, config: dict[str, Any], resume: bool, remark: Callable[[str], None]
) -> checkpoint.Checkpoint | None:
    """Return the checkpoint to go on from, None for a new run, and remove what lies beyond it.

    Args:
        folder: the run's folder.
        config: the settings of the run as config.json would hold them.
        resume: whether a run that is there already may go on.
        remark: told of damaged checkpoints.
    """
    used, name = (folder / "config.json").exists(), f"folder={str(folder)!r}"
    require(resume or not used, f"{name} holds a run already; resume=True continues it, or give another folder")
    if not used:
        return None
    try:
        theirs = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        theirs = None
    if not isinstance(theirs, dict):
        raise InputError(f"{name}: config.json is damaged; give another folder")
    require_same(folder, config, theirs)
    checkpoints = folder / "checkpoints"
    found, problems = checkpoint.latest(checkpoints, "step")
    for problem in problems:
        use = "starting anew" if found is None else f"going on from {found.folder.name}"
        remark(f"{problem}; {use}")
    if found is not None:
        require_same(folder, config, found.state["config"])
    checkpoint.clear(checkpoints, 0 if found is None else found.step)
    if found is not None and found.best_step is not None:
        problem = checkpoint.damage(checkpoint.place(checkpoints, "best", found.best_step))
        if problem is not None:
            remark(f"{problem}; the run goes on, but it can be tested only if a later evaluation is better")
    return found


def require_same(folder: Path, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Raise InputError unless settings and text are the same; where the text lies does not matter."""
    theirs = with_later_options(theirs)
    if ours["fingerprint"] == theirs.get("fingerprint"):
        ours, theirs = ({**config, "data": None} for config in (ours, theirs))
    found = differences(ours, theirs)
    require(not found, f"resume=True: folder={str(folder)!r} was made with other settings: {'; '.join(found)}")


def with_later_options(settings: dict[str, Any]) -> dict[str, Any]:
    """Return stored settings with options that came after them, which had then been at what are their defaults."""
    try:
        return {**settings, **RunConfig.from_dict(settings).to_dict()}
    except (InputError, KeyError, TypeError):  # damaged, or of another package: compared as they are
        return settings


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
        f"{problem}: the best checkpoint, of step {step}, is lost and no other is tested in its place; put it back and "
        "continue with resume=True, or train again in another folder"
    )
