"""Training on packed documents: exact resume, any division of the batch, what is evaluated and what is refused."""

import json
import shutil
from itertools import pairwise

import numpy as np
import pytest
import torch

from boosted_attention import LanguageModelConfig
from boosted_attention.cli.main import main
from boosted_attention.data.packing import PackedRows
from boosted_attention.model.loss import IGNORED
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.evaluation import evaluate
from boosted_attention.train.gradients import accumulate_gradients
from boosted_attention.train.metrics import read_metrics
from boosted_attention.train.parallel import DistributedLoss
from boosted_attention.train.probe import packing_probe
from boosted_attention.train.run_config import RunConfig
from tests.cli.test_train import TINY, refused
from tests.train.driver import small_config, small_trainer

PACKED = {"pack": "documents", "eval_every": 4, "steps": 8}


def losses(folder):
    rows = read_metrics(folder / "metrics.jsonl")
    return [(row.get("loss"), row.get("validation_loss"), row.get("batch")) for row in rows]


def test_a_stopped_run_goes_on_exactly(documents_file, tmp_path):
    whole = small_trainer(tmp_path / "whole", documents_file, **PACKED).run()
    small_trainer(tmp_path / "parts", documents_file, **PACKED).run()
    shutil.rmtree(tmp_path / "parts" / "checkpoints" / "step-00000008")  # as if killed in step 7
    (tmp_path / "parts" / "result.json").unlink()
    again = small_trainer(tmp_path / "parts", documents_file, **PACKED).run(resume=True)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    assert again.test == whole.test
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert config["training"]["pack"] == "documents"
    assert RunConfig.from_dict(config).training.pack == "documents"
    with pytest.raises(ValueError, match=r"made with other settings: training.pack \('documents' there, None here\)"):
        small_trainer(tmp_path / "whole", documents_file, **{**PACKED, "pack": "none"}).run(resume=True)


def test_a_run_of_running_text_is_stored_as_before(text_file):
    stored = small_config(text_file).to_dict()
    assert "pack" not in stored["training"]
    assert RunConfig.from_dict(stored) == small_config(text_file)


def test_predicted_tokens_are_counted_and_padding_is_not(documents_file, tmp_path):
    trainer = small_trainer(tmp_path / "run", documents_file, **PACKED)
    result = trainer.run()
    batches = [trainer.batches(step) for step in range(8)]
    assert result.tokens == sum(int((batch.targets != IGNORED).sum()) for batch in batches)
    ends = trainer.data.tokenizer.end_of_text
    assert all(bool(((batch.ids == ends) == (batch.targets == IGNORED)).all()) for batch in batches)


@pytest.mark.parametrize("parts", [2, 4])
def test_parts_of_a_batch_give_the_gradients_of_the_whole(parts):
    config = LanguageModelConfig(vocab_size=50, d_model=16, n_layers=2, max_len=12, attention="local", dropout=0.1)
    rows = PackedRows(np.random.default_rng(0).integers(50, size=200), end_of_text=0, length=12)
    ids, targets, documents = rows(range(8))
    found = []
    for n in (1, parts):
        model = config.build(seed=0).double()
        counted = int((targets != IGNORED).sum())
        loss = accumulate_gradients(DistributedLoss(model.loss), ids, targets, counted, n, documents=documents)
        found.append((loss, [p.grad for p in model.parameters()]))
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-12)
    for a, b in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_the_loss_of_packed_rows_is_that_of_each_document_alone():
    model = LanguageModelConfig(vocab_size=41, d_model=16, n_layers=2, max_len=16).build(seed=1).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    tokens = np.random.default_rng(3).integers(41, size=400).astype(np.uint16)
    text, expected = torch.from_numpy(tokens.astype(np.int64)), []
    ends = [-1, *np.flatnonzero(tokens == 0).tolist(), len(tokens)]
    for before, end in pairwise(ends):
        document = text[before + 1 : end + 1]
        for start in range(0, len(document) - 1, 16):
            piece = document[start : start + 17]
            expected += model.loss(piece[None, :-1], piece[None, 1:], reduction="none")[0].tolist()
    found = evaluate(model, tokens, protocol="documents", end_of_text=0, batch_size=3)
    assert found.tokens == len(expected)
    assert found.loss == pytest.approx(np.mean(expected), abs=1e-12)
    lengths = np.ones(41, dtype=np.int64)
    assert evaluate(model, tokens, byte_lengths=lengths, protocol="documents", end_of_text=0).bits_per_byte > 0


def test_a_model_that_sees_across_documents_is_refused_before_anything_is_written(
    documents_file, tmp_path, monkeypatch
):
    from boosted_attention.model import language_model

    config = small_config(documents_file)
    packing_probe(config.model.build())
    everything = torch.ones(1, 1, 1, 1, dtype=torch.bool)
    monkeypatch.setattr(language_model, "document_mask", lambda documents: everything)
    with pytest.raises(ValueError, match="pack='documents': this model does not keep documents of one row apart"):
        small_trainer(tmp_path / "run", documents_file, **PACKED).run()
    assert not (tmp_path / "run" / "config.json").exists()


def test_on_the_command_line(documents_file, tmp_path, capsys):
    train = ["train", "--corpus", f"text:{documents_file}", "--steps", "4", *TINY, "--pack", "documents"]
    with pytest.raises(SystemExit) as stop:
        main([*train, "--protocol", "documents", "--out", str(tmp_path / "run")])
    assert stop.value.code == 0
    capsys.readouterr()
    found = {}
    for protocol in ("full", "documents"):
        with pytest.raises(SystemExit):
            main(["evaluate", str(tmp_path / "run"), "--json", "--protocol", protocol])
        found[protocol] = json.loads(capsys.readouterr().out)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["test"]["loss"] == pytest.approx(found["documents"]["loss"])
    assert 0 < found["documents"]["tokens"] < found["full"]["tokens"]
    assert "did you mean 'documents'" in refused([*train[:-1], "document"], capsys)
    assert "--layout rows with --pack documents" in refused([*train, "--layout", "rows"], capsys)
    paper = [*train, "--tokenizer", "paper", "--vocab-size", "200", "--out", str(tmp_path / "other")]
    assert "the tokenizer has no end-of-text token" in refused(paper, capsys)
    stride = ["evaluate", str(tmp_path / "run"), "--protocol", "documents", "--stride", "4"]
    assert "--stride 4: --protocol documents has no stride" in refused(stride, capsys)


def test_packing_goes_with_one_layout():
    assert TrainingConfig(pack="documents").to_dict()["pack"] == "documents"
    with pytest.raises(ValueError, match="layout='rows' with pack='documents': packed rows have no other layout"):
        TrainingConfig(pack="documents", layout="rows")
