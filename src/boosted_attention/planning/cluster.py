"""What sizes that were not run here would take: parameters, FLOPs, memory, communication, days, and the commands.

Shapes and FLOPs come from the model on the meta device, memory from a training step on tensors without storage; only
the time rests on a number the reader gives, the FLOP/s that a device sustains.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import nn

from boosted_attention.documentation import documented
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.model.loss import bytes_of_chunk
from boosted_attention.planning.matching import matched
from boosted_attention.storage.documents import read_json
from boosted_attention.train.memory import TrainingMemory, estimate_memory
from boosted_attention.train.optim import gathered_parameters
from boosted_attention.train.recipes import RECIPES, LanguageModelRun
from boosted_attention.train.run_config import RunConfig
from boosted_attention.validation import InputError, is_count, require, require_choice

FILLED = 0.9  # of a device's memory: kernels and fragmentation need the rest
TOKENS_PER_PARAMETER = 20  # the paper's; Hoffmann et al., "Training Compute-Optimal Large Language Models", 2022
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
MODES = [("ddp", False), ("ddp", True), ("fsdp", False), ("fsdp", True)]  # (how, with activation checkpointing)


@documented
@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The devices that train one model together."""

    devices: int  # Number of all devices.
    tflops: float  # TFLOPS that one device sustains.
    memory: float  # Bytes of memory of one device.
    per_node: int = 8  # Number of devices in one machine.

    def __post_init__(self) -> None:
        require(is_count(self.devices), f"devices={self.devices} must be at least 1")
        for option, value in (("tflops", self.tflops), ("memory", self.memory / 1e9)):
            require(0 < value < math.inf, f"{option}={value:g} must be positive")
        require(is_count(self.per_node), f"per_node={self.per_node} must be at least 1")
        require(
            self.devices <= self.per_node or self.devices % self.per_node == 0,
            f"devices={self.devices} does not fill nodes of per_node={self.per_node}",
        )


@documented
@dataclass(frozen=True, kw_only=True)
class PlannedModel:
    """One model of a comparison, trained on as many tokens as the others."""

    name: str  # Name of the model in the comparison.
    source: str  # Recipe or configuration file that it came from.
    recipe: LanguageModelRun  # Configuration of model, training and data.
    tokens: int  # Number of tokens to train on.
    cluster: Cluster  # Devices that train it.

    @property
    def model(self) -> LanguageModelConfig:
        return self.recipe.model

    @property
    def steps(self) -> int:
        return math.ceil(self.tokens / (self.recipe.training.batch_size * self.model.max_len))

    @property
    def weights(self) -> int:
        """Bytes of the weights, and of their gradients; autocast leaves both in float32."""
        return self.model.num_params() * (8 if self.recipe.training.precision == "float64" else 4)

    @cached_property
    def memories(self) -> tuple[TrainingMemory, TrainingMemory]:
        """What one row and two rows need: activations are linear in the rows."""
        how = {"precision": self.dtype, "optimizer": self.recipe.training.optimizer}
        one, two = (estimate_memory(self.model, rows, **how) for rows in (1, 2))
        return one, two

    @property
    def optimizer(self) -> int:
        """Bytes of the optimizer's state."""
        return self.memories[0].optimizer

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.recipe.training.precision]

    @cached_property
    def largest_block(self) -> int:
        """Bytes of the weights of the largest block, which FSDP puts together for its turn."""
        return max(self._bytes(block) for block in self.model.on_meta().blocks())

    @property
    def outside_blocks(self) -> int:
        return self.weights - sum(self._bytes(block) for block in self.model.on_meta().blocks())

    def _bytes(self, block: nn.Module) -> int:
        return sum(p.numel() for p in block.parameters()) * self.weights // self.model.num_params()

    def training_flops(self, recomputed: bool = False) -> float:
        """FLOPs of the whole training: forward, twice that backward, blocks once more where they are recomputed."""
        again = self.model.flops() - self.model.flops_by_part()["head"] if recomputed else 0
        return (3.0 * self.model.flops() + again) * self.tokens

    def held(self, kind: str) -> float:
        """Bytes of weights, gradients and optimizer on a device; FSDP also has two blocks and the rest in one piece."""
        whole = 2 * self.weights + self.optimizer
        if kind == "ddp" or self.cluster.devices == 1:
            return whole
        return whole / self.cluster.devices + 2 * self.largest_block + 2 * self.outside_blocks

    def activations(self, rows: int, recomputed: bool) -> float:
        """Peak bytes of activations: at the end of the forward pass, or where a block is recomputed."""
        names = ("activations", "between_blocks", "largest_block")
        one, two = ([getattr(m, name) for name in names] for m in self.memories)
        kept, between, block = (a + (b - a) * (rows - 1) for a, b in zip(one, two, strict=True))
        logits = bytes_of_chunk(rows * self.model.max_len, self.model.vocab_size, self.dtype)
        return between + max(block, logits) if recomputed else kept + logits

    def peak(self, kind: str, rows: int, recomputed: bool) -> float:
        """Most bytes in a step of one micro-batch.

        DDP holds gradients from the start, in its buckets; those of FSDP come as activations go. Further micro-batches
        find the gradients of the first, so that a layout makes room for both.
        """
        activations = self.activations(rows, recomputed)
        come_later = 0 if kind == "ddp" else min(self.weights / self.cluster.devices, activations)
        return self.held(kind) + activations - come_later

    def activations_per_row(self, recomputed: bool) -> float:
        """Bytes of activations that each further row adds."""
        return (self.activations(2000, recomputed) - self.activations(1000, recomputed)) / 1000

    def largest_micro_batch(self, kind: str, recomputed: bool) -> int:
        """Rows that fit; 0 if none does."""
        left = FILLED * self.cluster.memory - self.held(kind)
        most = int(left / self.activations_per_row(recomputed)) if left > 0 else 0
        return next((rows for rows in range(most, 0, -1) if self.activations(rows, recomputed) <= left), 0)

    def layout(self) -> tuple[str, bool, int] | None:
        """The first of MODES that fits, and the micro-batches of the whole batch; None if none fits."""
        batch, devices = self.recipe.training.batch_size, self.cluster.devices
        if batch % devices:
            return None
        rows = batch // devices
        for kind, recomputed in MODES if devices > 1 else MODES[:2]:
            most = self.largest_micro_batch(kind, recomputed)
            parts = [p for p in range(1, rows + 1) if rows % p == 0 and rows // p <= most]
            if parts:
                return kind, recomputed, parts[0] * devices
        return None

    def seconds(self) -> float:
        layout = self.layout()
        recomputed = layout is not None and layout[1]
        return self.training_flops(recomputed) / (self.cluster.devices * self.cluster.tflops * 1e12)

    def communication(self, kind: str, micro_batches: int = 1) -> float:
        """Bytes a device sends per step.

        DDP reduces once, in the two passes of a ring; FSDP, for every micro-batch, gathers blocks twice and the rest
        once, and reduces to shards; for an update it gathers what the optimizer needs whole.
        """
        n = self.cluster.devices
        share = (n - 1) / n
        if kind == "ddp":
            return 2 * share * self.weights
        blocks = self.weights - self.outside_blocks
        of_update = gathered_parameters(self.model.on_meta(), self.recipe.training.optimizer)
        once = of_update * self.weights // self.model.num_params()
        return share * (micro_batches * (self.weights + 2 * blocks + self.outside_blocks) + once)


def recipe_or_config(name: str) -> LanguageModelRun:
    """A recipe, or a configuration: config.json of a run, or its folder."""
    if name in RECIPES:
        return RECIPES[name]
    path = Path(name) / "config.json" if Path(name).is_dir() else Path(name)
    if not path.is_file():
        require_choice("recipe_or_config", name, RECIPES)
    try:
        values = read_json(path)
        ours = values["model"].get("kind") is None
        config = RunConfig.from_dict(values) if ours else None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise InputError(f"{path} is not the config.json of a run") from None
    if config is None or not isinstance(config.model, LanguageModelConfig):
        raise InputError(f"{path}: plan is for models that are trained from nothing")
    return RunConfig(model=config.model, training=config.training, data=config.data)


def planned_models(source: str, tokens: int | None, cluster: Cluster) -> list[PlannedModel]:
    """A model and the standard ones it is to be compared with: plain, of equal parameters, of equal FLOPs.

    Args:
        source: a recipe, a run's folder, or a config.json.
        tokens: to train on; 20 per parameter if None.
        cluster: what they run on.
    """
    recipe = recipe_or_config(source)
    model = recipe.model
    require(
        recipe.training.batch_size % cluster.devices == 0,
        f"devices={cluster.devices} does not divide the batch of {recipe.training.batch_size} rows",
    )
    require(tokens is None or is_count(tokens), f"tokens={tokens} must be at least 1")
    models = {model.attention: model}
    if model.attention != "standard":
        models |= {
            "standard": replace(model, attention="standard", attention_options={}, boosted_layers="all"),
            "as many parameters": matched(model, "parameters"),
            "as many FLOPs": matched(model, "flops"),
        }
    enough = tokens or TOKENS_PER_PARAMETER * model.num_params()
    return [
        PlannedModel(name=name, source=source, recipe=replace(recipe, model=m), tokens=enough, cluster=cluster)
        for name, m in models.items()
    ]
