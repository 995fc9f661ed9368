"""Named corrections: switched, removed and saved one by one."""

import json

import peft
import pytest
import torch
import transformers

from boosted_attention import boost, unboost
from boosted_attention.pretrained import add_lora, load_correction, print_trainable_parameters, save_correction
from boosted_attention.pretrained.correction import is_correction
from boosted_attention.pretrained.layer import corrected_layers
from boosted_attention.pretrained.trained_parts import COPIED, with_trained_parts
from boosted_attention.storage.sealing import listing, write_sealed
from tests.pretrained.families import disturb, tiny, tokens
from tests.pretrained.test_boost import generate, logits

LAW, CODE = {"name": "law", "rank": 2}, {"name": "code", "kv": "shared", "layers": [1, 2]}


def alone(options, ids):
    """Logits of a model with one correction, with weights that depend on its place in the model only."""
    model = boost(tiny("llama"), **options)
    disturb(model)
    return model, logits(model, ids)


def both():
    """A model with two corrections, each with the weights it has alone."""
    model = boost(boost(tiny("llama"), **LAW), **CODE)
    for options in (LAW, CODE):
        source, _ = alone(options, tokens())
        model.set_corrections(options["name"])
        for name, module in corrected_layers(source).items():
            target = corrected_layers(model)[name]
            (m,) = set(range(1, target.n_rounds)) - target.disabled
            target.rounds[str(m)].load_state_dict(module.rounds["1"].state_dict())
            target.gates[m - 1].load_state_dict(module.gates[0].state_dict())
    model.set_corrections(["law", "code"])
    return model


def test_each_can_run_alone_and_the_base_too():
    model, ids = both(), tokens()
    base = logits(tiny("llama"), ids)
    assert model.corrections == model.active_corrections == ["law", "code"]
    together = logits(model, ids)
    for options in (LAW, CODE):
        model.set_corrections(options["name"])
        assert model.active_corrections == [options["name"]]
        assert torch.equal(logits(model, ids), alone(options, ids)[1])
        assert torch.equal(generate(model, ids), generate(model, ids, use_cache=False))
    with model.disable_corrections():
        assert torch.equal(logits(model, ids), base)
        assert model.active_corrections == []
    assert model.active_corrections == ["code"]
    model.set_corrections(["code", "law"])
    assert torch.equal(logits(model, ids), together)


@pytest.mark.parametrize(("gone", "left"), [(LAW, CODE), (CODE, LAW)], ids=["law", "code"])
def test_one_can_be_removed(gone, left, tmp_path):
    model, ids = both(), tokens()
    model.remove_correction(gone["name"])
    expected = alone(left, ids)[1]
    assert model.corrections == [left["name"]]
    assert torch.equal(logits(model, ids), expected)
    assert torch.equal(generate(model, ids), generate(model, ids, use_cache=False))
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert torch.equal(logits(loaded, ids), expected)
    with pytest.raises(ValueError, match=f"{left['name']!r} is the model's only correction; unboost"):
        model.remove_correction(left["name"])
    assert torch.equal(logits(unboost(model), ids), logits(tiny("llama"), ids))


def test_each_can_be_saved_and_loaded_beside_others(tmp_path):
    model, ids = both(), tokens()
    together = logits(model, ids)
    for name in ("law", "code"):
        save_correction(model, tmp_path / name, name)
    fresh = tiny("llama")
    for name in ("law", "code"):
        load_correction(fresh, tmp_path / name)
    assert fresh.corrections == ["law", "code"]
    assert torch.equal(logits(fresh, ids), together)
    other = load_correction(tiny("llama"), tmp_path / "code")
    assert torch.equal(logits(other, ids), alone(CODE, ids)[1])
    with pytest.raises(ValueError, match=r"the model has a correction called \['code'\] already"):
        load_correction(other, tmp_path / "code")
    settings = tmp_path / "law" / "correction.json"
    changed = json.loads(settings.read_text().replace('"rank": 2', '"rank": 3'))
    write_sealed(settings, changed, listing(settings.parent, ["correction.safetensors"]))
    with pytest.raises(ValueError, match=r"does not fit its correction\.json"):
        load_correction(other, tmp_path / "law")
    assert other.corrections == ["code"]
    assert torch.equal(logits(other, ids), alone(CODE, ids)[1])


def test_names_are_checked():
    model = both()
    with pytest.raises(ValueError, match=r"no correction is called 'lwa'.*did you mean 'law'.*there are 'law', 'code'"):
        model.set_corrections("lwa")
    for nonsense in (None, 5):
        with pytest.raises(ValueError, match=f"names={nonsense} must be a correction's name, or several"):
            model.set_corrections(nonsense)
    with pytest.raises(ValueError, match="no correction is called 'default'"):
        model.remove_correction("default")
    before, kind = {name: p.clone() for name, p in model.state_dict().items()}, type(model)
    with pytest.raises(ValueError, match="name='law' is taken: the model has corrections 'law', 'code'"):
        boost(model, name="law")
    assert model.corrections == ["law", "code"]
    assert type(model) is kind
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())


def test_parameters_are_counted_as_peft_counts_them(capsys):
    model = boost(tiny("llama"), rank=2)
    model.print_trainable_parameters()
    ours = sum(p.numel() for p in model.parameters() if p.requires_grad)
    total = sum(p.numel() for p in model.parameters())
    said = capsys.readouterr().out
    assert said.startswith(
        f"trainable params: {ours:,} || all params: {total:,} || trainable%: {100 * ours / total:.4f}"
    )
    assert f"of corrections: {ours:,}" in said
    wrapped = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], r=2))
    print_trainable_parameters(wrapped)
    assert "of corrections: 0; the corrections are frozen" in capsys.readouterr().out


@pytest.mark.parametrize("options", [{}, {"rank": 2}, {"rank": 2, "kv": "shared"}], ids=["full", "low-rank", "shared"])
def test_lora_beside_corrections_leaves_them_trainable(options, capsys):
    model, ids = boost(tiny("llama"), **options), tokens()
    before = logits(model, ids)
    ours = {name for name, p in model.named_parameters() if p.requires_grad}
    adapted = add_lora(model, rank=2)
    assert torch.equal(logits(adapted, ids), before)
    trained = [name for name, p in adapted.named_parameters() if p.requires_grad]
    lora = [name for name in trained if "lora_" in name]
    copied = {name.removeprefix("base_model.model.").replace(COPIED, ".") for name in trained if name not in lora}
    assert copied == ours
    assert len(lora) == 2 * 4 * 3  # two factors of four projections of three layers, none of a correction
    n_ours, n_lora = (
        sum(adapted.get_parameter(n).numel() for n in trained if (n in lora) == is_lora) for is_lora in (0, 1)
    )
    assert f"trainable params: {n_ours + n_lora:,} || " in (said := capsys.readouterr().out)
    assert f"of corrections: {n_ours:,}" in said


def test_lora_beside_corrections_is_saved_with_them(tmp_path):
    """Only what is trained of them: the second correction here, and of its gates and rounds the latter alone."""
    model, ids = boost(boost(tiny("llama"), name="law"), rank=2, name="code"), tokens()
    for module in corrected_layers(model).values():
        module.gates[1].requires_grad_(False)
    model.save_pretrained(tmp_path / "boosted")
    ours = {name for name, p in model.named_parameters() if p.requires_grad}
    adapted = add_lora(model, rank=2)
    trained = {name: p for name, p in adapted.named_parameters() if p.requires_grad}
    assert {name.partition("base_model.model.")[2].replace(COPIED, ".") for name in trained if COPIED in name} == ours
    start = logits(adapted, ids)
    optimizer = torch.optim.SGD(trained.values(), lr=1.0)
    for _ in range(2):
        adapted(ids, labels=ids).loss.backward()
        optimizer.step()
    after = logits(adapted, ids)
    assert not torch.equal(after, start)
    adapted.save_pretrained(tmp_path / "adapter")
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "boosted")
    assert torch.equal(logits(peft.PeftModel.from_pretrained(base, tmp_path / "adapter"), ids), after)
    written = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert written["task_type"] == "CAUSAL_LM"
    merged = adapted.merge_and_unload()
    torch.testing.assert_close(logits(merged, ids), after, rtol=1e-4, atol=1e-4)


def test_corrections_can_be_modules_to_save():
    model, ids = boost(tiny("llama"), rank=2), tokens()
    disturb(model)
    before = logits(model, ids)
    config = peft.LoraConfig(target_modules=["q_proj"], r=2, modules_to_save=["rounds.1", "gates.0"])
    adapted = peft.get_peft_model(model, config)
    assert torch.equal(logits(adapted, ids), before)
    trained = {name: p for name, p in adapted.named_parameters() if p.requires_grad}
    assert any("rounds.1.modules_to_save.default.own_q_proj" in name for name in trained)
    assert not any(".q_proj.base_layer" in name for name in trained)  # a copy of a correction copies no base
    adapted(ids, labels=ids).loss.backward()
    assert all(p.grad is not None for name, p in trained.items() if "rounds" in name)


def test_the_trainer_trains_the_corrections_that_are_not_frozen():
    """All of them where all are frozen, as in a folder that was boosted, saved and frozen by hand."""

    def trained(model):
        with_trained_parts(model, boost_options=None, train="correction", lora_rank=1, name="it")
        return {name for name, p in model.named_parameters() if p.requires_grad}

    model = boost(boost(tiny("llama"), name="law"), rank=2, name="code")
    code = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained(model) == code
    one = min(code)
    model.get_parameter(one).requires_grad_(False)
    assert trained(model) == code - {one}
    model.requires_grad_(False)
    assert code < trained(model) == {name for name, _ in model.named_parameters() if is_correction(name)}
