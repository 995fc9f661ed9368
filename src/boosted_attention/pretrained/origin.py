"""Where a base model comes from: its name on the Hugging Face hub and its licence, as far as they are known.

A name is known where transformers loaded the model from the hub, or from a folder of the hub's own cache; the path of
any other folder says nothing, and belongs to one machine. A licence is known where the card in the model's folder
states one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard
from huggingface_hub.errors import HFValidationError
from huggingface_hub.repocard import REGEX_YAML_BLOCK
from huggingface_hub.utils import validate_repo_id

from boosted_attention.storage.documents import read_bytes

CARD = "README.md"
LARGEST_CARD = 2**22  # bytes
CACHED = re.compile(r"models--(?P<name>[\w.-]+)[/\\]snapshots[/\\]")
LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
UNNAMED = ("other", "unknown")  # which name no licence


def hub_name(config: Any) -> str | None:
    """Return the name that a model has on the hub; None where it is not known to be there.

    Args:
        config: transformers' configuration of the model.
    """
    stored = getattr(config, "name_or_path", None) or ""
    cached = CACHED.search(f"{stored}/")
    name = cached["name"].replace("--", "/") if cached else stored
    return name if is_repo_id(name) and (cached or not Path(name).exists()) else None


def is_repo_id(name: str) -> bool:
    """Say whether a repository of the hub could have a name."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return bool(name)


def stated_licence(folder: Path) -> str | None:
    """Return the licence that the card in a folder states, by the hub's name for it; None where it states none.

    Args:
        folder: folder of a model.
    """
    try:
        text = read_bytes(folder / CARD, LARGEST_CARD).decode()
        stated = ModelCard(text).data.get("license") if REGEX_YAML_BLOCK.search(text) else None
    except Exception:  # no card, or whatever reading its front matter raises
        return None
    known = isinstance(stated, str) and LICENCE.fullmatch(stated) and stated not in UNNAMED
    return stated if known else None
