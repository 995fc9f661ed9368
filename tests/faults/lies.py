"""Lies that were sealed again: believed where they are possible, refused where they are not, and never run."""

from __future__ import annotations

import json
import math
import random
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from boosted_attention.storage.sealing import FILES, SEAL, listing, write_sealed
from boosted_attention.validation import InputError
from tests.faults.corruption import changed
from tests.faults.hunt import Hunt
from tests.faults.watching import watched
from tests.faults.workshop import KINDS, Workshop, files_of
from tests.train.driver import STEPS


def reseal(path: Path) -> None:
    """Seal a document again over what its folder holds now."""
    document = json.loads(path.read_text())
    names = [name for name in document.pop(FILES, {}) if (path.parent / name).is_file()]
    document.pop(SEAL, None)
    write_sealed(path, document, listing(path.parent, names) if names else None)


def reseal_all(folder: Path) -> None:
    """Seal every sealed document of a folder again, those that others list first."""
    for path in sorted(folder.rglob("*.json"), key=lambda p: -len(p.parts)):
        try:
            document = json.loads(path.read_text())
        except ValueError:
            continue
        if isinstance(document, dict) and SEAL in document:
            reseal(path)


def lie_in_json(draw: random.Random, folder: Path) -> str:
    """Change one value of a sealed document."""
    path = draw.choice([p for p in files_of(folder) if p.suffix == ".json" and p.name != "tokenizer.json"])
    document = json.loads(path.read_text())
    kept = {key: document[key] for key in (FILES, SEAL) if key in document}
    rest = {key: value for key, value in document.items() if key not in kept}
    harmed = changed(draw, rest)
    path.write_text(json.dumps({**harmed, **kept} if isinstance(harmed, dict) else {**rest, **kept}))
    return f"{path.relative_to(folder)}"


def lie_in_weights(draw: random.Random, folder: Path) -> str:
    """Change tensors: not finite, of another shape or dtype, missing, or one too many."""
    paths = [p for p in files_of(folder) if p.suffix == ".safetensors"]
    if not paths:
        return lie_in_json(draw, folder)
    path, how = draw.choice(paths), draw.choice(("nan", "inf", "shape", "missing", "more", "double", "integers"))
    tensors = load_file(path)
    name = draw.choice(sorted(tensors))
    t = tensors[name]
    if how in ("nan", "inf"):
        tensors[name] = t.clone().view(-1).index_fill(0, torch.tensor([0]), float(how)).view(t.shape)
    elif how == "shape":
        tensors[name] = t.repeat(2, *[1] * (t.dim() - 1)) if t.dim() else t.view(1)
    elif how == "missing":
        del tensors[name]
    elif how == "more":
        tensors["another"] = torch.zeros(3)
    else:
        tensors[name] = t.double() if how == "double" else t.long()
    save_file(tensors, path)
    return f"{path.relative_to(folder)}, {name}: {how}"


def finite(said: Any) -> bool:
    """Whether all numbers in what was said are finite."""
    if isinstance(said, float):
        return math.isfinite(said)
    return (
        all(map(finite, said.values() if isinstance(said, dict) else said)) if isinstance(said, dict | list) else True
    )


def lie(draw: random.Random, workshop: Workshop, place: Path) -> str | None:
    """Change something, seal it again, and look: finite numbers or one line, nothing run, no other error."""
    name = draw.choice(["run", "run", "correction", "results", "cache"])
    kind = KINDS[name]
    folder = shutil.copytree(kind.folder(workshop), place / name)
    what = f"{name}, {(lie_in_weights if draw.random() < 0.5 else lie_in_json)(draw, folder)}"
    reseal_all(folder)
    with watched() as seen:
        try:
            said = kind.look(folder, workshop)
        except InputError as refused:
            said = None
            if "\n" in str(refused):
                return f"{what}: more than one line: {refused}"
    if seen:
        return f"{what}: {seen[0]}"
    if ": nan" in what or ": inf" in what or ": shape" in what:
        used = "optimizer" not in what and (name == "correction" or f"-{STEPS:08d}/" in what)
        if used and said is not None and name in ("run", "correction"):
            return f"{what}: was not refused"
    return None if said is None or finite(said) else f"{what}: numbers that are not finite"


HUNTS = (
    Hunt(
        name="resealed lies",
        promise="Whoever changes a file and seals it again is believed within the schema: no code runs, no traceback, "
        "and values outside the schema, weights that are not finite and shapes that disagree are refused.",
        attempts=200,
        attempt=lie,
    ),
)
