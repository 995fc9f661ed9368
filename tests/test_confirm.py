"""Results whose code is in no history: repeated, compared to the last digit, and never believed without."""

import json
import sys
from pathlib import Path

import pytest

from boosted_attention.lab.trials.store import code, git, load_record, write_record
from boosted_attention.lab.trials.trial import Trial
from boosted_attention.lab.work import language, timing  # noqa: F401  registers them
from boosted_attention.storage.sealing import SEAL, read_sealed, write_sealed
from confirm import __main__ as confirm
from tests.text import sample_text

MODEL = {"attention": "boosted", "d_model": 16, "n_heads": 2, "n_layers": 1, "max_len": 16, "vocab_size": 300}


def trial(corpus: Path, work: str, seed: int) -> Trial:
    data = {"corpus": f"text:{corpus}", "tokenizer": "bpe"}
    training = {"steps": 4, "batch_size": 2, "eval_every": 2, "seed": seed}
    return Trial(work=work, config={"model": MODEL, "training": training, "data": data})


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A folder with records of a training, a sweep and a timing, by a commit that nobody has."""
    monkeypatch.setattr(confirm, "commit", lambda: "a" * 40)
    corpus, folder = tmp_path / "notes.txt", tmp_path / "results"
    corpus.write_text(sample_text(20_000))
    for work, seed in (("language.train", 1), ("language.train", 2), ("language.sweep", 1)):
        one = trial(corpus, work, seed)
        place = folder / "trials" / one.key
        place.mkdir(parents=True)
        rows = [[0, 1.0], [2, 1.0], [4, 1.0]]
        result = {"curve": rows} if work == "language.train" else {"best": {"step": 4, "validation_loss": 1.0}}
        write_record(place, one, result, 1.0)
        change(place / "result.json", commit="b" * 40, code=None)
    return folder


def change(path: Path, **values):
    record = {key: value for key, value in read_sealed(path).items() if key != SEAL}
    write_sealed(path, {**record, **values})


def run(folder: Path, monkeypatch) -> int:
    monkeypatch.setattr(sys, "argv", ["confirm", str(folder), "--workers", "1"])
    return confirm.main()


def test_one_of_each_kind_has_to_come_out_the_same(results, monkeypatch, capsys):
    assert run(results, monkeypatch) == 1
    said = capsys.readouterr().err
    assert said.count("instead of [2, 1.0]") == 2  # the next record of its kind was tried
    assert said.count("instead of [4, 1.0]") == 1
    assert said.count("not confirmed") == 2
    assert not (results / confirm.CONFIRMED).exists()
    for path in results.glob("trials/*/result.json"):  # what the code really gives
        row = confirm.again(path)["comes_out"]
        kept = {"curve": [[0, 1.0], row]} if row[0] == 2 else {"best": {"step": 4, "validation_loss": row[1]}}
        change(path, result=kept)
    assert run(results, monkeypatch) == 0
    found = json.loads((results / confirm.CONFIRMED).read_text())
    records = {key: load_record(results / "trials" / key) for key in found}
    assert sorted(record.work for record in records.values()) == ["language.sweep", "language.train"]
    assert all(found[key]["comes_out"] == confirm.shown(record) for key, record in records.items())
    assert confirm.lost(results).keys() == {confirm.kind_of(record) for record in records.values()}


def test_a_checkout_with_changes_confirms_nothing(results, monkeypatch, capsys):
    monkeypatch.setattr(confirm, "commit", lambda: "a" * 40 + "+")
    with pytest.raises(SystemExit, match="2"):
        run(results, monkeypatch)
    assert "commit first" in capsys.readouterr().err


def test_the_history_knows_commits_and_contents():
    if (head := git("rev-parse", "HEAD")) is None:
        pytest.skip("not a git checkout")
    assert confirm.in_history(head, None)
    assert confirm.in_history(None, code())
    assert confirm.in_history("b" * 40, code())  # a history that was written anew
    assert not confirm.in_history("b" * 40, "c" * 40)
    assert not confirm.in_history(None, None)
    assert code() == confirm.git("rev-parse", "HEAD:src/boosted_attention").stdout.strip()
