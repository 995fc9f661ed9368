"""What boost holds before it gives a model back; whatever does not hold, the model is as it was."""

import copy

import pytest
import torch
import transformers
from torch import nn

from boosted_attention import boost, unboost
from boosted_attention.pretrained.guard import State, read
from boosted_attention.pretrained.layer import corrected_layers
from tests.pretrained.families import disturb, tiny, tokens
from tests.pretrained.test_boost import generate, logits
from tests.pretrained.test_other_families import build

SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}


def refusal(model, **options) -> str:
    """Return why a model is refused, and hold that nothing of it has changed."""
    model.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    kinds = [type(m) for m in model.modules()]
    config, settings = model.config, model.config.to_dict()
    trained = [p.requires_grad for p in model.parameters()]
    with pytest.raises(ValueError, match="cannot be boosted") as told:
        boost(model, **options)
    assert [type(m) for m in model.modules()] == kinds
    assert not corrected_layers(model)
    assert model.config is config
    assert model.config.to_dict() == settings
    assert [p.requires_grad for p in model.parameters()] == trained
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in after.items())
    assert "_frozen_before" not in vars(model)
    assert "\n" not in str(told.value)
    return str(told.value)


def test_attention_that_runs_more_than_once_per_pass_is_refused():
    """As in a family whose layers run in cycles, with a cache layer for each time."""
    assert "its cache has 24 layers" in refusal(build("HrmText", **SMALL, head_dim=8))
    model = tiny("llama")
    layer = model.model.layers[1]

    class Twice(type(layer)):
        def forward(self, x, **kwargs):
            return super().forward(super().forward(x, **kwargs), **kwargs)

    layer.__class__ = Twice
    assert "model.layers.1.self_attn runs 2 times per pass, where corrections need exactly one" in refusal(model)


def test_a_forward_pass_that_was_replaced_is_refused():
    model = tiny("llama")
    attention = model.model.layers[1].self_attn
    attention.forward = attention.forward
    assert "forward pass of its LlamaAttention was replaced" in refusal(model)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("offload", [True, False])
def test_hooks_of_accelerate_are_refused(offload):
    accelerate = pytest.importorskip("accelerate")
    model = tiny("llama")
    if offload:
        accelerate.cpu_offload(model, torch.device("cpu"))
        with pytest.raises(ValueError, match="hooks of accelerate move or offload its weights"):
            boost(model)
        assert not corrected_layers(model)
    else:
        accelerate.hooks.add_hook_to_module(model.model.layers[0].self_attn, accelerate.hooks.ModelHook())
        assert "hooks of accelerate" in refusal(model)


def test_layers_that_are_numbered_otherwise_are_refused():
    model = tiny("llama")
    model.model.layers[1].self_attn.layer_idx = 0
    assert "are numbered [0, 0, 2]" in refusal(model)
    model.model.layers[1].self_attn.layer_idx = 1
    boost(model)


def test_a_cache_with_layers_of_its_own_is_refused():
    """Corrections would write over what stands behind the model's layers."""
    model = tiny("llama")
    model.config.num_hidden_layers = 5  # which the cache is made by
    assert "its cache has 5 layers, where its decoder layers and their corrections have 3" in refusal(model)


def test_corrections_that_are_not_silent_are_refused():
    """A module that adds something of its own behind the values cannot be silenced by them."""

    class Adding(nn.Linear):
        def forward(self, x):
            return super().forward(x) + 1

    model = tiny("llama")
    layer = model.model.layers[2].self_attn
    layer.o_proj.__class__ = Adding
    assert "change its logits" in refusal(model)


@pytest.mark.parametrize("error", [RuntimeError("first\nsecond"), KeyError("k")])
def test_whatever_fails_on_the_way_the_model_is_put_back(error, monkeypatch):
    """As a quantised weight that cannot be copied does, after some layers have been changed."""
    from boosted_attention.pretrained import stages

    made, calls = stages.copied_correction, []

    def fails(*args):
        calls.append(args)
        if len(calls) == 2:
            raise error
        return made(*args)

    monkeypatch.setattr(stages, "copied_correction", fails)
    model = tiny("llama")
    model.model.embed_tokens.requires_grad_(False)
    assert "with corrections it fails" in refusal(model)
    assert len(calls) == 2


def test_a_second_stage_that_fails_leaves_the_first(monkeypatch):
    from boosted_attention.pretrained import stages

    model, ids = boost(tiny("llama")), tokens()
    disturb(model)
    before, names = logits(model, ids), list(model.state_dict())
    stored = copy.deepcopy(model.config.to_dict())
    monkeypatch.setattr(stages, "number_slots", lambda *args: 1 / 0)
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        boost(model, n_rounds=3)
    assert list(model.state_dict()) == names
    assert model.config.to_dict() == stored
    assert torch.equal(logits(model, ids), before)
    monkeypatch.undo()
    assert torch.equal(generate(model, ids), generate(model, ids, use_cache=False))
    boost(model, n_rounds=3)


def test_trying_leaves_modes_random_states_and_buffers_alone():
    model = build("Llama", **SMALL, num_key_value_heads=2, attention_dropout=0.3).train()
    model.model.layers[1].eval()

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = nn.Buffer(torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            self.seen = x
            return x + 0 * torch.rand(())

    counting = model.model.layers[0].mlp.act_fn = Counting()
    modes = [m.training for m in model.modules()]
    state = torch.get_rng_state()
    read(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.training for m in model.modules()] == modes
    assert all(p.requires_grad for p in model.parameters())
    boost(model)
    assert counting.calls == 0
    assert not hasattr(counting, "seen")
    unboost(model)
    assert [m.training for m in model.modules()] == modes
    assert read(model).logits[1].shape == (1, 1, 64)


def test_a_state_that_is_restored_is_the_same_objects():
    model = tiny("llama")
    tables = {id(m._parameters) for m in model.modules()}
    parameters = list(map(id, model.parameters()))
    state = State(model)
    boost(model)
    state.restore()
    assert {id(m._parameters) for m in model.modules()} == tables
    assert list(map(id, model.parameters())) == parameters
    assert type(model) is transformers.LlamaForCausalLM


def test_several_ends_of_text_are_no_problem():
    model = tiny("llama")
    model.config.eos_token_id = [1, 2]
    boost(model)
    assert model.corrections == ["default"]
    assert model.config.eos_token_id == [1, 2]
