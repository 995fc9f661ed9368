"""The trained pairs that ship: whole, of one start and text, and as good as their results say."""

import json

import pytest
import torch

from boosted_attention.analysis import importance
from boosted_attention.data.tokens import prepare
from boosted_attention.storage.sealing import entry_of
from boosted_attention.train import load_run
from boosted_attention.train.evaluation import evaluate
from pairs.__main__ import ARMS, LIST, SEEDS, SHIPPED, options, place

MODELS = [(arm, seed) for seed in SEEDS for arm in ARMS]
KNOWN = json.loads(LIST.read_text())


def loaded(arm, seed):
    return load_run(SHIPPED / place(arm, seed))


def test_the_list_has_all_of_them_and_no_other():
    assert set(KNOWN) == {str(place(arm, seed)) for arm, seed in MODELS}


@pytest.mark.parametrize(("arm", "seed"), MODELS)
def test_weights_and_recipe_are_those_of_the_list(arm, seed):
    run, entry = loaded(arm, seed), KNOWN[str(place(arm, seed))]
    (weights,) = run.folder.glob("checkpoints/*/model.safetensors")
    assert entry_of(weights).sha256 == entry["sha256"]
    assert entry["command"].endswith(" ".join(options(arm, seed)))
    assert (run.config.model.attention, run.config.training.seed) == (arm, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pair_shares_text_and_recipe(seed):
    standard, boosted = (loaded(arm, seed) for arm in ARMS)
    assert standard.fingerprint == boosted.fingerprint
    assert standard.config.training == boosted.config.training
    assert standard.tokenizer.sha256 == boosted.tokenizer.sha256


@pytest.mark.parametrize(("arm", "seed"), MODELS)
def test_a_model_has_the_loss_of_its_result(arm, seed):
    run = loaded(arm, seed)
    data = prepare(run.config.data, run.config.model.vocab_size)
    if data.fingerprint != run.fingerprint:
        pytest.skip("the standard library of this Python is another text than the one they were trained on")
    told = json.loads((run.folder / "result.json").read_text())["test"]
    found = evaluate(run.model, data.splits["test"], protocol=run.config.training.protocol)
    assert found.tokens == told["tokens"]
    assert found.loss == pytest.approx(told["loss"], rel=1e-4)


def test_the_corrections_of_a_trained_model_matter():
    run = loaded("boosted", SEEDS[0])
    source = torch.tensor(run.tokenizer.encode(LIST.with_name("__main__.py").read_text()))
    rows = source[: len(source) // 65 * 65].view(-1, 65)
    without = importance(run.module, rows).all
    assert without is not None
    assert without.low > 0.0  # nats that the loss rises by without any
