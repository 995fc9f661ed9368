"""Trained runs, whatever kind of model they hold, and models of transformers in place of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from boosted_attention.storage.documents import DamagedError, read_json

if TYPE_CHECKING:
    from boosted_attention.train.folder import TrainedRun


def load_trained(folder: Path, checkpoint: str, device: str = "cpu") -> TrainedRun:
    """Load a run as ``load_run`` does, and before that the package that its kind of model needs; or a boosted model.

    Args:
        folder: the run's folder, or that of a model of transformers.
        checkpoint: best or last, of a run.
        device: where to put the model.
    """
    from boosted_attention.train.folder import load_run

    if "model_type" in stored_config(folder):
        from boosted_attention.pretrained.as_run import model_as_run

        return model_as_run(folder, device)
    if kind_of(folder) == "pretrained":
        import boosted_attention.pretrained  # noqa: F401
    return load_run(folder, checkpoint, device)


def kind_of(folder: Path) -> str | None:
    """Return the kind of model that a run's config.json names; None for models of our own, or where it is damaged."""
    model = stored_config(folder).get("model")
    return model.get("kind") if isinstance(model, dict) else None


def stored_config(folder: Path) -> dict[str, Any]:
    """Return what config.json holds; nothing where it is missing or damaged."""
    try:
        found = read_json(folder / "config.json")
    except DamagedError:
        return {}
    return found if isinstance(found, dict) else {}
