"""``boosted-attention check``: is every layer exact on this machine?"""

from __future__ import annotations

from boosted_attention.validation import require, require_choice


def run(attention: tuple[str, ...] = (), /, *, device: str = "cpu", length: int = 33, seed: int = 0) -> int:
    """Check every attention layer on this machine: against a float64 oracle, for causality, and through the cache.

    Output and all gradients are compared in float64, float32 and bfloat16, with no, a causal and a padding mask; the
    table shows the largest error found, and the largest difference between cached decoding and one full pass. Exit code
    1 if any layer fails.

    Example: boosted-attention check boosted twicing --device cuda

    Args:
        attention: layers to check, by catalog name; all of them by default.
        device: device of the layers, such as cpu, cuda or mps; the oracle always runs on the CPU.
        length: tokens per sequence.
        seed: random seed for weights and inputs.
    """
    import torch
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    from boosted_attention.attention.catalog import list_attention
    from boosted_attention.attention.selfcheck import check_layer, usable_dtypes

    for name in attention:
        require_choice("attention", name, list_attention())
    require(2 <= length <= 512, f"length={length} must lie between 2 and 512")
    dtypes = usable_dtypes(device)

    console = Console()
    table = Table(title=f"torch {torch.__version__} on {device}, length {length}: largest error against float64")
    table.add_column("layer", no_wrap=True)
    for dtype in dtypes:
        table.add_column(str(dtype).removeprefix("torch."), justify="right")
    for heading in ("causal", "cached", "verdict"):
        table.add_column(heading, justify="right")
    failures = 0
    for name in track(attention or list_attention(), description="checking", console=console, transient=True):
        report = check_layer(name, device, dtypes, length, seed)
        failures += not report.ok
        cells = [f"{report.errors[dtype]:.1e}" for dtype in dtypes]
        causal = "yes" if report.causal else "NO"
        table.add_row(name, *cells, causal, f"{report.cached:.1e}", "ok" if report.ok else f"FAILED: {report.why}")
    console.print(table)
    checked = len(attention or list_attention())
    console.print(f"{checked - failures} of {checked} layers exact" + (f", {failures} FAILED" if failures else ""))
    return 1 if failures else 0
