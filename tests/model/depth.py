"""A decoder of standard attention as loops over its state dict: what options of a model's depth are compared with."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from boosted_attention import LanguageModel, LanguageModelConfig
from boosted_attention.attention import reference
from tests.model.test_costs import SOLVES

SMALL = {"vocab_size": 31, "d_model": 16, "n_layers": 2, "n_heads": 4, "max_len": 12}


def small(attention: str = "standard", **options) -> LanguageModel:
    """A small model in float64 whose weights are all away from their start, as a trained model's are."""
    model = LanguageModelConfig(**{**SMALL, "attention": attention, **options}).build(seed=1).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model


def tokens(rows: int = 2, length: int = 12) -> Tensor:
    return torch.randint(SMALL["vocab_size"], (rows, length))


class Weights(dict):
    """A state dict with the formulas of a decoder's parts, for one sequence (T, D)."""

    def linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self[f"{name}.weight"].T + self.get(f"{name}.bias", 0.0)

    def norm(self, name: str, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return (
            centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * self[f"{name}.weight"]
            + self[f"{name}.bias"]
        )

    def embedded(self, ids: Tensor) -> Tensor:
        return self["embed.weight"][ids] + self["positions.weight"][: len(ids)]

    def logits(self, h: Tensor) -> Tensor:
        return self.norm("norm", h) @ self["embed.weight"].T

    def projected(self, i: int, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        """Queries, keys and values of layer i, each (T, D), from an input each."""
        at, d = f"layers.{i}.attention.rounds.0.qkv", q.shape[1]
        return [self.linear(at, x)[:, j * d : (j + 1) * d] for j, x in enumerate((q, k, v))]

    def attention(self, i: int, q: Tensor, k: Tensor, v: Tensor, n_heads: int = 4) -> Tensor:
        """What layer i adds, given projected queries, keys and values."""
        return self.linear(f"layers.{i}.attention.out_proj", self.heads(q, k, v, n_heads))

    def heads(self, q: Tensor, k: Tensor, v: Tensor, n_heads: int = 4) -> Tensor:
        """Outputs of all heads side by side."""
        length, dh = len(q), q.shape[1] // n_heads
        visible, none = torch.ones(length, length).tril().bool(), torch.zeros(length, length, dtype=q.dtype)
        heads = []
        for h in range(n_heads):
            part = slice(h * dh, (h + 1) * dh)
            a = reference.attention_map(q[:, part], k[:, part], visible, none, 1 / math.sqrt(dh))
            heads.append(a @ v[:, part])
        return torch.cat(heads, dim=1)

    def ffn(self, i: int, x: Tensor) -> Tensor:
        return self.linear(f"layers.{i}.ffn.down", functional.gelu(self.linear(f"layers.{i}.ffn.up", x)))

    def block(self, i: int, h: Tensor) -> Tensor:
        x = self.norm(f"layers.{i}.attention_norm", h)
        h = h + self.attention(i, *self.projected(i, x, x, x))
        return h + self.ffn(i, self.norm(f"layers.{i}.ffn_norm", h))


def assert_like_oracle(model: LanguageModel, oracle, ids: Tensor) -> None:
    """Compare logits and every gradient with ``oracle(weights, one sequence) -> logits``, in float64."""
    parameters = dict(model.named_parameters())
    upstream = torch.randn(*ids.shape, model.config.vocab_size, dtype=torch.float64)
    ours = model(ids)
    theirs = torch.stack([oracle(Weights(parameters), row) for row in ids])
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    for name, a, b in zip(
        parameters,
        *(torch.autograd.grad(y, list(parameters.values()), upstream, materialize_grads=True) for y in (ours, theirs)),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")


@torch.no_grad()
def assert_causal_and_cached(model: LanguageModel) -> None:
    """The past does not see the future bit for bit, and decoding through a cache in pieces is the full pass."""
    from boosted_attention import KVCache

    ids = tokens()
    full = model(ids)
    for t in (1, 7):
        changed = ids.clone()
        changed[:, t:] = (changed[:, t:] + 1) % model.config.vocab_size
        assert torch.equal(model(changed)[:, :t], full[:, :t])
    for max_len in (None, 12):
        cache = KVCache(max_len=max_len)
        pieces = [model(piece, cache=cache) for piece in ids.split([5, 1, 1, 4, 1], dim=1)]
        torch.testing.assert_close(torch.cat(pieces, dim=1), full, rtol=0, atol=1e-10)
    prompt = ids[:, :4]
    assert torch.equal(model.generate(prompt, 14), model.generate(prompt, 14, use_cache=False))


def counted_flops(config: LanguageModelConfig) -> float:
    """Forward FLOPs per token as torch's counter sees them, with the explicit kernel."""
    from torch.utils.flop_counter import FlopCounterMode

    model = config.on_meta()
    for block in model.layers:
        block.attention.kernel = "explicit"
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=SOLVES) as counter:
        model(torch.zeros(3, config.max_len, dtype=torch.long, device="meta"))
    return counter.get_total_flops() / (3 * config.max_len)
