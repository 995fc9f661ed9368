"""Folders of models of transformers: read without pickles, without remote code and without a network."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from boosted_attention.storage.documents import DamagedError, is_there, read_json
from boosted_attention.storage.sealing import entry_of
from boosted_attention.storage.weights import require_finite
from boosted_attention.validation import InputError, require, shortened


def require_model_folder(folder: Path) -> None:
    """Raise InputError unless the folder holds a model that can be loaded without a pickle."""
    require(folder.is_dir(), f"{folder} is not a folder of a model")
    require((folder / "config.json").is_file(), f"{folder} holds no model: it has no config.json")
    if not list(folder.glob("*.safetensors")):
        pickles = [*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth")]
        what = f"only {pickles[0].name}, a pickle, which is never loaded" if pickles else "no weights"
        raise InputError(f"{folder} has {what}; it needs *.safetensors")
    require_index(folder)


def require_index(folder: Path) -> None:
    """Raise InputError unless a folder's index, if it has one, names safetensors files of the folder itself."""
    path = folder / "model.safetensors.index.json"
    if not is_there(path):
        return
    index = read_json(path)
    files = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(files, dict):
        raise DamagedError(f"{path} is damaged: it has no weight_map")
    for name in {str(name) for name in files.values()}:
        own = Path(name).name == name and name.endswith(".safetensors")
        require(own, f"{path} names {name!r}, which is no *.safetensors file of the folder and is never loaded")
        require((folder / name).is_file(), f"{folder} is not whole: it has no {name}")


def weights_hash(folder: Path) -> str:
    """Hash the weight files of a folder, so that a model is known without being loaded."""
    require_model_folder(folder)
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        stat = path.stat()
        digest.update(f"{path.name} {known_sha256(path, stat.st_size, stat.st_mtime_ns)}\n".encode())
    return digest.hexdigest()


@lru_cache(maxsize=64)
def known_sha256(path: Path, size: int, modified: int) -> str:
    """Return the sha256 of a file, which is read once unless it changes."""
    return entry_of(path).sha256


def read_config(folder: Path) -> Any:
    """Return the configuration of the model in a folder."""
    require_model_folder(folder)
    read_json(folder / "config.json")  # under a bound, which transformers has not
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # whatever a configuration's own checks raise
        raise InputError(f"{folder}/config.json is no model that transformers knows: {first_line(error)}") from None


def load_model(folder: str | Path, dtype: torch.dtype | str = "auto") -> PreTrainedModel:
    """Load a causal model from a folder: safetensors only, no remote code, no network.

    Args:
        folder: config.json and *.safetensors.
        dtype: of the weights; by default that of the files.
    """
    folder = Path(folder)
    read_config(folder)
    try:
        with quietly():
            model, info = AutoModelForCausalLM.from_pretrained(  # type: ignore[reportGeneralTypeIssues]
                folder, dtype=dtype, local_files_only=True, use_safetensors=True, output_loading_info=True
            )
    except Exception as error:  # whatever a model's own code raises at what the files say
        raise InputError(f"{folder} cannot be loaded as a causal language model: {first_line(error)}") from None
    missing = sorted({*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])})
    require(not missing, f"{folder} does not hold the weights of its config.json: {shortened(missing)}")
    require_finite(dict(model.named_parameters()), str(folder))
    return model


def copy_tokenizer(folder: Path, out: Path) -> None:
    """Copy tokenizer, templates and generation settings of a model, but nothing that belongs to its weights."""
    for path in sorted(folder.iterdir()):
        known = path.suffix in (".json", ".txt", ".model", ".jinja")
        weights = path.name.endswith(".index.json") or path.name.startswith("adapter_")
        if path.is_file() and known and not weights and not (out / path.name).exists():
            shutil.copy2(path, out / path.name)


@contextmanager
def quietly() -> Iterator[None]:
    """Switch off transformers' progress bars, behind which a command's one line would be lost."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
