"""One model trained by several processes under torchrun, applied to it from outside.

    torchrun --nproc-per-node 4 -m boosted_attention train --parallel fsdp

    ddp    every process holds the model and takes a share of the batch; gradients are averaged
    fsdp   every process also holds only its share of weights, gradients and optimizer state (FSDP2, block by block)

The order is fixed: activation checkpointing, compilation, then the distribution around both; half precision is
autocast, inside all of them. The global batch is the same for any number of processes, and so is every quantity that is
written down: sums over tokens are reduced in float64 and divided once.

Reference: Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from boosted_attention.names import InputError, require, require_choice

KINDS = ("ddp", "fsdp")
LOST = re.compile(r"closed by peer|connection (reset|refused|was|closed)|broken pipe|NCCL|gloo|remote process", re.I)
T = TypeVar("T")


class Refused(InputError):  # noqa: N818
    """Bad input on one process, told to all; the one that met it speaks."""

    def __init__(self, message: str, speaks: bool):
        super().__init__(message)
        self.speaks = speaks


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """The processes that train one model; by default one alone, to which everything here is nothing."""

    kind: str = "ddp"
    rank: int = 0
    world: int = 1

    @property
    def main(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    # What all processes know and decide together

    def agree(self, action: Callable[[], T]) -> T:
        """Do something on every process; input that one of them refuses is refused by all."""
        try:
            result, problem = action(), None
        except InputError as error:
            if self.world == 1:
                raise
            result, problem = None, str(error)
        problems = self.gathered(problem)
        first = next((i for i, found in enumerate(problems) if found is not None), None)
        if first is not None:
            raise Refused(problems[first], speaks=self.rank == first)
        return result  # type: ignore[return-value]

    def gathered(self, value: Any) -> list[Any]:
        """What every process has, in order of rank."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def sums(self, *values: float) -> list[float]:
        """Each value added up over the processes, exactly in float64."""
        if self.world == 1:
            return list(values)
        held = torch.tensor(values, dtype=torch.float64, device=self._device())
        dist.all_reduce(held)
        return held.tolist()

    def require_same(self, value: Any, differences: Callable[[Any, Any], Sequence[str]]) -> None:
        """Raise unless every process was given the same configuration."""
        found = differences(value, self.gathered(value)[0])
        what = f"process {self.rank} was started with other settings than process 0: {'; '.join(found)}"
        self.agree(lambda: require(not found, what))

    # The work of one process

    def require_rows(self, batch_size: int) -> None:
        w = self.world
        require(batch_size >= w, f"--batch-size {batch_size} gives {w} processes less than a row each; start fewer")
        low = batch_size // w * w
        require(
            low == batch_size,
            f"--batch-size {batch_size} is not divisible by {w} processes; {low} or {low + w} would be",
        )

    def rows(self, batch: Tensor) -> Tensor:
        """This process's share of a global batch (B, T)."""
        return batch.chunk(self.world)[self.rank]

    def micro_batches(self, accumulate: int) -> int:
        """How many parts this process's share is computed in: a part is never larger than on one process."""
        return -(-accumulate // self.world)

    def dealt(self, items: Iterator[T], empty: Callable[[T], T]) -> Iterator[T]:
        """Every world-th item. All processes get equally many, for forward passes that need all; ``empty`` ones count
        for nothing."""
        group: list[T] = []
        for item in items:
            group.append(item)
            if len(group) == self.world:
                yield group[self.rank]
                group = []
        if group:
            yield group[self.rank] if self.rank < len(group) else empty(group[0])

    def seed_step(self, seed: int, step: int) -> None:
        """Dropout of its own for every process and step; a process alone goes on with its random state."""
        if self.world > 1:
            digest = hashlib.sha256(f"{seed} {step} {self.rank}".encode()).digest()
            torch.manual_seed(int.from_bytes(digest[:7], "big"))

    def distribute(self, model: Any, *, checkpointing: bool, compiled: bool) -> Trained:
        """Prepare the model for training in place; what computes its loss from here on."""
        blocks = list(model.blocks())
        if checkpointing:
            for block in blocks:
                block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        if self.world == 1:
            return Trained(torch.compile(model.loss) if compiled else model.loss)
        if compiled:
            for block in blocks:
                block.compile()
        return self._sharded(model, blocks) if self.kind == "fsdp" else self._replicated(model)

    def _replicated(self, model: Any) -> Trained:
        from torch.nn.parallel import DistributedDataParallel

        whole = DistributedDataParallel(LossModule(model))
        return Trained(whole, lambda last: nullcontext() if last else whole.no_sync(), self.world)

    def _sharded(self, model: Any, blocks: Sequence[nn.Module]) -> Trained:
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

        for block in blocks:
            fully_shard(block)
        fully_shard(model)
        register_fsdp_forward_method(model, "loss")

        @contextmanager
        def synchronised(last: bool) -> Iterator[None]:
            model.set_requires_gradient_sync(last)
            yield

        return Trained(model.loss, synchronised, self.world)

    def whole(self, t: Tensor) -> Tensor:
        """A tensor in one piece, put together from its shards by all processes."""
        return t.full_tensor() if hasattr(t, "full_tensor") else t  # type: ignore[operator]

    def like(self, whole: Tensor, p: Tensor) -> Tensor:
        """A whole tensor divided as ``p`` is."""
        from torch.distributed.tensor import DTensor, distribute_tensor

        if not isinstance(p, DTensor):
            return whole.to(p.device)
        # each process cuts out its own part
        return distribute_tensor(whole.to(p.device), p.device_mesh, p.placements, src_data_rank=None)

    def _device(self) -> torch.device:
        return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


@dataclass(frozen=True)
class Trained:
    """``loss`` as it is called in training; its backward belongs into ``synchronised(last)``, where ``last`` says
    whether the gradients are now complete. They come out averaged: ``scale`` makes a sum of it."""

    loss: Callable[..., Tensor]
    synchronised: Callable[[bool], Any] = lambda last: nullcontext()
    scale: int = 1


class LossModule(nn.Module):
    """A model whose forward pass is its loss, which is what DDP listens to."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.model.loss(*args, **kwargs)


ALONE = Parallel()


@contextmanager
def processes(kind: str, device: str) -> Iterator[tuple[Parallel, str]]:
    """Join the processes that torchrun started, if it did, and say which device is this one's."""
    require_choice("--parallel", kind, KINDS)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield ALONE, device
        return
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    try:
        yield Parallel(kind=kind, rank=dist.get_rank(), world=world), device
    finally:
        dist.destroy_process_group()


def restarted() -> bool:
    """Whether torchrun has started this job anew after a process died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def another_died(error: BaseException) -> bool:
    """Whether an error only says that another process is gone, which tells its own story."""
    return "WORLD_SIZE" in os.environ and isinstance(error, RuntimeError) and bool(LOST.search(str(error)))
