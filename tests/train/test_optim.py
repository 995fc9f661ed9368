"""The optimizer: groups and their rates, what it keeps, what a checkpoint holds of it, what another kind would take."""

import pytest
import torch
from torch import nn

from boosted_attention import LanguageModelConfig, list_attention
from boosted_attention.documentation import argument_texts
from boosted_attention.train import checkpoint
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.muon import Muon
from boosted_attention.train.optim import TrainingOptimizer, state_bytes
from boosted_attention.train.optimizers import (
    ADAMW,
    DEFAULT_OPTIMIZER,
    MUON,
    OPTIMIZERS,
    OptimizerKind,
    UpdateRule,
    with_matrix_rate,
)
from boosted_attention.validation import InputError
from tests.train.driver import small_config, small_trainer

MOMENTUM = UpdateRule(
    make=lambda training, groups, parameters: torch.optim.SGD(groups, momentum=0.9), moments=("momentum_buffer",)
)
SMALL = {"vocab_size": 50, "d_model": 16, "n_layers": 1, "n_heads": 2, "max_len": 8}


class Pair(nn.Module):
    """A block with a matrix and a vector."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.block = nn.ParameterDict({"matrix": torch.randn(3, 2), "vector": torch.randn(4)})

    def blocks(self):
        return [self.block]


class Vector(Pair):
    """A block without a matrix."""

    def __init__(self):
        super().__init__()
        del self.block["matrix"]


def train(optimizer, first, last):
    for step in range(first, last):
        optimizer.set_rates(step, 10)
        for p in optimizer.parameters.values():
            p.grad = p.detach().clone()
        optimizer.step()


def groups_of(model, **options):
    """Rule, highest rate and weight decay of every parameter by its name."""
    optimizer = TrainingOptimizer(TrainingConfig(**options), model)
    names = {id(p): name for name, p in optimizer.parameters.items()}
    return {
        names[id(p)]: (rule, group["highest"], group["weight_decay"])
        for rule, made in optimizer.optimizers.items()
        for group in made.param_groups
        for p in group["params"]
    }


def test_a_checkpoint_holds_what_it_always_held(text_file, tmp_path):
    small_trainer(tmp_path / "run", text_file, steps=2).run()
    found, _ = checkpoint.latest(tmp_path / "run" / "checkpoints", "step")
    names = [name for name, _ in small_config(text_file).model.build().named_parameters()]
    moments = [f"{moment}.{name}" for name in names for moment in ("exp_avg", "exp_avg_sq")]
    assert set(found.tensors("optimizer")) == {"step", *moments}
    assert float(found.tensors("optimizer")["step"]) == 2


def test_a_checkpoint_of_muon_holds_one_buffer_per_matrix(text_file, tmp_path):
    small_trainer(tmp_path / "run", text_file, steps=2, optimizer="muon").run()
    found, _ = checkpoint.latest(tmp_path / "run" / "checkpoints", "step")
    held = set(found.tensors("optimizer"))
    assert "momentum_buffer.layers.0.attention.rounds.1.qkv.weight" in held
    assert "exp_avg.layers.0.attention.gates.0.proj.weight" in held
    for name, _ in small_config(text_file).model.build().named_parameters():
        own = {key.partition(".")[0] for key in held if key.partition(".")[2] == name}
        assert own in ({"momentum_buffer"}, {"exp_avg", "exp_avg_sq"}), name


@pytest.mark.parametrize("kind", ["adamw", "muon", "mixed"])
def test_the_state_goes_on_exactly(kind, monkeypatch):
    """Also for a kind with one buffer per matrix, AdamW for the rest, and no step count of its own."""
    mixed = OptimizerKind(text="momentum for matrices", matrices=MOMENTUM, others=ADAMW, weight_decay_on="all")
    monkeypatch.setitem(OPTIMIZERS, "mixed", mixed)
    vector = {"step", "exp_avg.block.vector", "exp_avg_sq.block.vector"}
    matrix = (
        {"exp_avg.block.matrix", "exp_avg_sq.block.matrix"} if kind == "adamw" else {"momentum_buffer.block.matrix"}
    )
    ours, theirs = (TrainingOptimizer(TrainingConfig(optimizer=kind), Pair()) for _ in range(2))
    train(ours, 0, 3)
    held = {name: t.clone() for name, t in ours.state_tensors().items()}
    assert held.keys() == vector | matrix
    for name, p in ours.parameters.items():
        theirs.parameters[name].data.copy_(p.data)
    theirs.load_state({**held, "other": torch.zeros(1)})
    train(ours, 3, 5)
    train(theirs, 3, 5)
    assert all(torch.equal(p, theirs.parameters[name]) for name, p in ours.parameters.items())
    assert state_bytes(Pair(), kind) == sum(t.nbytes for name, t in held.items() if name != "step")


def test_adamw_treats_all_parameters_alike():
    """As the paper does: one group, with weight decay on everything."""
    optimizer = TrainingOptimizer(TrainingConfig(), LanguageModelConfig(**SMALL).build())
    (made,) = optimizer.optimizers.values()
    (group,) = made.param_groups
    assert isinstance(made, torch.optim.AdamW)
    assert (group["weight_decay"], group["highest"], len(group["params"])) == (0.01, 1e-3, len(optimizer.parameters))


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_every_group_has_its_rule_rate_and_decay(kind):
    model = LanguageModelConfig(**SMALL, tie_weights=False).build()
    options = {"lr": 8e-3, "correction_lr_factor": 2.0, "gate_lr_factor": 0.5, "weight_decay_on": "matrices"}
    found = groups_of(model, optimizer=kind, **options)
    matrices = (ADAMW, 8e-3) if kind == "adamw" else (MUON, 0.02)
    attention = "layers.0.attention"
    for name, expected in {
        "embed.weight": (ADAMW, 8e-3, 0.0),
        "positions.weight": (ADAMW, 8e-3, 0.0),
        "head.weight": (ADAMW, 8e-3, 0.0),
        "norm.weight": (ADAMW, 8e-3, 0.0),
        "layers.0.ffn.up.weight": (*matrices, 0.01),
        "layers.0.ffn.up.bias": (ADAMW, 8e-3, 0.0),
        f"{attention}.out_proj.weight": (*matrices, 0.01),
        f"{attention}.rounds.0.qkv.weight": (*matrices, 0.01),
        f"{attention}.rounds.1.qkv.weight": (matrices[0], 2 * matrices[1], 0.01),
        f"{attention}.rounds.1.qkv.bias": (ADAMW, 16e-3, 0.0),
        f"{attention}.gates.0.proj.weight": (ADAMW, 4e-3, 0.0),
        f"{attention}.gates.0.proj.bias": (ADAMW, 4e-3, 0.0),
    }.items():
        assert found[name] == expected, name
    assert found.keys() == {name for name, _ in model.named_parameters()}


def test_weight_decay_is_on_what_the_option_says():
    decayed = {
        (kind, on): {
            name for name, (_, _, decay) in groups_of(Pair(), optimizer=kind, weight_decay_on=on).items() if decay
        }
        for kind in OPTIMIZERS
        for on in (None, "all", "matrices")
    }
    both, matrix = {"block.matrix", "block.vector"}, {"block.matrix"}
    assert decayed == {
        ("adamw", None): both,
        ("adamw", "all"): both,
        ("adamw", "matrices"): matrix,
        ("muon", None): matrix,
        ("muon", "all"): both,
        ("muon", "matrices"): matrix,
    }


@pytest.mark.parametrize("name", list_attention())
def test_packed_projections_of_a_model_are_updated_apart(name):
    """Queries, keys and values of unequal loudness and width, against matrices of their own."""
    model = LanguageModelConfig(attention=name, d_model=16, n_heads=4, n_kv_heads=2, n_layers=1, vocab_size=50).build()
    optimizer = TrainingOptimizer(TrainingConfig(optimizer="muon", warmup=0, weight_decay=0.0), model)
    learner = model.layers[0].attention.rounds[0]
    before = [learner.rows(part)[0].detach().clone() for part in "qkv"]
    gradient = torch.cat([scale * torch.randn_like(t) for scale, t in zip((100.0, 1.0, 0.01), before, strict=True)])
    learner.qkv.weight.grad = gradient
    apart = [nn.Parameter(t) for t in before]
    for p, g in zip(apart, gradient.split([len(t) for t in before]), strict=True):
        p.grad = g.clone()
    optimizer.set_rates(0, 10)
    optimizer.step()
    Muon(apart, lr=0.02).step()
    for part, p in zip("qkv", apart, strict=True):
        assert torch.equal(learner.rows(part)[0], p), part


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_all_rates_follow_one_schedule(schedule):
    options = {"lr": 1.0, "matrix_lr": 3.0, "warmup": 2, "horizon": 0, "schedule": schedule}
    optimizer = TrainingOptimizer(TrainingConfig(optimizer="muon", **options), Pair())
    for step, share in ((0, 0.0), (1, 0.5), (2, 1.0), (6, 0.5), (10, 0.0)):
        optimizer.set_rates(step, 10)
        rates = {rule: made.param_groups[0]["lr"] for rule, made in optimizer.optimizers.items()}
        assert rates == {ADAMW: pytest.approx(share, abs=1e-15), MUON: pytest.approx(3 * share, abs=1e-15)}


@pytest.mark.parametrize(
    ("attention", "options", "message"),
    [
        ("standard", {"correction_lr_factor": 2.0}, "correction_lr_factor=2.0 must be 1: .* has correction rounds"),
        ("standard", {"gate_lr_factor": 0.5}, "gate_lr_factor=0.5 must be 1: .* has gates with parameters"),
        ("boosted", {"matrix_lr": 0.1}, "matrix_lr=0.1 has no use with optimizer='adamw'"),
        ("boosted", {"optimizer": "moun"}, "optimizer='moun' is not one of 'adamw', 'muon'; did you mean 'muon'?"),
    ],
)
def test_options_that_concern_nothing_are_refused(attention, options, message):
    model = LanguageModelConfig(attention=attention, **SMALL).build()
    with pytest.raises(InputError, match=message):
        TrainingOptimizer(TrainingConfig(**options), model)


def test_gates_without_parameters_have_no_rate():
    model = LanguageModelConfig(**SMALL, attention_options={"gate": "none"}).build()
    with pytest.raises(InputError, match="gate_lr_factor=2"):
        TrainingOptimizer(TrainingConfig(gate_lr_factor=2.0), model)


def test_a_model_without_matrices_is_refused():
    with pytest.raises(InputError, match="optimizer='muon' needs hidden matrices, and nothing that is trained has any"):
        TrainingOptimizer(TrainingConfig(optimizer="muon"), Vector())
    with pytest.raises(InputError, match="weight_decay_on='matrices' concerns nothing"):
        TrainingOptimizer(TrainingConfig(weight_decay_on="matrices"), Vector())


def test_help_and_defaults_follow_the_table_of_optimizers():
    texts = argument_texts(TrainingConfig.__doc__)
    assert TrainingConfig().optimizer == DEFAULT_OPTIMIZER
    for name, kind in OPTIMIZERS.items():
        assert f"{name} ({kind.text})" in texts["optimizer"]
        assert f"{kind.weight_decay_on} with {name}" in texts["weight_decay_on"]
    assert with_matrix_rate() == {"muon": 0.02}
    assert texts["matrix_lr"].endswith("by default 0.02 with muon.")


def test_a_new_optimizer_is_named_where_others_are_refused(monkeypatch):
    """Messages know optimizers from the table alone."""
    second = OptimizerKind(text="", matrices=MUON, others=MOMENTUM, weight_decay_on="all")
    monkeypatch.setitem(OPTIMIZERS, "second", second)
    with pytest.raises(InputError, match=r"it is for optimizer='muon' or optimizer='second'$"):
        TrainingOptimizer(TrainingConfig(matrix_lr=0.1), Pair())
    with pytest.raises(InputError, match=r"'second' needs hidden matrices, .*; use optimizer='adamw'$"):
        TrainingOptimizer(TrainingConfig(optimizer="second"), Vector())
