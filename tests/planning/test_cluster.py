"""The plan against what is measured: parameters, FLOPs, memory; its commands mean what it counted."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from boosted_attention import LanguageModelConfig, list_attention
from boosted_attention.planning import tables
from boosted_attention.planning.cluster import MODES, Cluster, planned_models
from boosted_attention.train.parallel import ALONE
from tests.planning.allocated import peak_bytes
from tests.train.test_parallel import run

DOCS = Path(__file__).parents[2] / "docs" / "scaling.md"
BIG = Cluster(devices=8, tflops=150.0, memory=80e9)


@pytest.mark.parametrize("name", list_attention())
def test_parts_add_up(name):
    config = LanguageModelConfig(attention=name, d_model=32, n_layers=2, vocab_size=50)
    assert sum(config.flops_by_part().values()) == config.flops()


@pytest.mark.parametrize("recipe", ["mini", "paper-small"])
def test_parameters_and_flops_as_counted(recipe):
    arm = planned_models(recipe, None, BIG)[0]
    model = arm.model.build()
    assert arm.model.num_params() == sum(p.numel() for p in model.parameters())
    ids = torch.zeros(1, arm.model.max_len, dtype=torch.long)
    for layer in model.layers:
        layer.attention.kernel = "explicit"  # torch does not count its fused kernel on a CPU
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(ids)
    assert arm.model.flops() * ids.numel() == pytest.approx(counter.get_total_flops(), rel=0.02)


def with_optimizer(arm, optimizer):
    """A planned model that is trained with another optimizer."""
    return replace(arm, recipe=replace(arm.recipe, training=replace(arm.recipe.training, optimizer=optimizer)))


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize(
    ("recipe", "optimizer", "rows"),
    [("mini", "adamw", 32), ("mini", "adamw", 4), ("paper-small", "adamw", 8), ("mini", "muon", 32)],
)
def test_memory_as_allocated(recipe, optimizer, rows, checkpointing):
    """The most that torch had allocated at once in two training steps, within 15 %."""
    arm = with_optimizer(planned_models(recipe, None, BIG)[0], optimizer)
    planned = arm.peak("ddp", rows, checkpointing)
    assert planned == pytest.approx(peak_bytes(ALONE, recipe, optimizer, rows, checkpointing), rel=0.15)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize(
    ("recipe", "optimizer", "rows"), [("mini", "adamw", 16), ("paper-small", "adamw", 4), ("mini", "muon", 16)]
)
def test_memory_of_a_process_among_two(recipe, optimizer, rows, kind, checkpointing, full):
    if not full and (recipe, optimizer, kind, checkpointing) != ("mini", "adamw", "fsdp", False):
        pytest.skip("in make test-full")
    arm = with_optimizer(planned_models(recipe, None, replace(BIG, devices=2))[0], optimizer)
    planned = arm.peak(kind, rows, checkpointing)
    done = run(2, recipe, optimizer, kind, rows, int(checkpointing), before=("-m", "tests.planning.allocated"))
    assert planned == pytest.approx(int(done.stdout), rel=0.15)


def test_what_fits(tmp_path):
    """Less memory: smaller micro-batches, then activations computed twice, then shards, then nothing."""
    layouts = []
    for memory in (80e9, 1.2e9, 0.7e9, 0.3e9, 0.01e9):
        arm = planned_models("paper-medium", None, Cluster(devices=8, tflops=1.0, memory=memory))[0]
        layouts.append(arm.layout())
    assert layouts[0][:2] == ("ddp", False)
    assert layouts[0][2] == 8
    assert [layout is None for layout in layouts] == [False] * 4 + [True]
    order = [MODES.index(layout[:2]) for layout in layouts[:4]]
    assert order == sorted(order)
    assert order[-1] > 0


def test_communication():
    arm = planned_models("mini", None, BIG)[0]
    weights = 4 * arm.model.num_params()
    assert arm.communication("ddp") == pytest.approx(2 * 7 / 8 * weights)
    blocks = weights - arm.outside_blocks
    assert arm.communication("fsdp", 3) == pytest.approx(7 / 8 * 3 * (weights + 2 * blocks + arm.outside_blocks))
    muon, d = with_optimizer(arm, "muon"), arm.model.d_model
    matrices = arm.model.n_layers * (2 * 3 * d * d + d * d + 2 * 4 * d * d)  # of two rounds, without the gates'
    assert muon.communication("ddp") == arm.communication("ddp")
    assert muon.communication("fsdp", 3) - arm.communication("fsdp", 3) == pytest.approx(7 / 8 * 4 * matrices)
    alone = planned_models("mini", None, Cluster(devices=1, tflops=1.0, memory=1e9))[0]
    assert alone.communication("ddp") == alone.communication("fsdp") == 0


def test_the_documents_table(full):
    """As the command prints it today."""
    command = re.search(r"`boosted-attention (plan gpt-125m .*? --markdown)`", DOCS.read_text())
    assert command, "the page says how its table was made"
    if not full:
        return
    names = [word for word in command[1].split()[1:] if word.startswith("gpt-")]
    planned = [arm for name in names for arm in planned_models(name, None, BIG)]
    assert tables.markdown(tables.OVERVIEW, tables.overview(planned)) in DOCS.read_text()
