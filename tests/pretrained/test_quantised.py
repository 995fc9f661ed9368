"""Light corrections of quantised bases: nothing of the base is copied."""

import pytest
import torch
import transformers

from boosted_attention import boost, capture, unboost
from boosted_attention.pretrained import load_correction, save_correction
from boosted_attention.pretrained.correction import is_correction
from boosted_attention.pretrained.named import trainable_parameters
from boosted_attention.pretrained.quantised import is_quantised
from tests.pretrained.families import disturb, tiny, tokens
from tests.pretrained.test_boost import generate, logits

WIDTHS = {"hidden_size": 64, "intermediate_size": 64}  # which the quantisers' blocks divide

# Decoding with a cache multiplies other shapes than reading at once. In bfloat16 that rounds some tokens of random
# weights to others, by processor, with a base alone as well: there logits are compared. So it is in float32 where the
# base rounds what it multiplies to bfloat16.
ROUNDING = {torch.float32: 1e-4, torch.bfloat16: 0.1}  # relative


def quantised_by(name):
    """The configuration of a quantiser; the test is skipped where it is not installed."""
    pytest.importorskip(
        "torchao" if name == "torchao" else "bitsandbytes",
        reason="quantisers are not installed: pip install 'boosted-attention[quantised]'",
    )
    if name == "torchao":
        from torchao.quantization import Int8WeightOnlyConfig

        return transformers.TorchAoConfig(Int8WeightOnlyConfig())
    if name == "int8":
        return transformers.BitsAndBytesConfig(load_in_8bit=True)
    return transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")


def load(folder, name, dtype=torch.float32):
    config = quantised_by(name)
    model = transformers.LlamaForCausalLM.from_pretrained(folder, quantization_config=config, dtype=dtype).eval()
    model.generation_config.eos_token_id = None
    return model


@torch.no_grad()
def multiplied_in(model, dtype):
    """What the matrices of a base multiply in: 4-bit ones in bfloat16 where the processor has instructions for it."""
    linear = model.model.layers[0].self_attn.q_proj
    z = torch.randn(1, WIDTHS["hidden_size"], dtype=dtype, generator=torch.Generator().manual_seed(0))
    return torch.bfloat16 if torch.equal(linear(z), linear(z.bfloat16().to(dtype))) else dtype


@torch.no_grad()
def decoded(model, ids):
    """The logits of the same tokens, read one by one with a cache, (B, T, V)."""
    cache = transformers.DynamicCache(config=model.config)
    return torch.cat([model(t, past_key_values=cache, use_cache=True).logits for t in ids.split(1, dim=1)], dim=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("base")
    tiny("llama", **WIDTHS).save_pretrained(place)
    return place


@pytest.mark.filterwarnings("ignore")  # of the quantisers
@pytest.mark.parametrize("kv", ["own", "shared"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["torchao", "int8", "nf4"])
def test_a_quantised_base_takes_light_corrections(folder, name, dtype, kv):
    model, ids = load(folder, name, dtype), tokens()
    before = logits(model, ids)
    boost(model, rank=4, kv=kv)
    assert torch.equal(logits(model, ids), before)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert trained.keys() == {name for name, _ in model.named_parameters() if is_correction(name)}
    assert {p.dtype for p in trained.values()} == {dtype}  # what the model computes in
    model(ids, labels=ids).loss.backward()
    assert all(p.grad is not None for p in trained.values())
    disturb(model)
    assert not torch.equal(logits(model, ids), before)
    if name != "int8":  # LLM.int8 quantises activations by what else is in the batch, with a base alone as well
        at_once, by_token, dtype = logits(model, ids), decoded(model, ids), multiplied_in(model, dtype)
        assert (by_token - at_once).norm() < ROUNDING[dtype] * at_once.norm()
        assert (at_once - before).norm() > 0.5 * at_once.norm()  # a cache without corrections would be found
        if dtype is torch.float32:
            assert torch.equal(generate(model, ids), generate(model, ids, use_cache=False))
    assert torch.equal(logits(unboost(model), ids), before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["torchao", "int8", "nf4"])
def test_a_boosted_quantised_model_is_saved_and_loaded(folder, name, tmp_path):
    model, ids = load(folder, name), tokens()
    boost(model, rank=4, gate="vector", name="first")
    boost(model, rank=4, kv="shared", gate="headwise", name="second")
    disturb(model)
    after = logits(model, ids)
    with capture(model) as traces:
        traced = logits(model, ids)
    model.set_attn_implementation("eager")  # traces are made by this kernel
    assert torch.equal(traced, logits(model, ids))
    model.set_attn_implementation("sdpa")
    assert all(len(trace.rounds) == 3 for trace in traces.values())
    model.save_pretrained(tmp_path / "whole")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "whole").eval()
    assert torch.equal(logits(loaded, ids), after)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {name for name, p in loaded.named_parameters() if p.requires_grad} == trained
    save_correction(model, tmp_path / "correction")
    again = load_correction(load(folder, name), tmp_path / "correction")
    assert torch.equal(logits(again, ids), after)
    assert torch.equal(logits(unboost(again), ids), logits(load(folder, name), ids))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["torchao", "int8", "nf4"])
def test_a_correction_of_another_quantised_base_is_refused(folder, name, tmp_path):
    """Another scale makes another base, also where the stored integers are the same."""
    save_correction(boost(load(folder, name), rank=4), tmp_path / "correction")
    larger = tiny("llama", **WIDTHS)
    with torch.no_grad():
        larger.model.layers[0].mlp.up_proj.weight.mul_(2)
    larger.save_pretrained(tmp_path / "larger")
    with pytest.raises(ValueError, match="corrects another model"):
        load_correction(load(tmp_path / "larger", name), tmp_path / "correction")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["torchao", "int8", "nf4"])
def test_a_boosted_folder_loaded_with_a_quantiser_keeps_its_light_corrections_whole(folder, name, tmp_path):
    model = boost(tiny("llama", **WIDTHS), rank=4, gate="vector")
    disturb(model)
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, quantization_config=quantised_by(name))
    assert is_quantised(loaded)
    stored = dict(model.named_parameters())
    ours = {place: p for place, p in loaded.named_parameters() if is_correction(place)}
    assert ours
    for place, p in ours.items():
        assert p.requires_grad
        torch.testing.assert_close(p.float(), stored[place], rtol=0, atol=1e-2 if p.dtype != torch.float32 else 0)


@pytest.mark.filterwarnings("ignore")
def test_parameters_of_four_bits_are_counted_one_by_one(folder):
    whole = boost(tiny("llama", **WIDTHS), rank=4)
    assert trainable_parameters(boost(load(folder, "nf4"), rank=4)) == trainable_parameters(whole)


@pytest.mark.filterwarnings("ignore")
def test_what_would_be_copied_is_refused(folder):
    model, ids = load(folder, "nf4"), tokens()
    before = logits(model, ids)
    with pytest.raises(ValueError, match=r"is quantised: its projections can be read, not copied; .*rank=16"):
        boost(model, kv="shared")
    model.config.quantization_config.quant_method = "gptq"
    with pytest.raises(ValueError, match="is quantised by gptq; boost takes quantised models of torchao and bitsandby"):
        boost(model, rank=4)
    assert type(model) is transformers.LlamaForCausalLM
    assert torch.equal(logits(model, ids), before)
