"""Initial weights: functions of seed, name and shape; corrections that start silent; projections that start at zero."""

import pytest
import torch

from boosted_attention import LanguageModel, LanguageModelConfig, attention_layer, list_attention, list_learners
from boosted_attention.attention.catalog import check_layer
from boosted_attention.attention.checks import CHECK_OPTIONS
from boosted_attention.attention.gates import GATES
from boosted_attention.attention.learner import learner_class
from boosted_attention.attention.options import ZERO_GATES
from boosted_attention.model.start import fresh_seed, random_tensors, tensor_seed
from tests.conftest import build, goes_with, suited

SMALL = {"vocab_size": 61, "d_model": 16, "n_layers": 2, "n_heads": 4, "max_len": 12}
BOOSTING = [name for name in list_attention() if check_layer(name, d_model=16, n_heads=4).n_rounds > 1]
FAR = 1e-4  # for a tensor to move in 20 steps at a rate of 3e-3
FIRST_ROUND = {"boosted-differential": "differential", "boosted-gated": "gated"}  # of the others: standard


def config(attention="boosted", of_layer=None, **options) -> LanguageModelConfig:
    of_layer = {**CHECK_OPTIONS.get(attention, {}), **(of_layer or {})}
    return LanguageModelConfig(**{**SMALL, "attention": attention, "attention_options": of_layer, **options})


def silent(name: str) -> LanguageModelConfig:
    layer = build(name)
    has_part = [learner.starts_at_zero or layer.config.silent_part(m) for m, learner in enumerate(layer.rounds) if m]
    return config(name, {"correction_start": "silent", **({} if all(has_part) else {"gate": "tanh"})})


def starts(model: LanguageModel) -> dict[str, torch.Tensor]:
    """Every tensor by the name it is drawn under, and those that are not drawn by their own."""
    named = {name: p.detach() for name, p in model.named_parameters() if p.ndim != 2}
    return named | {name: tensor.detach() for name, _, tensor in random_tensors(model, model.config)}


def shared(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in a.keys() & b.keys() if a[name].shape == b[name].shape}


@pytest.mark.parametrize("name", list_attention())
def test_models_share_the_start_of_every_tensor_that_both_have(name):
    ours, plain = starts(config(name).build(seed=3)), starts(config("standard").build(seed=3))
    common = shared(ours, plain)
    assert all(torch.equal(ours[n], plain[n]) for n in common)
    drawn = {n for n in common if n.endswith(".weight") and "norm" not in n}
    of_attention = {
        f"layers.{i}.attention.rounds.0.{part}.weight" for i in (0, 1) for part in ("q", "k", "v", "out_proj")
    }
    expected = {
        "embed.weight",
        "positions.weight",
        *(f"layers.{i}.ffn.{w}.weight" for i in (0, 1) for w in ("up", "down")),
    }
    reshaped = {n for n in of_attention if ours[n].shape != plain[n].shape}  # twice the queries, or narrower heads
    assert bool(reshaped) == (name in ("differential-v2", "low-rank"))
    assert drawn == (expected | of_attention) - reshaped


@pytest.mark.parametrize("name", BOOSTING)
def test_boosting_models_share_the_start_of_their_corrections(name):
    ours, boosted = starts(config(name).build(seed=3)), starts(config("boosted").build(seed=3))
    common = {n for n in shared(ours, boosted) if ".rounds.1." in n or ".gates." in n}
    assert all(torch.equal(ours[n], boosted[n]) for n in common)
    correction, gate = build(name).rounds[1], build(name).config.gates[0]
    asks = "q" in correction.parts and "q" not in correction.starts_as_first
    narrower = correction.d_head < build(name).config.d_head  # so that its projections have other shapes
    assert ("layers.1.attention.rounds.1.q.weight" in common) == (asks and not narrower)  # with k and v, or alone
    assert ("layers.1.attention.gates.0.proj.weight" in common) == (gate == "vector")


@pytest.mark.parametrize(
    "options",
    [
        {"n_layers": 3},
        {"boosted_layers": "last:1"},
        {"vocab_size": 70, "tie_weights": False},
        {"qk_norm": True, "positions": "rotary", "norm_kind": "rmsnorm"},
        {"of_layer": {"n_rounds": 3, "gate": "mlp", "scale": "learned"}},
        {"n_kv_heads": 2},
    ],
    ids=str,
)
def test_a_tensors_start_does_not_depend_on_the_others(options):
    ours, other = starts(config().build(seed=3)), starts(config(**options).build(seed=3))
    common = shared(ours, other)
    assert len(common) > 20
    assert all(torch.equal(ours[n], other[n]) for n in common)


def test_different_names_shapes_and_seeds_give_different_starts():
    model = config("boosted-differential").build(seed=3)
    seeds = [tensor_seed(s, name, tuple(t.shape)) for s in (3, 4) for name, _, t in random_tensors(model, model.config)]
    assert len(set(seeds)) == len(seeds)
    first, second = starts(model), starts(config("boosted-differential").build(seed=4))
    assert all(not torch.equal(first[name], second[name]) for name, _, _ in random_tensors(model, model.config))
    assert tensor_seed(3, "embed.weight", (61, 16)) != tensor_seed(3, "embed.weight", (61, 8))


def test_the_seed_of_a_tensor_is_the_same_on_every_machine():
    assert tensor_seed(0, "embed.weight", (61, 16)) == 3_922_579_700


@pytest.mark.parametrize("name", list_attention())
def test_everything_random_follows_from_the_seed(name):
    """Torch's random state decides nothing where a seed is given, and is left as it was."""
    built, of_layer = [], suited(name, {"gate": "mlp", "scale": "learned", "n_rounds": 2})
    for state in (1, 2):
        torch.manual_seed(state)
        built.append(config(name, of_layer).build(seed=3).state_dict())
        after = torch.rand(())
        torch.manual_seed(state)
        assert after == torch.rand(())
    assert all(torch.equal(a, b) for a, b in zip(built[0].values(), built[1].values(), strict=True))


def test_without_a_seed_torchs_random_state_decides():
    torch.manual_seed(5)
    first, second = config().build(), config().build()
    torch.manual_seed(5)
    seed = fresh_seed()
    assert torch.equal(first.embed.weight, config().build(seed=seed).embed.weight)
    assert not torch.equal(first.embed.weight, second.embed.weight)
    torch.manual_seed(5)
    assert torch.equal(config("twicing").build().embed.weight, first.embed.weight)


def test_the_default_dtype_decides_nothing_but_the_dtype():
    single = config("differential").build(seed=3)
    torch.set_default_dtype(torch.float64)
    try:
        double = config("differential").build(seed=3)
    finally:
        torch.set_default_dtype(torch.float32)
    assert double.embed.weight.dtype == torch.float64
    # constants such as log(2) have more digits there
    for name, _, tensor in random_tensors(double, double.config):
        assert torch.equal(tensor.float(), starts(single)[name]), name


def test_a_model_without_values_takes_no_seed():
    before = torch.get_rng_state()
    assert all(p.is_meta for p in config("boosted").on_meta().parameters())
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(ValueError, match="seed='3' must be an integer"):
        config().build(seed="3")


def logits(made: LanguageModelConfig) -> torch.Tensor:
    ids = torch.randint(61, (2, 12), generator=torch.Generator().manual_seed(0))
    return made.build(seed=3).eval()(ids)


@pytest.mark.parametrize("name", BOOSTING)
def test_silent_corrections_leave_the_logits_as_they_are_bit_for_bit(name):
    plain = config(FIRST_ROUND.get(name, "standard"))
    assert torch.equal(logits(silent(name)), logits(plain))
    by_itself = attention_layer(name, d_model=16, n_heads=4).starts_silent
    assert torch.equal(logits(config(name)), logits(plain)) == by_itself


def silent_layers():
    """Every learner behind every gate in both spaces, where they go together."""
    for name in list_learners():
        learner = learner_class(name)
        for gate in GATES:
            for space in ("heads", "output"):
                if not goes_with(gate, learner, space) or (learner.needs_heads and space == "output"):
                    continue
                if not learner.needs_estimate:
                    yield name, gate, space, {}
                elif gate in ZERO_GATES:
                    yield name, gate, space, {"kv_source": "shared", "residual": "estimate"}


@pytest.mark.parametrize(("learner", "gate", "space", "needed"), list(silent_layers()))
def test_every_learner_and_gate_can_be_silent(learner, gate, space, needed):
    of_layer = {"learner": ["softmax", learner], "gate": gate, "space": space, "correction_start": "silent", **needed}
    for options in ({}, {"qk_norm": True, "positions": "rotary"}):
        assert torch.equal(logits(config("boosted", of_layer, **options)), logits(config("standard", **options)))


def moved(made: LanguageModelConfig, steps: int = 20) -> dict[str, float]:
    """The largest change of each tensor in a short training without weight decay."""
    model = made.build(seed=3)
    before = {name: t.clone() for name, t in starts(model).items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    draw = torch.Generator().manual_seed(0)
    for _ in range(steps):
        ids = torch.randint(61, (4, 12), generator=draw)
        model.loss(ids, ids.roll(-1, dims=1)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {name: float((t - before[name]).abs().max()) for name, t in starts(model).items()}


@pytest.mark.parametrize("name", BOOSTING)
def test_every_tensor_of_a_silent_correction_moves(name):
    changes = moved(silent(name))
    assert {name for name in changes if ".rounds.1." in name or ".gates." in name}
    assert not {name: change for name, change in changes.items() if change < FAR}


@pytest.mark.parametrize("attention", ["standard", "boosted", "boosted-output", "local-exclusive", "value-basis"])
def test_projections_that_start_at_zero_move(attention):
    made = config(attention, init="zero")
    model = made.build(seed=3)
    for layer in model.layers:
        into = [
            layer.ffn.down,
            *(m.out_proj for m in (layer.attention, *layer.attention.rounds) if m.out_proj is not None),
        ]
        assert not any(projection.weight.any() for projection in into)
    ids = torch.randint(61, (2, 12))
    bare = model.norm(model.embed(ids) + model.positions(torch.arange(12))) @ model.projection.T
    torch.testing.assert_close(model(ids), bare)
    changes = moved(made)
    assert not {name: change for name, change in changes.items() if change < FAR}


@pytest.mark.parametrize(
    ("of_layer", "options", "message"),
    [
        (
            {"correction_start": "silent"},
            {"init": "zero"},
            r"init='zero' with .*correction_start='silent': .* both start at zero",
        ),
        ({"gate": "tanh"}, {"init": "zero"}, r"init='zero' with gate='tanh' .* both start at zero"),
        ({"correction_start": "silent", "kv_source": "shared"}, {}, r"and space='heads' needs gate='tanh'"),
        ({"correction_start": "quiet"}, {}, r"correction_start='quiet' is not one of 'drawn', 'silent'"),
        ({"correction_start": "silent", "n_rounds": 1}, {}, r"correction_start='silent' with n_rounds=1"),
        ({}, {"init": "zeros"}, r"init='zeros' .*did you mean 'zero'"),
    ],
)
def test_starts_that_exclude_each_other_or_do_not_exist_are_refused_in_one_line(of_layer, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        config("boosted", of_layer, **options)
    assert "\n" not in str(caught.value)


def test_layers_that_are_not_boosted_may_start_at_zero_beside_none_that_is_silent():
    made = config("boosted", {"correction_start": "silent"}, boosted_layers="none", init="zero")
    assert made.build(seed=0).layers[0].attention.config.n_rounds == 1
