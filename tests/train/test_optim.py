"""The optimizer: what it keeps, what a checkpoint holds of it, and what another kind would take."""

import torch
from torch import nn

from boosted_attention.train import checkpoint, optim
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.optim import OPTIMIZERS, TrainingOptimizer, UpdateRule, state_bytes
from tests.train.driver import small_config, small_trainer

MOMENTUM = UpdateRule(
    make=lambda training, parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=0.9), moments=("momentum_buffer",)
)


def parameters():
    torch.manual_seed(0)
    return {"matrix": nn.Parameter(torch.randn(3, 2)), "vector": nn.Parameter(torch.randn(4))}


def train(optimizer, steps):
    for step in range(steps):
        optimizer.set_rate(0.1 / (step + 1))
        for p in optimizer.parameters.values():
            p.grad = p.detach().clone()
        optimizer.step()


def test_a_checkpoint_holds_what_it_always_held(text_file, tmp_path):
    small_trainer(tmp_path / "run", text_file, steps=2).run()
    found, _ = checkpoint.latest(tmp_path / "run" / "checkpoints", "step")
    names = [name for name, _ in small_config(text_file).model.build().named_parameters()]
    moments = [f"{moment}.{name}" for name in names for moment in ("exp_avg", "exp_avg_sq")]
    assert set(found.tensors("optimizer")) == {"rng.cpu", "step", *moments}
    assert float(found.tensors("optimizer")["step"]) == 2


def test_the_state_goes_on_exactly(monkeypatch):
    """For AdamW, and for a kind with one buffer per matrix, AdamW for the rest, and no step count of its own."""
    monkeypatch.setitem(OPTIMIZERS, "mixed", lambda name, p: MOMENTUM if p.ndim == 2 else optim.ADAMW)
    expected = {
        "adamw": {"step", "exp_avg.matrix", "exp_avg_sq.matrix", "exp_avg.vector", "exp_avg_sq.vector"},
        "mixed": {"step", "momentum_buffer.matrix", "exp_avg.vector", "exp_avg_sq.vector"},
    }
    for kind, names in expected.items():
        ours, theirs = (TrainingOptimizer(TrainingConfig(optimizer=kind), parameters()) for _ in range(2))
        train(ours, 3)
        held = {name: t.clone() for name, t in ours.state_tensors().items()}
        assert held.keys() == names
        for name, p in ours.parameters.items():
            theirs.parameters[name].data.copy_(p.data)
        theirs.load_state({**held, "rng.cpu": torch.zeros(1)})
        train(ours, 2)
        train(theirs, 2)
        assert all(torch.equal(p, theirs.parameters[name]) for name, p in ours.parameters.items())
        assert state_bytes(parameters().items(), kind) == sum(t.nbytes for name, t in held.items() if name != "step")
