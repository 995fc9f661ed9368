"""What holds before a boosted model is given back: nothing has changed and every round runs, or all is put back.

A few tokens are read with a cache, then one more from the cache, before and after rounds are added. Logits must be
equal, bit for bit; every round must run once per pass; a correction with keys and values of its own must have stored
them. A model on the meta device has no values to compare and is only looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from boosted_attention.pretrained.families import cache_index_name
from boosted_attention.pretrained.layer import cache_index, corrected_layers, shares_kv
from boosted_attention.pretrained.places import find_attention, n_cache_layers
from boosted_attention.validation import InputError, require

N_READ = 4  # tokens that are read before the one that is decoded
TABLES = ("_parameters", "_buffers", "_modules")


class State:
    """Everything that boosting or a forward pass may change in a model, short of the values of its parameters.

    Args:
        model: the model, as it is to be put back.
    """

    def __init__(self, model: PreTrainedModel):
        self.modules = [
            (m, type(m), {**vars(m), **{table: dict(vars(m)[table]) for table in TABLES}}) for m in model.modules()
        ]
        self.buffers = [(b, b.clone()) for b in model.buffers()]
        self.trained = [(p, p.requires_grad) for p in model.parameters()]
        self.config, self.settings = model.config, dict(vars(model.config))
        self.kind = type(model.config)

    @torch.no_grad()
    def restore(self) -> None:
        """Put the model back."""
        for module, kind, values in self.modules:
            tables = {table: vars(module)[table] for table in TABLES}
            for table, held in tables.items():
                held.clear()
                held.update(values[table])
            vars(module).clear()
            vars(module).update({**values, **tables})
            module.__class__ = kind
        for b, values in self.buffers:
            if not b.is_meta and not torch.equal(b, values):
                b.copy_(values)
        for p, trained in self.trained:
            p.requires_grad_(trained)
        vars(self.config).clear()
        vars(self.config).update(self.settings)
        self.config.__class__ = self.kind


@contextmanager
def guarded(model: PreTrainedModel) -> Iterator[None]:
    """Hold that rounds added inside change nothing and run as they must; otherwise put the model back.

    Args:
        model: the model that is boosted inside.

    Raises:
        InputError: one line that says why the model cannot be boosted; the model is as it was.
    """
    name = type(model).__name__
    require_reachable(model, name)
    state = State(model)
    try:
        before = read(model)
    except Exception as error:
        raise InputError(f"{name} cannot be boosted: it fails to read a few tokens itself ({first(error)})") from error
    require_room(model, before, name)
    try:
        yield
        require_unchanged(model, before, name)
    except Exception as error:
        state.restore()
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name} cannot be boosted: with corrections it fails ({first(error)})") from error
    except BaseException:
        state.restore()
        raise


def first(error: Exception) -> str:
    """Return the kind of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def require_reachable(model: PreTrainedModel, name: str) -> None:
    """Raise InputError unless calls of the attention modules reach their classes, and each has a cache layer."""
    own = n_cache_layers(model)
    indices = []
    for place in find_attention(model):
        attention = getattr(*place)
        kind = type(attention).__name__
        hooked = any(hasattr(m, "_hf_hook") for m in attention.modules())
        require(
            not hooked,
            f"{name} cannot be boosted: hooks of accelerate move or offload its weights and would bypass corrections; "
            "load it whole, on one device",
        )
        require(
            "forward" not in vars(attention),
            f"{name} cannot be boosted: the forward pass of its {kind} was replaced, which would bypass corrections",
        )
        require(
            cache_index_name(attention) is not None,
            f"{name} cannot be boosted: its {kind} does not know the number of its layer in the cache",
        )
        indices.append(cache_index(attention))
    require(
        all(isinstance(i, int) for i in indices)
        and indices == sorted(set(indices))
        and set(indices) <= set(range(own)),
        f"{name} cannot be boosted: its attention modules are numbered {indices}, not in order below the {own} layers",
    )
    partly = {p.is_meta for p in model.parameters()}
    require(
        len(partly) == 1, f"{name} cannot be boosted: some of its weights are not loaded (meta device or offloaded)"
    )


def require_room(model: PreTrainedModel, before: Reading | None, name: str) -> None:
    """Raise InputError if a model's cache has layers where those of corrections will be."""
    held = [] if before is None else getattr(before.cache, "layers", [])
    corrections = [m for attention in corrected_layers(model).values() for m in attention.corrections]
    own = n_cache_layers(model) + sum(not shares_kv(m) for m in corrections)
    require(
        len(held) <= own,
        f"{name} cannot be boosted: its cache has {len(held)} layers, where its decoder layers and their corrections "
        f"have {own}",
    )


class Reading:
    """What a model made of a few tokens.

    Args:
        logits: of the tokens read at once, and of the one decoded from the cache.
        cache: as it is afterwards; None where the model gave none.
    """

    def __init__(self, logits: list[Tensor], cache: Any):
        self.logits, self.cache = logits, cache


@torch.no_grad()
def read(model: PreTrainedModel) -> Reading | None:
    """Read a few tokens with a cache and decode one more, and leave the model, its mode and random states alone."""
    weight = next(model.parameters())
    if weight.is_meta:
        return None
    state = State(model)
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type != "cpu"})
    kind = weight.device.type if devices else "cuda"
    ids = few_tokens(model).to(model.get_input_embeddings().weight.device)  # type: ignore[arg-type]
    try:
        with torch.random.fork_rng(devices=devices, device_type=kind):
            for module in model.modules():
                module.training = False
            for p in model.parameters():
                p.requires_grad_(False)  # torch has other kernels for weights that are trained, which round otherwise
            out: Any = model(ids[:, :N_READ], use_cache=True)
            cache, logits = getattr(out, "past_key_values", None), [out.logits]
            if cache is not None:
                logits.append(model(ids[:, N_READ:], past_key_values=cache, use_cache=True).logits)
            return Reading(logits, cache)
    finally:
        state.restore()


def few_tokens(model: PreTrainedModel) -> Tensor:
    """Return ids (1, N_READ + 1) without a meaning of their own."""
    config: Any = model.config.get_text_config()
    special = [getattr(config, f"{kind}_token_id", None) for kind in ("pad", "bos", "eos")]
    special = [i for held in special for i in (held if isinstance(held, list | tuple) else [held])]
    plain = [i for i in range(min(config.vocab_size, 100)) if i not in special][: N_READ + 1]
    return torch.tensor([(plain * (N_READ + 1))[: N_READ + 1]])


def require_unchanged(model: PreTrainedModel, before: Reading | None, name: str) -> None:
    """Raise InputError unless a boosted model reads as it did before, with every round run once per pass."""
    if before is None:
        return
    runs: Counter[tuple[str, int]] = Counter()
    corrected = corrected_layers(model)
    hooks = [
        output.register_forward_hook(lambda *_, key=(where, m): runs.update([key]))
        for where, attention in corrected.items()
        for m, output in enumerate(attention.outputs)
        if m not in attention.disabled
    ]
    expected = [(where, m) for where, a in corrected.items() for m in range(a.n_rounds) if m not in a.disabled]
    try:
        after = read(model)
    finally:
        for hook in hooks:
            hook.remove()
    assert after is not None
    passes = len(after.logits)
    wrong = next((key for key in expected if runs[key] != passes), None)
    require(
        wrong is None,
        f"{name} cannot be boosted: {'' if wrong is None else wrong[0]} runs "
        f"{0 if wrong is None else runs[wrong] / passes:g} times per pass, where corrections need exactly one",
    )
    require(
        len(before.logits) == passes and all(map(same, before.logits, after.logits)),
        f"{name} cannot be boosted: corrections that give zero change its logits, so that they do not add to its "
        "attention alone",
    )
    if isinstance(after.cache, Cache):
        lost = next((where for where, a in corrected.items() if not keeps(a, after.cache)), None)
        require(lost is None, f"{name} cannot be boosted: corrections of {lost} do not find their place in its cache")


def keeps(attention: Any, cache: Cache) -> bool:
    """Say whether a cache holds as many tokens of the corrections as of the attention module they correct."""
    own = [m for i, m in enumerate(attention.corrections, 1) if not shares_kv(m) and i not in attention.disabled]
    return all(length(cache, cache_index(m)) == N_READ + 1 for m in own)


def length(cache: Cache, index: int) -> int:
    """Return how many tokens a layer of a cache has seen; 0 where there is no such layer."""
    layers: list[Any] = cache.layers
    return int(layers[index].get_seq_length()) if index < len(layers) else 0


def same(a: Tensor, b: Tensor) -> bool:
    """Say whether two tensors are equal, bit for bit; what is not a number counts as equal to itself."""
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())
