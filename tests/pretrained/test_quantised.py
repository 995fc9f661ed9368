"""Light corrections of quantised bases: nothing of the base is copied."""

import pytest
import torch
import transformers

from boosted_attention import boost, unboost
from boosted_attention.pretrained.correction import is_correction
from tests.pretrained.families import disturb, tiny, tokens
from tests.pretrained.test_boost import generate, logits

WIDTHS = {"hidden_size": 64, "intermediate_size": 64}  # which the quantisers' blocks divide


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
        assert torch.equal(generate(model, ids), generate(model, ids, use_cache=False))
    assert torch.equal(logits(unboost(model), ids), before)


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
