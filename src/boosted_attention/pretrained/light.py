"""Light corrections: rounds that read the model's own projections instead of copying them.

    rank=r                q = W_q z + B_q A_q z,  k likewise,  v = B_v A_v z,  c = W_o y + B_o A_o y
    rank=r, kv="shared"   q = W_q z + B_q A_q z,  k and v round 0's,           c = B_o A_o y
    kv="shared"           q = W'_q z,             k and v round 0's,           c = W'_o y,   W'_q = W_q, W'_o = 0

z is the residual, W the model's own matrix, y the correction's heads side by side; B = 0 at the start. What must be
zero at the start is low-rank alone; all else is the model's own plus a low-rank change. With shared keys and values a
correction has no cache. With a rank nothing of the base is copied, so that quantised bases can be corrected.

References: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, https://arxiv.org/abs/2106.09685;
for the factor on B A, Kalajdzievski, "A Rank Stabilization Scaling Factor for Fine-Tuning with LoRA", 2023,
https://arxiv.org/abs/2312.03732.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from boosted_attention.pretrained.families import OURS, find_projections, matrix_of, widths
from boosted_attention.pretrained.layer import original_class

RANK_OF_FACTOR_ONE = 32  # so that the factor is 2 at rank 8, as is usual for LoRA


def low_rank_factor(rank: int) -> float:
    """Return the factor on B A: it falls with the root of the rank, so that one learning rate serves all ranks."""
    return math.sqrt(RANK_OF_FACTOR_ONE / rank)


class Leader:
    """A module that others read without owning it.

    A copy of a whole model reads the copy of the module; a copy of the reader alone reads the same module.

    Args:
        module: the module.
    """

    def __init__(self, module: nn.Module):
        self.module = module

    def __deepcopy__(self, memo: dict[int, Any]) -> Leader:
        return Leader(memo.get(id(self.module), self.module))


class LowRank(nn.Module):
    """z -> factor B A z. A is drawn; B is zero at the start unless it is drawn too.

    Args:
        d_in: width of z.
        d_out: width of what it gives.
        rank: rank of B A.
        adds: whether what the model's own projection gives is added.
        drawn: whether B is drawn, where something behind it is zero instead.
    """

    def __init__(self, d_in: int, d_out: int, rank: int, *, adds: bool = False, drawn: bool = False):
        super().__init__()
        self.down = nn.Linear(d_in, rank, bias=False)  # A
        self.up = nn.Linear(rank, d_out, bias=False)  # B
        self.factor, self.adds = low_rank_factor(rank), adds
        if not drawn:
            nn.init.zeros_(self.up.weight)

    def forward(self, z: Tensor, onto: Tensor | None = None) -> Tensor:
        """Return factor B A z, added to ``onto`` where that is given."""
        dtype, own = z.dtype, self.down.weight.dtype
        if dtype != own:  # the base computes in another
            z, onto = z.to(own), None if onto is None else onto.to(own)
        h = self.down(z)
        made = self.up(h * self.factor) if onto is None else torch.add(onto, self.up(h), alpha=self.factor)
        return made if dtype == own else made.to(dtype)


class Own(nn.Module):
    """z -> W' z + b': a projection of the correction's own.

    Args:
        weight: where W' starts (d_out, d_in).
        bias: where b' starts (d_out,); None without one.
    """

    adds = False

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())

    def forward(self, z: Tensor) -> Tensor:
        return functional.linear(z, self.weight, self.bias)


class Unread(nn.Module):
    """z -> zeros, in the place of keys and values that are not read because round 0's are.

    Args:
        d_out: width of what it gives.
    """

    adds = False

    def __init__(self, d_out: int):
        super().__init__()
        self.d_out = d_out

    def forward(self, z: Tensor) -> Tensor:
        return z.new_zeros(*z.shape[:-1], self.d_out)


class Projection(nn.Module):
    """A correction's projection in the place of one of the model's own, which it may read.

    Args:
        leader: the attention module that has the model's own.
        name: its attribute there.
        parts: what makes queries, keys, values or outputs: ``LowRank``, ``Own`` or ``Unread``.
        rows: where each part stands in what the model's own projection gives; None where there is one part.
    """

    def __init__(self, leader: nn.Module, name: str, parts: Mapping[str, nn.Module], rows: Mapping[str, Tensor] | None):
        super().__init__()
        self.parts = nn.ModuleDict(parts)
        self.reads = any(part.adds for part in parts.values())
        self.name, self.is_output = name, "out" in parts
        self._leader = Leader(leader)
        self.rows = None if rows is None else [rows[part] for part in parts]
        self.order = None if self.rows is None else torch.cat(self.rows).argsort()

    def forward(self, z: Tensor) -> Tensor:
        read = self.read(z) if self.reads else None
        if self.rows is None:
            (part,) = self.parts.values()
            return part(z) if read is None else part(z, read)
        made = []
        for part, rows in zip(self.parts.values(), self.rows, strict=True):
            made.append(part(z) if read is None or not part.adds else part(z, read[..., rows.to(z.device)]))
        assert self.order is not None
        return torch.cat(made, dim=-1)[..., self.order.to(z.device)]

    @property
    def linear(self) -> Any:
        """The model's own projection."""
        return getattr(self._leader.module, self.name)

    def read(self, z: Tensor) -> Tensor:
        """Return what the model's own projection gives; of an output projection without its bias, which round 0 has."""
        linear = self.linear
        bias = getattr(linear, "bias", None) if self.is_output else None
        return linear(z) if bias is None else linear(z) - bias


class HeadGate(nn.Module):
    """y -> out(g * y) with g = sigmoid(W_g y + b), one number per head, one half at the start.

    Reference: Qiu et al., "Gated Attention for Large Language Models", 2025, https://arxiv.org/abs/2505.06708.

    Args:
        width: width of y, the heads side by side.
        n_heads: number of heads.
        out: the output projection.
    """

    def __init__(self, width: int, n_heads: int, out: nn.Module):
        super().__init__()
        self.d_head, self.out = width // n_heads, out
        self.gate = nn.Sequential(nn.Linear(width, n_heads), nn.Sigmoid())
        for p in self.gate.parameters():
            nn.init.zeros_(p)

    def forward(self, y: Tensor) -> Tensor:
        weight: Any = self.gate[0].weight
        g = self.gate(y.to(weight.dtype)).to(y.dtype)  # (B, T, H)
        return self.out(y * g.repeat_interleave(self.d_head, dim=-1))


class Follower(nn.Module):
    """A module with the code and the parts of another, its leader, but for parts of its own.

    What it does not have itself is looked up in the leader each time, so that it follows when the leader is moved, cast
    or adapted. Its parameters are those of its own parts, whose names begin with ``own_``: adapters that are asked for
    by a projection's name find the leader's alone.
    """

    shares_kv: bool

    @property
    def head_gate(self) -> nn.Module | None:
        """The gate that it has inside, which gives one number per head; None without one."""
        return next((m.gate for m in self.modules() if isinstance(m, HeadGate)), None)

    def __getattr__(self, name: str) -> Any:
        own = vars(self)["_modules"]
        if f"own_{name}" in own:
            return own[f"own_{name}"]
        return own[name] if name in own else getattr(vars(self)["_leader"].module, name)


@cache
def follower_class(base: type[nn.Module]) -> Any:
    """Make the class of followers of modules of a class."""
    kind = type(f"Light{base.__name__}", (Follower, base), {"__module__": __name__})
    globals()[kind.__name__] = kind  # for pickle
    return kind


def follow(leader: nn.Module, own: Mapping[str, nn.Module]) -> Follower:
    """Make a follower.

    Args:
        leader: an attention module, corrected or not.
        own: parts that take the place of the leader's parts of these names.
    """
    kind = follower_class(original_class(leader))
    made = kind.__new__(kind)
    nn.Module.__init__(made)
    plain = {name: value for name, value in vars(leader).items() if not name.startswith("_") and name not in OURS}
    vars(made).update(plain, _leader=Leader(leader))
    for name, part in own.items():
        made.add_module(f"own_{name}", part)
    return made


def without_linear(module: nn.Module) -> None:
    """Put ``Own`` in the place of every nn.Linear inside a module.

    Quantisers and adapters that look for nn.Linear find those of the base alone.
    """
    for name, part in module.named_children():
        if type(part) is nn.Linear:
            setattr(module, name, Own(part.weight, part.bias))
        else:
            without_linear(part)


def low_rank_limit(attention: nn.Module, *, shared: bool) -> int:
    """Return the smallest width among what a light correction of an attention module changes by a low rank.

    Args:
        attention: the module.
        shared: whether keys and values are round 0's, of which nothing is changed.
    """
    found = find_projections(attention)
    assert found is not None
    limits = [*widths(found.output)]
    for name, rows in found.inputs.items():
        d_in, d_out = widths(getattr(attention, name))
        changed = [where for kind, where in rows.items() if kind == "q" or not shared]
        limits += [min(d_in, d_out if where is None else len(where)) for where in changed]
    return min(limits)


def light_correction(
    attention: nn.Module, *, rank: int | None, shared: bool, n_heads: int, gate: str = "scalar"
) -> Follower:
    """Make a light correction of an attention module, on the current device and in the default dtype.

    Args:
        attention: the module that is corrected.
        rank: rank of changes to the model's own projections; None for projections of the correction's own.
        shared: whether keys and values are round 0's.
        n_heads: heads of the module.
        gate: kind of its gate. "tanh" is zero at the start, so that no projection need be; "headwise" is part of the
            correction.
    """
    found = find_projections(attention)
    assert found is not None
    assert found.inputs
    silent = gate == "tanh"
    own: dict[str, nn.Module] = {}
    for name, rows in found.inputs.items():
        linear = getattr(attention, name)
        d_in, d_out = widths(linear)
        if shared and "q" not in rows:
            own[name] = Unread(d_out)
            continue
        parts: dict[str, nn.Module] = {}
        for kind, where in rows.items():
            width = d_out if where is None else len(where)
            if shared and kind != "q":
                parts[kind] = Unread(width)
            elif rank is None:
                parts[kind] = Own(*matrix_of(linear, where))
            elif kind == "v":
                parts[kind] = LowRank(d_in, width, rank, drawn=silent)
            else:
                parts[kind] = LowRank(d_in, width, rank, adds=True)
        fused = None if len(rows) == 1 else {kind: where for kind, where in rows.items() if where is not None}
        own[name] = Projection(attention, name, parts, fused)
    d_in, d_out = widths(found.output)
    last: nn.Module
    if rank is None:
        weight = matrix_of(found.output, None)[0]
        last = Own(weight if silent else torch.zeros_like(weight))
    else:
        last = LowRank(d_in, d_out, rank, adds=not shared, drawn=silent and shared)
    out: nn.Module = Projection(attention, found.output_name, {"out": last}, None)
    own[found.output_name] = HeadGate(d_in, n_heads, out) if gate == "headwise" else out
    made = follow(attention, own)
    made.shares_kv = shared
    without_linear(made)
    return made
