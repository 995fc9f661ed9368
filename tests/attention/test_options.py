"""A layer's options stand once: signatures, help, messages and the command line's help follow from the dataclass."""

import inspect
import json
import subprocess
import sys
from dataclasses import fields

import pytest
import torch

from boosted_attention import (
    AttentionLayer,
    BoostedAttention,
    BoostedMultiheadAttention,
    CompositionAttention,
    DifferentialAttention,
    EquilibriumAttention,
    GatedAttention,
    HopfieldAttention,
    LowRankAttention,
    ParallaxAttention,
    StandardAttention,
    StrictTwicingAttention,
    TwicingAttention,
    attention_layer,
    list_attention,
    list_learners,
)
from boosted_attention.attention import reference
from boosted_attention.attention.gates import GATES
from boosted_attention.attention.learner import LEARNERS, own_options, register_learner
from boosted_attention.attention.options import CHOICES, OPTION_NAMES, LayerOptions, help_lines, layer_options
from boosted_attention.attention.residuals import RESIDUALS
from boosted_attention.attention.softmax import SoftmaxLearner
from boosted_attention.documentation import argument_texts, field_texts
from tests.conftest import D_MODEL, N_HEADS, build, randn, suited

CLASSES = [
    StandardAttention,
    BoostedAttention,
    TwicingAttention,
    GatedAttention,
    DifferentialAttention,
    HopfieldAttention,
    EquilibriumAttention,
    CompositionAttention,
    ParallaxAttention,
    StrictTwicingAttention,
    LowRankAttention,
]


def test_every_option_has_a_text_and_every_choice_is_in_it():
    texts = field_texts(LayerOptions)
    assert list(texts) == [f.name for f in fields(LayerOptions)] == list(OPTION_NAMES)
    for option, names in CHOICES.items():
        assert all(name in texts[option] for name in names), option


def test_named_parts_are_those_that_exist():
    assert tuple(GATES) == CHOICES["gate"]
    assert tuple(RESIDUALS) == CHOICES["residual"]
    assert set(reference.LEARNERS) == set(list_learners())


@pytest.mark.parametrize("layer", CLASSES)
def test_signature_and_help_of_a_class_follow_from_its_options(layer):
    parameters = inspect.signature(layer).parameters
    own = own_options(LEARNERS[layer.defaults.get("learner", "softmax")])
    assert list(parameters) == [*OPTION_NAMES, *(option.name for option in own)]
    assert [p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD] == ["d_model", "n_heads"]
    assert parameters["n_rounds"].default == layer(8, 2).config.n_rounds
    assert parameters["learner"].default == layer(8, 2).config.learner
    texts = argument_texts(layer.__doc__)
    assert list(texts) == list(parameters)
    assert all(len(text) > 10 for text in texts.values())
    assert "(B, T, d_model) -> (B, T, d_model)" in layer.__doc__


def test_an_option_of_a_learner_is_described_as_its_docstring_does():
    (window, plain) = own_options(Described)
    assert (window.name, window.default, window.text, window.kind) == ("window", 4, "Positions that are seen.", int)
    assert (plain.name, plain.text) == ("plain", "")


class Described(SoftmaxLearner):
    """A learner with one option that is described and one that is not.

    Args:
        window: Positions that are seen.
    """

    def __init__(self, options, index, *, window: int = 4, plain: bool = False):
        super().__init__(options, index)


def test_a_class_with_arguments_of_its_own_shows_those():
    class Narrow(AttentionLayer):
        def __init__(self, width: int):
            super().__init__(width, 1)

    assert list(inspect.signature(Narrow).parameters) == ["width"]
    assert Narrow(4).config.n_heads == 1


def test_multihead_takes_torchs_arguments_and_every_option():
    theirs, ours = (inspect.signature(c).parameters for c in (torch.nn.MultiheadAttention, BoostedMultiheadAttention))
    assert list(ours)[: len(theirs)] == list(theirs)
    assert set(ours) - set(theirs) == {*OPTION_NAMES, "self_attention"} - {*theirs, "d_model", "n_heads"}
    assert list(argument_texts(BoostedMultiheadAttention.__doc__)) == list(ours)
    layer = BoostedMultiheadAttention(8, 2, n_rounds=3, learner="hopfield", n_steps=2, scale=0.5, dtype=torch.float64)
    assert layer.attention.config.options_of(2) == {"n_steps": 2}
    assert {p.dtype for p in layer.parameters()} == {torch.float64}


def test_help_lines():
    lines = help_lines(without=("d_model", "n_heads"))
    assert len(lines) == len(OPTION_NAMES) - 2
    assert lines[0] == "n_rounds=1: Rounds M of the boosting loop; 1 makes no correction."
    assert str(layer_options()[0]).startswith("d_model: ")


def test_every_class_takes_every_option():
    x = torch.randn(1, 3, 8)
    for layer in CLASSES:
        made = layer(8, 2, n_rounds=3, gate="scalar", space="output", scale="learned", kernel="explicit")
        assert made(x, is_causal=True).shape == x.shape
        assert made.kernel == "explicit"


def test_options_of_learners_may_be_keywords_or_a_mapping_or_one_per_round():
    for layer in (
        HopfieldAttention(8, 2, n_steps=5),
        HopfieldAttention(8, 2, learner_options={"n_steps": 5}),
        attention_layer("hopfield", d_model=8, n_heads=2, n_steps=5),
    ):
        assert layer.rounds[0].n_steps == 5
    mixed = {"n_rounds": 3, "learner": ("softmax", "hopfield", "equilibrium")}
    both = BoostedAttention(8, 2, **mixed, tol=0.1, n_steps=2)
    assert [both.config.options_of(m) for m in range(3)] == [{}, {"tol": 0.1, "n_steps": 2}, {"tol": 0.1}]
    apart = BoostedAttention(8, 2, **mixed, learner_options=({}, {"tol": 0.1}, {"tol": 0.2}), n_steps=2)
    assert [apart.config.options_of(m) for m in range(3)] == [{}, {"tol": 0.1, "n_steps": 2}, {"tol": 0.2}]


def test_the_last_of_several_learners_serves_the_rounds_that_follow():
    layer = attention_layer("boosted-low-rank", d_model=8, n_heads=2, n_rounds=4)
    assert layer.config.learner == ("softmax", "low-rank", "low-rank", "low-rank")
    assert [learner.d_head for learner in layer.rounds] == [4, 1, 1, 1]


def test_a_learner_per_round_is_what_each_round_runs():
    """Weights moved over from layers of one learner each give the same two rounds."""
    x = randn(2, 7, D_MODEL)
    mixed = BoostedAttention(D_MODEL, N_HEADS, learner=["softmax", "gated"], gate="none", out_proj=False).double()
    first, second = (
        StandardAttention(D_MODEL, N_HEADS, out_proj=False),
        GatedAttention(D_MODEL, N_HEADS, out_proj=False),
    )
    first.double().rounds[0].load_state_dict(mixed.rounds[0].state_dict())
    second.double().rounds[0].load_state_dict(mixed.rounds[1].state_dict())
    estimate = first(x, is_causal=True)
    expected = estimate + second(x - estimate, is_causal=True)
    torch.testing.assert_close(mixed(x, is_causal=True), expected, rtol=0, atol=1e-12)


def drawn(make):
    """The weights that a function draws, in order of registration."""
    torch.manual_seed(3)
    return list(make().state_dict().values())


@pytest.mark.parametrize("name", list_attention())
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scale": "learned", "space": "output", "gate": "mlp", "n_rounds": 3},
        {"qk_norm": True, "space": "output", "correction_start": "silent", "n_rounds": 2},
        {"qk_norm": True, "gate": "tanh", "correction_start": "silent", "n_rounds": 2},
    ],
    ids=str,
)
def test_resetting_draws_what_construction_drew(name, options):
    options = suited(name, options)
    first = drawn(lambda: attention_layer(name, d_model=8, n_heads=4, **options))
    layer = attention_layer(name, d_model=8, n_heads=4, **options)
    with torch.no_grad():
        for p in layer.parameters():
            p.fill_(7.0)
    torch.manual_seed(3)
    layer.reset_parameters()
    assert all(torch.equal(a, b) for a, b in zip(first, layer.state_dict().values(), strict=True))


@pytest.mark.parametrize("renewed", [False, True])
@pytest.mark.parametrize(
    ("options", "silenced"),
    [
        ({}, lambda layer: layer.rounds[1].rows("v")),
        ({"kdim": 6, "vdim": 5}, lambda layer: layer.rounds[1].rows("v")),
        ({"learner": "differential", "n_kv_heads": 2}, lambda layer: layer.rounds[1].rows("v")),
        ({"space": "output"}, lambda layer: layer.rounds[1].out_proj.parameters()),
        ({"gate": "tanh"}, lambda layer: layer.gates[0].parameters()),
        ({"gate": "tanh", "kv_source": "shared"}, lambda layer: layer.gates[0].parameters()),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else value.__code__.co_names[-1],
)
def test_a_silent_correction_has_one_part_at_zero_and_the_others_drawn(options, silenced, renewed):
    """With two parts at zero neither would have a gradient."""

    def made(start):
        torch.manual_seed(4)
        layer = BoostedAttention(8, 4, correction_start=start, **options)
        if renewed:
            torch.manual_seed(5)
            layer.reset_parameters()
        return layer

    silent, drawn = made("silent"), made("drawn")
    assert not any(t.any() for t in silenced(silent))
    with torch.no_grad():
        for t in silenced(drawn):
            t.zero_()
    assert all(map(torch.equal, silent.state_dict().values(), drawn.state_dict().values()))


def linears(*shapes):
    """The weights and biases of torch's own layers, drawn one after the other."""
    torch.manual_seed(3)
    return [t for shape in shapes for t in torch.nn.Linear(*shape).state_dict().values()]


def test_construction_draws_as_torchs_layers_do_round_by_round():
    d, h = 8, 2
    expected = {
        "standard": [(d, 3 * d), (d, d)],
        "boosted": [(d, 3 * d), (d, 3 * d), (2 * d, d), (d, d)],
        "boosted-shared": [(d, 3 * d), (d, d), (2 * d, d), (d, d)],
        "boosted-output": [(d, 3 * d), (d, d), (d, 3 * d), (d, d), (2 * d, d)],
        "gated": [(d, 3 * d), (d, d), (d, d)],
        "boosted-gated": [(d, 3 * d), (d, d), (d, 3 * d), (d, d), (2 * d, d), (d, d)],
        "differential-v2": [(d, 4 * d), (d, h), (d, d)],
        "twicing": [(d, 3 * d), (d, d)],
        "hopfield": [(d, 3 * d), (d, d)],
        "equilibrium": [(d, 3 * d), (d, d)],
    }
    for name, shapes in expected.items():
        ours = drawn(lambda name=name: attention_layer(name, d_model=d, n_heads=h))
        assert all(torch.equal(a, b) for a, b in zip(ours, linears(*shapes), strict=True)), name


def test_differential_draws_its_lambdas_behind_its_projection():
    torch.manual_seed(3)
    qkv = torch.nn.Linear(8, 24)
    lambdas = [0.1 * torch.randn(4) for _ in range(4)]
    out = torch.nn.Linear(8, 8)
    torch.manual_seed(3)
    layer = attention_layer("differential", d_model=8, n_heads=2)
    assert torch.equal(layer.rounds[0].qkv.weight, qkv.weight)
    for name, expected in zip(("q1", "k1", "q2", "k2"), lambdas, strict=True):
        assert torch.equal(getattr(layer.rounds[0], f"lambda_{name}"), expected)
    assert torch.equal(layer.out_proj.weight, out.weight)


@pytest.mark.parametrize("name", list_attention())
def test_device_and_dtype_at_construction(name):
    layer = attention_layer(name, d_model=8, n_heads=4, dtype=torch.float64, scale="learned")
    assert {p.dtype for p in layer.parameters()} == {torch.float64}
    meta = attention_layer(name, d_model=8, n_heads=4, device="meta", gate="scalar")
    assert all(p.is_meta for p in meta.parameters())


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="learner='softmax' exists already"):
        register_learner("softmax")(type(build("twicing").rounds[0]))


LIGHT = [
    "import boosted_attention",
    "import boosted_attention.attention.options",
    "import boosted_attention.attention.catalog",
    "import boosted_attention.model.protocols",
    "from boosted_attention.model.config import LanguageModelConfig; LanguageModelConfig(attention='boosted-shared')",
]


@pytest.mark.parametrize("statement", LIGHT)
def test_imports_without_torch(statement):
    script = f"import sys; {statement}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_names_are_in_the_same_order_whatever_is_imported_first():
    orders = set()
    for first in ("", "from boosted_attention.attention.learners.twicing import TwicingAttention; "):
        script = f"{first}import json, boosted_attention as b; print(json.dumps(b.list_attention()))"
        orders.add(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)
    assert [json.loads(order) for order in orders] == [list_attention()]
