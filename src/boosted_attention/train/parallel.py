"""Parallel training: several processes, started by torchrun, that train one model.

    ddp    every process holds the model and takes a share of the batch; gradients are averaged
    fsdp   every process also holds only its share of weights, gradients and optimizer state (FSDP2, block by block)

The order is fixed: activation checkpointing, compilation, then the distribution around both; half precision is
autocast, inside all of them. The global batch is the same for any number of processes, and so is every quantity that is
written down: sums over tokens are reduced in float64 and divided once.

Reference: Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.utils.checkpoint import checkpoint

from boosted_attention.attention.selfcheck import usable_dtypes
from boosted_attention.model.protocols import CausalModel
from boosted_attention.validation import InputError, require, require_choice

STRATEGIES = ("ddp", "fsdp")
LOST = re.compile(r"(closed|reset) by peer|broken pipe|remote process exited|ncclRemoteError|peer .* (died|left)", re.I)
T = TypeVar("T")


class Refused(InputError):  # noqa: N818
    """Bad input on one process, raised on all; ``speaks`` is true on the one that met it."""

    def __init__(self, message: str, speaks: bool):
        super().__init__(message)
        self.speaks = speaks


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """The processes that train one model; for one process every method is a no-op.

    Args:
        strategy: "ddp" or "fsdp".
        rank: this process's number.
        world: number of processes.
    """

    strategy: str = "ddp"
    rank: int = 0
    world: int = 1

    @property
    def shards(self) -> bool:
        """Whether a process holds only a part of the model."""
        return self.world > 1 and self.strategy == "fsdp"

    @property
    def main(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    # What all processes know and decide together

    def agree(self, action: Callable[[], T]) -> T:
        """Call ``action`` on every process; an InputError on one of them is raised on all."""
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
        """Return the values of all processes, in order of rank."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def sums(self, *values: float) -> list[float]:
        """Return each value summed over the processes, in float64."""
        if self.world == 1:
            return list(values)
        held = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(held)
        return held.tolist()

    def require_same(self, value: Any, differences: Callable[[Any, Any], Sequence[str]]) -> None:
        """Raise InputError unless every process was given the same configuration."""
        found = differences(value, self.gathered(value)[0])
        what = f"process {self.rank} was started with other settings than process 0: {'; '.join(found)}"
        self.agree(lambda: require(not found, what))

    # The work of one process

    def require_rows(self, batch_size: int) -> None:
        """Raise InputError unless the batch can be divided evenly over the processes."""
        w = self.world
        require(batch_size >= w, f"batch_size={batch_size} gives {w} processes less than a row each; start fewer")
        low = batch_size // w * w
        require(
            low == batch_size, f"batch_size={batch_size} is not divisible by {w} processes; {low} or {low + w} would be"
        )

    def rows(self, batch: Tensor) -> Tensor:
        """Return this process's share of a global batch (B, T)."""
        return batch.chunk(self.world)[self.rank]

    def micro_batches(self, accumulate: int) -> int:
        """Return the number of parts of this process's share; a part is never larger than on one process."""
        return -(-accumulate // self.world)

    def dealt(self, items: Iterator[T], empty: Callable[[T], T]) -> Iterator[T]:
        """Yield every world-th item.

        All processes get equally many, since a sharded forward pass needs all of them; where the items do not come out
        even, ``empty`` makes one that counts for nothing.
        """
        group: list[T] = []
        for item in items:
            group.append(item)
            if len(group) == self.world:
                yield group[self.rank]
                group = []
        if group:
            yield group[self.rank] if self.rank < len(group) else empty(group[0])

    def first_row(self, batch_size: int) -> int:
        """Return the place of this process's first row in a global batch."""
        return self.rank * (batch_size // self.world)

    def distribute(
        self, model: CausalModel, device: torch.device, *, checkpointing: bool, compiled: bool
    ) -> DistributedLoss:
        """Prepare the model for training on a device, in place, and return its loss as training calls it.

        Args:
            model: the model, on any device.
            device: where it is trained.
            checkpointing: compute the activations of blocks twice instead of keeping them.
            compiled: compile it with torch.compile.
        """
        blocks = list(model.blocks())
        if checkpointing:
            for block in blocks:
                block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        if not self.shards:
            model.to(device)
        if self.world == 1:
            return DistributedLoss(torch.compile(model.loss) if compiled else model.loss)
        if compiled:
            for block in blocks:
                block.compile()
        return self._sharded(model, blocks, device) if self.shards else self._replicated(model)

    def _replicated(self, model: CausalModel) -> DistributedLoss:
        from torch.nn.parallel import DistributedDataParallel

        whole = DistributedDataParallel(LossModule(model), gradient_as_bucket_view=True)  # gradients are held once
        return DistributedLoss(whole, lambda last: nullcontext() if last else whole.no_sync(), self.world)

    def _sharded(self, model: CausalModel, blocks: Sequence[nn.Module], device: torch.device) -> DistributedLoss:
        """Shard block by block, so that a device never holds more than one whole block."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

        mesh = init_device_mesh(device.type, (self.world,))
        for block in blocks:
            fully_shard(block, mesh=mesh)
        module = cast(nn.Module, model)
        fully_shard(module, mesh=mesh)
        register_fsdp_forward_method(module, "loss")
        return DistributedLoss(model.loss, scale=self.world)

    @staticmethod
    def whole(t: Tensor) -> Tensor:
        """Return a tensor in one piece, put together from its shards by all processes."""
        return t.full_tensor() if hasattr(t, "full_tensor") else t  # type: ignore[operator]

    @staticmethod
    def like(whole: Tensor, p: Tensor) -> Tensor:
        """Return a whole tensor divided as ``p`` is."""
        from torch.distributed.tensor import DTensor, distribute_tensor

        if not isinstance(p, DTensor):
            return whole.to(p.device)
        # each process cuts out its own part
        return distribute_tensor(whole.to(p.device), p.device_mesh, p.placements, src_data_rank=None)


def own_part(t: Tensor) -> Tensor:
    """Return the part of a tensor that lies on this process."""
    return t.to_local() if hasattr(t, "to_local") else t  # type: ignore[operator]


@dataclass(frozen=True)
class DistributedLoss:
    """A model's loss as training calls it.

    DDP and FSDP average gradients over ranks; multiply the loss by ``scale`` to get the sum.

    Args:
        loss: computes the loss of ids and targets.
        synchronised: context of a backward pass, called with whether it is the update's last one.
        scale: factor on the loss.
    """

    loss: Callable[..., Tensor]
    synchronised: Callable[[bool], Any] = lambda last: nullcontext()
    scale: int = 1


class LossModule(nn.Module):
    """A model whose forward pass is its loss: DDP synchronises gradients of forward passes only."""

    def __init__(self, model: CausalModel):
        super().__init__()
        self.model = cast(Any, model)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.model.loss(*args, **kwargs)


ALONE = Parallel()


@contextmanager
def processes(strategy: str, device: str) -> Iterator[tuple[Parallel, str]]:
    """Join the processes that torchrun started, if it did; yield them and this process's device.

    Args:
        strategy: "ddp" or "fsdp".
        device: "cpu", "cuda" or "mps"; with several processes, each takes a GPU of its own.
    """
    require_choice("strategy", strategy, STRATEGIES)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        usable_dtypes(device)
        yield ALONE, device
        return
    require(":" not in device, f"device={device!r}: with several processes each takes its own; give device='cuda'")
    # What is agreed upon travels by gloo, also between GPUs. A restarted job must not meet the addresses of its dead.
    on_gpu = device == "cuda" and torch.cuda.is_available()
    store, rank, _ = next(rendezvous("env://"))
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
        store=PrefixStore(f"attempt {attempt()}", store),
        rank=rank,
        world_size=world,
    )
    try:
        parallel = Parallel(strategy=strategy, rank=rank, world=world)
        parallel.agree(lambda: usable_dtypes(device))
        if on_gpu:
            device = f"cuda:{os.environ['LOCAL_RANK']}"
            torch.cuda.set_device(device)
        yield parallel, device
    finally:
        dist.destroy_process_group()


def attempt() -> int:
    """Return how often torchrun has started this job anew after a process died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def job() -> str | None:
    """Return torchrun's name for this job, the same in every attempt; None outside of torchrun."""
    return os.environ.get("TORCHELASTIC_RUN_ID")


def another_died(error: BaseException) -> bool:
    """Say whether an error only means that another process has died."""
    return job() is not None and isinstance(error, RuntimeError) and bool(LOST.search(str(error)))
