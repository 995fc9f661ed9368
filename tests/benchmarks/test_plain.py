"""The plain rival computes what our model computes: else a comparison of times would compare different work."""

import pytest
import torch
from torch import nn

from benchmarks.ours import Size, our_step, random_batch
from benchmarks.peers import gpt2, x_transformers
from benchmarks.plain import ROUNDS, PlainModel, plain_step
from boosted_attention.model.language_model import LanguageModel
from tests.conftest import disturbed

SIZE = Size(d_model=24, n_layers=2, n_heads=3, vocab_size=53)
LENGTH = 17


def paired(ours: LanguageModel, plain: PlainModel, part):
    """Yield what ``part`` takes of each matrix or vector of ours, with the plain model's parameter for it."""
    theirs = dict(plain.named_parameters())
    for name, p in ours.named_parameters():
        name = name.replace(".ffn.up", ".up").replace(".ffn.down", ".down").replace(".proj.", ".")
        if ".qkv." in name:
            for letter, rows in zip("qkv", part(p).chunk(3), strict=True):
                yield rows, theirs.pop(name.replace(".qkv.", f".{letter}."))
        else:
            yield part(p), theirs.pop(name)
    assert not theirs


def twins(attention: str) -> tuple[LanguageModel, PlainModel]:
    """Our model and the plain one with the same weights, in float64."""
    config = SIZE.config(attention, LENGTH, 0.0)
    ours, plain = disturbed(config.build().double()), PlainModel(config).double()
    with torch.no_grad():
        for value, p in paired(ours, plain, lambda p: p):
            p.copy_(value)
    return ours, plain


@pytest.mark.parametrize("attention", ROUNDS)
def test_the_plain_model_equals_ours_in_output_and_every_gradient(attention):
    ours, plain = twins(attention)
    ids, targets = random_batch(SIZE.vocab_size, 3, LENGTH)
    torch.testing.assert_close(plain(ids), ours(ids), rtol=1e-10, atol=1e-12)
    losses = ours.loss(ids, targets), plain.loss(ids, targets)
    torch.testing.assert_close(*losses, rtol=1e-10, atol=0)
    for loss in losses:
        loss.backward()
    for gradient, p in paired(ours, plain, lambda p: p.grad):
        assert gradient.abs().max() > 0
        torch.testing.assert_close(p.grad, gradient, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("step", [our_step, plain_step])
def test_a_step_learns_and_drops_its_gradients(step):
    models = []
    config = SIZE.config("boosted", LENGTH, 0.1)
    original = nn.Module.train
    ids, targets = random_batch(SIZE.vocab_size, 2, LENGTH)

    def noted(module, mode=True):
        if type(module).__name__ in ("LanguageModel", "PlainModel"):
            models.append(module)
        return original(module, mode)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.Module, "train", noted)
        made = step(config)
    model = models[0]

    @torch.no_grad()
    def loss() -> float:
        return float(model.eval().loss(ids, targets))

    before = loss()
    model.train()
    for _ in range(20):
        made(ids, targets)
    assert all(p.grad is None for p in model.parameters())
    assert loss() < before - 0.2


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_gpt2_has_as_many_parameters_as_our_standard_model(kernel):
    config = SIZE.config("standard", LENGTH, 0.1)
    peer = gpt2(config, kernel)
    assert sum(p.numel() for p in peer.parameters()) == config.num_params()
    assert peer.config._attn_implementation == kernel


def test_x_transformers_has_about_as_many_parameters_as_our_standard_model():
    pytest.importorskip("x_transformers", reason="it is in the extra bench")
    config = Size().config("standard", LENGTH, 0.1)
    assert sum(p.numel() for p in x_transformers(config).parameters()) == pytest.approx(config.num_params(), rel=0.01)
