"""Wrong options: a ValueError that names the option, the value and what would be right."""

import re

import pytest
import torch

from boosted_attention import (
    AttentionLayer,
    BoostedAttention,
    BoostedMultiheadAttention,
    DifferentialAttention,
    EquilibriumAttention,
    GatedAttention,
    HopfieldAttention,
    LowRankAttention,
    StandardAttention,
    TwicingAttention,
    attention_layer,
    list_attention,
)
from tests.conftest import D_MODEL, N_HEADS, build, randn

OPTIONS = [
    (lambda: BoostedAttention(30, 4), "n_heads=4 does not divide d_model=30; allowed: 1, 2, 3, 5, 6, 10, 15, 30"),
    (lambda: BoostedAttention(32, 0), "n_heads=0 must be an integer of at least 1"),
    (lambda: BoostedAttention(0, 1), "d_model=0 must be"),
    (lambda: BoostedAttention(32.0, 4), "d_model=32.0 must be an integer"),
    (lambda: BoostedAttention(32, 4, n_rounds=0), "n_rounds=0 must be an integer of at least 1"),
    (lambda: BoostedAttention(32, 4, n_rounds=True), "n_rounds=True must be"),
    (
        lambda: BoostedAttention(32, 4, head_dim=16),
        "head_dim=16 with space='heads' needs .* head_dim=8 here; space='output'",
    ),
    (lambda: BoostedAttention(32, 4, gate="vectr"), "gate='vectr' is not one of 'none', .*; did you mean 'vector'?"),
    (lambda: BoostedAttention(32, 4, kv_source="inputs"), "kv_source='inputs' is not one of .*; did you mean 'input'?"),
    (lambda: BoostedAttention(32, 4, residual="x"), "residual='x' is not one of 'error', 'input', 'estimate'"),
    (
        lambda: BoostedAttention(32, 4, residual=("error", "input")),
        "residual=('error', 'input') needs one entry per correction, n_rounds - 1 = 1",
    ),
    (lambda: BoostedAttention(32, 4, n_rounds=3, gate=("none", "vectr")), "gate='vectr' .*; did you mean 'vector'?"),
    (lambda: BoostedAttention(32, 4, n_rounds=3, gate=("none",)), "gate=('none',) needs one entry per correction"),
    (
        lambda: BoostedAttention(32, 4, gate="headwise", space="output"),
        "gate='headwise' needs space='heads': behind an output projection there are no heads",
    ),
    (lambda: BoostedAttention(32, 4, learner="local"), "learner='local' in round 0 has nothing to correct; begin with"),
    (
        lambda: attention_layer("local", d_model=32, n_heads=4, gate="tanh"),
        "gate='tanh' with learner='local' in round 1: both start at zero and would hold each other up",
    ),
    (
        lambda: attention_layer("exclusive", d_model=32, n_heads=4, space="output", gate="none"),
        "space='output' with learner='exclusive' in round 1: it works on heads",
    ),
    (
        lambda: attention_layer("value-basis", d_model=32, n_heads=4, space="output"),
        "gate='tanh-headwise' needs space='heads'",
    ),
    (
        lambda: attention_layer("exclusive", d_model=32, n_heads=4, residual="error"),
        "kv_source='shared' and residual='error' with learner='exclusive' in round 1: it compares F with round 0's",
    ),
    (
        lambda: attention_layer("value-basis", d_model=32, n_heads=4, kv_source="input"),
        "with learner='value-basis' in round 1: .* needs kv_source='shared' and residual='estimate'",
    ),
    (
        lambda: attention_layer("exclusive", d_model=32, n_heads=4, learner=("differential", "exclusive")),
        "kv_source='shared' with learner=('differential', 'exclusive'): 'exclusive' in round 1 lays heads out",
    ),
    (
        lambda: attention_layer(
            "value-basis-tied", d_model=32, n_heads=4, learner=("differential-v2", "value-basis-tied")
        ),
        "'value-basis-tied' in round 1 lays heads out otherwise than 'differential-v2' in round 0",
    ),
    (
        lambda: attention_layer("exclusive-fixed", d_model=32, n_heads=4, correction_start="silent"),
        "correction_start='silent' with kv_source='shared' and space='heads' needs gate='tanh' or 'tanh-headwise'",
    ),
    (lambda: BoostedAttention(32, 4, space="head"), "space='head' .*; did you mean 'heads'?"),
    (
        lambda: StandardAttention(32, 4, correction_start="silent"),
        "correction_start='silent' with n_rounds=1: there is no",
    ),
    (
        lambda: attention_layer("boosted-shared", d_model=32, n_heads=4, correction_start="silent"),
        "correction_start='silent' with kv_source='shared' and space='heads' needs gate='tanh'",
    ),
    (lambda: BoostedAttention(32, 4, correction_start="silnt"), "correction_start='silnt' .*; did you mean 'silent'?"),
    (lambda: BoostedAttention(32, 4, gate="tan"), "gate='tan' .*; did you mean 'tanh'?"),
    (lambda: BoostedAttention(32, 4, learner="sofmax"), "learner='sofmax' .*; did you mean 'softmax'?"),
    (lambda: BoostedAttention(32, 4, space="output", out_proj=False), "out_proj=False needs space='heads'"),
    (lambda: BoostedAttention(32, 4, n_kv_heads=3), "n_kv_heads=3 must divide n_heads=4; allowed: 1, 2, 4"),
    (lambda: BoostedAttention(32, 4, n_kv_heads=(4, 0)), "n_kv_heads=(4, 0) must divide"),
    (
        lambda: BoostedAttention(32, 4, n_kv_heads=(4, 2, 1)),
        "n_kv_heads=(4, 2, 1) needs one entry per round, n_rounds=2",
    ),
    (
        lambda: BoostedAttention(32, 4, n_kv_heads=(4, 2), kv_source="shared"),
        "kv_source='shared' must be the same in every",
    ),
    (lambda: BoostedAttention(32, 4, dropout=1.0), "dropout=1.0 must lie in [0, 1)"),
    (lambda: BoostedAttention(32, 4, dropout=-0.1), "dropout=-0.1 must lie in [0, 1)"),
    (lambda: BoostedAttention(32, 4, scale="learn"), "scale='learn' must be None .*, 'learned', or a positive"),
    (lambda: BoostedAttention(32, 4, scale=0.0), "scale=0.0 must be"),
    (lambda: BoostedAttention(32, 4, scale=True), "scale=True must be"),
    (lambda: BoostedAttention(32, 4, scale=float("inf")), "scale=inf must be"),
    (lambda: BoostedAttention(32, 4, dropout="0.1"), "dropout='0.1' must lie in [0, 1)"),
    (lambda: BoostedAttention(32, 4, rope_theta="1e4"), "rope_theta='1e4' needs a positive base"),
    (lambda: BoostedAttention(30, 4, head_dim=8), "needs n_heads * head_dim == d_model; space='output' takes any"),
    (
        lambda: StandardAttention(32, 4, n_round=3),
        "StandardAttention has no option 'n_round'; did you mean 'n_rounds'?",
    ),
    (lambda: TwicingAttention(32, 4, n_steps=2), "TwicingAttention has no option 'n_steps'"),
    (
        lambda: GatedAttention(32, 4, dropot=0.1),
        "no option 'dropot'; did you mean 'dropout'? (options: d_model, .*, headwise)",
    ),
    (lambda: HopfieldAttention(32, 4, n_step=4), "no option 'n_step'; did you mean 'n_steps'?"),
    (
        lambda: BoostedAttention(32, 4, learner=("softmax",)),
        "learner=('softmax',) needs one entry per round, n_rounds=2",
    ),
    (lambda: BoostedAttention(32, 4, learner=("softmax", "twice")), "learner='twice' .*; did you mean 'twicing'?"),
    (
        lambda: BoostedAttention(32, 4, learner=("softmax", "differential"), kv_source="shared"),
        "kv_source='shared' with learner=('softmax', 'differential'): 'differential' in round 1 lays heads out",
    ),
    (
        lambda: BoostedAttention(32, 4, learner=("softmax", "equilibrium"), dropout=0.1),
        "dropout=0.1 must be 0 with learner='equilibrium' in round 1",
    ),
    (
        lambda: HopfieldAttention(32, 4, learner_options={"n_step": 2}),
        "learner_options: learner='hopfield' has no option 'n_step'; did you mean 'n_steps'? (options: n_steps, tol)",
    ),
    (
        lambda: BoostedAttention(32, 4, learner=("softmax", "hopfield"), learner_options=({"tol": 1.0}, {})),
        "learner_options: learner='softmax' has no option 'tol' (options: none)",
    ),
    (
        lambda: BoostedAttention(32, 4, learner_options=({},)),
        "learner_options=({},) needs one mapping, or one per round, n_rounds=2",
    ),
    (
        lambda: HopfieldAttention(32, 4, n_steps=2, learner_options={"n_steps": 3}),
        "n_steps is given twice, as a keyword and in learner_options",
    ),
    (lambda: BoostedAttention(32, 4, kernel="flash"), "kernel='flash' is not one of 'auto', 'fused', 'explicit'"),
    (
        lambda: BoostedAttention(32, 4, learner=("softmax", "parallax"), kernel="fused"),
        "kernel='fused' with learner='parallax' in round 1: its formula contains the attention weights; .*'auto'",
    ),
    (
        lambda: EquilibriumAttention(32, 4, kernel="fused"),
        "kernel='fused' with learner='equilibrium' in round 0: its gradient contains the attention weights",
    ),
    (lambda: BoostedMultiheadAttention(32, 4, d_model=32), "d_model is called embed_dim here"),
    (lambda: BoostedMultiheadAttention(32, 4, gat="none"), "has no option 'gat'; did you mean 'gate'?"),
    (lambda: BoostedAttention(12, 4, rope_theta=1e4), "rope_theta=10000.0 needs .* an even head_dim, got head_dim=3"),
    (lambda: BoostedAttention(32, 4, rope_theta=-1.0), "rope_theta=-1.0 needs a positive base"),
    (lambda: BoostedAttention(32, 4, layer_index=-1), "layer_index=-1 must be an integer of at least 0"),
    (lambda: DifferentialAttention(30, 3), "n_heads=3 must be even"),
    (lambda: DifferentialAttention(32, 4, n_kv_heads=1), "n_kv_heads=1 must be even"),
    (lambda: DifferentialAttention(32, 4, learner="differential-v3"), "did you mean 'differential-v2'?"),
    (lambda: GatedAttention(32, 4, headwis=True), "did you mean 'headwise'?"),
    (lambda: HopfieldAttention(32, 4, n_steps=0), "n_steps=0 must be an integer of at least 1"),
    (lambda: HopfieldAttention(32, 4, tol=-1), "tol=-1 must not be negative"),
    (lambda: HopfieldAttention(32, 4, head_dim=16), "head_dim=16 with learner='hopfield' needs"),
    (lambda: EquilibriumAttention(32, 4, max_steps=0), "max_steps=0 must be"),
    (
        lambda: LowRankAttention(32, 4, rank=0),
        "rank=0 must be a multiple of 4 (n_heads) between 4 and 32 (n_heads * head_dim)",
    ),
    (lambda: LowRankAttention(32, 4, rank=36), "rank=36 must be a multiple of 4 (n_heads) between 4 and 32"),
    (lambda: LowRankAttention(32, 4, rank=6), "rank=6 must be a multiple of 4"),
    (lambda: LowRankAttention(32, 4, rank=8.0), "rank=8.0 must be a multiple of 4"),
    (
        lambda: LowRankAttention(32, 4, rank=12, rope_theta=1e4),
        "rank=12 must be a multiple of 8 (2 * n_heads with rope_theta) between 8 and 32",
    ),
    (
        lambda: BoostedAttention(32, 4, learner=("softmax", "low-rank"), kv_source="shared"),
        "kv_source='shared' with learner=('softmax', 'low-rank'): 'low-rank' in round 1 lays heads out otherwise",
    ),
    (
        lambda: BoostedAttention(32, 4, n_rounds=2, learner=("softmax", "low-rank", "softmax")),
        "learner=('softmax', 'low-rank', 'softmax') needs one entry per round, n_rounds=2",
    ),
    (lambda: EquilibriumAttention(32, 4, tol=-1), "tol=-1 must not be negative"),
    (lambda: EquilibriumAttention(32, 4, dropout=0.1), "dropout=0.1 must be 0 with learner='equilibrium'"),
    (lambda: attention_layer("boostd", d_model=32, n_heads=4), "attention='boostd' .*; did you mean 'boosted'?"),
    (
        lambda: attention_layer("boosted", d_model=32, n_heads=4, n_round=3),
        "no option 'n_round'; did you mean 'n_rounds'?",
    ),
    (
        lambda: attention_layer("standard", d_model=32, n_heads=4, max_steps=9),
        "StandardAttention has no option 'max_steps'",
    ),
    (lambda: attention_layer("boosted", d_model=32), "'boosted' attention needs n_heads"),
]


def pattern(message):
    """Plain text with .* for what may vary."""
    return ".*".join(re.escape(part) for part in message.split(".*"))


@pytest.mark.parametrize(("make", "message"), OPTIONS, ids=[message[:40] for _, message in OPTIONS])
def test_options(make, message):
    with pytest.raises(ValueError, match=pattern(message)) as caught:
        make()
    assert "\n" not in str(caught.value)


CALLS = [
    ({"x": randn(2, 32)}, "x has shape (2, 32); expected (batch, length, 32)"),
    ({"x": randn(2, 5, 16)}, "x has shape (2, 5, 16)"),
    ({"mask": torch.ones(5, 4, dtype=torch.bool)}, "mask has shape (5, 4); expected (5, 5) or (2, 4, 5, 5)"),
    ({"mask": torch.ones(2, 5, 5, dtype=torch.bool)}, "mask has shape (2, 5, 5)"),
    ({"mask": torch.ones(3, 1, 1, 5, dtype=torch.bool)}, "mask has shape (3, 1, 1, 5)"),
    (
        {"mask": torch.ones(5, 5, dtype=torch.int64)},
        "mask has dtype torch.int64; expected torch.bool (True = may attend)",
    ),
    ({"positions": torch.arange(5)}, "positions: the layer was built without rope_theta"),
    ({"memory": randn(3, 7, 32)}, "memory has shapes [(3, 7, 32), (3, 7, 32)]; expected [(2, 7, 32), (2, 7, 32)]"),
    ({"memory": (randn(2, 7, 32), randn(2, 6, 32))}, "memory has shapes [(2, 7, 32), (2, 6, 32)]"),
    ({"memory": randn(7)}, "memory has shapes [(7,), (7,)]; expected [(2, 'keys', 32), (2, 'keys', 32)]"),
    ({"memory": (randn(2, 7, 32),)}, "memory has 1 entries; expected a tensor or a (key, value) pair"),
    ({"memory": randn(2, 7, 32), "is_causal": True}, "is_causal: a memory has no order"),
]


@pytest.mark.parametrize(("call", "message"), CALLS, ids=[message[:40] for _, message in CALLS])
def test_calls(call, message):
    layer = build("boosted")
    with pytest.raises(ValueError, match=re.escape(message)):
        layer(**{"x": randn(2, 5, D_MODEL), **call})


def test_positions_of_the_wrong_shape_or_dtype():
    layer, x = build("boosted", rope_theta=1e4), randn(2, 5, D_MODEL)
    wrong = torch.arange(4), torch.zeros(3, 5, dtype=torch.int64), torch.arange(5.0), torch.ones(5, dtype=torch.bool)
    for positions in wrong:
        with pytest.raises(ValueError, match=r"positions has shape .*expected integers of shape \(5,\) or \(2, 5\)"):
            layer(x, positions=positions)
    with pytest.raises(ValueError, match="rope_theta has no positions for a memory"):
        layer(x, memory=x)


@pytest.mark.parametrize("name", ["local", "local-keys", "exclusive", "value-basis"])
def test_rounds_that_use_their_own_positions_refuse_memory(name):
    x = randn(2, 5, D_MODEL)
    with pytest.raises(ValueError, match=r"memory: learner='[\w-]+' in round [01] uses what its own positions hold"):
        build(name)(x, memory=x)


def test_twicing_refuses_memory():
    x = randn(2, 5, D_MODEL)
    for layer in (build("twicing"), BoostedAttention(D_MODEL, N_HEADS, learner="twicing").double()):
        with pytest.raises(ValueError, match="memory: learner='twicing' in round 0"):
            layer(x, memory=x)
    with pytest.raises(ValueError, match="memory: learner='twicing' in round 1"):
        build("softmax+twicing")(x, memory=x)


@pytest.mark.parametrize("name", ["strict-twicing", "delta"])
def test_forms_with_an_order_are_for_causal_calls(name):
    x = randn(2, 5, D_MODEL)
    for call in ({}, {"mask": torch.ones(5, 5, dtype=torch.bool).tril()}):
        with pytest.raises(
            ValueError, match=rf"is_causal: learner='{name}' in round 0 .* pass is_causal=True"
        ) as caught:
            build(name)(x, **call)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=f"memory: learner='{name}' in round 0"):
        build(name)(x, memory=x)
    mixed = BoostedAttention(D_MODEL, N_HEADS, learner=("softmax", name)).double()
    with pytest.raises(ValueError, match=f"is_causal: learner='{name}' in round 1"):
        mixed(x)
    assert mixed(x, is_causal=True).shape == x.shape


def test_free_head_dim_where_nothing_is_subtracted():
    assert StandardAttention(32, 4, head_dim=16)(torch.randn(1, 3, 32)).shape == (1, 3, 32)
    assert TwicingAttention(30, 4, head_dim=8)(torch.randn(1, 3, 30)).shape == (1, 3, 30)
    assert BoostedAttention(30, 4, head_dim=8, space="output")(torch.randn(1, 3, 30)).shape == (1, 3, 30)


def test_catalog_builds_everything_it_lists():
    assert {"standard", "boosted", "twicing", "differential", "gated", "hopfield", "equilibrium"} <= set(
        list_attention()
    )
    for name in list_attention():
        layer = attention_layer(name, d_model=D_MODEL, n_heads=N_HEADS, layer_index=2)
        assert isinstance(layer, AttentionLayer)
        assert layer.config.layer_index == 2
    assert attention_layer("boosted-shared", d_model=8, n_heads=2, kv_source="input").config.kv_source == "input"
