"""The decoder: shapes, options, padding, causality, traces, and what it refuses."""

import json

import pytest
import torch

from boosted_attention import LanguageModel, LanguageModelConfig, capture, list_attention, padding_mask
from boosted_attention.attention.checks import CHECK_OPTIONS
from boosted_attention.attention.dropout import Dropout

SMALL = {"vocab_size": 61, "d_model": 16, "n_layers": 2, "n_heads": 4, "max_len": 12}


def small(name: str = "boosted", dtype=torch.float64, **options) -> LanguageModel:
    given = {**SMALL, "attention": name, "attention_options": CHECK_OPTIONS.get(name, {}), **options}
    return LanguageModelConfig(**given).build().to(dtype).eval()


def test_the_readme_of_the_class_is_true():
    model = LanguageModelConfig(**SMALL).build()
    ids = torch.randint(61, (2, 9))
    assert model(ids).shape == (2, 9, 61)
    assert model.loss(ids, ids).shape == ()
    assert model.generate(ids, 5).shape == (2, 14)


@pytest.mark.parametrize("name", list_attention())
@pytest.mark.parametrize(
    "options", [{}, {"norm": "post", "positions": "rotary", "norm_kind": "rmsnorm", "qk_norm": True}]
)
def test_the_future_is_unseen_bit_for_bit(name, options):
    model, ids = small(name, **options), torch.randint(61, (2, 12))
    before = model(ids)
    for t in (1, 6, 11):
        changed = ids.clone()
        changed[:, t:] = (changed[:, t:] + 1) % 61
        after = model(changed)
        assert torch.equal(after[:, :t], before[:, :t])
        assert not torch.equal(after[:, t:], before[:, t:])


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("name", list_attention())
def test_left_padding_changes_nothing_for_real_tokens(name, positions):
    model, ids = small(name, positions=positions), torch.randint(61, (1, 7))
    alone = model(ids)
    padded = torch.cat([torch.randint(61, (1, 5)), ids], dim=1)
    mask = torch.tensor([[0] * 5 + [1] * 7])
    torch.testing.assert_close(model(padded, mask)[:, 5:], alone, rtol=0, atol=1e-10)


WIDER_HEADS = {"boosted_layers": "0", "attention_options": {"head_dim": 6, "space": "output"}}


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in list_attention()), ("boosted", WIDER_HEADS)])
def test_layers_are_given_the_masks_and_angles_that_they_would_make(name, options):
    """Also where the heads of one layer are wider, so that angles cannot be shared."""
    model, ids = small(name, positions="rotary", **options), torch.randint(61, (2, 9))
    mask = torch.tensor([[0] * 3 + [1] * 6, [1] * 9])
    positions = (mask.cumsum(dim=1) - 1).clamp_min(0)
    h = model.embed(ids)
    for layer in model.layers:
        h = layer(h, mask=padding_mask(mask), positions=positions)
    assert torch.equal(model.hidden(ids, mask), model.norm(h))


@pytest.mark.parametrize("name", list_attention())
def test_tracing_changes_nothing(name):
    model, ids = small(name), torch.randint(61, (2, 12))
    before = model(ids)
    with capture(model) as traces:
        traced = model(ids)
    torch.testing.assert_close(traced, before, rtol=0, atol=1e-12)
    assert set(traces) == {"layers.0.attention", "layers.1.attention"}


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [("all", {0, 1, 2, 3}), ("none", set()), ("last:1", {3}), ("last:0", set()), ([0, 2], {0, 2}), ("0,2", {0, 2})],
)
def test_chosen_layers_are_boosted_and_the_rest_standard(chosen, expected):
    config = LanguageModelConfig(**{**SMALL, "n_layers": 4}, boosted_layers=chosen)
    rounds = [layer.attention.config.n_rounds for layer in config.build().layers]
    assert rounds == [2 if i in expected else 1 for i in range(4)]
    assert LanguageModelConfig.from_dict(config.to_dict()) == config


def test_norm_placement():
    ids = torch.randint(61, (2, 12))
    pre, post = small(norm="pre"), small(norm="post")
    post.load_state_dict(pre.state_dict())
    for model, is_pre in ((pre, True), (post, False)):
        block, h = model.layers[0], torch.randn(1, 5, 16, dtype=torch.float64)
        if is_pre:
            a = h + block.attention(block.attention_norm(h), is_causal=True)
            expected = a + block.ffn(block.ffn_norm(a))
        else:
            a = block.attention_norm(h + block.attention(h, is_causal=True))
            expected = block.ffn_norm(a + block.ffn(a))
        torch.testing.assert_close(block(h), expected, rtol=0, atol=1e-12)
    assert not torch.allclose(pre(ids), post(ids))


def test_initialisation_is_the_papers():
    model = LanguageModelConfig(vocab_size=500, d_model=128, attention="boosted", max_len=64).build()
    for name, p in model.requires_grad_(False).named_parameters():
        if p.ndim == 2:
            assert float(p.std()) == pytest.approx(0.02, rel=0.05), name
        elif name.endswith("bias"):
            assert not p.any(), name
    scaled = LanguageModelConfig(vocab_size=500, d_model=128, init="scaled").build().requires_grad_(False)
    assert float(scaled.layers[0].attention.out_proj.weight.std()) == pytest.approx(0.02 / 8**0.5, rel=0.05)
    assert float(scaled.layers[0].ffn.down.weight.std()) == pytest.approx(0.02 / 8**0.5, rel=0.05)
    assert float(scaled.layers[0].ffn.up.weight.std()) == pytest.approx(0.02, rel=0.05)


def test_normalised_queries_and_keys_are_in_every_layer_boosted_or_not():
    model = LanguageModelConfig(**SMALL, qk_norm=True, boosted_layers="last:1").build()
    assert [layer.attention.config.qk_norm for layer in model.layers] == [True, True]
    assert {n for n, _ in model.named_parameters() if n.startswith("layers.0.") and "k_norm" in n} == {
        "layers.0.attention.rounds.0.k_norm.weight"
    }


def test_tied_weights_are_one_tensor_under_one_name():
    tied, untied = small(), small(tie_weights=False)
    assert "head.weight" not in tied.state_dict()
    assert "head.weight" in untied.state_dict()
    assert tied.projection is tied.embed.weight


def test_dropout_is_where_the_paper_has_it():
    model = small(dropout=0.5).train()
    dropped = {name for name, module in model.named_modules() if isinstance(module, Dropout) and module.p == 0.5}
    assert dropped == {"dropout", "layers.0.ffn.dropout", "layers.1.ffn.dropout"}
    assert all(layer.attention.config.dropout == 0.5 for layer in model.layers)


def test_a_compiled_model_gives_the_same():
    model, ids = small(dtype=torch.float32, n_layers=1), torch.randint(61, (2, 12))  # compiling takes long
    torch.testing.assert_close(torch.compile(model)(ids), model(ids), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.compile(model.loss)(ids, ids), model.loss(ids, ids), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 0}, "vocab_size=0"),
        ({"n_heads": 3}, "n_heads=3 does not divide d_model=16; allowed: 1, 2, 4, 8, 16"),
        ({"attention": "boostd"}, "did you mean 'boosted'"),
        ({"norm": "prae"}, "did you mean 'pre'"),
        ({"norm_kind": "batchnorm"}, "norm_kind='batchnorm'"),
        ({"positions": "rotery"}, "did you mean 'rotary'"),
        ({"init": "xavier"}, "init='xavier'"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"ffn_multiple": 0}, "ffn_multiple=0"),
        ({"boosted_layers": "last:9"}, "last:k takes k from 0 to 2"),
        ({"boosted_layers": "lsat"}, "boosted_layers='lsat'"),
        ({"boosted_layers": [5]}, "indices go from -2 to 1"),
        ({"attention_options": {"n_round": 3}}, "did you mean 'n_rounds'"),
        ({"attention_options": {"d_model": 3}}, "d_model is set by the model"),
        ({"attention": "equilibrium", "dropout": 0.1}, "a random map has no fixed point"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        LanguageModelConfig(**{**SMALL, **options})


def test_wrong_calls_are_named():
    model = small()
    with pytest.raises(ValueError, match="token id 61 is outside the vocabulary of 61"):
        model(torch.tensor([[3, 61]]))
    with pytest.raises(ValueError, match=r"ids has shape \(3,\)"):
        model(torch.tensor([1, 2, 3]))
    with pytest.raises(ValueError, match="ids reach position 13, the model takes max_len=12"):
        model(torch.zeros(1, 13, dtype=torch.long))
    with pytest.raises(ValueError, match=r"mask has shape \(1, 3\)"):
        model(torch.zeros(1, 4, dtype=torch.long), torch.ones(1, 3))
    with pytest.raises(ValueError, match="targets has shape"):
        model.loss(torch.zeros(1, 4, dtype=torch.long), torch.zeros(1, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="no option 'd_modle'; did you mean 'd_model'"):
        LanguageModelConfig.from_dict({"d_modle": 3})


def test_a_learner_per_round_in_a_model():
    options = {"n_rounds": 2, "learner": ["softmax", "hopfield"], "n_steps": 2}
    config = LanguageModelConfig(vocab_size=37, d_model=16, n_layers=2, max_len=12, attention_options=options)
    assert LanguageModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    model, ids = config.build().eval(), torch.randint(37, (2, 4))
    assert [type(learner).__name__ for learner in model.layers[0].attention.rounds] == [
        "SoftmaxLearner",
        "HopfieldLearner",
    ]
    assert torch.equal(model.generate(ids, 12), model.generate(ids, 12, use_cache=False))
    with pytest.raises(ValueError, match="attention_options: device is set by the model"):
        LanguageModelConfig(attention_options={"device": "cpu"})
