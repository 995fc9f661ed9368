"""What a reproduction would take: numbers of one training in a row, sums in the last."""

from dataclasses import replace

import pytest

from boosted_attention.lab import estimate as module
from boosted_attention.lab.estimate import estimate, hours
from boosted_attention.lab.presets import PRESETS

PRESET = PRESETS["cpu"].with_corpora(["stdlib", "wikitext-2"])  # 2 texts, 3 seeds
BASE = PRESET.text.configuration()
SECONDS = 0.01  # of a row, whatever the model


@pytest.fixture
def columns(monkeypatch):
    monkeypatch.setattr(module, "seconds_per_row", lambda model: SECONDS)
    table = estimate(["lm-main"], PRESET, tflops=2.0)
    return {column.header: list(column.cells) for column in table.columns}


def test_every_model_has_a_row_with_its_own_numbers(columns):
    assert columns["model"] == ["standard", "twicing", "param-fair", "boosted", "all"]
    assert columns["trainings"] == ["6"] * 4 + ["24"]
    boosted = replace(BASE.model, attention="boosted")
    tokens = BASE.training.steps * BASE.training.batch_size * BASE.model.max_len
    flops = 3 * boosted.flops() * tokens
    shown = {header: cells[3] for header, cells in columns.items()}
    assert shown["parameters"] == f"{boosted.num_params():,}"
    assert (shown["steps"], shown["tokens"], shown["FLOPs"]) == (
        f"{BASE.training.steps:,}",
        f"{tokens / 1e6:.0f} M",
        f"{flops:.1e}",
    )
    assert shown["here"] == hours(SECONDS * BASE.training.steps * BASE.training.batch_size)
    assert shown["2 TFLOP/s"] == hours(flops / 2e12)


def test_the_last_row_is_the_sum_over_trainings(columns):
    flops = [float(cell) for cell in columns["FLOPs"]]
    assert flops[-1] == pytest.approx(6 * sum(flops[:-1]), rel=0.05)
    assert columns["here"][-1] == hours(24 * SECONDS * BASE.training.steps * BASE.training.batch_size)
    minutes = [float(cell.split()[0]) for cell in columns["2 TFLOP/s"]]
    assert minutes[-1] == pytest.approx(6 * sum(minutes[:-1]), abs=2)


def test_durations_are_hours_from_an_hour_on():
    assert [hours(s) for s in (90.0, 3599.0, 3600.0, 9000.0)] == ["1.5 min", "60.0 min", "1.0 h", "2.5 h"]
