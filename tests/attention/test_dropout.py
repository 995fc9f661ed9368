"""Dropout: cheap masks with the right statistics, the same on every kernel, never whole in memory."""

import math
import subprocess
import sys

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from boosted_attention import LanguageModelConfig, capture, list_attention
from boosted_attention.attention import dropout as dropping
from boosted_attention.attention import kernels
from boosted_attention.attention.checks import MASK_KINDS, in_order, sample_call
from boosted_attention.attention.dropout import TILE_ELEMENTS, Dropout, drop, new_key, rows_from
from boosted_attention.attention.tiled import TILE_QUERIES, keep_mask
from tests.conftest import D_MODEL, N_HEADS, build, disturbed, every_layer, randn

DROPPING = [name for name in every_layer() if "equilibrium" not in name]
CATALOG = [name for name in list_attention() if name in DROPPING]
WITHOUT_MAPS = [name for name in CATALOG if not any(learner.needs_maps for learner in build(name).rounds)]


def gradients(layer, x, seed=3, **call):
    """Output and all gradients from a random state."""
    leaves = {"x": x.clone().requires_grad_(), **dict(layer.named_parameters())}
    torch.manual_seed(seed)
    y = layer(leaves["x"], **call)
    found = torch.autograd.grad(y, list(leaves.values()), torch.ones_like(y).cumsum(1), allow_unused=True)
    return {"y": y.detach(), **dict(zip(leaves, found, strict=True))}


def assert_equal_to(expected, found, atol):
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("name", DROPPING)
def test_tiles_equal_the_explicit_kernel_with_the_same_mask(name, full):
    """Output and every gradient, at lengths around a tile's end, with every mask and fewer key heads."""
    layer = disturbed(build(name, dropout=0.3, n_kv_heads=2))
    lengths = (1, TILE_QUERIES - 1, TILE_QUERIES + 1, 2 * TILE_QUERIES + 3) if full else (5, TILE_QUERIES + 3)
    for length in lengths:
        for kind in MASK_KINDS if full else ("causal", "padding"):
            call = in_order(layer, sample_call(kind, 3, N_HEADS, length, torch.float64))
            x = randn(3, length, D_MODEL)
            layer.kernel = "explicit"
            expected = gradients(layer, x, **call)
            layer.kernel = "auto"
            assert_equal_to(expected, gradients(layer, x, **call), 1e-10)


@pytest.mark.parametrize("length", [3, TILE_QUERIES + 1])
def test_numbers_of_weights_that_are_not_divisible_by_four(length):
    """Three heads and an odd length: the last number drawn for a tile decides fewer than four weights."""
    layer, x = build("boosted", dropout=0.3, n_heads=3, d_model=27), randn(3, length, 27)
    layer.kernel = "explicit"
    expected = gradients(layer, x, is_causal=True)
    layer.kernel = "auto"
    assert_equal_to(expected, gradients(layer, x, is_causal=True), 1e-10)


@pytest.mark.parametrize("name", DROPPING)
def test_a_trace_changes_nothing_in_training(name):
    layer, x = build(name, dropout=0.3), randn(2, TILE_QUERIES + 6, D_MODEL)
    torch.manual_seed(1)
    expected = layer(x, is_causal=True)
    torch.manual_seed(1)
    with capture(layer):
        torch.testing.assert_close(layer(x, is_causal=True), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["boosted", "differential", "twicing"])
def test_lower_precision_rounds_what_is_computed_in_float32(name, dtype):
    exact = build(name, dropout=0.2)
    layer, x = build(name, dtype, dropout=0.2), randn(2, TILE_QUERIES + 9, D_MODEL).to(dtype)
    layer.load_state_dict(exact.state_dict())
    exact.load_state_dict(layer.state_dict())  # rounded
    expected, found = gradients(exact, x.double(), is_causal=True), gradients(layer, x, is_causal=True)
    for key, value in expected.items():
        error = (found[key].double() - value).norm() / value.norm().clamp(min=1e-3)
        assert error < 40 * torch.finfo(dtype).eps, key


def test_a_kept_weight_is_enlarged_so_that_the_mean_stays():
    p, x = 0.1, torch.ones(4, 50_000, dtype=torch.float64)
    y = drop(x, new_key(), p)
    torch.testing.assert_close(y.unique(), torch.tensor([0.0, 1 / (1 - p)], dtype=torch.float64))
    deviation = math.sqrt(p / (1 - p) / y.numel())  # of the mean: a kept element has variance p / (1 - p)
    assert abs(float(y.mean()) - 1) < 4 * deviation
    assert float(y.var()) == pytest.approx(p / (1 - p), rel=0.03)


@pytest.mark.parametrize("p", [1e-4, 0.1, 0.5, 0.999])
def test_the_probability_is_exact_to_one_in_ten_thousand(p):
    source = dropping.MaskSource(torch.tensor([1, 0]), p)
    levels = torch.arange(-(2**15), 2**15)  # all numbers that an element can be decided by
    assert abs(float((levels >= source.threshold).double().mean()) - p) < 1e-4
    assert float((drop(torch.ones(8, 2**17), new_key(), p) == 0).double().mean()) == pytest.approx(p, abs=2e-3)


def test_elements_are_independent_of_their_neighbours():
    """Among the four numbers of one draw, along a row, and between rows."""
    kept = (drop(torch.ones(64, 2**14), new_key(), 0.5) > 0).double() - 0.5
    bound = 4.5 * 0.25 / math.sqrt(kept.numel())
    for shift in (1, 2, 3, 4, 64):
        assert abs(float((kept[:, shift:] * kept[:, :-shift]).mean())) < bound
    assert abs(float((kept[1:] * kept[:-1]).mean())) < bound


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_masks_of_layers_rounds_and_steps_are_unrelated(p, monkeypatch):
    """Every mask that two steps of a model draw has a key of its own, and no two masks are alike."""
    keys, kept = [], []
    drawn = dropping.MaskSource.draw

    def noted(self, row, n_rows, tile, count):
        mask = drawn(self, row, n_rows, tile, count)
        if row == 0 and tile == 0:
            keys.append(self.number)
            kept.append(mask[0, :256].double())
        return mask

    monkeypatch.setattr(dropping.MaskSource, "draw", noted)
    model = LanguageModelConfig(d_model=16, n_layers=2, n_heads=4, max_len=32, vocab_size=40, dropout=p).build()
    for _ in range(2):
        model.loss(torch.zeros(2, 32, dtype=torch.long), torch.zeros(2, 32, dtype=torch.long))
    sites = 2 * (1 + 2 * (2 + 2))  # embedding; in each of 2 layers 2 rounds and 2 places of the feed-forward network
    assert len(keys) == len(set(keys)) == sites
    centred = torch.stack(kept) - (1 - p)
    related = centred @ centred.T / (256 * p * (1 - p)) - torch.eye(sites)
    assert related.abs().max() < 5 / math.sqrt(256)


def test_a_rows_mask_does_not_depend_on_the_others():
    """Neither on how many there are, nor on how they are divided."""
    key, x = new_key(), torch.ones(6, TILE_ELEMENTS + 5)
    whole = drop(x, key, 0.5)
    assert torch.equal(drop(x[:2], key, 0.5), whole[:2])
    assert torch.equal(drop(x[2:], key + torch.tensor([0, 2]), 0.5), whole[2:])
    weights = torch.ones(5, 2, 70, 70)
    masks = keep_mask(weights, True, 0.5, key)
    assert torch.equal(keep_mask(weights[3:], True, 0.5, key + torch.tensor([0, 3])), masks[3:])


@pytest.mark.parametrize("name", ["boosted", "twicing"])
def test_micro_batches_draw_what_the_whole_batch_draws(name):
    layer, x = build(name, dropout=0.4), randn(6, TILE_QUERIES + 2, D_MODEL)
    torch.manual_seed(2)
    whole = layer(x, is_causal=True)
    parts = []
    for first in (0, 1, 4):
        torch.manual_seed(2)
        with rows_from(first):
            parts.append(layer(x[first : {0: 1, 1: 4, 4: 6}[first]], is_causal=True))
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-12)
    torch.manual_seed(2)
    assert not torch.equal(layer(x[1:4], is_causal=True), parts[1])  # rows counted from 0 again


def test_the_number_of_threads_changes_no_bit():
    layer, x = build("boosted", torch.float32, dropout=0.4), randn(4, 90, D_MODEL, dtype=torch.float32)
    key = new_key()
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append((keep_mask(torch.ones(2, 2, 90, 90), True, 0.4, key), drop(x, key, 0.4)))
    torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert not torch.equal(layer(x), layer(x))


def test_a_mask_is_a_constant_of_the_format():
    """The first elements that a key drops: runs with dropout can be repeated by another version."""
    key = torch.tensor([12345, 7])
    assert "".join(str(int(v > 0)) for v in drop(torch.ones(1, 40), key, 0.5)[0]) == FIRST_KEPT
    mask = keep_mask(torch.ones(1, 2, 70, 70), True, 0.5, key)
    assert "".join(map(str, mask[0, 1, 69, :40].tolist())) == LATER_KEPT


FIRST_KEPT = "0111001000010000111010101101111101101000"
LATER_KEPT = "1011101000100110000010101110100101100101"


@pytest.mark.parametrize("name", WITHOUT_MAPS)
def test_neither_weights_nor_masks_are_kept_or_whole(name):
    """No tensor of a training step with dropout has as many elements as the weights of one row."""
    layer, length = build(name, torch.float32, dropout=0.1), 9 * TILE_QUERIES  # a tile of eight heads is smaller
    x = randn(1, length, D_MODEL, dtype=torch.float32)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        layer(x, is_causal=True).sum().backward()
    sizes = {math.prod(shape) for event in profiler.events() for shape in event.input_shapes if shape}
    assert max(sizes) < length * length
    assert max(sizes) >= TILE_QUERIES * length  # the tiles were seen


@pytest.mark.parametrize("name", DROPPING)
def test_a_device_with_a_dropout_of_its_own_uses_that(name, monkeypatch):
    """The path of GPUs, forced on a CPU: torch's attention is given the probability, for each map once.

    A learner that needs the weights themselves takes them from the explicit kernel, there too.
    """
    given = []
    original = torch.nn.functional.scaled_dot_product_attention

    def noted(*tensors, dropout_p=0.0, **options):
        given.append(dropout_p)
        return original(*tensors, dropout_p=dropout_p, **options)

    for module in (dropping, kernels):
        monkeypatch.setattr(module, "has_own_dropout", lambda device: True)
    monkeypatch.setattr(kernels.functional, "scaled_dot_product_attention", noted)
    layer, x = build(name, torch.float32, dropout=0.5), randn(2, 9, D_MODEL, dtype=torch.float32)
    y = layer(x, is_causal=True)
    y.sum().backward()
    assert set(given) == (set() if all(learner.needs_maps for learner in layer.rounds) else {0.5})
    assert not torch.equal(layer(x, is_causal=True), y)
    assert not torch.equal(Dropout(0.5)(x), x)


def test_recomputed_blocks_draw_the_masks_of_their_forward_pass():
    layer, x = build("boosted", dropout=0.3), randn(2, 70, D_MODEL).requires_grad_()
    found = []
    for run in (layer, lambda *a, **k: checkpoint(layer, *a, use_reentrant=False, **k)):
        torch.manual_seed(4)
        y = run(x, is_causal=True)
        found.append((y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("name", ["boosted", "twicing"])
def test_compiled_layers_drop(name):
    """Compiled code draws its keys from another stream; row by row, and as often."""
    layer, x = build(name, torch.float32, dropout=0.5), randn(4, 9, D_MODEL, dtype=torch.float32)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.manual_seed(0)
    first = compiled(x, is_causal=True)
    first.sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    torch.manual_seed(0)
    with rows_from(1):
        torch.testing.assert_close(compiled(x[1:], is_causal=True), first[1:])
    assert not torch.equal(compiled(x, is_causal=True), first)


def test_transforms_draw_torchs_own_masks():
    layer, x = build("boosted", dropout=0.5), randn(3, 2, 5, D_MODEL)
    y = torch.func.vmap(lambda x: layer(x, is_causal=True), randomness="different")(x)
    assert y.shape == x.shape


def test_evaluation_drops_nothing():
    x = torch.randn(2, 3)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_masks_can_be_placed_after_a_first_import_without_storage():
    """A configuration that asks a learner of its own imports this package's layers on the meta device."""
    program = """
from boosted_attention.model.config import LanguageModelConfig
LanguageModelConfig(attention_options={"learner": "gated"})
from boosted_attention.attention.dropout import rows_from
with rows_from(3):
    print("placed")
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.stdout == "placed\n", done.stderr
