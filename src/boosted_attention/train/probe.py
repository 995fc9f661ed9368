"""Probes of a model before it is trained: earlier logits must not depend on later tokens, nor documents on others."""

from __future__ import annotations

import torch

from boosted_attention.model.protocols import CausalModel
from boosted_attention.train.results import LeakageReport
from boosted_attention.validation import require

PROBE_TOKENS = 64  # per row: enough to cross every mechanism's range, and quick on every size
LEAKAGE_BOUND = 1e-4  # of the largest logit: kernels on some devices are exact to rounding only
PACKING_BOUND = (
    1e-3  # of the largest loss: rows of other lengths round otherwise, documents that are seen move it by far
)


class LeakageError(RuntimeError):
    """The model's past depends on its future."""


@torch.no_grad()
def leakage_probe(model: CausalModel) -> LeakageReport:
    """Change all tokens from the middle on, and measure how far logits move before and after it.

    Args:
        model: the model; it is left in the mode it was in, and so is torch's random state.

    Raises:
        LeakageError: earlier logits moved, so the model sees the tokens it is to predict.
    """
    device, length = next(model.parameters()).device, min(model.config.max_len, PROBE_TOKENS)
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
    found = LeakageReport(past=float(moved[:middle].max()) if middle else 0.0, future=float(moved[middle:].max()))
    if not found.past <= LEAKAGE_BOUND:
        raise LeakageError(f"the future leaks into the past: logits before a changed token move by {found.past:.1e}")
    return found


@torch.no_grad()
def packing_probe(model: CausalModel) -> None:
    """Raise InputError unless losses of two documents in one row are those of the documents alone.

    Args:
        model: the model; it is left in the mode it was in, and so is torch's random state.
    """
    device, length = next(model.parameters()).device, max(1, min(model.config.max_len, PROBE_TOKENS) // 2)
    draw = torch.Generator().manual_seed(0)  # of its own: the run's random state stays untouched
    ids = torch.randint(model.config.vocab_size, (2, length), generator=draw).to(device)
    documents = torch.arange(2, device=device).repeat_interleave(length)[None]  # (1, 2 * length)
    was_training = model.training
    model.eval()
    alone = model.loss(ids, ids, reduction="none")
    together = model.loss(ids.view(1, -1), ids.view(1, -1), documents=documents, reduction="none").view(2, length)
    model.train(was_training)
    moved = float((together - alone).abs().max() / alone.abs().max())
    require(
        moved <= PACKING_BOUND,
        f"pack='documents': this model does not keep documents of one row apart, its losses move by {moved:.1e}; use "
        "pack='none'",
    )
