"""Models beyond the list: boosted exactly and saved whole, or refused; never silently wrong."""

import json
import pickle

import pytest
import torch
import transformers
from peft import LoraConfig
from safetensors.torch import load_file, save_file

from boosted_attention import boost, disable_rounds, unboost
from boosted_attention.pretrained import load_correction, save_correction
from boosted_attention.pretrained.finetune import FinetuneConfig
from boosted_attention.pretrained.folders import load_model
from boosted_attention.pretrained.layer import corrected_layers
from tests.pretrained.families import NO_TOKENS, disturb, tiny, tokens
from tests.pretrained.test_boost import generate, logits

SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
ATTENDING = {**SMALL, "num_key_value_heads": 2, "max_position_embeddings": 64}
HYBRID = {**ATTENDING, "layer_types": ["full_attention", "conv", "full_attention"]}
EXPERTS = {**ATTENDING, "num_local_experts": 4, "num_experts_per_tok": 2}
J = {"vocab_size": 64, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "rotary_dim": 8}


def build(name: str, **options):
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**options, **NO_TOKENS})
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


@pytest.mark.parametrize(("name", "options"), [("GPTJ", J), ("Mixtral", EXPERTS), ("DiffLlama", ATTENDING)])
def test_others_with_the_same_projections(name, options, tmp_path):
    """Also those whose files hold weights otherwise than the model does, or whose modules have buffers."""
    build(name, **options).save_pretrained(tmp_path / "base")
    model, ids = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base").eval(), tokens()
    before = logits(model, ids)
    boost(model)
    assert torch.equal(logits(model, ids), before)
    disturb(model)
    assert torch.equal(generate(model, ids), generate(model, ids, use_cache=False))
    model.save_pretrained(tmp_path / "boosted")
    loaded = load_model(tmp_path / "boosted").eval()
    assert torch.equal(logits(loaded, ids), logits(model, ids))


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        ("Lfm2", HYBRID, "only 2 of its 3 layers have an attention module of their own"),
        ("GPTBigCode", {**J, "multi_query": True}, "no attention module with known projections"),
        ("GPTBigCode", {**J, "multi_query": False}, "no attention module with known projections"),
        ("Falcon", {**SMALL, "alibi": False}, "no attention module with known projections"),
        ("Bloom", {"vocab_size": 64, "hidden_size": 32, "n_layer": 2, "n_head": 4}, "no attention module with known"),
    ],
    ids=["hybrid", "multi-query", "linear", "falcon", "bloom"],
)
def test_what_cannot_be_corrected_exactly_is_refused(name, options, line):
    options = {key: value for key, value in options.items() if not (name == "GPTBigCode" and key == "rotary_dim")}
    model = build(name, **options)
    modules = [type(m) for m in model.modules()]
    with pytest.raises(ValueError, match=line):
        boost(model)
    assert [type(m) for m in model.modules()] == modules


def test_adapters_are_refused():
    model = tiny("llama")
    model.add_adapter(LoraConfig(target_modules=["q_proj", "v_proj"]))
    with pytest.raises(ValueError, match="has adapters"):
        boost(model)


def test_a_cache_filled_without_the_corrections_is_refused():
    model, ids = boost(tiny("llama")), tokens()
    disturb(model)
    with torch.no_grad(), disable_rounds(model):
        cache = model(ids[:, :6], use_cache=True).past_key_values
    with pytest.raises(ValueError, match="filled without the corrections"):
        model(ids[:, 6:], past_key_values=cache)


def test_unboost_gives_back_what_was_trainable():
    model = tiny("llama")
    model.model.embed_tokens.requires_grad_(False)
    model.config.architectures = None
    unboost(boost(model))
    assert {name for name, p in model.named_parameters() if not p.requires_grad} == {"model.embed_tokens.weight"}
    assert model.config.architectures is None
    assert not hasattr(model.config, "unboosted_architectures")


def test_a_boosted_model_can_be_pickled():
    model = boost(tiny("llama"))
    assert torch.equal(logits(pickle.loads(pickle.dumps(model)), tokens()), logits(model, tokens()))


def test_a_correction_that_does_not_fit_changes_nothing(tmp_path):
    model = boost(tiny("llama"))
    save_correction(model, tmp_path)
    weights, settings = tmp_path / "correction.safetensors", tmp_path / "correction.json"
    held, stored = load_file(weights), json.loads(settings.read_text())
    wide = next(name for name in held if name.endswith("q_proj.weight"))
    save_file({**held, wide: held[wide][:1].clone()}, weights)
    base = tiny("llama")
    for change in ({}, {"layers": [9]}, {"layers": ["0"]}, {"gate": "x"}):
        settings.write_text(json.dumps({**stored, "boosting": [{**stored["boosting"][0], **change}]}))
        with pytest.raises(ValueError, match=r"does not fit|is damaged"):
            load_correction(base, tmp_path)
        assert type(base) is transformers.LlamaForCausalLM
        assert not corrected_layers(base)
        assert all(p.requires_grad for p in base.parameters())


def test_a_correction_of_upcast_weights_and_of_a_trained_base(tmp_path):
    """The same values in another precision are the same base; a base that was trained too is not saved by halves."""
    half = tiny("llama", dtype=torch.bfloat16)
    half.save_pretrained(tmp_path / "base")
    model = boost(load_model(tmp_path / "base", dtype=torch.float32))
    save_correction(model, tmp_path / "correction")
    load_correction(half, tmp_path / "correction")
    with pytest.raises(ValueError, match="the base is trained too"):
        save_correction(boost(tiny("llama"), train="all"), tmp_path / "other")
    assert not (tmp_path / "other").exists()
    config = FinetuneConfig(base=str(tmp_path / "base"), boost={}, max_len=16)
    assert {p.dtype for p in config.build().parameters()} == {torch.float32}


def test_weights_of_another_model_are_refused(tmp_path):
    tiny("llama").save_pretrained(tmp_path)
    save_file({"nothing": torch.zeros(1)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"does not hold the weights of its config\.json"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"num_attention_heads": 5}, "no model that transformers knows|cannot be loaded"),
        ({"hidden_size": "wide"}, "no model that transformers knows|cannot be loaded"),
        ({"model_type": "boosted-llama"}, "cannot be loaded"),
    ],
)
def test_damaged_configurations(change, line, tmp_path):
    tiny("llama").save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**stored, **change}))
    with pytest.raises(ValueError, match=line):
        load_model(tmp_path)
