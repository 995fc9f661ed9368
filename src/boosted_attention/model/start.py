"""The initial weights of a language model: each tensor is a function of the seed, its name and its shape.

Models that share a tensor by name and shape therefore share its initial value bit for bit, whatever else they are made
of, so that a comparison of two models is not one of two draws. Query, key and value rows are tensors of their own,
``rounds.0.q``, ``.k`` and ``.v``, whether one matrix packs them or not; the one output projection of head space is
drawn as that of round 0, ``rounds.0.out_proj``, which it is in output space; and a linear layer that starts as a copy
of round 0's (``starts_as_first``) is drawn under that name. Values are drawn on the CPU in float32: neither device nor
dtype decides them.

    matrices ~ N(0, 0.02^2), biases 0        into the stream: / sqrt(2 n_layers) (init=scaled), or 0 (init=zero)

Norms, gates of one number, learned scales and maps that refine attention from zero start at the constants their modules
give them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from boosted_attention.attention.layer import AttentionLayer
from boosted_attention.attention.learner import Learner
from boosted_attention.attention.softmax import SoftmaxLearner
from boosted_attention.attention.zero_linear import ZeroLinear
from boosted_attention.compat import has_values
from boosted_attention.model.blocks import FeedForward
from boosted_attention.model.config import LanguageModelConfig

INIT_STD = 0.02


class Drawn(NamedTuple):
    """A tensor that starts at random: the name it is drawn under, its standard deviation, and where it is held."""

    name: str
    std: float
    tensor: Tensor


def fresh_seed() -> int:
    """Draw a seed from torch's random state; 0 where tensors have no values that a seed could decide."""
    number = torch.empty((), dtype=torch.int64)
    return int(number.random_()) if has_values(number) else 0


@contextmanager
def construction(seed: int) -> Iterator[None]:
    """Leave torch's random state as it was: what modules draw when they are made is drawn again.

    Weights that a learner outside of this package draws without naming them in ``random_start`` keep that first draw,
    which the seed decides too, but not name by name.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(tensor_seed(seed, "", ()))
        yield


@torch.no_grad()
def draw_weights(model: nn.Module, config: LanguageModelConfig, seed: int) -> None:
    """Give a model its initial weights, in place; a model without values stays as it is.

    Args:
        model: the model, built from ``config``.
        config: what it is made of; ``init`` decides how the projections into the stream start.
        seed: the seed.
    """
    if not all(has_values(p) for p in model.parameters()):
        return
    for name, std, tensor in random_tensors(model, config):
        if std:
            tensor.copy_(std * drawn(seed, name, tensor.shape))
        else:
            tensor.zero_()
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.bias is not None:
            module.bias.zero_()
        if isinstance(module, AttentionLayer):
            module.silence_corrections()


def drawn(seed: int, name: str, shape: torch.Size) -> Tensor:
    """Return the standard normal numbers of a tensor, float32 on the CPU."""
    generator = torch.Generator("cpu").manual_seed(tensor_seed(seed, name, tuple(shape)))
    return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")


def tensor_seed(seed: int, name: str, shape: tuple[int, ...]) -> int:
    """Return the seed of one tensor's generator."""
    digest = hashlib.sha256(f"{seed} {name} {shape}".encode()).digest()
    return int.from_bytes(digest[:4], "big")  # a generator of torch on the CPU uses 32 bits of its seed


def random_tensors(model: nn.Module, config: LanguageModelConfig) -> Iterator[Drawn]:
    """Yield every tensor of the model that starts at random; the rows of a packed projection one by one."""
    modules = dict(model.named_modules())
    into_stream = set(projections_into_stream(modules))
    names = {f"{at}.out_proj": f"{at}.rounds.0.out_proj" for at, m in modules.items() if isinstance(m, AttentionLayer)}
    for at, module in modules.items():
        if isinstance(module, Learner):
            first = at.rpartition(".")[0] + ".0"  # round 0 of the same layer
            names |= {f"{at}.{own}": f"{first}.{own}" for own in module.starts_as_first}
    packed = {id(m.qkv) for m in modules.values() if isinstance(m, SoftmaxLearner)}
    for at, module in modules.items():
        if isinstance(module, Learner):
            if isinstance(module, SoftmaxLearner) and module.qkv is not None:
                yield from (Drawn(f"{at}.{part}.weight", INIT_STD, module.rows(part)[0]) for part in module.parts)
            yield from (Drawn(f"{at}.{own}", std, getattr(module, own)) for own, std in module.random_start.items())
        elif isinstance(module, nn.Linear | nn.Embedding) and id(module) not in packed:
            std = std_into_stream(config) if at in into_stream else INIT_STD
            std = 0.0 if isinstance(module, ZeroLinear) else std
            yield Drawn(f"{names.get(at, at)}.weight", std, module.weight)


def std_into_stream(config: LanguageModelConfig) -> float:
    """Return the standard deviation of the projections into the stream."""
    return {"normal": INIT_STD, "scaled": INIT_STD / math.sqrt(2 * config.n_layers), "zero": 0.0}[config.init]


def projections_into_stream(modules: dict[str, nn.Module]) -> Iterator[str]:
    """Yield the names of the linear layers whose output is added to the stream."""
    for at, module in modules.items():
        if isinstance(module, FeedForward):
            yield f"{at}.down"
        elif isinstance(module, AttentionLayer | Learner) and module.out_proj is not None:
            yield f"{at}.out_proj"
