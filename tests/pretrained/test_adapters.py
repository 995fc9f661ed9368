"""peft's adapters on boosted models, without a word on where they go: as on the base, and on no correction."""

import subprocess
import sys

import peft
import pytest
import torch
import transformers
from peft.utils import constants

from boosted_attention import boost
from boosted_attention.pretrained.adapters import own_projections
from tests.pretrained.families import disturb, tiny, tokens
from tests.pretrained.test_boost import logits
from tests.processes import environment

KINDS = [{}, {"rank": 2}, {"rank": 2, "kv": "shared"}]
KNOWN = ("llama", "gpt2", "gpt_neox", "opt", "phi", "gemma")


def places(model) -> set[str]:
    """Names of the modules that got adapters."""
    inner = model.get_base_model()
    return {name for name, m in inner.named_modules() if isinstance(m, peft.tuners.tuners_utils.BaseTunerLayer)}


@pytest.mark.parametrize("kind", KINDS, ids=["full", "low-rank", "shared"])
@pytest.mark.parametrize("family", KNOWN)
def test_lora_goes_where_it_goes_on_the_base(family, kind, tmp_path):
    config = {"r": 2, "task_type": "CAUSAL_LM", "fan_in_fan_out": family == "gpt2"}
    expected = places(peft.get_peft_model(tiny(family), peft.LoraConfig(**config)))
    model, ids = boost(tiny(family), **kind), tokens()
    disturb(model)
    before = logits(model, ids)
    adapted = peft.get_peft_model(model, peft.LoraConfig(**config))
    assert places(adapted) == expected
    assert expected
    assert torch.equal(logits(adapted, ids), before)
    for name, p in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(p, std=0.2)
    changed = logits(adapted, ids)
    assert not torch.equal(changed, before)
    adapted.save_pretrained(tmp_path)
    again = boost(tiny(family), **kind)
    disturb(again)
    assert torch.equal(logits(peft.PeftModel.from_pretrained(again, tmp_path).eval(), ids), changed)


def test_lora_goes_on_the_attention_to_an_encoder_too():
    """A decoder whose layers have a second attention, which is not boosted and has projections of the same names."""
    size = {"vocab_size": 64, "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "encoder_layers": 2}
    config = transformers.BartConfig(**size, is_decoder=True, is_encoder_decoder=False)

    def adapted(change) -> set[str]:
        model = change(transformers.BartForCausalLM(config).eval())
        return places(peft.get_peft_model(model, peft.LoraConfig(r=2, task_type="CAUSAL_LM")))

    expected = adapted(lambda model: model)
    assert any("encoder_attn" in name for name in expected)
    assert adapted(boost) == expected


def test_some_layers_can_be_chosen():
    """peft looks at layers_to_transform where its table has a list of names, not where it has a pattern."""
    adapted = peft.get_peft_model(boost(tiny("llama")), peft.LoraConfig(r=2, layers_to_transform=[1]))
    assert places(adapted) == {f"model.layers.1.self_attn.{name}_proj" for name in "qv"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
@pytest.mark.parametrize("method", [peft.IA3Config, peft.LoHaConfig])
def test_other_methods_know_boosted_families_too(method, family):
    expected = places(peft.get_peft_model(tiny(family), method()))
    assert places(peft.get_peft_model(boost(tiny(family)), method())) == expected


def test_a_family_that_peft_does_not_know_is_refused_as_its_base_is():
    for model in (tiny("smollm3"), boost(tiny("smollm3"))):
        with pytest.raises(ValueError, match="Please specify `target_modules`"):
            peft.get_peft_model(model, peft.LoraConfig(r=2))


def test_every_table_has_a_boosted_entry_per_list():
    tables = {name: t for name, t in vars(constants).items() if name.endswith("_MODULES_MAPPING")}
    assert len(tables) > 5
    for table in tables.values():
        assert not any(name.startswith("boosted-boosted") for name in table)
        own = {name: names for name, names in table.items() if not name.startswith("boosted-")}
        assert {f"boosted-{name}" for name, names in own.items() if isinstance(names, list)} == table.keys() - own


def test_names_outside_attention_stay():
    assert own_projections(["fc1", "mlp.c_proj"]) == ["fc1", "mlp.c_proj"]
    assert "self_attn.q_proj" in own_projections(["q_proj"])
    assert "q_proj" not in own_projections(["q_proj"])


ORDERS = {"peft first": "import peft", "peft last": "import boosted_attention"}
SCRIPT = """
import sys
from transformers import LlamaConfig, LlamaForCausalLM
from boosted_attention import boost
tiny = LlamaConfig(vocab_size=16, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
model = boost(LlamaForCausalLM(tiny))
assert ("peft" in sys.modules) == {early}
import peft
adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, task_type="CAUSAL_LM"))
assert not any("rounds" in name for name, _ in adapted.named_modules() if name.endswith("lora_A"))
assert sum(name.endswith("lora_A") for name, _ in adapted.named_modules()) == 2
assert not any(type(finder).__name__ == "Watcher" for finder in sys.meta_path)
"""


@pytest.mark.parametrize("order", ORDERS)
def test_the_order_of_imports_does_not_matter(order):
    script = ORDERS[order] + SCRIPT.format(early="import peft" in ORDERS[order])
    started = {"capture_output": True, "text": True, "env": environment()}
    done = subprocess.run([sys.executable, "-c", script], check=False, **started)
    assert done.returncode == 0, done.stderr


def test_adapters_load_on_the_bare_base_too(tmp_path):
    adapted = peft.get_peft_model(boost(tiny("llama")), peft.LoraConfig(r=2, init_lora_weights=False))
    adapted.save_pretrained(tmp_path)
    bare = peft.PeftModel.from_pretrained(transformers.LlamaForCausalLM(tiny("llama").config), tmp_path)
    assert len(places(bare)) == 2 * 3
