"""Phases of a stagewise training: what each trains, and that a run goes on in the phase it was in."""

import json
import re
import signal

import pytest
import torch

from boosted_attention.train import checkpoint
from boosted_attention.train.groups import trained_parameters
from boosted_attention.train.loop import TrainingLoop
from boosted_attention.train.metrics import read_metrics
from boosted_attention.train.optimizers import OPTIMIZERS
from boosted_attention.train.parallel import Parallel
from boosted_attention.train.phases import Phase, joint, phase_of, require_trained_rounds, stagewise
from boosted_attention.train.signals import Stopped
from boosted_attention.train.trainer import Trainer
from boosted_attention.validation import InputError
from tests.train.driver import small_trainer

SHORT = {"steps": 7, "eval_every": 1, "stagewise": True}  # phases of 2, 2 and 3 updates
THREE = {"attention_options": {"n_rounds": 3}}


def test_phases_share_the_steps():
    assert stagewise(7, 2) == [
        Phase(first=0, length=2, round=0),
        Phase(first=2, length=2, round=1),
        Phase(first=4, length=3, round=None),
    ]
    assert joint(7) == [Phase(first=0, length=7, round=None)]
    for total in range(5, 40):
        phases = stagewise(total, 4)
        assert sum(phase.length for phase in phases) == total
        assert max(p.length for p in phases) - min(p.length for p in phases) <= 1
        for step in range(total):
            phase = phase_of(phases, step)
            assert phase.first <= step < phase.first + phase.length


@pytest.mark.parametrize(
    ("total", "rounds", "message"),
    [(9, 1, "needs correction rounds"), (3, 3, "needs at least 4 steps, one for each of 3 rounds .* there are 3")],
)
def test_what_has_no_stages_is_refused(total, rounds, message):
    with pytest.raises(InputError, match=message):
        stagewise(total, rounds)


def test_every_round_needs_something_to_train():
    require_trained_rounds([0, 0, 1, 2], 3)
    with pytest.raises(InputError, match="nothing that is trained belongs to round 0, 2"):
        require_trained_rounds([1], 3)


def test_a_trainer_refuses_stages_in_one_line(text_file, tmp_path):
    with pytest.raises(InputError, match="stagewise=True needs correction rounds"):
        small_trainer(tmp_path, text_file, model={"attention": "standard"}, stagewise=True)
    trainer = small_trainer(tmp_path, text_file, stagewise=True)
    with pytest.raises(InputError, match="stagewise=True needs one process; there are 2"):
        Trainer(folder=tmp_path, config=trainer.config, data=trainer.data, parallel=Parallel(world=2))


def own_round(name: str) -> int:
    """The round of a parameter, read from its name; gate m - 1 belongs to round m."""
    found = re.search(r"\.(rounds|gates)\.(\d)\.", name)
    return 0 if found is None else int(found[2]) + (found[1] == "gates")


def test_each_phase_moves_its_own_round_and_nothing_else(text_file, tmp_path):
    trainer = small_trainer(tmp_path, text_file, model=THREE, **{**SHORT, "steps": 8, "warmup": 0})
    loop = TrainingLoop(trainer, False, lambda: None)
    loop._begin()
    seen = []
    while loop.done < loop.total:
        before = {name: p.detach().clone() for name, p in loop.model.named_parameters()}
        loop._step()
        moved = {own_round(name) for name, p in loop.model.named_parameters() if not torch.equal(p, before[name])}
        still = {own_round(name) for name, p in loop.model.named_parameters() if torch.equal(p, before[name])}
        layers = {layer.attention.disabled for layer in loop.model.layers}
        seen.append((moved, moved & still, layers))
    loop.metrics.close()
    stages = [
        ({0}, set(), {frozenset({1, 2})}),
        ({1}, set(), {frozenset({2})}),
        ({2}, set(), {frozenset()}),
        ({0, 1, 2}, set(), {frozenset()}),
    ]
    assert seen == [stage for stage in stages for _ in range(2)]


def losses(folder):
    return [row["loss"] for row in read_metrics(folder / "metrics.jsonl") if "loss" in row]


def test_the_first_phase_is_a_training_of_the_standard_model(text_file, tmp_path):
    small_trainer(tmp_path / "stages", text_file, steps=12, stagewise=True).run()
    small_trainer(tmp_path / "standard", text_file, steps=4, model={"attention": "standard"}).run()
    assert losses(tmp_path / "stages")[:4] == losses(tmp_path / "standard")


def test_every_phase_has_the_whole_schedule(text_file, tmp_path):
    small_trainer(tmp_path, text_file, steps=9, stagewise=True, lr=1.0, warmup=1, clip=1e-9).run()
    rates = [row["lr"] for row in read_metrics(tmp_path / "metrics.jsonl") if "loss" in row]
    assert rates == pytest.approx([0.0, 1.0, 0.5] * 3)


@pytest.mark.parametrize(("horizon", "last"), [(30, 1 / 9), (60, 1 - 8 / 19)])
def test_a_phase_has_its_part_of_the_horizon(horizon, last, text_file, tmp_path):
    """With a horizon as long as the run a phase decays to its end, as the run would; with a longer one, less far."""
    schedule = {"steps": 30, "lr": 1.0, "warmup": 1, "clip": 1e-9, "schedule": "linear", "eval_every": 0}
    small_trainer(tmp_path, text_file, stagewise=True, horizon=horizon, **schedule).run()
    rates = [row["lr"] for row in read_metrics(tmp_path / "metrics.jsonl") if "loss" in row]
    assert rates[:10] == rates[10:20] == rates[20:]
    assert rates[9] == pytest.approx(last)


def test_what_lets_tokens_halt_begins_with_the_first_correction(text_file, tmp_path):
    """Before it there is nothing to decide, and no gradient: a checkpoint of that phase has no state of it."""
    model = {"attention": "boosted-shared", "attention_options": {"halting": True}}
    trainer = small_trainer(tmp_path, text_file, checkpoint_every=1, model=model, **SHORT)
    rounds = {name: p.round for name, p in trained_parameters(trainer.config.model.on_meta()).items()}
    assert {m for name, m in rounds.items() if "halting" in name} == {1}
    trainer.run()
    held = outcome(tmp_path)[2]
    assert any("halting" in name for name in held)


def outcome(folder):
    found, problems = checkpoint.latest(folder / "checkpoints", "step")
    assert not problems
    rows = [{k: v for k, v in row.items() if k != "seconds"} for row in read_metrics(folder / "metrics.jsonl")]
    result = json.loads((folder / "result.json").read_text())
    return rows, found.tensors("model"), found.tensors("optimizer"), result["test"], result["best"]["step"]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_run_goes_on_in_the_phase_it_was_in(optimizer, text_file, tmp_path, full):
    small_trainer(tmp_path / "whole", text_file, optimizer=optimizer, correction_lr_factor=2.0, **SHORT).run()
    whole = outcome(tmp_path / "whole")
    assert whole[4] > 4, "the best step is one at which all rounds run"
    for cut in range(1, 7) if full else (1, 2, 4):  # the end of a phase, and inside
        folder = tmp_path / f"cut-{cut}"
        trainer = small_trainer(folder, text_file, optimizer=optimizer, correction_lr_factor=2.0, **SHORT)
        folder.mkdir()
        loop = TrainingLoop(trainer, False, lambda: signal.SIGTERM if loop.done + 1 == cut else None)  # noqa: B023
        with pytest.raises(Stopped):
            loop.finish()
        trainer.run(resume=True)
        again = outcome(folder)
        assert again[0] == whole[0]
        for mine, its in zip(again[1:3], whole[1:3], strict=True):
            assert mine.keys() == its.keys()
            assert all(torch.equal(mine[name], its[name]) for name in mine)
        assert again[3:] == whole[3:]
