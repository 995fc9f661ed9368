"""Light corrections: the model's own projections read, not copied; keys and values shared or low-rank."""

import copy
import math

import accelerate
import peft
import pytest
import torch
import transformers
from torch import nn
from transformers.cache_utils import QuantizedLayer
from transformers.models.llama.modeling_llama import LlamaAttention

from boosted_attention import boost, capture, disable_rounds, unboost
from boosted_attention.analysis.gates import GateStudy
from boosted_attention.explore.patching import patched
from boosted_attention.explore.views import gates_of_heads
from boosted_attention.pretrained import load_correction, save_correction
from boosted_attention.pretrained.correction import is_correction
from boosted_attention.pretrained.layer import corrected_layers
from boosted_attention.pretrained.light import low_rank_factor
from tests.pretrained.families import FAMILIES, disturb, tiny, tokens
from tests.pretrained.test_boost import generate, logits
from tests.pretrained.test_other_families import ATTENDING, build

KINDS = {
    "low-rank": {"rank": 2},
    "shared": {"kv": "shared"},
    "shared low-rank": {"kv": "shared", "rank": 2},
    "tanh": {"rank": 2, "gate": "tanh"},
    "shared tanh": {"kv": "shared", "rank": 2, "gate": "tanh"},
    "headwise": {"kv": "shared", "rank": 2, "gate": "headwise"},
}
FEW_FAMILIES = ("llama", "gpt2", "gpt_neox")  # separate projections, fused ones in blocks and head by head
FEW_KINDS = ("low-rank", "shared low-rank")


def pytest_generate_tests(metafunc):
    """Every family with every kind in the full run; otherwise one family per storage, other kinds on GPT-2 alone."""
    whole, names = metafunc.config.getoption("--full"), metafunc.fixturenames
    if "family" in names and "options" in names:
        pairs = [
            (family, kind)
            for kind in KINDS
            for family in FAMILIES
            if whole or (family in FEW_FAMILIES if kind in FEW_KINDS else family == "gpt2")
        ]
        metafunc.parametrize(
            ("family", "options"), [(f, KINDS[k]) for f, k in pairs], ids=[f"{f}-{k}" for f, k in pairs]
        )


families = pytest.mark.parametrize("family", FEW_FAMILIES)


def test_nothing_changes_at_the_start_and_everything_moves_after(family, options):
    model, ids = tiny(family), tokens()
    before = logits(model, ids)
    names = set(model.state_dict())
    boost(model, **options)
    assert torch.equal(logits(model, ids), before)
    assert names < set(model.state_dict())  # the base keeps its names
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert trained.keys() == {name for name, _ in model.named_parameters() if is_correction(name)}
    start = {name: p.detach().clone() for name, p in trained.items()}
    optimizer = torch.optim.SGD(trained.values(), lr=0.5)
    for _ in range(4):
        optimizer.zero_grad()
        model(ids, labels=ids).loss.backward()
        optimizer.step()
    still = [name for name, p in trained.items() if torch.equal(p, start[name])]
    assert not still


def test_cached_generation_is_exact(family, options):
    model, ids = boost(tiny(family), **options), tokens(3)
    disturb(model)
    mask = torch.ones_like(ids)
    mask[0, :4] = mask[1, :1] = 0
    for more in ({"mask": mask}, {"num_beams": 2, "mask": mask}):
        assert torch.equal(generate(model, ids, **more), generate(model, ids, use_cache=False, **more))
    one = ids[2:]
    plain = generate(model, one)
    assert torch.equal(generate(model, one, cache_implementation="static"), plain)
    assert torch.equal(generate(model, one, prompt_lookup_num_tokens=2), plain)


@families
def test_the_future_stays_hidden(family):
    model, ids = boost(tiny(family), kv="shared", rank=2), tokens()
    disturb(model)
    changed = ids.clone()
    changed[:, 7:] = (ids[:, 7:] + 1) % 60
    before, after = logits(model, ids), logits(model, changed)
    assert torch.equal(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox"])
def test_shared_keys_and_values_need_no_further_cache(family):
    ids = tokens()
    held = {}
    for name, options in (("base", None), ("shared", {"kv": "shared", "rank": 2}), ("own", {"rank": 2})):
        model = tiny(family) if options is None else boost(tiny(family), **options)
        cache = transformers.DynamicCache(config=model.config)
        model(ids, past_key_values=cache, use_cache=True)
        held[name] = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert held["shared"] == held["base"]
    assert held["own"] == 2 * held["base"]


class RoundedLayer(QuantizedLayer):
    """Keys and values in steps of a size, two tokens at a time; exact for a step of zero."""

    step = 0.0

    def __init__(self):
        super().__init__(residual_length=2)

    def _quantize(self, tensor, axis):
        return tensor if self.step == 0.0 else (tensor / self.step).round()

    def _dequantize(self, held):
        return held if self.step == 0.0 else held * self.step


@torch.no_grad()
def test_a_quantised_cache_serves_shared_corrections(monkeypatch):
    """They read what round 0 reads: rounded keys and values where these are, and nothing else is kept."""
    ids = tokens(2)

    def decoded(model, cache):
        steps = [model(ids[:, i : i + 1], past_key_values=cache).logits for i in range(ids.shape[1])]
        return torch.cat(steps, dim=1)

    def rounded(step):
        monkeypatch.setattr(RoundedLayer, "step", step)
        return transformers.Cache(layers=[RoundedLayer() for _ in range(3)])

    base, model = tiny("llama"), boost(tiny("llama"), kv="shared", rank=2)
    exact = decoded(base, rounded(0.0))
    assert not torch.equal(decoded(base, rounded(0.5)), exact)
    assert torch.equal(decoded(model, rounded(0.5)), decoded(base, rounded(0.5)))
    disturb(model)
    cache = rounded(0.0)
    assert torch.equal(decoded(model, cache), decoded(model, transformers.DynamicCache(config=model.config)))
    assert len(cache.layers) == 3


def test_a_module_that_keeps_its_keys_and_values_from_the_cache_is_refused():
    class Secretive(LlamaAttention):
        def forward(self, *args, past_key_values=None, **kwargs):
            return super().forward(*args, **kwargs)

    model = tiny("llama")
    for layer in model.model.layers:
        layer.self_attn.__class__ = Secretive
    before = {name: p.clone() for name, p in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"kv='shared': .*Secretive does not hand its keys and values to the cache"):
        boost(model, kv="shared", rank=2)
    assert type(model) is transformers.LlamaForCausalLM
    assert all(type(layer.self_attn) is Secretive for layer in model.model.layers)
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())


def test_corrections_of_both_kinds_share_a_layer_and_its_cache():
    model, ids = boost(tiny("llama"), kv="shared", rank=2), tokens(2)
    boost(model, n_rounds=3, layers=[1, 2])
    boost(model, n_rounds=4, layers=[1], kv="shared")
    disturb(model)
    assert torch.equal(generate(model, ids), generate(model, ids, use_cache=False))
    assert [a.n_rounds for a in corrected_layers(model).values()] == [2, 4, 3]
    with disable_rounds(model, rounds=[1, 3]):
        assert torch.equal(generate(model, ids), generate(model, ids, use_cache=False))


def test_low_rank_corrections_are_their_formula():
    """One layer of Llama, by hand: projections, rotary embedding, softmax, gate."""
    model, ids = boost(tiny("llama", dtype=torch.float64), rank=2), tokens()
    disturb(model)
    with capture(model) as traces:
        logits(model, ids)
    name = "model.layers.1.self_attn"
    attention, trace = corrected_layers(model)[name], traces[name].rounds[1]
    correction, z = attention.corrections[0], trace.residual
    b, t, _ = z.shape

    def low(part, y):
        change = getattr(correction, f"{part}_proj").parts["out" if part == "o" else part]
        return low_rank_factor(2) * y @ change.down.weight.T @ change.up.weight.T

    q = attention.q_proj(z) + low("q", z)
    k = attention.k_proj(z) + low("k", z)
    v = low("v", z)
    d = attention.head_dim
    q, k, v = (y.view(b, t, -1, d).transpose(1, 2) for y in (q, k, v))
    cos, sin = model.model.rotary_emb(z, torch.arange(t)[None])

    def rotate(y):
        half = torch.cat([-y[..., d // 2 :], y[..., : d // 2]], dim=-1)
        return y * cos[:, None] + half * sin[:, None]

    q, k = rotate(q), rotate(k)
    k, v = (y.repeat_interleave(2, dim=1) for y in (k, v))  # grouped heads
    scores = (q @ k.mT / math.sqrt(d)).masked_fill(~torch.ones(t, t, dtype=torch.bool).tril(), -math.inf)
    heads = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1)
    torch.testing.assert_close(
        trace.correction, attention.o_proj(heads) + low("o", heads), rtol=1e-4, atol=1e-5
    )  # its softmax is float32
    assert torch.equal(trace.gate, attention.gates[0].logit.sigmoid().expand(b, t, 1))


def test_a_trace_changes_nothing(family, options):
    model, ids = boost(tiny(family, kernel="eager"), **options), tokens()
    disturb(model)
    before = logits(model, ids)
    with capture(model) as traces:
        assert torch.equal(logits(model, ids), before)
    for trace in traces.values():
        assert trace.rounds[1].weights.shape == trace.rounds[0].weights.shape


def test_save_load_and_back(family, options, tmp_path):
    base, ids = tiny(family), tokens()
    base.save_pretrained(tmp_path / "base")
    original = logits(base, ids)
    model = boost(base, layers=[0, -1], **options)
    assert list(model.config.boosting[0]["layers"]) == [0, 2]
    disturb(model)
    after = logits(model, ids)
    assert torch.equal(logits(copy.deepcopy(model), ids), after)
    model.save_pretrained(tmp_path / "whole")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "whole").eval()
    assert torch.equal(logits(loaded, ids), after)
    save_correction(model, tmp_path / "correction")
    fresh = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base").eval()
    assert torch.equal(logits(load_correction(fresh, tmp_path / "correction"), ids), after)
    assert torch.equal(logits(unboost(model), ids), original)


def test_corrections_follow_a_model_that_is_cast_or_adapted():
    import peft

    model, ids = boost(tiny("llama"), rank=2), tokens()
    disturb(model)
    expected = logits(model.double(), ids)
    torch.testing.assert_close(logits(model.float(), ids), expected.float(), rtol=1e-3, atol=1e-3)
    before = logits(model, ids)
    wrapped = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], r=2, init_lora_weights=False))
    changed = logits(wrapped, ids)
    assert not torch.allclose(changed, before)
    trace_of = "base_model.model.model.layers.0.self_attn"
    with capture(wrapped) as traces:
        logits(wrapped, ids)
    attention, trace = corrected_layers(wrapped)[trace_of], traces[trace_of].rounds[1]
    read = attention.corrections[0].q_proj(trace.residual) - attention.corrections[0].q_proj.parts["q"](trace.residual)
    torch.testing.assert_close(read, attention.q_proj(trace.residual))


def test_hooks_see_and_change_every_round():
    model, ids = boost(tiny("llama"), kv="shared", rank=2), tokens()
    disturb(model)
    attention = corrected_layers(model)["model.layers.0.self_attn"]
    with disable_rounds(model, layers=[0]):
        without = logits(model, ids)
    seen = []
    attention.outputs[0].register_forward_hook(lambda module, args, y: seen.append(y))
    handle = attention.outputs[1].register_forward_hook(lambda module, args, y: torch.zeros_like(y))
    assert torch.equal(logits(model, ids), without)
    handle.remove()
    assert not torch.equal(logits(model, ids), without)
    assert [y.shape for y in seen] == [(2, 12, 32)] * 2


@pytest.mark.parametrize(
    ("options", "expected"), [({"rank": 16}, 1_843_200), ({"rank": 16, "kv": "shared"}, 1_105_920)]
)
def test_light_corrections_of_smollm2_have_a_few_million_parameters(options, expected):
    config = transformers.LlamaConfig(
        hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3
    )
    with torch.device("meta"):
        model = boost(transformers.LlamaForCausalLM(config), **options)
    gates = 30
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == expected + gates


@pytest.mark.parametrize("family", ["Llama", "Phi3"])
def test_the_rank_goes_as_far_as_what_is_changed_is_wide(family):
    """Keys and values that are shared are not changed; in a fused projection each part has a width of its own."""
    boost(build(family, **ATTENDING), rank=32, kv="shared")
    boost(build(family, **ATTENDING), rank=16)
    for options, most in (({"rank": 33, "kv": "shared"}, 32), ({"rank": 17}, 16)):
        with pytest.raises(ValueError, match=f"must be an integer from 1 to {most}"):
            boost(build(family, **ATTENDING), **options)


@families
def test_half_precision_starts_bit_equal_too(family):
    for kind in ({"rank": 4}, {"rank": 4, "kv": "shared"}, {"kv": "shared"}):
        model, ids = tiny(family).bfloat16(), tokens()
        before = logits(model, ids)
        boost(model, **kind)
        assert torch.equal(logits(model, ids), before)
        assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("gate", ["vector", "mlp", "headwise", "tanh"])
def test_corrections_have_no_linear_layer_for_quantisers_and_adapters_to_take(gate):
    model = boost(tiny("llama"), rank=2, gate=gate)
    parts = [m for layer in corrected_layers(model).values() for m in (layer.rounds, layer.gates)]
    assert not [m for part in parts for m in part.modules() if isinstance(m, nn.Linear)]
    wrapped = peft.get_peft_model(model, peft.LoraConfig(target_modules="all-linear", r=2))
    adapted = [name for name, _ in wrapped.named_parameters() if "lora_" in name]
    assert adapted
    assert not [name for name in adapted if is_correction(name)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rank": 0}, "rank=0 must be an integer from 1 to 16"),
        ({"rank": 17}, "rank=17 must be an integer from 1 to 16"),
        ({"rank": 2.0}, "rank=2.0 must be an integer from 1 to 16"),
        ({"kv": "sharde"}, "kv='sharde' is not one of 'own', 'shared'.*did you mean 'shared'"),
        ({"kv": "shared", "gate": "tanhh"}, "gate='tanhh' is not one of .*did you mean 'tanh'"),
        ({"rank": 2, "init": "random"}, "init='random': light corrections start as the model's own projections"),
        ({"layers": [-4]}, "indices go from -3 to 2"),
    ],
)
def test_bad_options_change_nothing(options, said):
    model = tiny("llama")
    before = {name: p.clone() for name, p in model.state_dict().items()}
    with pytest.raises(ValueError, match=said):
        boost(model, **options)
    assert type(model) is transformers.LlamaForCausalLM
    assert not corrected_layers(model)
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("kind", [{"rank": 2}, {"kv": "shared"}, {"kv": "shared", "rank": 2}], ids=str)
def test_a_trace_shows_the_gate_inside_a_correction(kind):
    """One number per head, those that the heads were multiplied by; the correction is what comes out behind them."""
    model, ids = boost(tiny("llama"), gate="headwise", layers=[1], **kind), tokens()
    with capture(model) as traces:
        logits(model, ids)
    first, second = traces["model.layers.1.self_attn"].rounds
    assert first.gate is None
    assert second.gate.shape == (*ids.shape, 4)
    assert bool((second.gate == 0.5).all())
    disturb(model)
    (correction,) = corrected_layers(model)["model.layers.1.self_attn"].corrections
    gate = correction.own_o_proj
    given = []
    hook = gate.register_forward_hook(lambda module, inputs, output: given.append(inputs[0]))
    with capture(model) as traces:
        logits(model, ids)
    hook.remove()
    first, second = traces["model.layers.1.self_attn"].rounds
    assert torch.equal(second.gate, (given[0] @ gate.gate[0].weight.T + gate.gate[0].bias).sigmoid())
    assert torch.equal(second.estimate, first.estimate + second.added)
    by_head = given[0].unflatten(-1, (4, -1)) * second.gate[..., None]
    assert torch.equal(gate.out(by_head.flatten(-2)), second.added)
    study = GateStudy([str(i) for i in range(64)])
    study.add(ids, [traces["model.layers.1.self_attn"]])
    (found,) = study.result()
    assert found.dimensions == pytest.approx(second.gate.double().mean(dim=(0, 1)).tolist())
    assert found.mean != 1
    assert not any(m._forward_hooks for m in correction.modules())
    with patched(model, {(0, 1): 0.25}), capture(model) as traces:
        logits(model, ids)
    quartered = traces["model.layers.1.self_attn"].rounds[1]
    torch.testing.assert_close(quartered.gate, 0.25 * second.gate)
    assert gates_of_heads(second, None, 5) == second.gate[0, 5].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_accelerate_keeps_elsewhere_are_fetched(kind):
    """accelerate fetches the weights of a module when it is called: whatever holds weights has to be called."""
    model, ids = boost(tiny("llama"), **KINDS[kind]), tokens()
    disturb(model)
    before = logits(model, ids)
    accelerate.cpu_offload(model, torch.device("cpu"))
    assert all(p.is_meta for p in model.parameters())
    assert torch.equal(logits(model, ids), before)


def test_a_folder_whose_layers_stay_on_disk(tmp_path):
    model, ids = boost(tiny("llama"), rank=2, kv="shared"), tokens()
    disturb(model)
    model.save_pretrained(tmp_path / "boosted")
    places = {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
    places |= {"model.layers.0": "cpu", "model.layers.1": "disk", "model.layers.2": "disk"}
    again = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "boosted", device_map=places, offload_folder=tmp_path / "weights"
    )
    assert torch.equal(logits(again, ids), logits(model, ids))
