"""TRL on boosted models: supervised fine-tuning and preferences, from folders and from models at hand."""

import copy
import json
import math
import subprocess
import sys

import peft
import pytest
import torch
import transformers

from boosted_attention import boost
from boosted_attention.data.tokenizer import Tokenizer, byte_tokenizer
from boosted_attention.pretrained.correction import is_correction
from boosted_attention.pretrained.folders import quietly
from boosted_attention.pretrained.native import tokenizer_to_transformers
from tests.pretrained.families import disturb, tiny, tokens
from tests.pretrained.test_boost import logits
from tests.processes import environment

trl = pytest.importorskip("trl", reason="TRL is not installed: pip install 'boosted-attention[trl]'")
datasets = pytest.importorskip("datasets", reason="datasets is not installed: pip install 'boosted-attention[trl]'")
pytestmark = pytest.mark.filterwarnings("ignore")

TEXTS = {"text": ["the cat sat on the mat", "two and two is four", "up and down"]}
PAIRS = {
    "prompt": ["the cat sat", "two and two"],
    "chosen": [" on the mat", " is four"],
    "rejected": [" on the sky", " is five"],
}
SHARED = {"rank": 2, "kv": "shared"}


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizer_to_transformers(Tokenizer(byte_tokenizer(), "bytes"), 64)


def saved(model, tokenizer, folder) -> str:
    with quietly():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def trained_folder(family, tokenizer, folder, **options) -> str:
    """A folder of a boosted model whose corrections do something."""
    model = boost(tiny(family, vocab_size=len(tokenizer)), **options)
    disturb(model, 0.05)
    return saved(model, tokenizer, folder)


def settings(folder) -> dict:
    return {
        "output_dir": str(folder / "out"),
        "max_steps": 2,
        "logging_steps": 1,
        "per_device_train_batch_size": 2,
        "learning_rate": 1e-2,
        "max_length": 32,
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "save_strategy": "no",
        "disable_tqdm": True,
    }


def finetune(model, folder, **more):
    arguments = trl.SFTConfig(**settings(folder))
    return trl.SFTTrainer(model=model, args=arguments, train_dataset=datasets.Dataset.from_dict(TEXTS), **more)


def prefer(model, folder, **more):
    arguments = trl.DPOConfig(**settings(folder))
    return trl.DPOTrainer(model=model, args=arguments, train_dataset=datasets.Dataset.from_dict(PAIRS), **more)


def changed(trainer) -> set[str]:
    """Train, and return the names of the parameters that are others now; each step must have a finite loss."""
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert len(losses) == 2
    assert all(map(math.isfinite, losses))
    return {name for name, p in trainer.model.named_parameters() if not torch.equal(p, before[name])}


def first_loss(trainer) -> float:
    return trainer.state.log_history[0]["loss"]


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox"])
def test_fine_tuning_by_path_trains_the_corrections_alone(family, tokenizer, tmp_path):
    folder = trained_folder(family, tokenizer, tmp_path / "model", **SHARED)
    trainer = finetune(folder, tmp_path)
    moved = changed(trainer)
    assert moved
    assert all(map(is_correction, moved))
    trainer.save_model(str(tmp_path / "again"))
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "again").eval()
    assert type(again) is type(trainer.model)
    assert torch.equal(logits(again, tokens()), logits(trainer.model.eval(), tokens()))


def test_a_folder_that_names_no_code_is_taken_too(tokenizer, tmp_path):
    """Folders of the first layout do not; TRL looks for the name of their class in transformers in vain."""
    folder = trained_folder("llama", tokenizer, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    stored = json.loads(path.read_text())
    del stored["auto_map"]
    path.write_text(json.dumps(stored))
    trainer = finetune(folder, tmp_path)
    assert trainer.model.corrections == ["default"]
    assert "auto_map" not in transformers.AutoConfig.from_pretrained(folder).to_dict()


@pytest.mark.parametrize(("family", "options"), [("llama", SHARED), ("gpt2", {})], ids=["llama", "gpt2"])
def test_preferences_by_path_are_against_the_start(family, options, tokenizer, tmp_path):
    folder = trained_folder(family, tokenizer, tmp_path / "model", **options)
    start = logits(transformers.AutoModelForCausalLM.from_pretrained(folder).eval(), tokens())
    trainer = prefer(folder, tmp_path)
    moved = changed(trainer)
    assert moved
    assert all(map(is_correction, moved))
    assert first_loss(trainer) == pytest.approx(math.log(2), rel=1e-3)
    assert torch.equal(logits(trainer.ref_model.eval(), tokens()), start)
    assert not torch.equal(logits(trainer.model.eval(), tokens()), start)


def test_preferences_of_a_model_at_hand_are_against_the_base_it_was_loaded_from(tokenizer, tmp_path):
    base = tiny("llama", vocab_size=len(tokenizer))
    folder = saved(base, tokenizer, tmp_path / "base")
    model = boost(transformers.AutoModelForCausalLM.from_pretrained(folder), **SHARED)
    trainer = prefer(model, tmp_path, processing_class=tokenizer)
    moved = changed(trainer)
    assert moved
    assert all(map(is_correction, moved))
    assert first_loss(trainer) == pytest.approx(math.log(2), rel=1e-3)
    assert type(trainer.ref_model) is transformers.LlamaForCausalLM
    assert torch.equal(logits(trainer.ref_model.eval(), tokens()), logits(base, tokens()))


@pytest.mark.parametrize("options", [{}, SHARED], ids=["full", "shared"])
def test_a_copy_serves_as_the_reference(options, tokenizer, tmp_path):
    model = boost(tiny("llama", vocab_size=len(tokenizer)), **options)
    disturb(model, 0.05)
    start = logits(model, tokens())
    trainer = prefer(model, tmp_path, ref_model=copy.deepcopy(model), processing_class=tokenizer)
    assert all(map(is_correction, changed(trainer)))
    assert first_loss(trainer) == pytest.approx(math.log(2), rel=1e-3)
    assert torch.equal(logits(trainer.ref_model.eval(), tokens()), start)
    assert not torch.equal(logits(trainer.model.eval(), tokens()), start)


@pytest.mark.parametrize("train", [finetune, prefer])
def test_adapters_need_no_names_of_modules(train, tokenizer, tmp_path):
    """They alone are trained, and without them the model is what it was: the reference of preferences."""
    folder = trained_folder("llama", tokenizer, tmp_path / "model", **SHARED)
    start = logits(transformers.AutoModelForCausalLM.from_pretrained(folder).eval(), tokens())
    trainer = train(folder, tmp_path, peft_config=peft.LoraConfig(r=2, task_type="CAUSAL_LM"))
    moved = changed(trainer)
    assert moved
    assert all("lora_" in name and "rounds" not in name for name in moved)
    with trainer.model.disable_adapter():
        assert torch.equal(logits(trainer.model.eval(), tokens()), start)
    assert not torch.equal(logits(trainer.model.eval(), tokens()), start)


def test_without_our_import_remote_code_serves(tokenizer, tmp_path, full):
    if not full:
        pytest.skip("in make test-full")
    folder = trained_folder("llama", tokenizer, tmp_path / "model", **SHARED)
    script = f"""
import sys
from datasets import Dataset
from trl import DPOConfig, DPOTrainer
arguments = DPOConfig(trust_remote_code=True, **{settings(tmp_path)!r})
assert not any(name.startswith("boosted_attention") for name in sys.modules)
trainer = DPOTrainer(model={folder!r}, args=arguments, train_dataset=Dataset.from_dict({PAIRS!r}))
trainer.train()
print(type(trainer.model).__name__, type(trainer.ref_model).__name__)
"""
    started = environment(HF_HUB_OFFLINE="1", HF_MODULES_CACHE=str(tmp_path / "modules"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=started, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["BoostedLlamaForCausalLM"] * 2
