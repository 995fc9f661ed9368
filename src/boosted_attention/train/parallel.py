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
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.utils.checkpoint import checkpoint

from boosted_attention.attention.selfcheck import usable_dtypes
from boosted_attention.validation import InputError, require, require_choice

KINDS = ("ddp", "fsdp")
LOST = re.compile(r"(closed|reset) by peer|broken pipe|remote process exited|ncclRemoteError|peer .* (died|left)", re.I)
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
    def shards(self) -> bool:
        """Whether a process holds a part of the model only."""
        return self.world > 1 and self.kind == "fsdp"

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
        held = torch.tensor(values, dtype=torch.float64)
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

    def distribute(self, model: Any, device: torch.device, *, checkpointing: bool, compiled: bool) -> Trained:
        """Prepare the model for training on a device, in place; what computes its loss from here on."""
        blocks = list(model.blocks())
        if checkpointing:
            for block in blocks:
                block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        if not self.shards:
            model.to(device)
        if self.world == 1:
            return Trained(torch.compile(model.loss) if compiled else model.loss)
        if compiled:
            for block in blocks:
                block.compile()
        return self._sharded(model, blocks, device) if self.shards else self._replicated(model)

    def _replicated(self, model: Any) -> Trained:
        from torch.nn.parallel import DistributedDataParallel

        whole = DistributedDataParallel(LossModule(model), gradient_as_bucket_view=True)  # gradients are held once
        return Trained(whole, lambda last: nullcontext() if last else whole.no_sync(), self.world)

    def _sharded(self, model: Any, blocks: Sequence[nn.Module], device: torch.device) -> Trained:
        """Block by block, so that a device never has more than one whole block of it; gradients are divided at once."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

        mesh = init_device_mesh(device.type, (self.world,))
        for block in blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        register_fsdp_forward_method(model, "loss")
        return Trained(model.loss, scale=self.world)

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
        usable_dtypes(device)
        yield ALONE, device
        return
    require(":" not in device, f"--device {device}: with several processes each takes its own; say --device cuda")
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
        parallel = Parallel(kind=kind, rank=rank, world=world)
        parallel.agree(lambda: usable_dtypes(device))
        if on_gpu:
            device = f"cuda:{os.environ['LOCAL_RANK']}"
            torch.cuda.set_device(device)
        yield parallel, device
    finally:
        dist.destroy_process_group()


def attempt() -> int:
    """How often torchrun has started this job anew after a process died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def job() -> str | None:
    """torchrun's name for this job, the same in every attempt."""
    return os.environ.get("TORCHELASTIC_RUN_ID")


def another_died(error: BaseException) -> bool:
    """Whether an error only says that another process is gone, which tells its own story."""
    return job() is not None and isinstance(error, RuntimeError) and bool(LOST.search(str(error)))
