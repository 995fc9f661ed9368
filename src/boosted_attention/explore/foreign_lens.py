"""The logit lens for boosted models of transformers, whose blocks are known only by what they do.

A block can be read if the attention's output a is added unchanged to what it reads, h. One of two things shows that in
a forward pass: a part of the block reads h + a (norms before each part), or what the block returns is h + a plus the
output of one part (parts side by side). A model can be read if a norm behind the last block and the vocabulary
projection give its logits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from boosted_attention.attention.trace import traced_layers


class Seen:
    """What one module read and returned last; its first tensor of either."""

    def __init__(self) -> None:
        self.read: Tensor | None = None
        self.returned: Tensor | None = None

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Forward pre-hook."""
        self.read = first_tensor([*args, *kwargs.values()])

    def after(self, module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        """Forward hook."""
        self.returned = first_tensor(result if isinstance(result, tuple | list) else [result])


class ForeignLens:
    """The streams of one forward pass of a boosted model of transformers.

    Args:
        model: the module around it that returns logits.
        head: its vocabulary projection.
    """

    def __init__(self, model: nn.Module, head: nn.Module):
        self.head = head
        names = list(traced_layers(model))
        self.attentions = [model.get_submodule(name) for name in names]
        self.blocks = [model.get_submodule(name.rpartition(".")[0]) for name in names]
        inside = {id(part) for block in self.blocks for part in block.modules()}
        self.others = [part for part in model.modules() if id(part) not in inside and not list(part.children())]
        self.seen: dict[nn.Module, Seen] = {}
        self.norm: nn.Module | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keep what the parts of the model read and return in forward passes inside the block."""
        parts = [part for block in self.blocks for part in (block, *block.children())]
        with ExitStack() as undo:
            for part in {*parts, *self.attentions, *self.others, self.head}:
                seen = self.seen[part] = Seen()
                undo.callback(part.register_forward_pre_hook(seen.before, with_kwargs=True).remove)
                undo.callback(part.register_forward_hook(seen.after).remove)
            yield

    @torch.no_grad()
    def reads(self, logits: Tensor) -> bool:
        """Say whether streams can be read as predictions, after a pass that gave logits (B, T, V)."""
        read = self.seen[self.head].read
        ends = [part for part in self.others if part is not self.head and same(self.seen[part].returned, read)]
        self.norm = ends[0] if ends else None
        if self.norm is None or not all(map(self._adds_unchanged, self.blocks, self.attentions)):
            return False
        stream = self.seen[self.norm].read
        return stream is not None and same(self.head(self.norm(stream)), logits)

    def _adds_unchanged(self, block: nn.Module, attention: nn.Module) -> bool:
        """Say whether a block added its attention's output to what it read, and nothing came between."""
        h, a, result = self.seen[block].read, self.seen[attention].returned, self.seen[block].returned
        if h is None or a is None or result is None or h.shape != a.shape:
            return False
        sums = [part.read for part in map(self.seen.__getitem__, block.children())]  # norms before each part
        sums += [
            result - part.returned
            for part in map(self.seen.__getitem__, block.children())
            if part.returned is not None and part.returned.shape == result.shape
        ]
        return any(is_sum(found, h, a) for found in sums)

    @torch.no_grad()
    def stream(self, layer: int, estimate: Tensor | None) -> Tensor:
        """Return the stream (B, T, D) of a layer behind an estimate (B, T, D), or before all of them with None."""
        h = self.seen[self.blocks[layer]].read
        assert h is not None
        return h if estimate is None else h + estimate

    @torch.no_grad()
    def predicts(self, stream: Tensor) -> Tensor:
        """Return log-probabilities (..., V) of the next token, read from a stream (..., D)."""
        assert self.norm is not None
        return self.head(self.norm(stream)).float().log_softmax(dim=-1).cpu()


def first_tensor(values: Iterable[Any]) -> Tensor | None:
    """Return the first tensor of floating-point numbers among what a module reads or returns."""
    return next((value for value in values if isinstance(value, Tensor) and value.is_floating_point()), None)


def is_sum(found: Tensor | None, h: Tensor, a: Tensor) -> bool:
    """Say whether a tensor is h + a at every token: what differs must be small beside a, or rounding of h."""
    if found is None or found.shape != h.shape:
        return False
    rounding = torch.finfo(h.dtype).eps
    found, h, a = found.float(), h.float(), a.float()
    wrong, allowed = (found - h - a).norm(dim=-1), 1e-3 * a.norm(dim=-1) + 8 * rounding * h.norm(dim=-1)
    return bool((wrong <= allowed).all())


def same(one: Tensor | None, other: Tensor | None) -> bool:
    """Say whether two tensors are there and equal to rounding."""
    if one is None or other is None or one.shape != other.shape:
        return False
    return torch.allclose(one.float(), other.float(), rtol=1e-3, atol=1e-4 * float(other.abs().max()))
