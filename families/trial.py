"""One family, tried: what ``boost`` does with a tiny model of it."""

from __future__ import annotations

import inspect
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from boosted_attention import InputError, boost, unboost
from boosted_attention.pretrained.correction import is_correction
from boosted_attention.pretrained.folders import quietly
from boosted_attention.pretrained.layer import corrected_layers
from boosted_attention.pretrained.places import n_cache_layers
from families.tiny import VOCABULARY, tiny

KINDS: dict[str, dict[str, Any]] = {"full": {}, "low-rank": {"rank": 2}, "shared": {"kv": "shared", "rank": 2}}
ROUNDING = 1e-4  # of logits, relative to the largest
LENGTH, READ = 12, 7  # of a row, and of what is read at once before it goes on from the cache
WORKS, REFUSED, BROKEN, UNBUILT = "works", "refused", "broken", "could not be built"


class BrokenError(Exception):
    """A promise that a boosted model does not keep."""


def rows() -> Tensor:
    return torch.randint(3, VOCABULARY - 4, (2, LENGTH), generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def logits(model: Any, ids: Tensor) -> Tensor:
    return model(ids, use_cache=False).logits


@torch.no_grad()
def decoded(model: Any, ids: Tensor) -> Tensor | None:
    """Return the logits of rows that are read in part and then token by token; None where the model has no cache."""
    out = model(ids[:, :READ], use_cache=True)
    made, cache = [out.logits], getattr(out, "past_key_values", None)
    if cache is None:
        return None
    placed = "position_ids" in inspect.signature(model.forward).parameters  # which generate passes, and some need
    for t in range(READ, LENGTH):
        where = {"position_ids": torch.full((len(ids), 1), t)} if placed else {}
        out = model(ids[:, t : t + 1], past_key_values=cache, use_cache=True, **where)
        made.append(out.logits)
    return torch.cat(made, dim=1)


def distance(a: Tensor, b: Tensor) -> float:
    """Return the largest difference, relative to the largest value."""
    return float((a - b).abs().max() / a.abs().max())


def disturb(model: PreTrainedModel) -> None:
    """Change corrections as if they had been trained."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if is_correction(name):
                p.add_(0.15 * torch.randn_like(p))


def in_fresh_memory(model: Any) -> Any:
    """Move weights from where they lay in a file, which changes how products round, to memory of their own."""
    for p in model.requires_grad_(False).parameters():
        p.data = p.data.clone()
    return model


def hold(condition: bool, promise: str) -> None:
    if not condition:
        raise BrokenError(promise)


def try_kind(family: str, options: dict[str, Any]) -> dict[str, str]:
    """Return what became of one kind of corrections: a status, and the message or the broken promise."""
    model, ids = tiny(family).requires_grad_(False), rows()  # as boosting freezes it, which may choose other kernels
    before, alone = logits(model, ids), decoded(model, ids)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    kind = type(model)
    try:
        boost(model, **options)
    except InputError as error:
        hold(type(model) is kind and not corrected_layers(model), "refused, but not put back")
        hold(torch.equal(logits(model, ids), before), "refused, but changed")
        return {"status": REFUSED, "why": str(error)}
    hold(torch.equal(logits(model, ids), before), "the start is not bit-equal")
    exact = alone is None or distance(before, alone) <= ROUNDING
    hold(exact, "the base's own cache is not exact, so that nothing can be said of corrections")
    disturb(model)
    after = logits(model, ids)
    hold(bool(after.isfinite().all()), "logits are not finite")
    hold(not torch.equal(after, before), "corrections have no effect")
    cached = decoded(model, ids)
    hold((cached is None) == (alone is None), "the cache is lost")
    if cached is not None:
        hold(distance(after, cached) <= ROUNDING, "cached decoding differs from uncached")
    changed = ids.clone()
    changed[:, READ:] = (ids[:, READ:] + 1) % (VOCABULARY - 4)
    hold(distance(after[:, :READ], logits(model, changed)[:, :READ]) <= ROUNDING, "the future is seen")
    with tempfile.TemporaryDirectory() as folder, quietly():
        model.save_pretrained(folder)
        loaded = in_fresh_memory(AutoModelForCausalLM.from_pretrained(folder).eval())
        hold(torch.equal(logits(loaded, ids), after), "saved and loaded it differs")
        plain = in_fresh_memory(kind.from_pretrained(folder).eval())
        hold(torch.equal(logits(plain, ids), before), "its own class does not load the base")
        hold(not list(Path(folder).glob("*.bin")), "a pickle was written")
    unboost(model)
    hold(torch.equal(logits(model, ids), before), "unboosted it is not the original")
    same = all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    hold(same and type(model) is kind, "unboosted it is not the original")
    return {"status": WORKS, "why": ""}


def try_family(family: str) -> dict[str, Any]:
    """Return what became of a family: its class, how many layers were boosted, and every kind of corrections."""
    try:
        model = tiny(family)
        logits(model, rows())
        decoded(model, rows())
    except Exception as error:
        return {"status": UNBUILT, "why": first(error)}
    found: dict[str, Any] = {"model": type(model).__name__, "kinds": {}}
    for name, options in KINDS.items():
        try:
            found["kinds"][name] = try_kind(family, options)
        except Exception as error:
            found["kinds"][name] = {"status": BROKEN, "why": first(error)}
    try:
        found["layers"] = f"{len(corrected_layers(boost(model)))} of {n_cache_layers(model)}"
    except InputError:
        found["layers"] = ""
    states = [kind["status"] for kind in found["kinds"].values()]
    found["status"] = next(state for state in (BROKEN, WORKS, REFUSED) if state in states)
    return found


def first(error: Exception) -> str:
    """Return an error in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])}"[:300]
