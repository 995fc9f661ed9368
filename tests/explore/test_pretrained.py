"""Boosted models of transformers on the page: the same views, without a lens."""

from dataclasses import replace

import pytest

pytest.importorskip("transformers")

import torch

from boosted_attention import boost
from boosted_attention.attention.switch import disable_rounds
from boosted_attention.cli.loading import load_trained
from boosted_attention.data.tokenizer import Tokenizer, byte_tokenizer
from boosted_attention.explore.explorer import Explorer
from boosted_attention.explore.questions import Patch, Question
from boosted_attention.validation import InputError
from tests.pretrained.families import tiny


@pytest.fixture(scope="module")
def explorer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("boosted")
    model = boost(tiny("llama", vocab_size=300))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))  # corrections that say something
    model.save_pretrained(folder)
    Tokenizer(byte_tokenizer(), "bytes").save(folder / "tokenizer.json")
    return Explorer([load_trained(folder, "best")], ["boosted"], "")


def nothing():
    """The check of a question whose reader waits."""


@torch.no_grad()
def test_a_boosted_model_of_transformers_is_looked_into_and_patched(explorer):
    model = explorer.runs[0].module
    patch = Patch(side=0, layer=0, round=1, factor=0.0)
    asked = Question(tab="a", number=1, text="def read(", patches=[patch])
    (plain,) = explorer.view(replace(asked, patches=[]), nothing).sides
    (edited,) = explorer.view(asked, nothing).sides
    shown = plain.layers[0][1]
    assert len(shown.attention[0]) == len("def read(")
    assert shown.gate is not None
    assert shown.lens is None
    assert edited.layers[0][1].factor == 0
    with disable_rounds(model, layers=0, rounds=1):
        p = model(explorer.ids_of(asked)[None])[0, -1].float().softmax(dim=-1)
    assert edited.guesses[0].probability == pytest.approx(float(p.max()), rel=1e-3)
    assert edited.guesses[0].id == int(p.argmax())


def test_a_model_without_our_layers_is_refused(tmp_path):
    tiny("llama", vocab_size=300).save_pretrained(tmp_path)
    Tokenizer(byte_tokenizer(), "bytes").save(tmp_path / "tokenizer.json")
    run = load_trained(tmp_path, "best")
    with pytest.raises(InputError, match="has no attention layer of boosted_attention"):
        Explorer([run], ["plain"], "")
