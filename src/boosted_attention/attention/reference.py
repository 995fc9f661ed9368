"""The oracle: every formula as loops and einsum, to be read beside the papers. Slow on purpose; exact in float64.

Nothing here uses the fast code: weights come by name from a state dict, heads are looped over, the attention matrix is
built from its definition. ``layer`` is Algorithm 1; the other functions are its base learners, by name in ``LEARNERS``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]


# --- one attention map -----------------------------------------------------------------------------------------------


def attention_map(q: Tensor, k: Tensor, visible: Tensor, bias: Tensor, scale: float) -> Tensor:
    """Return A_ts = exp(scale q_t.k_s + b_ts) / sum over visible s, (T, S); a row that sees nothing is zero."""
    scores = torch.einsum("td,sd->ts", q, k) * scale + bias
    scores = torch.where(visible, scores, torch.zeros_like(scores))
    top = torch.where(visible, scores, -torch.inf).amax(dim=1, keepdim=True).clamp_min(torch.finfo(q.dtype).min)
    numerators = torch.where(visible, torch.exp(scores - top.detach()), torch.zeros_like(scores))
    total = numerators.sum(dim=1, keepdim=True)
    return numerators / torch.where(total == 0, torch.ones_like(total), total)


def visibility(mask: Tensor | None, is_causal: bool, shape: tuple[int, int, int, int], like: Tensor):
    """Return who sees whom, and the additive part: two dense (B, H, T, S) tensors from SDPA's mask convention."""
    n_queries, n_keys = shape[2:]
    visible = torch.ones(shape, dtype=torch.bool)
    bias = torch.zeros(shape, dtype=like.dtype)
    if mask is not None and mask.dtype == torch.bool:
        visible = mask.expand(shape).clone()
    elif mask is not None:
        visible = (mask > -torch.inf).expand(shape).clone()
        bias = torch.where(visible, mask.to(like.dtype), torch.zeros((), dtype=like.dtype))
    if is_causal:
        for t in range(n_queries):
            visible[:, :, t, t + 1 + n_keys - n_queries :] = False
    return visible, bias


def rotary(t: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Turn the plane (i, i + dh/2) of row n by positions_n * theta^(-2i/dh): (S, dh) -> (S, dh)."""
    half = t.shape[1] // 2
    turned = []
    for i in range(half):
        angle = positions.to(t.dtype) * theta ** (-2 * i / t.shape[1])
        turned.append(t[:, i] * angle.cos() - t[:, i + half] * angle.sin())
    for i in range(half):
        angle = positions.to(t.dtype) * theta ** (-2 * i / t.shape[1])
        turned.append(t[:, i + half] * angle.cos() + t[:, i] * angle.sin())
    return torch.stack(turned, dim=1)


# --- one round of one batch row --------------------------------------------------------------------------------------


class Row:
    """One round on one batch row: its input z, its source of keys and values, its weights and what it may see."""

    def __init__(self, options: dict[str, Any], weights: Weights, z: Tensor, key: Tensor, value: Tensor):
        self.o, self.w, self.z = options, weights, z  # z: (T, D)
        self.key, self.value = key, value  # (S, D)
        self.dh: int = options["head_dim"]
        self.visible: Tensor = options["visible"]  # (H, T, S)
        self.bias: Tensor = options["bias"]
        largest = torch.where(self.visible, self.bias, -torch.inf).amax(dim=2, keepdim=True)
        self.near = self.visible & (self.bias >= largest - 100)  # weighs more than e^-100 times the largest
        scale = options["scale"]
        self.beta = weights["log_beta"].exp() if "log_beta" in weights else 1.0
        self.scale: float = 1 / math.sqrt(self.dh) if scale is None else 1.0 if scale == "learned" else scale

    def linear(self, name: str, t: Tensor) -> Tensor:
        """Return W t + b of the named weights."""
        y = torch.einsum("sd,ed->se", t, self.w[f"{name}.weight"])
        return y + self.w[f"{name}.bias"] if f"{name}.bias" in self.w else y

    def projected(self, part: str, t: Tensor, widths: tuple[int, int, int]) -> Tensor:
        """Return W_part t + b_part, from a fused qkv weight (rows q, k, v) or from weights of its own."""
        if "qkv.weight" not in self.w:
            return self.linear(part, t)
        start = sum(widths["qkv".index(part) - n] for n in range(1, "qkv".index(part) + 1))
        return self.linear("qkv", t)[:, start : start + widths["qkv".index(part)]]

    def queries(self, z: Tensor, n: int, n_kv: int) -> list[Tensor]:
        """Return q_1 .. q_n, each (T, dh), of a layer with n query heads and n_kv key heads."""
        q = self.projected("q", z, (n * self.dh, n_kv * self.dh, n_kv * self.dh))
        heads = [self.normed("q_norm", q[:, i * self.dh : (i + 1) * self.dh]) for i in range(n)]
        return [self.placed(head * self.beta) for head in heads]

    def keys(self, n: int, n_kv: int) -> list[Tensor]:
        """Return k_1 .. k_{n_kv}, each (S, dh)."""
        k = self.projected("k", self.key, (n * self.dh, n_kv * self.dh, n_kv * self.dh))
        heads = [self.normed("k_norm", k[:, i * self.dh : (i + 1) * self.dh]) for i in range(n_kv)]
        if "k_convolution.weight" in self.w:
            heads = [head + self.convolved("k_convolution", head, i, first_lag=1) for i, head in enumerate(heads)]
        return [self.placed(head) for head in heads]

    def values(self, n: int, n_kv: int, width: int) -> list[Tensor]:
        """Return the value heads, each (S, width)."""
        v = self.projected("v", self.value, (n * self.dh, n_kv * self.dh, n_kv * self.dh))
        return [v[:, i * width : (i + 1) * width] for i in range(v.shape[1] // width)]

    def normed(self, name: str, t: Tensor) -> Tensor:
        """Return t / sqrt(mean(t^2) + eps) * w, row by row, if the layer has such a norm."""
        if f"{name}.weight" not in self.w:
            return t
        return t / torch.sqrt((t * t).mean(dim=1, keepdim=True) + 1e-6) * self.w[f"{name}.weight"]

    def convolved(self, name: str, z: Tensor, head: int, first_lag: int) -> Tensor:
        """Return sum_tau w_tau * z_{t-tau} over the positions that t sees in some head, tau from ``first_lag`` on."""
        weight = self.w[f"{name}.weight"][:, head, 0]  # (lags, width)
        rows = []
        for t in range(z.shape[0]):
            row = torch.zeros_like(z[t])
            for lag in range(first_lag, first_lag + weight.shape[0]):
                if t >= lag and bool(self.near[:, t, t - lag].any()):
                    row = row + weight[lag - first_lag] * z[t - lag]
            rows.append(row)
        return torch.stack(rows) if rows else z

    def placed(self, t: Tensor) -> Tensor:
        """Turn t to its positions, if the layer has rotary embedding."""
        theta = self.o["rope_theta"]
        return t if theta is None else rotary(t, self.o["positions"], theta)

    def map(self, q: Tensor, k: Tensor, head: int) -> Tensor:
        """Return the attention map of one head, (T, S)."""
        return attention_map(q, k, self.visible[head], self.bias[head], self.scale)


def softmax(row: Row) -> Tensor:
    """Return Attn(z) = A V, head by head, (T, D)."""
    return retrieve(row, row.z)


def retrieve(row: Row, state: Tensor) -> Tensor:
    """Attend with ``state`` as the query to the row's keys and values: one step of retrieval."""
    h, h_kv = row.o["n_heads"], row.o["n_kv_heads"]
    q, k, v = row.queries(state, h, h_kv), row.keys(h, h_kv), row.values(h, h_kv, row.dh)
    return torch.cat([row.map(q[i], k[i * h_kv // h], i) @ v[i * h_kv // h] for i in range(h)], dim=1)


def low_rank(row: Row, rank: int | None = None) -> Tensor:
    """Return E Attn(z) with heads that are 1 / n_heads of E's columns wide."""
    narrow = {**row.o, "head_dim": row.w["expand.weight"].shape[1] // row.o["n_heads"]}
    return row.linear("expand", softmax(Row(narrow, row.w, row.z, row.key, row.value)))


def twicing(row: Row) -> Tensor:
    """Return (2A - A^2) V."""
    h, h_kv = row.o["n_heads"], row.o["n_kv_heads"]
    q, k, v = row.queries(row.z, h, h_kv), row.keys(h, h_kv), row.values(h, h_kv, row.dh)
    heads = []
    for i in range(h):
        a = row.map(q[i], k[i * h_kv // h], i)  # (T, T)
        heads.append((2 * a - a @ a) @ v[i * h_kv // h])
    return torch.cat(heads, dim=1)


def strict_twicing(row: Row) -> Tensor:
    """Return A (V - beta * (A_< V))."""
    return reduced(row, lambda before, beta, v: v - beta * (before @ v))


def delta(row: Row) -> Tensor:
    """Return A U with u_t = v_t - beta_t sum_{s<t} A_<[t, s] u_s, position by position."""

    def substituted(before: Tensor, beta: Tensor, v: Tensor) -> Tensor:
        u = v[:1]
        for t in range(1, len(v)):
            u = torch.cat([u, v[t : t + 1] - beta[t] * (before[t : t + 1, :t] @ u)])
        return u

    return reduced(row, substituted)


def reduced(row: Row, reduce: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    """Return A U, head by head, where U = reduce(A_<, beta, V) and A_< sees strictly earlier positions."""
    h, h_kv = row.o["n_heads"], row.o["n_kv_heads"]
    q, k, v = row.queries(row.z, h, h_kv), row.keys(h, h_kv), row.values(h, h_kv, row.dh)
    beta = torch.sigmoid(row.linear("beta", row.z) - 2)  # (T, H)
    heads = []
    for i in range(h):
        g = i * h_kv // h
        earlier = torch.ones_like(row.visible[i]).tril(-1)
        before = attention_map(q[i], k[g], row.visible[i] & earlier, row.bias[i], row.scale)
        heads.append(row.map(q[i], k[g], i) @ reduce(before, beta[:, i : i + 1], v[g]))
    return torch.cat(heads, dim=1)


def gated(row: Row, headwise: bool = False) -> Tensor:
    """Return A V * sigmoid(z W_theta)."""
    y, g = softmax(row), torch.sigmoid(row.linear("theta", row.z))
    return y * (g.repeat_interleave(row.dh, dim=1) if headwise else g)


def differential(row: Row) -> Tensor:
    """Return RMSNorm((A_1 - lambda A_2) V) (1 - lambda_init), pair by pair."""
    h, h_kv = row.o["n_heads"], row.o["n_kv_heads"]
    pairs, kv_pairs = h // 2, h_kv // 2
    q, k, v = row.queries(row.z, h, h_kv), row.keys(h, h_kv), row.values(h, h_kv, 2 * row.dh)
    start = 0.8 - 0.6 * math.exp(-0.3 * row.o["layer_index"])
    lam = torch.exp(torch.dot(row.w["lambda_q1"], row.w["lambda_k1"]))
    lam = lam - torch.exp(torch.dot(row.w["lambda_q2"], row.w["lambda_k2"])) + start
    heads = []
    for j in range(pairs):
        g = j * kv_pairs // pairs
        y = (row.map(q[2 * j], k[2 * g], 2 * j) - lam * row.map(q[2 * j + 1], k[2 * g + 1], 2 * j + 1)) @ v[g]
        norm = torch.sqrt((y * y).mean(dim=1, keepdim=True) + 1e-5)
        heads.append(y / norm * row.w["norm.weight"] * (1 - start))
    return torch.cat(heads, dim=1)


def differential_v2(row: Row) -> Tensor:
    """Return A_even V - sigmoid(z W_lambda) A_odd V."""
    h, h_kv = row.o["n_heads"], row.o["n_kv_heads"]
    q, k, v = row.queries(row.z, 2 * h, h_kv), row.keys(2 * h, h_kv), row.values(2 * h, h_kv, row.dh)
    lam = torch.sigmoid(row.linear("lambda_proj", row.z))  # (T, H)
    heads = []
    for j in range(h):
        g = j * h_kv // h
        even, odd = row.map(q[2 * j], k[g], j), row.map(q[2 * j + 1], k[g], j)
        heads.append((even - lam[:, j : j + 1] * odd) @ v[g])
    return torch.cat(heads, dim=1)


def composition(row: Row) -> Tensor:
    """Return (A_h + w2_h sum_h' w1_h' A_h') V_h with w1 = RMSNorm_H(1 + U1 z) and w2 = U2 z."""
    h, h_kv = row.o["n_heads"], row.o["n_kv_heads"]
    q, k, v = row.queries(row.z, h, h_kv), row.keys(h, h_kv), row.values(h, h_kv, row.dh)
    maps = [row.map(q[i], k[i * h_kv // h], i) for i in range(h)]
    w1, w2 = 1 + row.linear("mix_from", row.z), row.linear("mix_into", row.z)  # (T, H)
    w1 = w1 / torch.sqrt((w1 * w1).mean(dim=1, keepdim=True) + 1e-6)
    heads = []
    for i in range(h):
        composed = maps[i]
        for j in range(h):
            composed = composed + w2[:, i : i + 1] * w1[:, j : j + 1] * maps[j]
        heads.append(composed @ v[i * h_kv // h])
    return torch.cat(heads, dim=1)


def parallax(row: Row) -> Tensor:
    """Return sum_j p_j (1 + sum_i p_i s_i - s_j) v_j with s_j = rho . k_j."""
    h, h_kv = row.o["n_heads"], row.o["n_kv_heads"]
    q, k, v = row.queries(row.z, h, h_kv), row.keys(h, h_kv), row.values(h, h_kv, row.dh)
    rho = row.linear("rho", row.z)
    heads = []
    for i in range(h):
        g = i * h_kv // h
        p = row.map(q[i], k[g], i)
        s = torch.einsum("td,sd->ts", row.placed(rho[:, i * row.dh : (i + 1) * row.dh]), k[g])
        mean = torch.einsum("ts,ts->t", p, s)
        heads.append((p * (1 + mean[:, None] - s)) @ v[g])
    return torch.cat(heads, dim=1)


def hopfield(row: Row, n_steps: int = 3, tol: float = 0.0) -> Tensor:
    """Iterate z_{n+1} = Attn(query z_n) with keys and values fixed; each position stops when it rests."""
    z = retrieve(row, row.z)
    resting = [False] * z.shape[0]
    for _ in range(n_steps - 1):
        new = retrieve(row, z)
        state = []
        for t in range(z.shape[0]):
            state.append(z[t] if resting[t] else new[t])
            resting[t] = resting[t] or bool((new[t] - z[t]).norm() <= tol * new[t].norm())
        z = torch.stack(state)
    return z


def equilibrium(row: Row, inject: bool = True, max_steps: int = 100, tol: float = 1e-6) -> Tensor:
    """Compute the fixed point by repetition, differentiated through every step: what implicit gradients must equal.

    All max_steps are taken, whatever ``tol``.
    """
    z = retrieve(row, row.z)
    for _ in range(max_steps):
        z = retrieve(row, z + row.z if inject else z)
    return z


def local(row: Row) -> Tensor:
    """Return sum_{tau=0..3} w_tau * z_{t-tau}."""
    return row.convolved("convolution", row.z, 0, first_lag=0)


def exclusive(row: Row) -> Tensor:
    """Return -(F . v) v / (v . v) for every head of F, which is the row's input, and the value of the same position."""
    h, h_kv = row.o["n_heads"], row.o["n_kv_heads"]
    values, heads = row.values(h, h_kv, row.dh), []
    for i in range(h):
        f, v = row.z[:, i * row.dh : (i + 1) * row.dh], values[i * h_kv // h]
        square = (v * v).sum(dim=1, keepdim=True)
        heads.append(-v * (f * v).sum(dim=1, keepdim=True) / torch.where(square == 0, torch.ones_like(square), square))
    return torch.cat(heads, dim=1)


def value_basis(row: Row) -> Tensor:
    """Return A (V - F), F being the row's input; queries, keys and values come from x."""
    h, h_kv = row.o["n_heads"], row.o["n_kv_heads"]
    q, k, v = row.queries(row.key, h, h_kv), row.keys(h, h_kv), row.values(h, h_kv, row.dh)
    heads = []
    for i in range(h):
        u = v[i * h_kv // h] - row.z[:, i * row.dh : (i + 1) * row.dh]
        heads.append(row.map(q[i], k[i * h_kv // h], i) @ u)
    return torch.cat(heads, dim=1)


LEARNERS = {
    "softmax": softmax,
    "low-rank": low_rank,
    "twicing": twicing,
    "strict-twicing": strict_twicing,
    "delta": delta,
    "gated": gated,
    "differential": differential,
    "differential-v2": differential_v2,
    "composition": composition,
    "parallax": parallax,
    "hopfield": hopfield,
    "equilibrium": equilibrium,
    "local-keys": softmax,
    "local": local,
    "exclusive": exclusive,
    "value-basis": value_basis,
    "value-basis-tied": value_basis,
}


# --- the layer: Algorithm 1 ------------------------------------------------------------------------------------------


def gate_value(kind: str, w: Weights, estimate: Tensor, correction: Tensor) -> Tensor:
    """Return g(F, c) for one batch row, (T, D)."""

    def linear(name: str, t: Tensor) -> Tensor:
        y = torch.einsum("sd,ed->se", t, w[f"{name}.weight"])
        return y + w[f"{name}.bias"] if f"{name}.bias" in w else y

    both = torch.cat([estimate, correction], dim=1)
    if kind == "none":
        return torch.ones_like(correction)
    if kind == "scalar":
        return torch.ones_like(correction) / (1 + torch.exp(-w["logit"]))
    if kind == "tanh":
        return torch.ones_like(correction) * (1 - 2 / (1 + torch.exp(2 * w["theta"])))
    if kind == "tanh-headwise":
        width = correction.shape[1] // w["theta"].shape[0]
        heads = [1 - 2 / (1 + torch.exp(2 * theta)) for theta in w["theta"]]
        return torch.cat([head * torch.ones_like(correction[:, :width]) for head in heads], dim=1)
    if kind == "vector":
        return 1 / (1 + torch.exp(-linear("proj", both)))
    if kind == "headwise":
        heads = 1 / (1 + torch.exp(-linear("proj", both)))  # (T, H)
        width = correction.shape[1] // heads.shape[1]
        return torch.cat([head[:, None] * torch.ones_like(correction[:, :width]) for head in heads.T], dim=1)
    hidden = linear("hidden", both)
    hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2.0)))
    return 1 / (1 + torch.exp(-linear("proj", hidden)))


def residual(kind: str, w: Weights, x: Tensor, estimate: Tensor) -> Tensor:
    """Return what a correction looks at, for one batch row, (T, D)."""
    if kind == "normalised":
        eps = torch.finfo(torch.promote_types(x.dtype, torch.float32)).eps
        unit = estimate / torch.sqrt((estimate * estimate).mean(dim=1, keepdim=True) + eps)
        return x - w["rho"] * unit
    return {"error": x - estimate, "input": x, "estimate": estimate}[kind]


def layer(
    config: Any,
    weights: Weights,
    x: Tensor,
    *,
    memory: Tensor | tuple[Tensor, Tensor] | None = None,
    mask: Tensor | None = None,
    is_causal: bool = False,
    positions: Tensor | None = None,
) -> Tensor:
    """Run Algorithm 1 for a layer of the given ``LayerOptions`` and state dict, batch row by batch row."""
    key, value = memory if isinstance(memory, tuple) else (memory, memory)
    n_keys = x.shape[1] if key is None else key.shape[1]
    visible, bias = visibility(mask, is_causal, (x.shape[0], config.n_heads, x.shape[1], n_keys), x)
    if positions is None:
        positions = torch.arange(x.shape[1])
    outputs = []
    for b in range(x.shape[0]):
        options = {
            "n_heads": config.n_heads,
            "head_dim": config.head_dim or config.d_model // config.n_heads,
            "rope_theta": config.rope_theta,
            "scale": config.scale,
            "layer_index": config.layer_index,
            "visible": visible[b],
            "bias": bias[b],
            "positions": positions if positions.ndim == 1 else positions[b],
        }
        source = None if key is None or value is None else (key[b], value[b])
        outputs.append(one_sequence(config, weights, x[b], source, options))
    y = torch.stack(outputs) if outputs else x
    if "out_proj.weight" in weights:
        y = torch.einsum("btd,ed->bte", y, weights["out_proj.weight"]) + weights.get("out_proj.bias", 0.0)
    return y


def one_sequence(
    config: Any, weights: Weights, x: Tensor, memory: tuple[Tensor, Tensor] | None, options: dict[str, Any]
) -> Tensor:
    """Run the rounds of Algorithm 1 on one sequence, (T, D) -> (T, D)."""
    estimate, estimates = torch.zeros_like(x), []
    for m in range(config.n_rounds):
        z = x
        if m > 0:
            z = residual(config.residuals[m - 1], within(weights, f"residuals.{m - 1}."), x, estimate)
        w = within(weights, f"rounds.{m}.")
        key, value = memory or ((z, z) if config.kv_source == "residual" else (x, x))
        if config.kv_source == "shared" and m > 0:
            w = {**shared_projections(weights, config, options["head_dim"]), **w}
        row = Row({**options, "n_kv_heads": config.kv_heads[m]}, w, z, key, value)
        correction = LEARNERS[config.learners[m]](row, **config.options_of(m))
        if "out_proj.weight" in w:
            correction = row.linear("out_proj", correction)
        if m == 0:
            estimate = correction
        else:
            gate = gate_value(config.gates[m - 1], within(weights, f"gates.{m - 1}."), estimate, correction)
            estimate = estimate + gate * correction
        estimates.append(estimate)
    return adaptive_mean(estimates, within(weights, "halting."))[0] if config.halting else estimate


def adaptive_mean(states: list[Tensor], w: Weights) -> tuple[Tensor, Tensor]:
    """Return the mean of the states that each token halts with, (T, D), and its ponder cost N + R, (T,)."""
    means, costs = [], []
    for t in range(states[0].shape[0]):
        mean, total = torch.zeros_like(states[0][t]), states[0].new_zeros(())
        for n, state in enumerate(states, start=1):
            p = 1 / (1 + torch.exp(-torch.dot(state[t], w["weight"]) - w["bias"][0]))
            if n == len(states) or total + p >= 0.99:
                means.append(mean + (1 - total) * state[t])
                costs.append(n + (1 - total))
                break
            mean, total = mean + p * state[t], total + p
    return torch.stack(means), torch.stack(costs)


def within(weights: Weights, prefix: str) -> dict[str, Tensor]:
    """Return the weights whose names begin with the prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}


def shared_projections(weights: Weights, config: Any, head_dim: int) -> dict[str, Tensor]:
    """Return round 0's projections under names of their own, for a later round that shares those it has not."""
    others = ("k_norm.weight", "k_convolution.weight", "q_norm.weight", "log_beta")
    shared = {n: weights[f"rounds.0.{n}"] for n in others if f"rounds.0.{n}" in weights}
    if "rounds.0.expand.weight" in weights:
        head_dim = weights["rounds.0.expand.weight"].shape[1] // config.n_heads
    for name in ("weight", "bias"):
        if f"rounds.0.qkv.{name}" in weights:
            rows = weights[f"rounds.0.qkv.{name}"]
            kv = config.kv_heads[0] * head_dim
            shared |= {f"q.{name}": rows[: -2 * kv], f"k.{name}": rows[-2 * kv : -kv], f"v.{name}": rows[-kv:]}
        elif f"rounds.0.k.{name}" in weights:
            shared |= {f"{part}.{name}": weights[f"rounds.0.{part}.{name}"] for part in "qkv"}
    return shared
