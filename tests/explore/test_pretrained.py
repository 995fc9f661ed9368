"""Boosted models of transformers on the page: the same views, and a lens where their streams can be read."""

from dataclasses import replace

import pytest

pytest.importorskip("transformers")

import torch
from transformers import AutoModelForCausalLM, BloomConfig, Gemma2Config, Gemma3TextConfig

from boosted_attention import boost
from boosted_attention.attention.switch import disable_rounds
from boosted_attention.cli.loading import load_trained
from boosted_attention.data.tokenizer import Tokenizer, byte_tokenizer
from boosted_attention.explore.explorer import Explorer
from boosted_attention.explore.passes import run_pass
from boosted_attention.explore.questions import Patch, Question
from boosted_attention.pretrained.finetuned import FinetunedModel
from boosted_attention.validation import InputError
from tests.explore.conftest import nothing, whole_view
from tests.pretrained.families import disturb, tiny

NEXT = {  # the norm behind the attention of the last of three layers, where it reads the stream
    "llama": "model.model.layers.2.post_attention_layernorm",
    "gpt2": "model.transformer.h.2.ln_2",
}
SIZE = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48}


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


@torch.no_grad()
def test_a_boosted_model_of_transformers_is_looked_into_and_patched(explorer):
    model = explorer.runs[0].module
    patch = Patch(side=0, layer=0, round=1, factor=0.0)
    asked = Question(tab="a", number=1, text="def read(", patches=[patch])
    (plain,) = whole_view(explorer, replace(asked, patches=[])).sides
    (edited,) = whole_view(explorer, asked).sides
    shown = plain.layers[0][1]
    assert len(shown.attention[0]) == len("def read(")
    assert shown.gate is not None
    assert shown.lens is not None
    assert edited.layers[0][1].factor == 0
    with disable_rounds(model, layers=0, rounds=1):
        p = model(explorer.ids_of(asked)[None])[0, -1].float().softmax(dim=-1)
    assert edited.guesses[0].probability == pytest.approx(float(p.max()), rel=1e-3)
    assert edited.guesses[0].id == int(p.argmax())


def wrapped(model):
    """A model, boosted with corrections that say something, as the explorer has it."""
    model = boost(model)
    disturb(model)
    return FinetunedModel(model.eval(), None)


def passed(model):
    ids = torch.randint(2, 60, (9,))
    return run_pass(model, ids, {}, nothing)


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox", "phi"])
def test_a_lens_reads_what_the_model_adds(family):
    """Behind a round the stream is h + F, and behind the last layer it is what the model predicts from."""
    model, read = wrapped(tiny(family)), []
    if family in NEXT:
        model.get_submodule(NEXT[family]).register_forward_pre_hook(lambda module, inputs: read.append(inputs[0]))
    done = passed(model)
    assert done.lens is not None
    last = len(done.layers) - 1
    estimate = done.layers[last].rounds[1].estimate
    if family in NEXT:  # what follows the attention reads the stream behind its last round
        torch.testing.assert_close(done.lens.stream(last, estimate), read[0])
    final = done.lens.seen[done.lens.norm].read
    torch.testing.assert_close(done.lens.predicts(final)[0], done.logits.log_softmax(dim=-1), rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize(
    "config",
    [
        Gemma2Config(**SIZE, num_attention_heads=4, num_key_value_heads=2, head_dim=8, num_hidden_layers=2),
        BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4),
    ],
    ids=["gemma 2", "bloom"],
)
def test_a_model_that_changes_what_its_attention_returns_has_no_lens(config):
    """Gemma 2 normalises it, and Bloom's attention adds to the stream itself."""
    assert passed(wrapped(AutoModelForCausalLM.from_config(config))).lens is None


@torch.no_grad()
def test_a_large_stream_does_not_hide_what_a_norm_does_to_the_attention():
    """Gemma 3 normalises what its attention returns, which is small beside one large dimension of the stream."""
    config = Gemma3TextConfig(**SIZE, num_attention_heads=4, num_key_value_heads=2, head_dim=8, num_hidden_layers=2)
    model = AutoModelForCausalLM.from_config(config)
    model.get_input_embeddings().weight[:, 3] = 2000.0
    assert passed(wrapped(model)).lens is None


def test_a_model_without_our_layers_is_refused(tmp_path):
    tiny("llama", vocab_size=300).save_pretrained(tmp_path)
    Tokenizer(byte_tokenizer(), "bytes").save(tmp_path / "tokenizer.json")
    run = load_trained(tmp_path, "best")
    with pytest.raises(InputError, match="has no attention layer of boosted_attention"):
        Explorer([run], ["plain"], "")
