"""Boosted folders, loaded wherever: in new processes, by the base's own class, from before, and by the commands."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file

import boosted_attention
from boosted_attention import boost, unboost
from boosted_attention.cli.main import main
from boosted_attention.data.tokenizer import Tokenizer, byte_tokenizer
from boosted_attention.pretrained import load_correction, save_correction
from boosted_attention.pretrained.correction import is_correction
from boosted_attention.pretrained.layer import corrected_layers
from boosted_attention.pretrained.named import modules_of
from boosted_attention.pretrained.native import tokenizer_to_transformers
from boosted_attention.storage.sealing import listing, write_sealed
from tests.cli.test_train import refused
from tests.pretrained.families import disturb, tiny, tokens
from tests.pretrained.test_boost import logits
from tests.pretrained.test_other_families import ATTENDING, build
from tests.processes import environment

SOURCE = Path(boosted_attention.__file__).parent.parent
FOUR = ("llama", "gpt2", "gpt_neox", "mistral")


def saved(folder, family="llama", vocab_size=64, **options):
    """A boosted model whose corrections do something, and the folder it was saved in."""
    model = boost(tiny(family, vocab_size=vocab_size), **options)
    disturb(model)
    model.save_pretrained(folder)
    torch.save(logits(model, tokens()), folder / "logits.pt")
    return model


def new_process(script: str, *, package: bool = True, cache: Path | None = None) -> subprocess.CompletedProcess:
    """Run a script in a process that has imported nothing, where this package may be missing altogether."""
    modules = {} if cache is None else {"HF_MODULES_CACHE": str(cache)}
    started = environment(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1", **modules)
    if not package:
        script = f"import sys; sys.modules['boosted_attention'] = None\n{script}"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=started, check=False)


ORDERS = {
    "this package first": "import boosted_attention\nassert waiting() == 1\nimport transformers",
    "transformers first": "from transformers import AutoConfig, AutoModelForCausalLM\nimport boosted_attention",
}
LOADING = """
assert waiting() == ("AutoConfig" not in globals())
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
assert waiting() == 0
assert "boosted-llama" in CONFIG_MAPPING and "boosted-nothing" not in CONFIG_MAPPING
assert "boosted-llama" not in CONFIG_MAPPING.keys()
assert not loaded("boosted_attention.pretrained") and not loaded("transformers.models.llama")
import torch
for family in {families}:
    folder = {folder!r} + "/" + family
    assert AutoConfig.from_pretrained(folder).model_type == "boosted-" + family
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert torch.equal(model(torch.tensor({ids})).logits, torch.load(folder + "/logits.pt"))
assert len([name for name in loaded("transformers.models.") if ".modeling_" in name]) < 20
from transformers import pipeline
for family in {families}:
    write = pipeline("text-generation", {folder!r} + "/" + family)
    assert type(write.model).__name__.startswith("Boosted") and write("ab", max_new_tokens=2)[0]["generated_text"]
"""
HELPERS = """
import sys
def waiting(): return sum(type(finder).__name__ == "Watcher" for finder in sys.meta_path)
def loaded(start): return [name for name in sys.modules if name.startswith(start)]
"""


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_a_new_process_knows_boosted_models_in_either_order(order, tmp_path):
    """The hook imports nothing, makes no class before it is asked for, and leaves when its work is done."""
    tokenizer = tokenizer_to_transformers(Tokenizer(byte_tokenizer(), "bytes"), 64)
    for family in FOUR:
        saved(tmp_path / family, family, vocab_size=len(tokenizer))
        tokenizer.save_pretrained(tmp_path / family)
    loading = LOADING.format(families=FOUR, folder=str(tmp_path), ids=tokens().tolist())
    done = new_process(f"{HELPERS}{order}{loading}")
    assert done.returncode == 0, done.stderr


def test_without_our_import_remote_code_serves_and_a_pipeline_too(tmp_path):
    folder = tmp_path / "model"
    model = saved(folder)
    tokenizer_to_transformers(Tokenizer(byte_tokenizer(), "bytes"), 64).save_pretrained(folder)
    script = f"""
import torch
from transformers import AutoConfig, AutoModelForCausalLM, pipeline
folder = {str(folder)!r}
try: AutoConfig.from_pretrained(folder)
except ValueError as error: assert "trust_remote_code" in str(error), error
else: raise AssertionError
model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True).eval()
assert torch.equal(model(torch.tensor({tokens().tolist()})).logits, torch.load(folder + "/logits.pt"))
model.save_pretrained(folder + "-again")
write = pipeline("text-generation", folder, trust_remote_code=True)
print(type(write.model).__name__)
"""
    done = new_process(script, cache=tmp_path / "modules")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == type(model).__name__
    again = tmp_path / "model-again"
    assert {path.name for path in again.iterdir()} == {
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "modeling_boosted.py",
    }
    assert (again / "modeling_boosted.py").read_text() == (folder / "modeling_boosted.py").read_text()


def test_where_the_package_is_missing_the_folder_names_it(tmp_path):
    saved(tmp_path / "model")
    script = f"""
from transformers import AutoConfig
AutoConfig.from_pretrained({str(tmp_path / "model")!r}, trust_remote_code=True)
"""
    done = new_process(script, package=False, cache=tmp_path / "modules")
    assert done.returncode
    assert "pip install boosted-attention" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("options", [{}, {"rank": 2}, {"kv": "shared"}], ids=str)
def test_a_class_that_knows_nothing_of_us_loads_the_base(options, tmp_path):
    for family in ("llama", "gpt2"):
        folder = tmp_path / family
        saved(folder, family, **options)
        base = tiny(family)
        plain, info = type(base).from_pretrained(folder, output_loading_info=True)
        assert type(plain) is type(base)
        assert torch.equal(logits(plain.eval(), tokens()), logits(base, tokens()))
        assert not info["missing_keys"]
        assert info["unexpected_keys"]
        assert all(is_correction(name) for name in info["unexpected_keys"])


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_folders_of_the_first_layout_load_and_are_saved_in_todays(family, tmp_path):
    model = saved(tmp_path / "new", family, layers=[0, 2])
    names = load_file(tmp_path / "new" / "model.safetensors")
    old = dict(names)
    for place in corrected_layers(model):
        own = [name for name in names if name.startswith(f"{place}.") and not is_correction(name)]
        assert own
        for name in own:
            old[name.replace(f"{place}.", f"{place}.rounds.0.")] = old.pop(name)
    shutil.copytree(tmp_path / "new", tmp_path / "old")
    save_file(old, tmp_path / "old" / "model.safetensors", metadata={"format": "pt"})
    stored = json.loads((tmp_path / "old" / "config.json").read_text())
    del stored["auto_map"]
    for stage in stored["boosting"]:
        del stage["train"], stage["kv"], stage["rank"]
    (tmp_path / "old" / "config.json").write_text(json.dumps(stored))
    loaded, info = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "old", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert torch.equal(logits(loaded.eval(), tokens()), logits(model, tokens()))
    loaded.save_pretrained(tmp_path / "again")
    assert load_file(tmp_path / "again" / "model.safetensors").keys() == names.keys()


@pytest.mark.parametrize("train", ["correction", "all"])
def test_freezing_survives_reloading(train, tmp_path):
    model = boost(tiny("llama"))
    boost(model, n_rounds=3, train=train)
    model.save_pretrained(tmp_path)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert {name for name, p in loaded.named_parameters() if p.requires_grad} == trained
    assert all(p.requires_grad for p in loaded.parameters()) == (train == "all")
    assert all(p.requires_grad for p in unboost(loaded).parameters())


def test_what_was_frozen_by_hand_or_loaded_stays_so(tmp_path):
    """Base and corrections, as a whole or in part, whatever was boosted last."""

    def trained(model):
        return {name for name, p in model.named_parameters() if p.requires_grad}

    def reloaded(model):
        model.save_pretrained(tmp_path / "saved")
        return transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved")

    model = boost(tiny("llama"), name="law")
    boost(model, name="code", rank=2)
    save_correction(model, tmp_path / "correction")
    both = load_correction(tiny("llama"), tmp_path / "correction")
    assert (
        trained(reloaded(both)) == trained(both) == {name for name, _ in both.named_parameters() if is_correction(name)}
    )
    model.remove_correction("code")
    assert trained(reloaded(model)) == set()
    model.requires_grad_(True)
    for module in modules_of(model, "law"):
        module.requires_grad_(False)
    assert trained(reloaded(model)) == {name for name, _ in model.named_parameters() if not is_correction(name)}
    model.lm_head.requires_grad_(False)
    modules_of(model, "law")[1].requires_grad_(True)
    kept = trained(model)
    assert trained(reloaded(model)) == kept
    assert "lm_head.weight" not in kept
    assert {name.split(".")[4] for name in kept if is_correction(name)} == {"gates"}
    assert not hasattr(unboost(reloaded(model)).config, "trained")


def test_unboost_leaves_frozen_what_was_frozen_before_a_correction_was_loaded(tmp_path):
    save_correction(boost(tiny("llama")), tmp_path)
    frozen = tiny("llama").requires_grad_(False)
    assert not any(p.requires_grad for p in unboost(load_correction(frozen, tmp_path)).parameters())


def test_a_base_cast_from_one_half_to_the_other_is_known_and_one_rounded_to_both_is_not(tmp_path):
    halves = (torch.bfloat16, torch.float16)
    for half, other in (halves, halves[::-1]):
        save_correction(boost(tiny("llama").to(half)), tmp_path / str(half))
        load_correction(tiny("llama").to(half).to(other), tmp_path / str(half))
        with pytest.raises(ValueError, match="corrects another model"):
            load_correction(tiny("llama").to(other), tmp_path / str(half))


@pytest.mark.parametrize("family", ["Phi3", "Mistral", "Llama"])
@pytest.mark.parametrize("stated", ["LlamaTokenizer", "PreTrainedTokenizerFast", None])
def test_a_boosted_folder_is_tokenised_as_its_base_is(family, stated, tmp_path):
    """What a folder says of its tokenizer is not always what transformers takes."""
    types = {piece: i for i, piece in enumerate(("<unk>", "\u2581", "a", "b", "\u2581a"))}
    words = tokenizers.Tokenizer(tokenizers.models.BPE(types, [("\u2581", "a")], unk_token="<unk>"))
    words.add_special_tokens(["<unk>"])
    words.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first")
    model, read = build(family, **ATTENDING), []
    for name in ("base", "boosted"):
        model.save_pretrained(tmp_path / name)
        words.save(str(tmp_path / name / "tokenizer.json"))
        said = {"legacy": False} | ({} if stated is None else {"tokenizer_class": stated})
        (tmp_path / name / "tokenizer_config.json").write_text(json.dumps(said))
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / name)
        read.append((type(tokenizer), tokenizer("<unk>a b")["input_ids"]))
        model = boost(model) if name == "base" else model
    assert read[0] == read[1]


def test_a_correction_knows_its_base_in_double_precision(tmp_path):
    """A float32 base cast up, and one of doubles as it is and cast down; not another that is the same in float32."""
    save_correction(boost(tiny("llama")), tmp_path / "single")
    load_correction(tiny("llama").double(), tmp_path / "single")

    def doubles(change):
        base = tiny("llama").double()
        with torch.no_grad():
            base.lm_head.weight[0, 0] *= 1 + change
        return base

    save_correction(boost(doubles(1e-12)), tmp_path / "double")
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        load_correction(doubles(1e-12).to(dtype), tmp_path / "double")
    with pytest.raises(ValueError, match="corrects another model"):
        load_correction(doubles(2e-12), tmp_path / "double")


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_a_correction_knows_its_base_in_another_precision(half, tmp_path):
    save_correction(boost(tiny("llama")), tmp_path / "whole")
    save_correction(boost(tiny("llama").to(half)), tmp_path / "half")
    for base in (tiny("llama"), tiny("llama").to(half)):
        for name in ("whole", "half"):
            unboost(load_correction(base, tmp_path / name))
    other = tiny("llama").to(half)
    with torch.no_grad():
        other.lm_head.weight[0, 0] *= 1.02  # a few steps of a half
    for name in ("whole", "half"):
        with pytest.raises(ValueError, match="corrects another model"):
            load_correction(other, tmp_path / name)
    between = tiny("llama")
    with torch.no_grad():
        between.lm_head.weight[0, 0] *= 1 + 1e-6  # less than a half can tell
    with pytest.raises(ValueError, match="corrects another model"):
        load_correction(between, tmp_path / "whole")


def test_a_correction_that_knows_less_of_its_base_loads_on_the_same_values(tmp_path):
    model, ids = boost(tiny("llama")), tokens()
    disturb(model)
    save_correction(model, tmp_path)
    stored = json.loads((tmp_path / "correction.json").read_text())
    stored["base"] = {name: stored["base"][name] for name in ("name", "sha256")}
    write_sealed(tmp_path / "correction.json", stored, listing(tmp_path, ["correction.safetensors"]))
    assert torch.equal(logits(load_correction(tiny("llama"), tmp_path), ids), logits(model, ids))


def test_commands_take_a_boosted_folder(text_file, tmp_path, capsys):
    tokenizer = tokenizer_to_transformers(Tokenizer(byte_tokenizer(), "bytes"), 64)
    folder = tmp_path / "model"
    model = boost(tiny("llama", vocab_size=len(tokenizer)))
    disturb(model, 0.05)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    corpus = ["--corpus", f"text:{text_file}"]

    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            main([str(a) for a in arguments])
        assert stop.value.code == 0
        return capsys.readouterr().out

    ids = torch.tensor([tokenizer("bado").input_ids])
    expected = model.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=0)[0]
    written = run("generate", folder, "bado", "--tokens", 5, "--temperature", 0, "--no-stop")
    assert written.rstrip("\n") == tokenizer.decode(expected, skip_special_tokens=True).rstrip("\n")
    assert run("generate", folder, "bado", "--tokens", 0).rstrip("\n") == "bado"
    found = json.loads(run("evaluate", folder, *corpus, "--json"))
    assert found["tokens"] > 100
    assert found["loss"] > 0
    assert "worth boosting" in run(
        "analyze", folder, *corpus, "--sequences", 2, "--pairs", 4, "--out", tmp_path / "look"
    )
    assert (tmp_path / "look" / "analysis.json").is_file()
    for command in ("evaluate", "analyze"):
        assert "is a model without a text of its own; --corpus names one" in refused([command, folder], capsys)
    (folder / "tokenizer.json").unlink()
    assert "has no tokenizer.json" in refused(["generate", folder], capsys)
