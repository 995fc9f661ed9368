"""Corrections as files: what was trained, without the model it corrects.

    FOLDER/   correction.safetensors   correction.json

The JSON is sealed, with size and sha256 of the weights. It names the base model and holds hashes of its weights: a
correction of one model is noise in another. There is one hash for each precision that the weights may be rounded to, so
that the same base is known in any of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from boosted_attention.pretrained.auto import become_boosted
from boosted_attention.pretrained.conversion import has_adapters, remember_frozen
from boosted_attention.pretrained.guard import guarded
from boosted_attention.pretrained.layer import corrected_layers
from boosted_attention.pretrained.named import names_of, require_names, rounds_of, stages_of
from boosted_attention.pretrained.places import attention_modules, find_attention
from boosted_attention.pretrained.quantised import dense_parameters
from boosted_attention.pretrained.stages import Stage, freeze, install, read_stages
from boosted_attention.storage.sealing import files_of, listing, read_sealed, verify, write_sealed
from boosted_attention.storage.weights import require_finite
from boosted_attention.storage.writing import staged_files
from boosted_attention.validation import InputError, require, shortened

WEIGHTS, SETTINGS = "correction.safetensors", "correction.json"
PRECISIONS = {"bfloat16": 16, "float16": 16, "float32": 32, "float64": 64}  # bits of each


def is_correction(name: str) -> bool:
    """Say whether a parameter belongs to a correction round or its gate, by its name."""
    return not {"rounds", "gates"}.isdisjoint(name.split("."))


def base_hash(model: PreTrainedModel, precision: str) -> str:
    """Hash the values of the base's weights, boosted or not, rounded to a precision; tied ones count once."""
    digest = hashlib.sha256()
    base = {name: p for name, p in dense_parameters(model) if not is_correction(name)}
    for name in sorted(base):
        p = base[name].cpu()
        digest.update(f"{name} {tuple(p.shape)}\n".encode())
        rounded = p.to(getattr(torch, precision))
        digest.update((rounded if precision == "float64" else rounded.float()).numpy().tobytes())
    return digest.hexdigest()


def correction_tensors(model: PreTrainedModel, names: Sequence[str]) -> dict[str, nn.Parameter]:
    """Return the parameters of some corrections, by the names they would have if the model had no others."""
    paths = {id(module): path for path, module in corrected_layers(model).items()}
    modules, found = attention_modules(model), {}
    for i, rounds in rounds_of(model, names).items():
        attention: Any = modules[i]
        for new, m in enumerate(rounds, start=1):
            parts = {f"rounds.{new}": attention.rounds[str(m)], f"gates.{new - 1}": attention.gates[m - 1]}
            for part, module in parts.items():
                found |= {f"{paths[id(attention)]}.{part}.{name}": p for name, p in module.named_parameters()}
    return found


def require_same_base(model: PreTrainedModel, base: Mapping[str, Any], what: str) -> None:
    """Raise InputError unless a model is the base that a correction was trained with.

    Where both have one precision their values must be equal; otherwise those of the base, rounded to what the model
    has, or those of the model, rounded to what the base had, whichever is coarser. A bfloat16 and a float16 model that
    were both rounded from one float32 model are different models: neither can be made from the other.
    """
    finest = finest_precision(str(base.get("dtype")))
    stored = {finest: base["sha256"], **base.get("rounded", {})}
    of_both = sorted((dtype_name(model), str(base.get("dtype"))), key=lambda d: PRECISIONS.get(d, 64))
    common = next((d for d in of_both if d in stored), finest)
    theirs, found = stored[common], base_hash(model, common)
    require(
        theirs == found,
        f"{what} corrects another model ({base['name'] or 'unnamed'}, weights {theirs[:12]}) than this one (weights "
        f"{found[:12]}); load it onto the base it was trained with",
    )


def finest_precision(dtype: str) -> str:
    """Return the precision in which the values of a base are hashed as they are."""
    return "float64" if dtype == "float64" else "float32"


def dtype_name(model: PreTrainedModel) -> str:
    """Return the precision of a model's weights, such as "bfloat16"."""
    return str(model.dtype).removeprefix("torch.")


def save_correction(model: PreTrainedModel, folder: str | Path, name: str | None = None) -> Path:
    """Write the correction rounds and gates of a boosted model, without the model itself.

    Args:
        model: a boosted model whose base is frozen.
        folder: where to write; it is made if it does not exist, and returned.
        name: name of the correction to write; all of them by default.
    """
    require(bool(corrected_layers(model)), f"{type(model).__name__} is not boosted: there is no correction to save")
    require(not has_adapters(model), "the model has adapters (LoRA); merge or unload them before saving its correction")
    names = names_of(model) if name is None else [name]
    require_names(model, names)
    trained = [name for name, p in model.named_parameters() if p.requires_grad and not is_correction(name)]
    require(
        not trained,
        f"the base is trained too ({trained[0] if trained else ''}): its correction alone would correct another model; "
        "save_pretrained saves all of it",
    )
    folder = Path(folder)
    held = {name: p.detach().cpu().contiguous() for name, p in correction_tensors(model, names).items()}
    finest = finest_precision(dtype_name(model))
    own = PRECISIONS[finest]
    settings = {
        "boosting": [stage.to_dict() for stage in stages_of(model) if stage.name in names],
        "base": {
            "name": model.config.name_or_path,
            "dtype": dtype_name(model),
            "sha256": base_hash(model, finest),
            "rounded": {coarser: base_hash(model, coarser) for coarser, bits in PRECISIONS.items() if bits < own},
        },
        "parameters": sum(p.numel() for p in held.values()),
    }
    with staged_files(folder) as place:
        save_file(held, place / WEIGHTS, metadata={"format": "pt"})
        write_sealed(place / SETTINGS, settings, listing(place, [WEIGHTS]))
    return folder


def load_correction(model: PreTrainedModel, folder: str | Path) -> PreTrainedModel:
    """Give a model a saved correction, in place, behind those it has, and return it.

    Args:
        model: the model that the correction was trained with, boosted or not; any other is refused. Its precision may
            be another: a base in bfloat16 or float16 is known as a finer one rounded, and the other way round.
        folder: what ``save_correction`` wrote.
    """
    folder = Path(folder)
    stages, base = read_settings(folder, len(find_attention(model)))
    taken = {stage.name for stage in stages} & set(names_of(model))
    require(not taken, f"{folder}: the model has a correction called {sorted(taken)[:1]} already; remove it first")
    require_same_base(model, base, str(folder))
    held = read_weights(folder)
    added = []
    with guarded(model):
        remember_frozen(model)
        for stage in stages:
            added += install(model, stage)
            become_boosted(model, stage)
        wanted = correction_tensors(model, [stage.name for stage in stages])
        shapes = ({name: tuple(t.shape) for name, t in group.items()}.items() for group in (wanted, held))
        differing = sorted(name for name, _ in next(shapes) ^ next(shapes))
        require(not differing, f"{folder}/{WEIGHTS} does not fit its {SETTINGS}: {shortened(differing, 1)}")
    with torch.no_grad():
        for name, p in wanted.items():
            p.copy_(held[name])
    freeze(model, added)
    return model


def read_settings(folder: Path, n_layers: int) -> tuple[list[Stage], dict[str, Any]]:
    """Return the stages of a saved correction, and what is known of its base: name, dtype and hashes."""
    path = folder / SETTINGS
    require(path.is_file(), f"{folder} holds no correction: it has no {SETTINGS}")
    settings = read_sealed(path)
    verify(folder, files_of(settings, path), [WEIGHTS])
    try:
        base = {**settings["base"], "name": str(settings["base"]["name"]), "sha256": str(settings["base"]["sha256"])}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path} is damaged") from None
    return read_stages(settings.get("boosting"), n_layers, str(path)), base


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of a saved correction, which must be finite."""
    path = folder / WEIGHTS
    try:
        with safe_open(path, framework="pt") as file:
            held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is damaged: {error}") from None
    require_finite(held, str(path))
    return held
