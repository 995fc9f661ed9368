"""Every fast path against the slow oracle: outputs and all gradients."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from boosted_attention import BoostedAttention, capture, list_attention, list_learners
from boosted_attention.attention.checks import CHECK_OPTIONS, MASK_KINDS, against_oracle, in_order, sample_call
from boosted_attention.attention.gates import GATES
from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.learner import learner_class
from boosted_attention.attention.options import ZERO_GATES
from boosted_attention.attention.residuals import RESIDUALS
from tests.conftest import D_MODEL, MIXED, N_HEADS, build, disturbed, every_layer, goes_with, randn, takes_memory

GRID = [
    (name, length, n_kv_heads, kind)
    for name in list_attention()
    for length in (1, 2, 63, 111)
    for n_kv_heads in (N_HEADS, 2)
    for kind in MASK_KINDS
] + [(name, 256, 2, kind) for name in list_attention() for kind in ("causal", "padding")]
GRID += [(name, 17, n_kv_heads, kind) for name in MIXED for n_kv_heads in (N_HEADS, 2) for kind in MASK_KINDS]


def belongs_to_short_grid(name: str, length: int, n_kv_heads: int, kind: str) -> bool:
    if name in MIXED:
        return n_kv_heads == 2 or kind == "causal"
    if length >= 111:
        return n_kv_heads == 2 and kind == "causal" and (length == 111 or name == "boosted")
    return n_kv_heads == 2 if length == 63 else n_kv_heads == N_HEADS


def pytest_generate_tests(metafunc):
    if metafunc.function is test_float64:
        grid = GRID if metafunc.config.getoption("--full") else [case for case in GRID if belongs_to_short_grid(*case)]
        metafunc.parametrize(("name", "length", "n_kv_heads", "kind"), grid)


def assert_exact(layer, x, **call):
    errors = against_oracle(layer, x, **call)
    wrong = [error for error in errors if not error.ok]
    assert not wrong, wrong
    return errors


def test_float64(name, length, n_kv_heads, kind):
    layer = build(name, n_kv_heads=n_kv_heads)
    call = in_order(layer, sample_call(kind, 2, N_HEADS, length, torch.float64))
    errors = assert_exact(layer, randn(2, length, D_MODEL), **call)
    assert len(errors) == 2 + len(list(layer.parameters()))


@pytest.mark.parametrize("kernel", ["auto", "explicit"])
def test_scores_beyond_the_exponentials_range(kernel):
    layer, x = build("boosted", scale=1e4, kernel=kernel), randn(2, 7, D_MODEL)
    with capture(layer) as traces:
        layer(x)
    first = traces[""].rounds[0]
    assert (first.scale * first.q @ first.k.transpose(-2, -1)).max() > 710  # where exp overflows in float64
    assert_exact(layer, x, is_causal=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", every_layer())
def test_lower_precision_is_as_good_as_the_plain_formula(name, dtype, full):
    lengths, kinds = ((1, 2, 63, 111), MASK_KINDS) if full else ((2, 63), ("causal", "additive", "padding"))
    for length in lengths:
        for kind in kinds:
            layer = build(name, dtype, n_kv_heads=2)
            x = randn(2, length, D_MODEL, dtype=dtype)
            assert_exact(layer, x, **in_order(layer, sample_call(kind, 2, N_HEADS, length, dtype)))


LEARNER_OPTIONS = {"gated": [{}, {"headwise": True}], "hopfield": [{}, {"n_steps": 2}], "low-rank": [{}, {"rank": 8}]}
LAYOUTS = {  # of values; other learners read those of softmax attention
    name: AttentionLayer(16, 4, learner=name).rounds[0].value_layout
    for name in list_learners()
    if not learner_class(name).only_corrects
}


@st.composite
def any_layer(draw) -> dict:
    """Options of a layer: one learner for all rounds, or one per round."""
    n_rounds = draw(st.integers(1, 3))
    kv_source = draw(st.sampled_from(["residual", "input", "shared"]))
    space = draw(st.sampled_from(["heads", "output"]))

    def may_correct(learner):
        return (space == "heads" or not learner.needs_heads) and (kv_source == "shared" or not learner.needs_estimate)

    known = {name: learner_class(name) for name in list_learners()}
    first = draw(st.sampled_from([name for name, learner in known.items() if not learner.only_corrects]))
    others = [name for name, learner in known.items() if may_correct(learner)]
    learners = [first, *(draw(st.sampled_from(others)) for _ in range(n_rounds - 1))]
    apart = kv_source == "shared" and len({LAYOUTS.get(name, LAYOUTS["softmax"]) for name in learners}) > 1
    doubled = first == "differential-v2" and "value-basis-tied" in learners  # its queries have another layout
    if draw(st.booleans()) or apart or doubled:
        learners = learners[:1] * n_rounds
    of_rounds = [known[name] for name in learners]
    iterated = any(learner in ("hopfield", "equilibrium") for learner in learners)
    n_heads = draw(st.sampled_from([2, 4]))
    even = [n for n in (1, 2, 4) if n_heads % n == 0 and ("differential" not in learners or n % 2 == 0)]
    qk_norm = draw(st.booleans())
    own = [
        CHECK_OPTIONS.get(learner) or draw(st.sampled_from(LEARNER_OPTIONS.get(learner, [{}]))) for learner in learners
    ]
    if kv_source == "shared" and len(set(learners)) == 1:
        own = own[:1] * n_rounds  # of one rank
    if qk_norm:  # normalised queries are longer, and the iteration contracts more slowly
        own = [{**options, "max_steps": 120} if "max_steps" in options else options for options in own]
    if kv_source == "shared":
        n_kv_heads = draw(st.sampled_from([None, *even]))
    else:
        n_kv_heads = tuple(draw(st.sampled_from(even)) for _ in range(n_rounds))
    # A learned scale starts at 2, where iteration need not contract.
    scales = [None] if "equilibrium" in learners else [None, 0.7, "learned"]
    gates = [draw(st.sampled_from([g for g in GATES if goes_with(g, learner, space)])) for learner in of_rounds[1:]]
    may_be_silent = n_rounds > 1 and all(
        gate in ZERO_GATES or learner.starts_at_zero or space == "output" or kv_source != "shared"
        for gate, learner in zip(gates, of_rounds[1:], strict=True)
    )
    residuals = [
        "estimate" if learner.needs_estimate else draw(st.sampled_from(list(RESIDUALS))) for learner in of_rounds[1:]
    ]
    return {
        "d_model": 8 * n_heads,
        "n_heads": n_heads,
        "n_rounds": n_rounds,
        "gate": gates[0] if len(set(gates)) == 1 else gates,
        "kv_source": kv_source,
        "residual": residuals[0] if len(set(residuals)) == 1 else residuals,
        "space": space,
        "learner": learners if draw(st.booleans()) or len(set(learners)) > 1 else learners[0],
        "learner_options": own,
        "n_kv_heads": n_kv_heads,
        "head_dim": draw(st.sampled_from([4, 6])) if space == "output" and not iterated else None,
        "rope_theta": draw(st.sampled_from([None, 100.0])),
        "scale": draw(st.sampled_from(scales)),
        "qk_norm": qk_norm,
        "correction_start": draw(st.sampled_from(["drawn", "silent"])) if may_be_silent else "drawn",
        "out_proj": space == "output" or draw(st.booleans()),
        "layer_index": draw(st.integers(0, 3)),
        "bias": draw(st.booleans()),
    }


@st.composite
def any_case(draw):
    config = draw(any_layer())
    length, batch = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    seed = draw(st.integers(0, 2**16))
    call = sample_call(draw(st.sampled_from(MASK_KINDS)), batch, config["n_heads"], length, torch.float64, seed)
    if config["rope_theta"] is not None and draw(st.booleans()):
        call["positions"] = torch.randint(0, 50, (batch, length), generator=torch.Generator().manual_seed(seed))
    return config, batch, length, call


@torch.no_grad()
def comes_to_rest(layer: AttentionLayer, x: torch.Tensor, call: dict) -> bool:
    """Whether all fixed points were reached; normalised queries may be too long for the iteration to contract."""
    with capture(layer) as traces:
        layer(x, **call)
    names, rounds = layer.config.learners, traces[""].rounds
    return all(rounds[m].extra["converged"].all() for m, name in enumerate(names) if name == "equilibrium")


def check_random_layers(count: int) -> None:
    @settings(max_examples=count)
    @given(any_case())
    def check(case):
        config, batch, length, call = case
        torch.manual_seed(length)
        layer, x = disturbed(AttentionLayer(**config).double()), randn(batch, length, config["d_model"])
        call = in_order(layer, call)
        assume(not config["qk_norm"] or comes_to_rest(layer, x, call))
        assert_exact(layer, x, **call)

    check()


def test_any_combination_of_options(full):
    check_random_layers(1000 if full else 120)


@pytest.mark.parametrize("kind", ["none", "bool", "additive", "heads"])
@pytest.mark.parametrize("name", takes_memory())
def test_memory(name, kind):
    layer, x = build(name, n_kv_heads=2), randn(2, 5, D_MODEL)
    call = sample_call(kind, 2, N_HEADS, 7, torch.float64)
    if "mask" in call:
        call["mask"] = call["mask"][:, :, 1:6]
    call.pop("is_causal", None)
    pair = assert_exact(layer, x, memory=(randn(2, 7, D_MODEL), randn(2, 7, D_MODEL)), **call)
    assert {"d key", "d value"} <= {error.name for error in pair}
    assert_exact(layer, x, memory=randn(2, 7, D_MODEL), **call)


@pytest.mark.parametrize("name", ["standard", "boosted", "differential-v2"])
def test_learned_bias_gets_its_gradient(name):
    bias = randn(1, N_HEADS, 6, 6).requires_grad_()
    errors = assert_exact(build(name), randn(2, 6, D_MODEL), mask=bias)
    assert "d mask" in {error.name for error in errors}


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("n_rounds", [2, 4])
def test_gates_and_rounds(gate, n_rounds):
    layer = disturbed(BoostedAttention(D_MODEL, N_HEADS, n_rounds=n_rounds, gate=gate).double())
    assert_exact(layer, randn(2, 9, D_MODEL), is_causal=True)


@pytest.mark.parametrize("name", every_layer())
def test_explicit_kernel(name):
    layer = build(name, n_kv_heads=2)
    layer.kernel = "explicit"
    assert_exact(layer, randn(2, 17, D_MODEL), **sample_call("padding", 2, N_HEADS, 17, torch.float64))
