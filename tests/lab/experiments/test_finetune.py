"""The fine-tuning experiment: its table from losses made by hand; and at its smallest, where every arm really runs."""

import math
from dataclasses import replace

import pytest

from boosted_attention.cli.main import COMMANDS
from boosted_attention.lab.experiments import DEFAULT, finetune
from boosted_attention.lab.experiments.finetune import (
    BOOSTED,
    EVERYTHING,
    EXPERIMENT,
    LAST_LAYERS,
    LORA,
    OVER,
    RANDOM_START,
    seeds,
    timing,
    tuning,
    untouched,
)
from boosted_attention.lab.judging.table import render
from boosted_attention.lab.presets import PRESETS
from boosted_attention.lab.reproduce import reproduce
from boosted_attention.lab.work.finetune import FinetuneResult, MemoryUse, UntouchedResult
from tests.lab.experiments.made import TEXT, check, minus, of_key, row, verdicts
from tests.text import sample_text

PRESET = replace(TEXT, finetune=replace(TEXT.finetune, n_seeds=3))
LOSSES = {
    BOOSTED: (3.0, 3.1, 3.2),
    RANDOM_START: (3.3, 3.5, 3.6),
    LAST_LAYERS: (3.4, 3.6, 3.5),
    LORA: (3.5, 3.7, 3.9),
    EVERYTHING: (3.6, 3.9, 3.7),
}


def made(losses=LOSSES):
    """Losses on the new text; on the other one they are 1 more, and trained parameters tell the arm."""
    known = {untouched(PRESET).key: UntouchedResult(new=4.0, watched=4.5, parameters=1)}
    times = {"ratios": {arm: 1 + i / 10 for i, arm in enumerate(losses)}}
    times["seconds"] = {arm: 7.0 + i for i, arm in enumerate(losses)}
    known[timing(PRESET).key] = {"measured": times}
    for i, (name, options) in enumerate(finetune.arms(PRESET).items()):
        for n, seed in enumerate(seeds(PRESET)):
            known[tuning(PRESET, options, seed, name).key] = FinetuneResult(
                new=losses[name][n],
                watched=losses[name][n] + 1,
                curve=[],
                trained_parameters=1_000_000 * (i + 1),
                parameters=9,
                flops_per_token=9,
                rank=4 if name == LORA else None,
                data="",
                measured=MemoryUse(peak_memory=2_000_000_000 + n * 1_000_000_000),
            )
    return EXPERIMENT.table(PRESET, of_key(known))


def test_the_table_compares_losses_of_the_new_text():
    table = made()
    check(table, {quantity: minus(LOSSES[BOOSTED], LOSSES[rival]) for rival, quantity in OVER.items()})
    assert row(table, "as it was") == [math.exp(4.0), math.exp(4.5), *[None] * 4]
    for i, (arm, losses) in enumerate(LOSSES.items()):
        new, other = (sum(math.exp(loss + more) for loss in losses) / 3 for more in (0, 1))
        assert row(table, arm) == [new, other, i + 1, 1 + i / 10, 7 + i, 3.0]
    assert "LoRA of rank 4" in table.notes[-1]


@pytest.mark.parametrize(("rival", "claim"), [(LORA, "finetune-lora"), (EVERYTHING, "finetune-everything")])
def test_a_rival_that_learns_more_contradicts_its_claim(rival, claim):
    assert set(verdicts(EXPERIMENT, made(), PRESET.text.corpora[0]).values()) == {"reproduced"}
    found = verdicts(EXPERIMENT, made({**LOSSES, rival: (1.0, 1.2, 1.1)}), PRESET.text.corpora[0])
    assert [id for id, verdict in found.items() if verdict == "contradicted"] == [claim]


def test_every_arm(text_file, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(sample_text(5_000, seed=3))
    preset = PRESETS["smoke"].with_corpora([f"text:{text_file}", f"text:{other}"]).with_seeds(1)
    found = reproduce(["finetune"], preset, tmp_path / "out", workers=2)
    assert not found.outcome.failures
    results = {name: found.outcome.result(tuning(preset, arm, 42, name)) for name, arm in finetune.arms(preset).items()}
    table = found.tables["finetune"]
    assert set(table.rows) == {"as it was", *results}
    assert "a tiny random Llama" in table.notes[-1]
    before = found.outcome.result(untouched(preset))
    assert all(result[text] != before[text] for result in results.values() for text in ("new", "watched"))
    assert len({result["data"] for result in results.values()}) == 1
    lora, boosted = results["LoRA, as many parameters"], results["boosted"]
    assert abs(lora["trained_parameters"] / boosted["trained_parameters"] - 1) < 0.1
    assert results["everything"]["trained_parameters"] == results["everything"]["parameters"]
    assert results["boosted, last layers"]["trained_parameters"] < boosted["trained_parameters"]
    assert render(table) in (tmp_path / "out" / "tables.md").read_text()


def test_it_is_not_run_unasked():
    assert "finetune" not in DEFAULT
    assert {"boost", "finetune", "export"} <= set(COMMANDS)
    assert seeds(PRESETS["cpu"]) == (42,)
    assert seeds(PRESETS["cpu"].with_seeds(2)) == (42, 123)
