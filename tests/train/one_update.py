"""Updates from given gradients, whole or divided; under torchrun: strategy, and a file for the weights."""

import sys

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor

from boosted_attention import LanguageModelConfig
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.optim import TrainingOptimizer
from boosted_attention.train.parallel import Parallel, processes

# Rows that two processes cannot share evenly: 55 of a packed projection, 3 of a gate per head.
MODEL = {"attention": "gated-headwise", "d_model": 33, "n_heads": 3, "n_kv_heads": 1, "n_layers": 2, "vocab_size": 50}


def updated(parallel: Parallel) -> dict[str, Tensor]:
    """Return the weights after two updates with gradients that depend on nothing but the order of parameters."""
    torch.manual_seed(0)
    model = LanguageModelConfig(**MODEL).build()
    gradients = {name: torch.randn_like(p) for name, p in model.named_parameters()}
    parallel.distribute(model, torch.device("cpu"), checkpointing=False, compiled=False)
    assert parallel.shards == any(isinstance(p, DTensor) for p in model.parameters())
    optimizer = TrainingOptimizer(TrainingConfig(optimizer="muon", lr=8e-3, warmup=0), model)
    for step in range(2):
        optimizer.set_rates(step, 10)
        for name, p in optimizer.parameters.items():
            p.grad = parallel.like((step + 1) * gradients[name], p)
        optimizer.step()
    return {name: parallel.whole(p.detach()).contiguous() for name, p in optimizer.parameters.items()}


if __name__ == "__main__":
    strategy, out = sys.argv[1:]
    with processes(strategy, "cpu") as (parallel, _):
        weights = updated(parallel)
        if parallel.main:
            save_file(weights, out)
