"""``boosted-attention experiments``: what there is to reproduce."""

from __future__ import annotations


def run(*, preset: str = "quick") -> int:
    """List the experiments, and the time each takes on its own with one core.

    Example: boosted-attention experiments --preset paper

    Args:
        preset: smoke, quick, cpu or paper.
    """
    from rich.console import Console
    from rich.table import Table

    from boosted_attention.lab.experiments import EXPERIMENTS, experiment
    from boosted_attention.lab.presets import preset as find_preset
    from boosted_attention.lab.reproduce import all_runs

    chosen = find_preset(preset)
    table = Table(title=f"preset {preset}: {chosen.seeds} seeds, {chosen.long_seeds} for the long controls")
    for heading in ("experiment", "what", "runs", "about"):
        table.add_column(heading, justify="right" if heading in ("runs", "about") else "left")
    for name in EXPERIMENTS:
        runs = all_runs([name], chosen)
        table.add_row(name, experiment(name).TITLE, str(len(runs)), minutes(sum(run.seconds for run in runs)))
    runs = all_runs(list(EXPERIMENTS), chosen)
    table.add_section()
    table.add_row(
        "all", "runs that several share are done once", str(len(runs)), minutes(sum(run.seconds for run in runs))
    )
    Console().print(table)
    return 0


def minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
