"""Trained runs, whatever kind of model they hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from boosted_attention.train.folder import TrainedRun


def load_trained(folder: Path, checkpoint: str, device: str = "cpu") -> TrainedRun:
    """Load a run as ``load_run`` does, and before that the package that its kind of model needs.

    Args:
        folder: the run's folder.
        checkpoint: best or last.
        device: where to put the model.
    """
    from boosted_attention.train.folder import load_run

    if kind_of(folder) == "pretrained":
        import boosted_attention.pretrained  # noqa: F401
    return load_run(folder, checkpoint, device)


def kind_of(folder: Path) -> str | None:
    """Return the kind of model that a run's config.json names; None for models of our own, or where it is damaged."""
    try:
        return json.loads((folder / "config.json").read_text(encoding="utf-8"))["model"].get("kind")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
