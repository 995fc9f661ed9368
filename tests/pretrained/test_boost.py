"""boost: exactly nothing at the start, everything after; in every family."""

import copy

import pytest
import torch
import transformers
from torch import nn

from boosted_attention import boost, capture, disable_rounds, unboost
from boosted_attention.analysis.importance import importance, most_important
from boosted_attention.pretrained import load_correction, save_correction
from boosted_attention.pretrained.correction import is_correction
from boosted_attention.pretrained.layer import corrected_layers
from boosted_attention.storage.sealing import listing, write_sealed
from tests.pretrained.families import FAMILIES, disturb, is_silent, tiny, tokens

ALL = list(FAMILIES)


def logits(model, ids, **call):
    with torch.no_grad():
        return model(ids, **call).logits


def generate(model, ids, **options):
    options = {"max_new_tokens": 10, "do_sample": False, "pad_token_id": 0, **options}
    return model.generate(ids, attention_mask=options.pop("mask", torch.ones_like(ids)), **options)


def pytest_generate_tests(metafunc):
    """Every dtype and kernel in the full run; float32 on the usual kernel otherwise."""
    if "setting" in metafunc.fixturenames:
        whole = metafunc.config.getoption("--full")
        both = [(dtype, kernel) for dtype in (torch.float32, torch.bfloat16) for kernel in ("sdpa", "eager")]
        settings = both if whole else both[:1]
        metafunc.parametrize("setting", settings, ids=lambda s: f"{str(s[0])[6:]}-{s[1]}")


@pytest.mark.parametrize("family", ALL)
def test_nothing_changes_at_the_start(family, setting):
    dtype, kernel = setting
    model, ids = tiny(family, dtype=dtype, kernel=kernel), tokens()
    before = logits(model, ids)
    assert boost(model) is model
    assert torch.equal(logits(model, ids), before)
    assert is_silent(model)
    model.init_weights()  # which transformers may call again
    assert torch.equal(logits(model, ids), before)
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    plain = logits(unboost(copy.deepcopy(model)), ids, attention_mask=mask)
    assert torch.equal(logits(model, ids, attention_mask=mask), plain)


@pytest.mark.parametrize("family", ALL)
def test_cached_generation_is_exact(family):
    model = boost(tiny(family), n_rounds=3)
    ids = tokens(3)
    plain = generate(model, ids)
    disturb(model)
    mask = torch.ones_like(ids)
    mask[0, :4] = mask[1, :1] = 0
    for options in ({}, {"mask": mask}, {"num_beams": 3, "mask": mask}):
        cached = generate(model, ids, **options)
        assert torch.equal(cached, generate(model, ids, use_cache=False, **options))
    assert not torch.equal(cached, plain)
    torch.manual_seed(5)
    sampled = generate(model, ids, do_sample=True, top_k=8)
    torch.manual_seed(5)
    assert torch.equal(sampled, generate(model, ids, do_sample=True, top_k=8, use_cache=False))


@pytest.mark.parametrize("family", ["llama", "mistral", "gpt2"])
def test_other_ways_to_generate(family):
    model = boost(tiny(family))
    disturb(model)
    ids = tokens(1)
    plain = generate(model, ids)
    assert torch.equal(generate(model, ids, cache_implementation="static"), plain)
    assert torch.equal(generate(model, ids, prompt_lookup_num_tokens=2), plain)  # assisted, with rollback
    assert torch.equal(generate(model, ids, assistant_model=tiny(family)), plain)
    assert torch.equal(generate(model, ids, past_key_values=transformers.DynamicCache()), plain)


def test_a_cache_that_cannot_hold_corrections_is_refused():
    from transformers.cache_utils import DynamicLayer

    class Strange(DynamicLayer):
        pass

    model = boost(tiny("llama"))
    cache = transformers.DynamicCache(config=model.config)
    cache.layers = [Strange() for _ in cache.layers]
    with pytest.raises(ValueError, match="a cache of Strange cannot hold the corrections"):
        logits(model, tokens(), past_key_values=cache)


@pytest.mark.parametrize("family", ALL)
def test_the_future_stays_hidden(family):
    model = boost(tiny(family))
    disturb(model)
    ids = tokens()
    changed = ids.clone()
    changed[:, 7:] = (ids[:, 7:] + 1) % 60
    before, after = logits(model, ids), logits(model, changed)
    assert torch.equal(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])


@pytest.mark.parametrize("family", ALL)
def test_save_load_and_back(family, tmp_path):
    base, ids = tiny(family), tokens()
    base.save_pretrained(tmp_path / "base")
    original = logits(base, ids)
    model = boost(base, layers="last:2")
    disturb(model)
    after = logits(model, ids)
    model.save_pretrained(tmp_path / "whole")
    assert {path.suffix for path in (tmp_path / "whole").iterdir()} <= {".json", ".safetensors", ".py", ".md"}
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "whole")
    assert type(loaded) is type(model)
    assert loaded.config.model_type == f"boosted-{family}"
    assert torch.equal(logits(loaded.eval(), ids), after)
    assert transformers.AutoConfig.from_pretrained(tmp_path / "whole").boosting == model.config.boosting
    save_correction(model, tmp_path / "correction")
    fresh = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base").eval()
    assert torch.equal(logits(load_correction(fresh, tmp_path / "correction"), ids), after)
    assert unboost(model) is model
    assert torch.equal(logits(model, ids), original)
    assert type(model) is type(tiny(family))
    assert type(model.config) is type(tiny(family).config)
    assert not hasattr(model.config, "boosting")
    reference = tiny(family).state_dict()
    assert all(torch.equal(value, reference[name]) for name, value in model.state_dict().items())
    assert model.state_dict().keys() == reference.keys()


@pytest.mark.parametrize("family", ALL)
def test_the_start_does_not_stall(family):
    """Step one moves the values, step two the gates, queries and keys."""
    model, ids = boost(tiny(family)).train(), tokens()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert trained
    assert all(is_correction(name) for name in trained)
    optimizer = torch.optim.SGD(trained.values(), lr=0.5)

    def moved() -> set[str]:
        before = {name: p.detach().clone() for name, p in trained.items()}
        optimizer.zero_grad()
        model(ids, labels=ids).loss.backward()
        optimizer.step()
        return {name for name, p in trained.items() if not torch.equal(p, before[name])}

    first, second = moved(), moved()
    value = {"gpt2": "c_attn", "gpt_neox": "query_key_value"}.get(family, "v_proj")
    assert all(f"{value}.weight" in name or "bias" in name for name in first)
    assert any(f"{value}.weight" in name for name in first)
    assert {name for name in trained if name.endswith("gates.0.proj.weight")} <= second
    for part in ("q_proj.weight", "k_proj.weight") if value == "v_proj" else (f"{value}.weight",):
        assert any(part in name for name in second)
    assert not is_silent(model)


def test_fused_projections_keep_queries_and_keys():
    """Zeroing the values of a fused projection touches nothing else."""
    for family, name in (("gpt2", "c_attn"), ("gpt_neox", "query_key_value")):
        model = boost(tiny(family))
        attention = next(iter(corrected_layers(model).values()))
        own, copied = (getattr(module, name).weight for module in (attention, attention.corrections[0]))
        changed = own != copied
        assert int(changed.sum()) == own.numel() // 3
        assert bool((copied[changed] == 0).all())


def test_the_loop_is_the_librarys():
    model, ids = boost(tiny("llama"), n_rounds=3), tokens()
    disturb(model)
    with capture(model) as traces:
        whole = logits(model, ids)
    rounds = traces["model.layers.1.self_attn"].rounds
    assert len(rounds) == 3
    x, estimate = rounds[0].residual, rounds[0].estimate
    attention = corrected_layers(model)["model.layers.1.self_attn"]
    for m in (1, 2):
        torch.testing.assert_close(rounds[m].residual, x - estimate)
        gate = attention.gates[m - 1](estimate, rounds[m].correction)
        torch.testing.assert_close(rounds[m].gate, gate)
        estimate = estimate + gate * rounds[m].correction
        torch.testing.assert_close(rounds[m].estimate, estimate)
    torch.testing.assert_close(logits(model, ids), whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ALL)
def test_traces_show_causal_weights(family):
    model, ids = boost(tiny(family)), tokens()
    disturb(model)
    plain = logits(model, ids)
    with capture(model) as traces:
        traced = logits(model, ids)
    torch.testing.assert_close(traced, plain, rtol=0, atol=1e-4 * float(plain.abs().max()))
    for trace in traces.values():
        for r in trace.rounds:
            assert r.weights.shape == (2, 4, 12, 12)
            torch.testing.assert_close(r.weights.sum(-1), torch.ones(2, 4, 12))
            assert float(r.weights.triu(1).abs().max()) == 0.0
    assert model.config._attn_implementation == "sdpa"


def test_rounds_can_be_switched_off():
    model, ids = tiny("llama"), tokens()
    before = logits(model, ids)
    boost(model)
    disturb(model)
    with disable_rounds(model):
        assert torch.equal(logits(model, ids), before)
    assert not torch.equal(logits(model, ids), before)


def test_stages():
    """A second stage adds a round, keeps what was trained, and trains the new round alone."""
    model, ids = boost(tiny("mistral"), layers=[0, 2]), tokens()
    disturb(model)
    after_one = logits(model, ids)
    boost(model, n_rounds=3, gate="scalar", layers=[0, 2])
    assert torch.equal(logits(model, ids), after_one)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained
    assert all(".rounds.2." in name or ".gates.1." in name for name in trained)
    disturb(model)
    assert torch.equal(generate(model, ids), generate(model, ids, use_cache=False))
    assert [stage["n_new"] for stage in model.config.boosting] == [1, 1]
    slots = [r.layer_idx for a in corrected_layers(model).values() for r in a.corrections]
    assert slots == [3, 4, 5, 6]


@pytest.mark.parametrize("init", ["copy", "random"])
def test_init(init):
    model = boost(tiny("llama"), init=init, train="all")
    attention = next(iter(corrected_layers(model).values()))
    own, other = attention, attention.corrections[0]
    assert torch.equal(own.q_proj.weight, other.q_proj.weight) == (init == "copy")
    assert not other.v_proj.weight.any()
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("gate", ["none", "scalar", "vector", "mlp"])
def test_gates_start_at_one_half(gate):
    model, ids = tiny("llama"), tokens()
    before = logits(model, ids)
    boost(model, gate=gate)
    with capture(model) as traces:
        logits(model, ids)
    opened = traces["model.layers.0.self_attn"].rounds[1].gate
    assert bool((opened == (1.0 if gate == "none" else 0.5)).all())
    assert torch.equal(logits(model, ids), before)


@pytest.mark.parametrize("gate", ["tanh", "headwise"])
def test_gates_of_light_corrections_are_refused_for_full_ones(gate):
    """Full corrections start with zero values, behind which a gate at zero would stall, and end in whole vectors."""
    with pytest.raises(ValueError, match=rf"gate='{gate}' is for light corrections .*; use 'vector'"):
        boost(tiny("llama"), gate=gate)


def test_corrections_share_the_models_config():
    model = boost(tiny("llama"))
    assert all(r.config is model.config for a in corrected_layers(model).values() for r in (a, *a.corrections))
    model.set_attn_implementation("eager")
    rounds = [r for a in corrected_layers(model).values() for r in (a, *a.corrections)]
    assert {r.config._attn_implementation for r in rounds} == {"eager"}


def test_a_config_that_two_models_share_stays_as_it_was():
    config = tiny("llama").config
    one, other = (transformers.LlamaForCausalLM(config).eval() for _ in range(2))
    boost(one)
    assert other.config is config
    assert config.model_type == "llama"
    assert not hasattr(config, "boosting")
    assert one.config is not config
    boost(other)
    assert one.config.boosting == other.config.boosting


def test_output_attentions_are_the_models_own():
    model, ids = boost(tiny("llama", kernel="eager")), tokens()
    disturb(model)
    with torch.no_grad():
        out = model(ids, output_attentions=True, output_hidden_states=True)
    assert len(out.attentions) == 3
    assert len(out.hidden_states) == 4


def test_gradient_checkpointing_and_bf16():
    model, ids = boost(tiny("llama")).train(), tokens()
    disturb(model)

    def gradients():
        model.zero_grad()
        model(ids, labels=ids).loss.backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    plain = gradients()
    # transformers 5.23 gave it another name.
    getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
    again = gradients()
    assert plain.keys() == again.keys()
    for name, value in plain.items():
        torch.testing.assert_close(again[name], value, msg=name)
    half = boost(tiny("llama", dtype=torch.bfloat16))
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16}


def test_compiled(full):
    """Forward and gradients; the full run generates machine code for them."""
    torch._dynamo.reset()
    model, ids = boost(tiny("llama")), tokens()
    disturb(model)

    def step(run):
        model.zero_grad()
        loss = run(ids, labels=ids, use_cache=False).loss
        loss.backward()
        return loss.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]

    expected = step(model)
    torch.testing.assert_close(step(torch.compile(model, backend="inductor" if full else "aot_eager")), expected)


def test_layers_chosen_by_importance():
    """A boosted model shows which of its corrections are missed; the original is boosted there alone."""
    model, rows = boost(tiny("llama"), train="all"), tokens(6, 16)
    disturb(model)
    with torch.no_grad():  # a correction that does nothing is not missed
        for p in corrected_layers(model)["model.layers.1.self_attn"].corrections[0].v_proj.parameters():
            p.zero_()
    found = importance(model, rows)
    chosen = most_important(found, 2)
    assert min(found.layers, key=lambda one: abs(one.mean)).layer == 1
    again = boost(unboost(model), layers=chosen)
    assert sorted(corrected_layers(again)) == [f"model.layers.{i}.self_attn" for i in chosen]


def test_transformers_trainer(tmp_path):
    """Its loop trains the corrections, leaves the base alone, and its checkpoint loads again."""
    model, ids = boost(tiny("llama")), tokens(8)
    base = {name: p.clone() for name, p in model.named_parameters() if not is_correction(name)}
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=3,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_steps=3,
        logging_steps=100,
    )
    rows = [{"input_ids": row, "labels": row} for row in ids]
    transformers.Trainer(model=model, args=arguments, train_dataset=rows).train()
    assert all(torch.equal(p, base[name]) for name, p in model.named_parameters() if name in base)
    assert not is_silent(model)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint-3").eval()
    assert torch.equal(logits(loaded, ids), logits(model.eval(), ids))


def test_lora_on_top():
    import peft

    model, ids = boost(tiny("llama")), tokens()
    disturb(model)
    expected = logits(model, ids)
    wrapped = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "v_proj"], r=2))
    torch.testing.assert_close(logits(wrapped, ids), expected)
    named = [name for name, p in wrapped.named_parameters() if p.requires_grad]
    assert any("rounds" not in name for name in named)
    assert any("rounds.1" in name for name in named)
    with pytest.raises(ValueError, match="boost the base model, then add the adapter"):
        boost(wrapped)


def test_refusals(tmp_path):
    model = tiny("llama")
    state = {name: p.clone() for name, p in model.state_dict().items()}
    for options, message in (
        ({"n_rounds": 1}, "n_rounds=1 must be an integer of at least 2"),
        ({"gate": "vectr"}, "did you mean 'vector'"),
        ({"init": "cpy"}, "did you mean 'copy'"),
        ({"train": "al"}, "did you mean 'all'"),
        ({"layers": [0, 3]}, r"layers=\[0, 3\]: indices go from -3 to 2, got \[3\]"),
        ({"layers": "last:9"}, "last:k takes k from 0 to 3"),
        ({"layers": "none"}, "chooses no layer"),
    ):
        with pytest.raises(ValueError, match=message):
            boost(model, **options)
    assert type(model).__name__ == "LlamaForCausalLM"
    assert all(torch.equal(p, state[name]) for name, p in model.state_dict().items())
    with pytest.raises(ValueError, match="is not boosted"):
        unboost(model)
    with pytest.raises(ValueError, match="is not boosted: there is no correction"):
        save_correction(model, tmp_path)
    boost(model, layers=[0])
    with pytest.raises(ValueError, match="boosted already: these layers have 2 rounds; n_rounds=3 adds one"):
        boost(model, layers=[0])
    with pytest.raises(ValueError, match="different numbers of rounds"):
        boost(model, n_rounds=3)
    with pytest.raises(ValueError, match="boost takes a model of transformers, got Linear"):
        boost(nn.Linear(2, 2))


def test_models_that_are_no_decoders_are_refused():
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    bert = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=20, **small))
    with pytest.raises(ValueError, match="BertForMaskedLM is not a causal language model"):
        boost(bert)
    t5 = transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=20, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    )
    with pytest.raises(ValueError, match="is an encoder-decoder model"):
        boost(t5)
    mamba = transformers.MambaForCausalLM(
        transformers.MambaConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, state_size=4)
    )
    with pytest.raises(ValueError, match=r"MambaForCausalLM cannot be boosted: .*found"):
        boost(mamba)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.quantize_per_tensor:UserWarning")
def test_a_quantised_model_is_refused():
    packed = torch.ao.quantization.quantize_dynamic(tiny("llama"), {nn.Linear}, dtype=torch.qint8)
    before = logits(packed, tokens())
    with pytest.raises(ValueError, match="LlamaForCausalLM is quantised by an unknown method; boost takes"):
        boost(packed)
    assert torch.equal(logits(packed, tokens()), before)
    marked = tiny("llama")
    marked.is_quantized = True  # what transformers' own quantisers set
    with pytest.raises(ValueError, match="is quantised"):
        boost(marked)


def test_a_correction_for_another_base_is_refused(tmp_path):
    model = boost(tiny("llama"))
    save_correction(model, tmp_path)
    other = tiny("llama")
    with torch.no_grad():
        other.lm_head.weight[0, 0] += 1
    before = {name: p.clone() for name, p in other.state_dict().items()}
    with pytest.raises(ValueError, match="corrects another model"):
        load_correction(other, tmp_path)
    assert not corrected_layers(other)
    assert type(other) is transformers.LlamaForCausalLM
    assert other.state_dict().keys() == before.keys()
    assert all(torch.equal(p, before[name]) for name, p in other.state_dict().items())
    with pytest.raises(ValueError, match="holds no correction"):
        load_correction(tiny("llama"), tmp_path / "nowhere")
    weights = tmp_path / "correction.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:100])
    with pytest.raises(ValueError, match="is damaged"):
        load_correction(tiny("llama"), tmp_path)
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))  # a byte that safetensors does not miss
    with pytest.raises(ValueError, match=r"correction\.safetensors is damaged"):
        load_correction(tiny("llama"), tmp_path)
    weights.write_bytes(whole)
    (tmp_path / "correction.json").write_text("{}")
    with pytest.raises(ValueError, match=r"correction\.json has no seal"):
        load_correction(tiny("llama"), tmp_path)
    write_sealed(tmp_path / "correction.json", {}, listing(tmp_path, [weights.name]))
    with pytest.raises(ValueError, match=r"correction\.json is damaged"):
        load_correction(tiny("llama"), tmp_path)
