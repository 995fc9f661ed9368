"""Tables of planned models: all about a few of them, or a line for each of many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from boosted_attention.planning.cluster import MODES, PlannedModel


def rows(planned: Sequence[PlannedModel]) -> dict[str, list[str]]:
    """A table: what, and that of each arm."""
    first = planned[0]
    parts = list(first.model.flops_by_part())
    of_parts = [arm.model.flops_by_part() for arm in planned]

    def each(show: Callable[[PlannedModel], str]) -> list[str]:
        return [show(arm) for arm in planned]

    table = {
        "parameters": each(lambda a: f"{a.model.num_params():,}"),
        "without embeddings": each(lambda a: f"{a.model.num_params(embeddings=False):,}"),
        "width, feed-forward": each(lambda a: f"{a.model.d_model}, {a.model.d_ffn}"),
        "forward, MFLOPs per token": each(lambda a: f"{a.model.flops() / 1e6:,.1f}"),
        **{f"  {part}": [f"{of.get(part, 0) / 1e6:,.1f}" for of in of_parts] for part in parts},
        "backward, MFLOPs per token": each(lambda a: f"{2 * a.model.flops() / 1e6:,.1f}"),
        "tokens, steps": each(lambda a: f"{a.tokens / 1e9:,.2f} G, {a.steps:,}"),
        "training FLOPs": each(lambda a: f"{a.training_flops():.2e}"),
        "weights": each(lambda a: size(a.weights)),
        "gradients": each(lambda a: size(a.weights)),
        "optimizer": each(lambda a: size(a.optimizer)),
        "activations per row": each(lambda a: size(a.activations_per_row(False))),
        "  with checkpointing": each(lambda a: size(a.activations_per_row(True))),
        "K/V cache per token": each(lambda a: size(a.memories[0].cache / a.model.max_len)),
        **{f"  of round {m}": each(lambda a, m=m: size(cache_of(a, m))) for m in range(cached_rounds(first))},
    }
    for kind, recomputed in MODES:
        label = f"largest micro-batch, {kind}{', checkpointing' if recomputed else ''}"
        table[label] = each(lambda a, k=kind, r=recomputed: f"{a.largest_micro_batch(k, r):,} rows")
    for kind in ("ddp", "fsdp"):
        table[f"sent per step, {kind}"] = each(lambda a, k=kind: size(a.communication(k, micro_batches(a))))
    table["days"] = each(days)
    table["device-hours"] = each(device_hours)
    return table


def days(arm: PlannedModel) -> str:
    return f"{arm.seconds() / 86400:,.2f}" if arm.layout() else "does not fit"


def device_hours(arm: PlannedModel) -> str:
    return f"{arm.seconds() / 3600 * arm.cluster.devices:,.0f}" if arm.layout() else "does not fit"


def cached_rounds(arm: PlannedModel) -> int:
    return len(arm.memories[0].cache_of_rounds)


def cache_of(arm: PlannedModel, m: int) -> float:
    """Bytes per token that a round keeps, in all layers together."""
    return arm.memories[0].cache_of_rounds[m] / arm.model.max_len if m < cached_rounds(arm) else 0.0


def micro_batches(arm: PlannedModel) -> int:
    layout = arm.layout()
    return 1 if layout is None else layout[2] // arm.cluster.devices


def size(n: float) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n >= unit:
            return f"{n / unit:.1f} {name}"
    return f"{n:.0f} B"


def markdown(headings: Sequence[str], table: Mapping[str, Sequence[str]]) -> str:
    lines = ["| | " + " | ".join(headings) + " |", "|---" * (len(headings) + 1) + "|"]
    lines += [f"| {label.strip()} | {' | '.join(values)} |" for label, values in table.items()]
    return "\n".join(lines)


def overview(planned: Sequence[PlannedModel]) -> dict[str, list[str]]:
    """A line for every model: what decides about time and money."""
    return {
        f"{arm.source}, {arm.name}": [
            f"{arm.model.num_params() / 1e6:,.0f}",
            f"{arm.model.flops() / 1e6:,.0f}",
            f"{arm.tokens / 1e9:,.1f}",
            f"{arm.training_flops():.2e}",
            f"{arm.largest_micro_batch('ddp', False):,}",
            days(arm),
            device_hours(arm),
        ]
        for arm in planned
    }


OVERVIEW = [
    "parameters (M)",
    "MFLOPs per token",
    "tokens (G)",
    "training FLOPs",
    "rows that fit (ddp)",
    "days",
    "device-hours",
]
