"""Fine-tuning with the project's trainer: what is trained, kept, resumed, and refused."""

import inspect
import json
import shutil
from dataclasses import replace

import pytest
import torch
import transformers
from torch import nn

from boosted_attention.cli.finetune import prepare as prepare_command
from boosted_attention.cli.main import main
from boosted_attention.data.tokenizer import build_tokenizer
from boosted_attention.data.tokens import DataConfig, prepare
from boosted_attention.model.loss import IGNORED
from boosted_attention.pretrained import add_lora, boost
from boosted_attention.pretrained.correction import is_correction
from boosted_attention.pretrained.finetune import FinetuneConfig, lora_rank_for
from boosted_attention.train import checkpoint
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.folder import load_run
from boosted_attention.train.groups import trained_parameters
from boosted_attention.train.metrics import read_metrics
from boosted_attention.train.observer import Unwatched
from boosted_attention.train.run_config import RunConfig
from boosted_attention.train.trainer import Trainer
from tests.cli.test_train import refused
from tests.pretrained.families import FAMILIES, disturb, tiny
from tests.train import test_parallel as parallel


def command(*args) -> None:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    assert stop.value.code == 0


@pytest.fixture(scope="module")
def models(tmp_path_factory, text_file):
    """A tiny Llama with a tokenizer of the text, and the same model boosted."""
    folder = tmp_path_factory.mktemp("models")
    model = tiny("llama", vocab_size=320, tie_word_embeddings=True)
    model.save_pretrained(folder / "base")
    build_tokenizer("bpe", 300, [text_file.read_text()]).save(folder / "base" / "tokenizer.json")
    command("boost", folder / "base", folder / "boosted", "--layers", "last:2")
    return folder


def run_config(models, text_file, name="boosted", train="correction", **training):
    settings = {"steps": 8, "batch_size": 4, "accumulate": 2, "eval_every": 4, "horizon": 0, "lr": 1e-2, **training}
    return RunConfig(
        model=FinetuneConfig(base=str(models / name), train=train, max_len=16),
        training=TrainingConfig(**settings),
        data=DataConfig(
            corpus=f"text:{text_file}", tokenizer=str(models / "base" / "tokenizer.json"), held_out_tokens=300
        ),
    )


def train(config, folder, steps=None):
    data = prepare(config.data, 0)
    config = replace(config, model=replace(config.model, vocab_size=data.tokenizer.vocab_size))
    return Trainer(folder=folder, config=config, data=data, checkpoint_every=2).run(resume=True)


@pytest.mark.parametrize(
    ("name", "method"), [("boosted", "correction"), ("boosted", "all"), ("base", "all"), ("base", "lora")]
)
def test_only_what_should_be_trained_is(models, text_file, tmp_path, name, method):
    config = run_config(models, text_file, name, method)
    result = train(config, tmp_path / "run")
    assert result.best.validation_loss < read_metrics(tmp_path / "run" / "metrics.jsonl")[0]["validation_loss"]
    loaded = load_run(tmp_path / "run").model
    trained = loaded.trained()
    assert result.trained_parameters == sum(p.numel() for p in trained.values())
    if method == "correction":
        assert all(is_correction(name) for name in trained)
        base = transformers.AutoModelForCausalLM.from_pretrained(models / "base").state_dict()
        ours = {k.removeprefix("model."): v for k, v in loaded.named_parameters()}
        assert all(torch.equal(ours[key], value) for key, value in base.items() if key in ours)
    elif method == "lora":
        assert all("lora_" in name for name in trained)
    else:
        assert len(trained) == len(list(loaded.parameters()))
    held = loaded.state_dict()
    assert held.keys() == trained.keys()


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_stopped_run_goes_on_exactly(optimizer, models, text_file, tmp_path):
    config = run_config(models, text_file, optimizer=optimizer)
    whole = train(config, tmp_path / "whole")
    train(replace(config, training=replace(config.training, steps=8)), tmp_path / "parts")
    for path in (tmp_path / "parts" / "checkpoints").glob("step-*8"):
        shutil.rmtree(path)  # as if killed after step 6
    (tmp_path / "parts" / "result.json").unlink()
    again = train(config, tmp_path / "parts")
    assert again.test == whole.test
    first, second = (
        [row["loss"] for row in read_metrics(tmp_path / name / "metrics.jsonl") if "loss" in row]
        for name in ("whole", "parts")
    )
    assert first == second


@pytest.mark.parametrize(
    ("name", "method"), [("boosted", "correction"), ("boosted", "all"), ("base", "lora"), ("boosted", "lora")]
)
def test_corrections_gates_and_adapters_are_groups(models, text_file, name, method):
    found = trained_parameters(run_config(models, text_file, name, method).model.build())
    for place, parameter in found.items():
        assert parameter.is_gate == (".gates." in place), place
        assert parameter.is_correction == (".rounds.1." in place), place
        assert parameter.is_matrix == (parameter.value.ndim == 2 and ".layers." in place and ".gates." not in place)
    assert any(p.is_matrix for p in found.values())
    if method == "lora":
        assert all(p.is_matrix for p in found.values())
    assert any(p.is_correction for p in found.values()) == (name == "boosted" and method != "lora")


@pytest.mark.parametrize(("name", "method"), [("boosted", "correction"), ("base", "lora")])
def test_muon_trains_corrections_and_adapters(models, text_file, tmp_path, name, method):
    config = run_config(models, text_file, name, method, optimizer="muon", matrix_lr=0.02)
    before = config.model.build().state_dict()
    result = train(config, tmp_path / "run")
    assert result.best.validation_loss < read_metrics(tmp_path / "run" / "metrics.jsonl")[0]["validation_loss"]
    after = load_run(tmp_path / "run", "last").model.state_dict()
    assert not any(torch.equal(after[key], weight) for key, weight in before.items() if weight.ndim == 2)
    held, _ = checkpoint.latest(tmp_path / "run" / "checkpoints", "step")
    adamw = {"step", "exp_avg", "exp_avg_sq"} if method == "correction" else set()  # adapters are matrices alone
    assert {key.partition(".")[0] for key in held.tensors("optimizer")} == {"momentum_buffer", *adamw}


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox", "llama"])
def test_packed_projections_divide_into_queries_keys_and_values(family, tmp_path):
    """The parts of a fused matrix, applied to an input, are what the model attends with."""
    tiny(family).save_pretrained(tmp_path)
    model = FinetuneConfig(base=str(tmp_path), boost={"layers": "last:1"}, train="all", max_len=12).build()
    modules = dict(model.named_modules())
    packed = {name: p for name, p in trained_parameters(model).items() if len(p.divide(p.value)) > 1}
    assert len(packed) == (0 if family == "llama" else 4)  # three layers, one of them with a correction
    for name, parameter in packed.items():
        x, fused = torch.randn(5, 32), modules[name.removesuffix(".weight")]
        made = fused(x) - fused.bias  # (5, 96)
        if family == "gpt2":
            expected = made.split(32, dim=-1)
            parts = [x @ part for part in parameter.divide(parameter.value)]
        else:
            expected = [t.flatten(1) for t in made.view(5, 4, 24).split(8, dim=-1)]
            parts = [x @ part.flatten(0, -2).T for part in parameter.divide(parameter.value)]
        for part, wanted in zip(parts, expected, strict=True):
            torch.testing.assert_close(part, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to")  # peft sets it right by itself
@pytest.mark.parametrize("family", ["gpt2", "gpt_neox", "llama"])
def test_adapters_of_packed_projections_divide_as_these_do(family, tmp_path):
    """The parts of an adapter's second matrix, applied to its inner values, are what it adds to q, k and v."""
    tiny(family).save_pretrained(tmp_path)
    model = FinetuneConfig(base=str(tmp_path), boost={"layers": "last:1"}, train="lora", max_len=12).build()
    packed = {name: p for name, p in trained_parameters(model).items() if len(p.divide(p.value)) > 1}
    assert len(packed) == (0 if family == "llama" else 3)  # one per layer, none of the correction
    for name, parameter in packed.items():
        assert name.endswith(".lora_B.default.weight")
        assert parameter.is_matrix
        nn.init.normal_(parameter.value)
        inner = torch.randn(5, parameter.value.shape[1])
        made = inner @ parameter.value.T  # (5, 96)
        parts = parameter.divide(parameter.value)
        if family == "gpt2":
            expected, added = made.split(32, dim=-1), [inner @ part for part in parts]
        else:
            expected = [t.flatten(1) for t in made.view(5, 4, 24).split(8, dim=-1)]
            added = [inner @ part.flatten(0, -2).T for part in parts]
        for part, wanted in zip(added, expected, strict=True):
            torch.testing.assert_close(part, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rank", "factor"), [(8, 2.0), (32, 1.0)])
def test_loras_factor_is_two_at_rank_8_and_falls_with_the_root_of_the_rank(rank, factor):
    model = add_lora(boost(tiny("llama")), rank=rank)
    factors = [module.scaling["default"] for module in model.modules() if hasattr(module, "lora_A")]
    assert factors == pytest.approx([factor] * len(factors))
    assert factors


@pytest.mark.parametrize(("kind", "method"), [("ddp", "correction"), ("fsdp", "correction"), ("fsdp", "lora")])
def test_processes_of_torchrun_share_the_work(models, text_file, tmp_path, kind, method, full):
    """Frozen weights, corrections and adapters, replicated or divided: one process's losses, and its checkpoint."""
    if (kind, method) != ("fsdp", "correction") and not full:
        pytest.skip("in make test-full")
    model = models / ("boosted" if method == "correction" else "base")
    options = ["--train", method, "--max-len", 16, "--batch-size", 4, "--steps", 4, "--eval-every", 2]
    for n in (1, 2):
        words = ["finetune", model, "--corpus", f"text:{text_file}", *options, "--out", tmp_path / str(n)]
        parallel.run(n, *words, *(["--parallel", kind] if n > 1 else []))
    parallel.assert_same_losses(tmp_path / "1", tmp_path / "2", 1e-5)
    one, other = (load_run(tmp_path / str(n)).model.state_dict() for n in (1, 2))
    assert one.keys() == other.keys()
    assert all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)


def test_from_the_command_line(models, text_file, tmp_path, capsys):
    out = tmp_path / "run"
    command(
        "finetune",
        models / "boosted",
        "--corpus",
        f"text:{text_file}",
        "--steps",
        4,
        "--eval-every",
        2,
        "--max-len",
        16,
        "--batch-size",
        2,
        "--accumulate",
        1,
        "--held-out-tokens",
        200,
        "--out",
        out,
        "--log-to",
        "csv",
    )
    assert (out / "metrics.csv").read_text().count("\n") == 8  # the heading, four steps and three evaluations
    command("evaluate", out)
    command("generate", out, "bado", "--tokens", 5)
    command("analyze", out, "--sequences", 2)
    printed = capsys.readouterr().out
    assert "hull distance: " in printed
    assert "layer 1: mean gate 0.5" in printed
    stored = json.loads((out / "config.json").read_text())["model"]
    assert stored["kind"] == "pretrained"
    assert stored["train"] == "correction"
    found = json.loads((out / "analysis" / "analysis.json").read_text())
    assert found["rounds"] == [2, 2]


@pytest.mark.parametrize(
    ("boosted", "given", "rate"),
    [
        ({}, [], 1e-4),
        ({"kv": "shared"}, [], 1e-4),
        ({"rank": 4}, [], 1e-3),
        ({"rank": 4}, ["--train", "all"], 3e-5),
        ({}, ["--train=lora"], 1e-3),
    ],
)
def test_the_default_rate_suits_what_is_trained(boosted, given, rate, tmp_path):
    boost(tiny("llama"), **boosted).save_pretrained(tmp_path)
    run = prepare_command([str(tmp_path), *given])
    assert inspect.signature(run).parameters["training"].default.lr == rate


def test_a_rate_is_asked_of_sound_folders_alone(tmp_path):
    """What is wrong with a folder is said by the command, not by its defaults."""
    (tmp_path / "config.json").write_text('{"boosting": ["rank"]}')
    for args in ([str(tmp_path)], ["nowhere"], ["--out", "\0"]):
        assert inspect.signature(prepare_command(args)).parameters["training"].default.lr == 1e-4


@pytest.mark.parametrize(
    ("name", "method", "said"), [("boosted", "lora", True), ("boosted", "correction", False), ("base", "lora", False)]
)
def test_a_run_says_that_the_corrections_are_frozen(models, text_file, tmp_path, name, method, said):
    class Listener(Unwatched):
        def __init__(self):
            self.remarks = []

        def remark(self, text):
            self.remarks.append(text)

    config = run_config(models, text_file, name, method, steps=1, eval_every=1)
    data = prepare(config.data, 0)
    config = replace(config, model=replace(config.model, vocab_size=data.tokenizer.vocab_size))
    Trainer(folder=tmp_path, config=config, data=data, observer=(listener := Listener())).run()
    assert [text.startswith("the corrections are frozen") for text in listener.remarks] == [True] * said


def test_boosting_a_folder_changes_no_output(models):
    ids = torch.randint(2, 60, (2, 9))
    before, after = (
        transformers.AutoModelForCausalLM.from_pretrained(models / name).eval()(ids).logits
        for name in ("base", "boosted")
    )
    assert torch.equal(before, after)
    assert (models / "boosted" / "tokenizer.json").exists()


@pytest.mark.parametrize("family", list(FAMILIES))
def test_the_chunked_loss_is_the_models(family, tmp_path):
    """With and without a bias on the head, the loss is the model's own."""
    model = tiny(family)
    model.save_pretrained(tmp_path)
    wrapped = FinetuneConfig(base=str(tmp_path), boost={}, max_len=12).build().eval()
    disturb(wrapped)
    ids = torch.randint(2, 60, (2, 13))
    targets = ids[:, 1:].clone()
    targets[0, :4] = IGNORED
    with torch.no_grad():
        logits = wrapped.model(ids[:, :-1]).logits
        expected = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, ignore_index=IGNORED)
        torch.testing.assert_close(wrapped.loss(ids[:, :-1], targets), expected, rtol=1e-4, atol=1e-4)
        each = wrapped.loss(ids[:, :-1], targets, reduction="none")
        torch.testing.assert_close(each.sum() / (targets != IGNORED).sum(), expected, rtol=1e-4, atol=1e-4)
    assert wrapped.linear_head(ids) == (family != "phi")


@pytest.mark.parametrize("options", [{"rank": 4}, {"rank": 4, "kv": "shared"}, {"kv": "shared"}], ids=str)
def test_flops_of_light_corrections_count_the_matrices_they_read(models, options):
    from torch.utils.flop_counter import FlopCounterMode

    light = FinetuneConfig(base=str(models / "base"), boost=options, max_len=16)
    built = light.build()
    built.model.config._attn_implementation = "eager"
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        built(torch.randint(2, 60, (1, 16)))
    assert light.flops() == pytest.approx(counter.get_total_flops() / 16, rel=0.005)


def test_costs_are_known_without_building(models):
    boosted = FinetuneConfig(base=str(models / "boosted"), max_len=16)
    built = boosted.build()
    assert boosted.num_params() == sum(p.numel() for p in built.parameters())
    assert boosted.num_params(trained=True) == sum(p.numel() for p in built.trained().values())
    base = FinetuneConfig(base=str(models / "base"), train="all", max_len=16)
    assert base.flops() < boosted.flops()
    from torch.utils.flop_counter import FlopCounterMode

    built.model.config._attn_implementation = "eager"
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        built(torch.randint(2, 60, (1, 16)))
    assert boosted.flops() == pytest.approx(counter.get_total_flops() / 16, rel=0.02)
    rank = lora_rank_for(boosted.num_params(trained=True), str(models / "base"))
    lora = FinetuneConfig(base=str(models / "base"), train="lora", lora_rank=rank)
    assert lora.num_params(trained=True) == pytest.approx(boosted.num_params(trained=True), rel=0.1)


def test_refusals(models, text_file, tmp_path, capsys):
    def complaint(*args):
        return refused([*args], capsys)

    out = tmp_path / "out"
    assert "is not a folder of a model" in complaint("boost", tmp_path / "nowhere", out)
    assert "it has no config.json" in complaint("boost", tmp_path, out)
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    shutil.copy(models / "base" / "config.json", pickled)
    assert "has no weights; it needs *.safetensors" in complaint("boost", pickled, out)
    (pickled / "pytorch_model.bin").write_bytes(b"")
    assert "only pytorch_model.bin, a pickle, which is never loaded" in complaint("boost", pickled, out)
    assert "is not an empty folder" in complaint("boost", models / "base", models / "boosted")
    assert "indices go from -3 to 2, got [7]" in complaint("boost", models / "base", out, "--layers", "7")
    assert "boosted already" in complaint("boost", models / "boosted", out, "--layers", "last:2")
    assert not out.exists()
    finetune = ("finetune", models / "base", "--corpus", f"text:{text_file}", "--out", out)
    assert "is not boosted" in complaint(*finetune)
    assert "did you mean 'lora'" in complaint(*finetune, "--train", "lra")
    line = complaint(*finetune, "--train", "all", "--correction-lr-factor", 2)
    assert "--correction-lr-factor 2.0 must be 1: nothing that is trained has correction rounds" in line
    assert "did you mean 'muon'" in complaint(*finetune, "--train", "all", "--optimizer", "mun")
    assert not out.exists()
    assert "is more than the 64 positions" in complaint(*finetune, "--train", "all", "--max-len", 65)
    broken = tmp_path / "broken"
    shutil.copytree(models / "base", broken)
    (broken / "tokenizer.json").unlink()
    assert "has no tokenizer.json" in complaint("finetune", broken, "--out", out)
    (broken / "config.json").write_text('{"model_type": "nonesuch"}')
    assert "is no model that transformers knows" in complaint("boost", broken, out)
    weights = next((models / "boosted").glob("*.safetensors"))
    other = tmp_path / "other"
    shutil.copytree(models / "boosted", other)
    (other / weights.name).write_bytes(b"torn")
    assert "cannot be loaded" in complaint("boost", other, out, "--n-rounds", 3)
    assert not out.exists()
    stored = FinetuneConfig(base=str(models / "boosted")).to_dict()
    with pytest.raises(ValueError, match="holds other weights now"):
        FinetuneConfig.from_dict({**stored, "weights": "0" * 64})
