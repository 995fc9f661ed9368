"""Everything a layer is used under: compile, export, copies, dtypes, autocast, dropout, vmap."""

import copy

import pytest
import torch
from torch.func import functional_call, stack_module_state
from torch.profiler import ProfilerActivity, profile

from boosted_attention import BoostedAttention, HopfieldAttention, LayerTrace, capture, list_attention
from boosted_attention.attention import round_call as round_call_module
from boosted_attention.attention.checks import in_order, sample_call
from boosted_attention.attention.kernels import explicit
from tests.conftest import D_MODEL, N_HEADS, build, every_layer, randn

WHOLE_GRAPH = ["boosted", "standard", "twicing"]


def pytest_generate_tests(metafunc):
    """Choose layers for what takes seconds or half a minute each: one in the short run."""
    full = metafunc.config.getoption("--full")
    if metafunc.function is test_compile_whole_graph:
        metafunc.parametrize("name", WHOLE_GRAPH if full else WHOLE_GRAPH[:1])
    if metafunc.function is test_the_compiled_backward_pass:
        metafunc.parametrize("name", every_layer() if full else ["local-exclusive"])


class Causal(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x, is_causal=True)


def test_compile_whole_graph(name):
    torch._dynamo.reset()
    layer, x = build(name, torch.float32), randn(2, 9, D_MODEL, dtype=torch.float32).requires_grad_()
    compiled = torch.compile(layer, fullgraph=True)
    y, expected = compiled(x, is_causal=True), layer(x, is_causal=True)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
    for a, b in zip(
        torch.autograd.grad(y.square().sum(), [x, *layer.parameters()]),
        torch.autograd.grad(expected.square().sum(), [x, *layer.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_the_compiled_backward_pass(name):
    """Gradients of the graphs that the compiler makes, run by eager kernels."""
    torch._dynamo.reset()
    layer, x = build(name), randn(2, 9, D_MODEL).requires_grad_()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    inputs = [x, *layer.parameters()]
    ours, theirs = (torch.autograd.grad(run(x, is_causal=True).square().sum(), inputs) for run in (compiled, layer))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", every_layer())
def test_no_graph_breaks(name):
    """Dynamo traces every layer whole; the eager backend shows it without the price of a compilation."""
    torch._dynamo.reset()
    layer, x = build(name), randn(2, 5, D_MODEL)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    for t in (x, randn(2, 9, D_MODEL)):
        torch.testing.assert_close(compiled(t, is_causal=True), layer(t, is_causal=True), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", WHOLE_GRAPH)
def test_export_with_a_free_length(name):
    model, x = Causal(build(name)).eval(), randn(2, 9, D_MODEL)
    length = torch.export.Dim("length", min=2, max=512)
    exported = torch.export.export(model, (x,), dynamic_shapes=({1: length},)).module()
    for t in (x, randn(2, 30, D_MODEL)):
        torch.testing.assert_close(exported(t), model(t), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", every_layer())
def test_deepcopy_and_state_dict(name, tmp_path):
    layer, x = build(name), randn(2, 5, D_MODEL)
    twin, call = copy.deepcopy(layer), in_order(layer)
    assert torch.equal(twin(x, **call), layer(x, **call))
    with torch.no_grad():
        next(twin.parameters()).add_(1.0)
    assert not torch.equal(twin(x, **call), layer(x, **call))
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    twin.load_state_dict(torch.load(tmp_path / "layer.pt", weights_only=True))
    assert torch.equal(twin(x, **call), layer(x, **call))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", every_layer())
def test_dtype(name, dtype):
    layer = build(name, dtype, rope_theta=1e4, scale=None)
    y = layer(randn(2, 5, D_MODEL, dtype=dtype), is_causal=True, mask=torch.zeros(5, 5))
    assert y.dtype == dtype
    assert y.isfinite().all()


@pytest.mark.parametrize("kernel", ["auto", "explicit"])
@pytest.mark.parametrize("name", every_layer())
def test_autocast(name, kernel):
    layer, x = build(name, torch.float32, rope_theta=1e4), randn(2, 9, D_MODEL, dtype=torch.float32)
    layer.kernel = kernel
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x, is_causal=True)
        y.float().square().sum().backward()
    assert y.dtype == torch.bfloat16
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in layer.parameters())
    exact = layer.double()(x.double(), is_causal=True)
    assert (y.double() - exact).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize("name", [name for name in every_layer() if "equilibrium" not in name])
def test_dropout(name):
    layer, x = build(name, dropout=0.5), randn(2, 9, D_MODEL)
    call = in_order(layer)
    assert not torch.equal(layer(x, **call), layer(x, **call))
    layer.eval()
    assert torch.equal(layer(x, **call), layer(x, **call))
    plain = build(name)
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x, **call), plain(x, **call))


def test_twicing_draws_a_mask_for_each_pass():
    """With independent masks the mean over draws is (2A - A^2)V; a shared one would bias the diagonal."""
    layer, x = build("twicing", dropout=0.5, out_proj=False, d_model=4, n_heads=1), randn(1, 3, 4)
    with torch.no_grad():
        many = layer(x.expand(60_000, -1, -1))
        error = (many.mean(0) - layer.eval()(x)[0]) / (many.std(0) / 60_000**0.5)
    assert error.abs().max() < 5  # standard errors


def fused_calls(layer) -> int:
    """Calls of the fused kernel in a forward pass: one per map and time its scores are computed."""
    fused = [learner for learner in layer.rounds if learner.has_map and not learner.needs_maps]
    return sum(learner.n_maps * learner.fused_score_passes * getattr(learner, "n_steps", 1) for learner in fused)


@pytest.mark.parametrize("kind", ["causal", "padding", "additive"])
@pytest.mark.parametrize("name", list_attention())
def test_rounds_run_on_the_fused_kernel(name, kind):
    """No attention matrix in memory: forward and backward are the fused kernels, with every mask, in training.

    Learners whose formula contains the weights hold those of their maps; where the gradient alone does, of one.
    """
    layer, x = build(name, torch.float32, n_kv_heads=2), randn(2, 9, D_MODEL, dtype=torch.float32)
    call = in_order(layer, sample_call(kind, 2, N_HEADS, 9, torch.float32))
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        layer(x, **call).sum().backward()
    count = {event.key: event.count for event in profiler.key_averages()}
    softmaxes = sum(n for name, n in count.items() if name == "aten::_softmax")
    held = [rounds.n_maps if rounds.needs_maps else rounds.needs_maps_in_backward for rounds in layer.rounds]
    assert softmaxes == sum(held)
    if not any(learner.needs_maps_in_backward for learner in layer.rounds):
        for kernel in (
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_flash_attention_for_cpu_backward",
        ):
            assert count.get(f"aten::{kernel}", 0) == fused_calls(layer)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_demand_for_fused_kernels_is_what_auto_chooses_or_refused(dropout):
    layer, x = build("boosted", dropout=dropout), randn(2, 9, D_MODEL)
    found = []
    for layer.kernel in ("auto", "fused"):
        torch.manual_seed(0)
        found.append(layer(x, is_causal=True))
    assert torch.equal(*found)
    with pytest.raises(ValueError, match="kernel='fused' cannot be had: a trace holds the attention weights"):
        layer(x, trace=LayerTrace())
    with pytest.raises(ValueError, match="kernel='fused' cannot be had: a mask that is learned"):
        layer(x, mask=randn(9, 9).requires_grad_())
    with pytest.raises(ValueError, match="kernel='fused' cannot be had: function transforms"):
        torch.func.vmap(layer)(x[None])
    layer = build("composition")
    layer.kernel = "fused"  # behind the check of the options
    with pytest.raises(ValueError, match="kernel='fused' cannot be had: the learner's formula contains"):
        layer(x)


def composed(a, trace):
    """Composition's formula with given weights."""
    mixture = torch.einsum("bhts,bht->bts", a, trace.extra["mixed_from"][..., 0])
    return a @ trace.v + trace.extra["mixed_into"] * (mixture[:, None] @ trace.v)


def by_parallax(p, trace):
    """Parallax's formula with given weights."""
    s = trace.extra["rho"] @ trace.k.transpose(-2, -1)
    return (1 + (p * s).sum(-1, keepdim=True)) * (p @ trace.v) - (p * s) @ trace.v


@pytest.mark.parametrize(("name", "formula"), [("composition", composed), ("parallax", by_parallax)])
def test_a_map_that_a_formula_contains_is_dropped_once_wherever_it_stands(name, formula, monkeypatch):
    """One set of dropped weights decides the output, and traces show the weights before dropout."""
    layer, x = build(name, dropout=0.5, out_proj=False), randn(2, 9, D_MODEL)
    found, drop = [], round_call_module.dropped
    monkeypatch.setattr(round_call_module, "dropped", lambda *given: found.append(drop(*given)) or found[-1])
    with capture(layer) as traces:
        y = layer(x)
    (weights,), trace = found, traces[""].rounds[0]
    torch.testing.assert_close(trace.weights.sum(-1), torch.ones_like(trace.weights[..., 0]))
    kept = weights != 0
    torch.testing.assert_close(weights[kept], 2 * trace.weights[kept])
    torch.testing.assert_close(y, formula(weights, trace).transpose(1, 2).flatten(2), rtol=0, atol=1e-12)


def test_differential_drops_one_mask_per_map():
    """The two halves of a value head see the same dropped weights."""
    layer, x = build("differential", dropout=0.5, d_model=4, n_heads=2, out_proj=False), randn(1, 50, 4)
    drawn = []

    def attention(q, k, mask, scale, dropout):
        apply, weights = explicit(q, k, mask, scale, dropout)
        return lambda v: (drawn.append(v.shape[-1]), apply(v))[1], weights

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("boosted_attention.attention.layer.choose_kernel", lambda *_, **__: attention)
        layer(x)
    assert drawn == [4]


@pytest.mark.parametrize("name", every_layer())
def test_explicit_kernel_on_the_meta_device(name):
    layer = build(name).to("meta")
    layer.kernel = "explicit"
    x = torch.empty(2, 5, D_MODEL, device="meta", dtype=torch.float64)
    assert layer(x, **in_order(layer)).shape == (2, 5, D_MODEL)


def test_an_unknown_kernel_is_refused():
    layer = build("boosted")
    layer.kernel = "explict"
    with pytest.raises(ValueError, match=r"kernel='explict' .*did you mean 'explicit'"):
        layer(randn(1, 3, D_MODEL))


@pytest.mark.parametrize("name", every_layer())
def test_stacked_layers_under_vmap(name):
    """Layers trained side by side: vmap over stacked weights equals one after the other, gradients too."""
    layers = [build(name, n_kv_heads=2) for _ in range(3)]
    stacked, _ = stack_module_state(layers)
    x = randn(3, 2, 5, D_MODEL)

    def loss(weights, x):
        return functional_call(layers[0], weights, (x,), {"is_causal": True}).square().sum()

    gradients, losses = torch.func.vmap(torch.func.grad_and_value(loss))(stacked, x)
    for i, layer in enumerate(layers):
        alone = layer(x[i], is_causal=True).square().sum()
        torch.testing.assert_close(losses[i], alone, rtol=1e-10, atol=0)
        alone.backward()
        for key, parameter in layer.named_parameters():
            torch.testing.assert_close(gradients[key][i], parameter.grad, rtol=0, atol=1e-9)

    losses = torch.func.vmap(loss)(stacked, x)  # and with ordinary autograd around it
    for i, gradient in enumerate(torch.autograd.grad(losses.sum(), list(stacked.values()))):
        torch.testing.assert_close(gradient, gradients[list(stacked)[i]], rtol=0, atol=1e-9)


def test_stacked_retrieval_layers_stop_by_row():
    options = {"n_steps": 30, "tol": 1e-3, "scale": "learned", "out_proj": False}
    layers = [HopfieldAttention(8, 1, **options).double() for _ in range(3)]
    stacked, _ = stack_module_state(layers)
    x, memory = randn(3, 1, 7, 8), randn(1, 4, 8)

    def run(weights, x):
        return functional_call(layers[0], weights, (x,), {"memory": memory})

    together = torch.func.vmap(run)(stacked, x)
    for i, layer in enumerate(layers):
        torch.testing.assert_close(together[i], layer(x[i], memory=memory), rtol=0, atol=1e-12)


def test_meta_device_and_repr():
    with torch.device("meta"):
        layer = BoostedAttention(1024, 16)
    assert next(layer.parameters()).is_meta
    text = repr(build("boosted"))
    assert f"d_model={D_MODEL}, n_heads={N_HEADS}, n_rounds=2" in text
    assert "gate='vector'" in text
