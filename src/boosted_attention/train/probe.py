"""The leakage probe: perturb the future, look at the past. A model that passes cannot have seen its targets."""

from __future__ import annotations

import torch

from boosted_attention.model.language_model import LanguageModel

LONGEST = 64  # tokens; enough to cross every mechanism's range and quick on every size
BOUND = 1e-4  # of the largest logit: kernels on some devices are exact to rounding only


class LeakageError(RuntimeError):
    """The model's past depends on its future."""


@torch.no_grad()
def leakage_probe(model: LanguageModel) -> dict[str, float]:
    """Change all tokens from the middle on. How far logits before it move, relative to the largest, and after it."""
    device, length = next(model.parameters()).device, min(model.config.max_len, LONGEST)
    draw = torch.Generator().manual_seed(0)  # of its own: the run's random state stays untouched
    ids = torch.randint(model.config.vocab_size, (2, length), generator=draw)
    middle = length // 2
    disturbed = ids.clone()
    disturbed[:, middle:] = (ids[:, middle:] + 1) % model.config.vocab_size
    was_training = model.training
    model.eval()
    before, after = (model(t.to(device)) for t in (ids, disturbed))
    model.train(was_training)
    moved = (before - after).abs().amax(dim=(0, 2)) / before.abs().max()  # (T,)
    found = {"past": float(moved[:middle].max()) if middle else 0.0, "future": float(moved[middle:].max())}
    if not found["past"] <= BOUND:
        raise LeakageError(f"the future leaks into the past: logits before a changed token move by {found['past']:.1e}")
    return found
