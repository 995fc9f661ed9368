"""Proposition 3: a correction with shared projections stays in the span of the values; one with its own need not."""

from __future__ import annotations

import torch
from torch import Tensor

from boosted_attention.analysis.hull import hull_distance
from boosted_attention.attention.layer import AttentionLayer, BoostedAttention, StandardAttention
from boosted_attention.attention.learners.twicing import TwicingAttention
from boosted_attention.attention.trace import LayerTrace, capture
from boosted_attention.retrieval.training import seeded
from boosted_attention.theory.finding import Finding, gaussian, generator

D = 16  # one head of this width


def run(layer_type: type[AttentionLayer], x: Tensor, seed: int) -> tuple[Tensor, LayerTrace]:
    """Run a fresh layer of one head on x (T, D): its output before any projection, and its trace."""
    layer = seeded(lambda: layer_type(D, 1, out_proj=False), seed).double()
    with capture(layer) as traces, torch.no_grad():
        y = layer(x[None], is_causal=True)[0]
    return y, traces[""]


def outside_span(y: Tensor, values: Tensor) -> float:
    """Share of ||y|| outside the row span of the values."""
    basis = torch.linalg.svd(values, full_matrices=False).Vh[: torch.linalg.matrix_rank(values)]
    return float((y - y @ basis.T @ basis).norm() / y.norm())


def row_span(seed: int) -> Finding:
    """Proposition 3a: twicing's output lies in the row span of the values."""
    draw = generator(seed)
    few, many = gaussian(D // 2, D, draw=draw), gaussian(2 * D, D, draw=draw)
    shares = {}
    for name, layer_type in (("twicing", TwicingAttention), ("boosted", BoostedAttention)):
        for label, x in (("few", few), ("many", many)):
            y, trace = run(layer_type, x, seed)
            shares[name, label] = outside_span(y, trace.rounds[0].v[0, 0])
    return Finding(
        name="3a",
        paper="Twicing's output stays in the row span of the values.",
        measured={"twicing: share outside the span, 8 tokens in 16 dimensions": shares["twicing", "few"]},
        holds=shares["twicing", "few"] < 1e-10,
        condition="Vacuous once d_h independent values are visible: the span is then everything, for every layer.",
        counter={f"{name}: share outside, 32 tokens": shares[name, "many"] for name in ("twicing", "boosted")},
        counter_holds=shares["twicing", "many"] < 1e-10 and shares["boosted", "many"] < 1e-10,
    )


def fixed_correction(seed: int) -> Finding:
    """Proposition 3b: twicing's correction has no parameters of its own."""

    def count(layer_type: type[AttentionLayer]) -> int:
        return sum(p.numel() for p in layer_type(D, 1).parameters())

    extra = count(TwicingAttention) - count(StandardAttention)
    draw = generator(seed)
    x = gaussian(1, 9, D, draw=draw)
    layer = seeded(lambda: TwicingAttention(D, 1, out_proj=False), seed).double()
    with capture(layer) as traces:
        y = layer(x, is_causal=True)
    trace = traces[""].rounds[0]
    correction = y - (trace.weights @ trace.v).transpose(1, 2).flatten(2)
    (gradient,) = torch.autograd.grad(correction.square().sum(), [next(layer.parameters())])
    return Finding(
        name="3b",
        paper="Twicing's correction has no parameters of its own.",
        measured={"parameters beyond standard attention": float(extra)},
        holds=extra == 0,
        condition="It is not fixed, though: A and V are trained through it like everything else.",
        counter={"norm of the correction's gradient to the projections": float(gradient.norm())},
        counter_holds=float(gradient.norm()) > 0,
    )


def own_projections_escape(seed: int) -> Finding:
    """Proposition 3c: a correction with its own projections leaves the row span of round 0's values."""
    draw = generator(seed)
    x = gaussian(D // 2, D, draw=draw)
    y, trace = run(BoostedAttention, x, seed)
    values = trace.rounds[0].v[0, 0]
    first, correction = trace.rounds[0].estimate[0], trace.rounds[1].estimate[0] - trace.rounds[0].estimate[0]
    noise = gaussian(*correction.shape, draw=draw)
    noise = noise / noise.norm(dim=-1, keepdim=True) * correction.norm(dim=-1, keepdim=True)
    boosted, random = outside_span(y, values), outside_span(first + noise, values)
    return Finding(
        name="3c",
        paper="A correction with its own projections generically leaves the row span of round 0's values.",
        measured={"boosted: share outside the span, 8 tokens in 16 dimensions": boosted},
        holds=boosted > 1e-3,
        condition="So does any generic perturbation: leaving the span shows nothing about what was learned.",
        counter={"random correction of equal norm: share outside": random},
        counter_holds=random > 1e-3,
    )


def hull_escape(seed: int) -> Finding:
    """Section 6.4 at random initialisation, with controls: distance of outputs from the hull of the values."""
    draw = generator(seed)
    rates: dict[str, float] = {}
    for label, length in (("t <= d_h", D), ("t >> d_h", 16 * D)):
        x = gaussian(length, D, draw=draw)
        outputs = {}
        for name, layer_type in (("standard", StandardAttention), ("twicing", TwicingAttention)):
            outputs[name], trace = run(layer_type, x, seed)
        y, trace = run(BoostedAttention, x, seed)
        first = trace.rounds[0].estimate[0]
        noise = gaussian(*y.shape, draw=draw)
        noise = noise / noise.norm(dim=-1, keepdim=True) * (y - first).norm(dim=-1, keepdim=True)
        outputs |= {"boosted": y, "random correction": first + noise}
        values = trace.rounds[0].v[0, 0]  # all four share these: same seed, same first round
        rows = range(1, D) if length == D else range(length - 30, length)
        for name, output in outputs.items():
            distances = [hull_distance(output[t].numpy(), values[: t + 1].numpy())[0] for t in rows]
            rates[f"{name}, {label}"] = sum(d > 1e-8 for d in distances) / len(distances)
            relative = [d / float(output[t].norm()) for d, t in zip(distances, rows, strict=True)]
            rates[f"{name}, distance relative to the output, {label}"] = sum(relative) / len(relative)
    return Finding(
        name="3-hull",
        paper="The boosted output lies outside the hull of round 0's visible values at every sampled position.",
        measured={name: rate for name, rate in rates.items() if name.endswith("t <= d_h")},
        holds=rates["boosted, t <= d_h"] == 1.0 and rates["standard, t <= d_h"] == 0.0,
        condition="Up to d_h positions every correction escapes, a random one too: escape says nothing about learning.",
        counter={name: rate for name, rate in rates.items() if name.endswith("t >> d_h")},
        counter_holds=rates["random correction, t <= d_h"] == 1.0,
    )
