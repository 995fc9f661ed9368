"""The fine-tuning experiment at its smallest: every arm runs, on the same batches, from the same model."""

from boosted_attention.cli.main import COMMANDS
from boosted_attention.lab.experiments import DEFAULT, finetune
from boosted_attention.lab.experiments.finetune import seeds, tuning, untouched
from boosted_attention.lab.judging.table import render
from boosted_attention.lab.presets import PRESETS
from boosted_attention.lab.reproduce import reproduce
from tests.text import sample_text


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
