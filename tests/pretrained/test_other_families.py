"""Models beyond the list: boosted exactly and saved whole, or refused; never silently wrong."""

import json
import pickle

import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from boosted_attention import boost, disable_rounds, unboost
from boosted_attention.pretrained import load_correction, save_correction
from boosted_attention.pretrained.families import find_projections
from boosted_attention.pretrained.finetune import FinetuneConfig
from boosted_attention.pretrained.folders import load_model
from boosted_attention.pretrained.layer import corrected_layers
from boosted_attention.pretrained.places import attention_modules
from boosted_attention.storage.sealing import listing, write_sealed
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


FALCON = {**SMALL, "alibi": False}
GROUPED_FALCON = {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}
BLOOM = {"vocab_size": 64, "hidden_size": 32, "n_layer": 3, "n_head": 4}
NEO = {**SMALL, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 6}
NEO = {key: value for key, value in NEO.items() if key not in ("num_hidden_layers", "num_attention_heads")}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_chunk_size": 4}
OTHERS = {
    "gptj": ("GPTJ", J),
    "mixtral": ("Mixtral", EXPERTS),
    "diffllama": ("DiffLlama", ATTENDING),
    "phi3": ("Phi3", ATTENDING),
    "falcon": ("Falcon", {**FALCON, "multi_query": True}),
    "falcon of heads": ("Falcon", {**FALCON, "multi_query": False}),
    "falcon of groups": ("Falcon", GROUPED_FALCON),
    "bloom": ("Bloom", BLOOM),
    "codegen": ("CodeGen", J),
    "persimmon": ("Persimmon", {**SMALL, "max_position_embeddings": 64}),
    "gpt-neo": ("GPTNeo", NEO),
    "lfm2": ("Lfm2", HYBRID),
    "falcon-h1": ("FalconH1", {**ATTENDING, **MAMBA, "mamba_d_ssm": 64}),
}


@pytest.mark.parametrize(("name", "options"), OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("kind", [{}, {"kv": "shared", "rank": 2}], ids=["full", "light"])
def test_others(name, options, kind, tmp_path):
    """Also fused projections, files that hold weights otherwise than the model does, buffers, and hybrids."""
    build(name, **options).save_pretrained(tmp_path / "base")
    model, ids = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base").eval(), tokens()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 2:
                torch.nn.init.normal_(p, std=0.15)
    before = logits(model, ids)
    boost(model, **kind)
    assert torch.equal(logits(model, ids), before)
    disturb(model)
    assert not torch.equal(logits(model, ids), before)
    assert torch.equal(generate(model, ids), generate(model, ids, use_cache=False))
    model.save_pretrained(tmp_path / "boosted")
    loaded = load_model(tmp_path / "boosted").eval()
    assert torch.equal(logits(loaded, ids), logits(model, ids))


@pytest.mark.parametrize(
    "name", ["phi3", "falcon", "falcon of heads", "falcon of groups", "bloom", "codegen", "persimmon"]
)
def test_fused_projections_divide_as_the_model_divides_them(name):
    """Each part alone moves what it should: without values nothing is read, and without queries all keys are alike."""
    kind, options = OTHERS[name]
    model = build(kind, **options)
    attention = attention_modules(model)[0]
    found = find_projections(attention)
    ((fused, parts),) = found.inputs.items()
    linear = getattr(attention, fused)
    counted = torch.cat(list(parts.values())).sort().values
    assert torch.equal(counted, torch.arange(linear.out_features))
    for part in "qkv":
        with torch.no_grad():
            torch.nn.init.normal_(linear.weight)
            if linear.bias is not None:
                linear.bias.zero_()
            linear.weight[parts[part]] = 0
        cache = model(tokens(), use_cache=True).past_key_values.layers[0]
        zero = {"k": not cache.keys.any(), "v": not cache.values.any()}
        assert zero == {"k": part == "k", "v": part == "v"}


def test_layers_of_a_hybrid_count_those_with_attention():
    model = boost(build("Lfm2", **HYBRID), layers=[-1])
    assert list(corrected_layers(model)) == ["model.layers.2.self_attn"]
    assert model.config.boosting[0]["layers"] == [1]
    with pytest.raises(ValueError, match="indices go from -2 to 1"):
        boost(build("Lfm2", **HYBRID), layers=[2])


@pytest.mark.parametrize("multi_query", [True, False])
def test_projections_that_are_not_known_are_refused(multi_query):
    options = {key: value for key, value in J.items() if key != "rotary_dim"}
    model = build("GPTBigCode", **options, multi_query=multi_query)
    modules = [type(m) for m in model.modules()]
    with pytest.raises(ValueError, match="no attention module with known projections"):
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


def test_a_cache_that_a_correction_has_missed_tokens_of_is_refused():
    """Switched off for some tokens, or not yet among those that ran when the cache was begun."""
    model, ids = boost(boost(tiny("llama"), name="law"), name="code"), tokens()
    disturb(model)
    with torch.no_grad():
        cache = model(ids[:, :6], use_cache=True).past_key_values
        with model.disable_corrections():
            model(ids[:, 6:7], past_key_values=cache)
        with pytest.raises(ValueError, match="filled without the corrections"):
            model(ids[:, 7:8], past_key_values=cache)
        model.set_corrections("code")
        cache = model(ids[:, :6], use_cache=True).past_key_values
        model.set_corrections(["law", "code"])
        with pytest.raises(ValueError, match="filled without the corrections"):
            model(ids[:, 6:7], past_key_values=cache)
        whole = model(ids).logits
        cache = model(ids[:, :6], use_cache=True).past_key_values
        cache.crop(-2)
        torch.testing.assert_close(model(ids[:, 4:], past_key_values=cache).logits, whole[:, 4:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{"task_type": "CAUSAL_LM"}, {}], ids=["causal", "plain"])
def test_unboost_refuses_a_model_with_adapters_and_changes_nothing(options):
    model, ids = boost(tiny("llama")), tokens()
    disturb(model)
    adapted = get_peft_model(model, LoraConfig(target_modules=["self_attn.q_proj"], **options))
    before, kinds = logits(adapted, ids), (type(adapted), type(model), type(model.config))
    for given in (adapted, model):
        with pytest.raises(ValueError, match=r"has adapters.*merge or unload them first"):
            unboost(given)
    assert torch.equal(logits(adapted, ids), before)
    assert (type(adapted), type(model), type(model.config)) == kinds
    unboost(adapted.unload())
    with pytest.raises(ValueError, match="NoneType is not boosted"):
        unboost(None)


def test_unboost_leaves_no_map_of_code_that_was_not_there(tmp_path):
    for model in (boost(tiny("llama")), reloaded(boost(tiny("llama")), tmp_path)):
        config = unboost(model).config
        assert not {"auto_map", "unboosted_auto_map"} & vars(config).keys()
    own = tiny("llama")
    own.config.auto_map = {"AutoConfig": "code.Config"}
    assert unboost(reloaded(boost(own), tmp_path)).config.auto_map == {"AutoConfig": "code.Config"}


def reloaded(model, folder):
    """A model, saved and loaded again."""
    model.save_pretrained(folder)
    return transformers.AutoModelForCausalLM.from_pretrained(folder)


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
        changed = {**stored, "boosting": [{**stored["boosting"][0], **change}]}
        write_sealed(settings, changed, listing(tmp_path, [weights.name]))
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


@pytest.mark.parametrize(
    "change",
    [{"layers": [7]}, {"rank": 0}, {"gate": "zz"}, {"n_new": "two"}, {"kv": None}, None],
    ids=["layer", "rank", "gate", "count", "kv", "none"],
)
def test_damaged_stages_of_a_boosted_folder(change, tmp_path):
    boost(tiny("llama"), rank=2).save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    stored["boosting"] = [] if change is None else [{**stored["boosting"][0], **change}]
    (tmp_path / "config.json").write_text(json.dumps(stored))
    with pytest.raises(ValueError, match="configuration of this boosted model is damaged"):
        load_model(tmp_path)
