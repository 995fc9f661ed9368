"""analyze as a user meets it."""

import json
import shutil

import pytest

from boosted_attention.analysis.examine import Analysis
from boosted_attention.cli.main import main
from boosted_attention.records import from_json, to_json
from boosted_attention.train.metrics import dynamics_of
from tests.cli.test_train import TINY, refused
from tests.text import sample_text


def train(folder, text, *more):
    with pytest.raises(SystemExit) as stop:
        main(
            [
                "train",
                "--corpus",
                f"text:{text}",
                "--steps",
                "4",
                "--eval-every",
                "2",
                "--out",
                str(folder),
                *TINY,
                *more,
            ]
        )
    assert stop.value.code == 0
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory, text_file):
    base = tmp_path_factory.mktemp("analyze")
    other = base / "other.txt"
    other.write_text(sample_text(20_000, seed=9))
    return {
        "boosted": train(base / "boosted", text_file),
        "standard": train(base / "standard", text_file, "--attention", "standard"),
        "elsewhere": train(base / "elsewhere", other, "--tokenizer", str(base / "boosted" / "tokenizer.json")),
        "some": train(base / "some", text_file, "--n-layers", "3", "--boosted-layers", "1"),
        "vocabulary": train(base / "vocabulary", text_file, "--vocab-size", "320"),
    }


def test_it_writes_what_it_finds(runs, tmp_path, capsys):
    out = tmp_path / "found"
    with pytest.raises(SystemExit) as stop:
        main(
            [
                "analyze",
                str(runs["boosted"]),
                "--against",
                str(runs["standard"]),
                "--sequences",
                "4",
                "--pairs",
                "8",
                "--out",
                str(out),
            ]
        )
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert "layer 1: mean gate 0." in printed
    assert "layers worth boosting: [" in printed
    assert "gain over standard, nats per token: " in printed
    found = json.loads((out / "analysis.json").read_text())
    assert found["names"] == {"model": "boosted", "against": "standard"}
    assert [row["step"] for row in found["training"]] == [0, 2, 4]
    assert found["training"] == to_json(dynamics_of(runs["boosted"]))
    assert to_json(from_json(Analysis, found)) == found
    page = (out / "analysis.html").read_text()
    assert 'id="explorer"' in page
    assert 'id="figure-importance"' in page
    assert (out / "figures" / "importance.png").exists()


def test_alone_and_on_another_corpus(runs, tmp_path, capsys):
    (tmp_path / "new.txt").write_text(sample_text(5000, seed=4))
    with pytest.raises(SystemExit) as stop:
        main(
            [
                "analyze",
                str(runs["standard"]),
                "--corpus",
                f"text:{tmp_path / 'new.txt'}",
                "--sequences",
                "2",
                "--pairs",
                "4",
                "--length",
                "8",
                "--out",
                str(tmp_path / "out"),
            ]
        )
    assert stop.value.code == 0
    assert "no layer has a correction" in capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "analysis.json").read_text())
    assert found["length"] == 8
    assert found["corrections"] is None


def test_only_some_layers_boosted_against_a_boosted_run(runs, tmp_path, capsys):
    """Runs of one kind go by their names, and every round of the other model is shown."""
    with pytest.raises(SystemExit) as stop:
        main(
            [
                "analyze",
                str(runs["some"]),
                "--against",
                str(runs["boosted"]),
                "--sequences",
                "3",
                "--pairs",
                "6",
                "--out",
                str(tmp_path),
            ]
        )
    assert stop.value.code == 0
    found = json.loads((tmp_path / "analysis.json").read_text())
    assert found["names"] == {"model": "some", "against": "boosted"}
    assert found["rounds"] == [1, 2, 1]
    page = (tmp_path / "analysis.html").read_text()
    assert 'id="figure-hull"' in page
    assert "boosted, round 1" in page
    assert "Where some gains and where it loses most against boosted" in page
    assert "layer 1: mean gate" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ['{"step": 4, "rounds": []}', '{"step": 4, "rounds": [{"left": null}]}', "\udcff"])
def test_damaged_metrics_are_left_out(runs, tmp_path, damage):
    run = tmp_path / "run"
    shutil.copytree(runs["boosted"], run)
    with (run / "metrics.jsonl").open("a", encoding="utf-8", errors="surrogateescape") as file:
        file.write(damage + "\n")
    assert [row.step for row in dynamics_of(run)] == [0, 2, 4]


def test_refusals(runs, tmp_path, capsys):
    boosted, out = runs["boosted"], tmp_path / "out"

    def complaint(*args):
        told = refused(["analyze", *args, "--out", out], capsys)
        assert not out.exists()
        return told

    empty = tmp_path / "empty"
    shutil.copytree(boosted, empty)
    shutil.rmtree(empty / "checkpoints")
    assert f"{empty} has no checkpoint yet" in complaint(empty)
    assert "is not a run folder" in complaint(tmp_path / "nowhere")
    assert "has another vocabulary (320 tokens" in complaint(boosted, "--against", runs["vocabulary"])
    assert "was trained on another corpus" in complaint(boosted, "--against", runs["elsewhere"])
    assert "--sequences 0 must be at least 1" in complaint(boosted, "--sequences", 0)
    assert "--pairs 0 must be at least 1" in complaint(boosted, "--pairs", 0)
    assert "--length 99 must lie between 2 and 16" in complaint(boosted, "--length", 99)
    assert "did you mean 'best'" in complaint(boosted, "--checkpoint", "bst")
    other = tmp_path / "other"
    shutil.copytree(boosted, other)
    shutil.copy(runs["vocabulary"] / "tokenizer.json", other / "tokenizer.json")
    assert "tokenizer.json is damaged" in complaint(other)
    (tmp_path / "file").write_text("")
    assert "is a file; give a folder" in refused(["analyze", boosted, "--out", tmp_path / "file"], capsys)
    assert "cannot be written to" in refused(["analyze", boosted, "--out", tmp_path / "file" / "below"], capsys)
    (tmp_path / "odd" / "analysis.json").mkdir(parents=True)
    (tmp_path / "odd" / "figures").write_text("")
    assert "analysis.json is a folder there" in refused(["analyze", boosted, "--out", tmp_path / "odd"], capsys)
    (tmp_path / "odd" / "analysis.json").rmdir()
    assert "figures is a file there" in refused(["analyze", boosted, "--out", tmp_path / "odd"], capsys)
    assert [path.name for path in (tmp_path / "odd").iterdir()] == ["figures"]
