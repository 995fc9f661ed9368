"""Fine-tuning on packed documents: families that keep them apart, corrected or not, and one that does not."""

import pytest
import torch

from boosted_attention import boost
from boosted_attention.model.loss import IGNORED
from boosted_attention.pretrained.finetuned import FinetunedModel
from boosted_attention.train.metrics import read_metrics
from tests.pretrained.families import FAMILIES, disturb, tiny, tokens
from tests.pretrained.test_finetune import models, run_config, train  # noqa: F401

APART = sorted(set(FAMILIES) - {"opt"})  # OPT makes its mask without looking at positions


CORRECTIONS = [None, {}, {"kv": "shared", "rank": 4}]


@pytest.mark.parametrize("correction", CORRECTIONS, ids=["base", "full", "light"])
@pytest.mark.parametrize("family", APART)
def test_losses_are_those_of_the_documents_alone(family, correction):
    model = tiny(family, dtype=torch.float64)
    if correction is not None:
        boost(model, **correction)
        disturb(model)
    model, ids = FinetunedModel(model, None).eval(), tokens()
    row, documents = ids.view(1, -1), torch.arange(2).repeat_interleave(12)[None]
    alone = model.loss(ids, ids, reduction="none").view(1, -1)
    together = model.loss(row, row, documents=documents, reduction="none")
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)  # some norms work in float32
    assert not torch.allclose(model.loss(row, row, reduction="none"), alone, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", ["boosted", "base"])
def test_a_run_on_packed_documents(name, models, documents_file, tmp_path):  # noqa: F811
    method = {"boosted": "correction", "base": "lora"}[name]
    config = run_config(models, documents_file, name, method, pack="documents", protocol="documents")
    result = train(config, tmp_path / "run")
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert result.best.validation_loss < rows[0]["validation_loss"]


def test_a_family_that_sees_across_documents_is_refused(models, documents_file, tmp_path):  # noqa: F811
    tiny("opt", vocab_size=320).save_pretrained(tmp_path / "opt")
    config = run_config(models, documents_file, tmp_path / "opt", "all", pack="documents")
    with pytest.raises(ValueError, match="pack='documents': this model does not keep documents of one row apart"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_family_without_position_ids_is_refused():
    import transformers

    config = transformers.BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4)
    model, ids = FinetunedModel(transformers.BloomForCausalLM(config), None).eval(), tokens()
    with pytest.raises(ValueError, match="pack='documents': BloomForCausalLM takes no position_ids"):
        model.loss(ids, torch.full_like(ids, IGNORED), documents=torch.zeros_like(ids))
