"""``boosted-attention experiments``: what there is to reproduce."""

from __future__ import annotations


def run(*, preset: str = "quick") -> int:
    """List the experiments, and the time each takes on its own with one core.

    Example: boosted-attention experiments --preset paper

    Args:
        preset: effort: smoke, quick, cpu, arena, look or paper.
    """
    from rich.console import Console
    from rich.table import Table

    from boosted_attention.lab.experiments import EXPERIMENTS
    from boosted_attention.lab.presets import preset as find_preset
    from boosted_attention.lab.reproduce import all_trials

    chosen = find_preset(preset)
    table = Table(title=f"preset {preset}: {chosen.seeds} seeds, {chosen.long_seeds} for the long controls")
    for heading in ("experiment", "what", "trials", "about"):
        table.add_column(heading, justify="right" if heading in ("trials", "about") else "left")
    for name, experiment in EXPERIMENTS.items():
        trials = all_trials([name], chosen)
        table.add_row(name, experiment.title, str(len(trials)), minutes(sum(trial.seconds for trial in trials)))
    trials = all_trials(list(EXPERIMENTS), chosen)
    table.add_section()
    table.add_row(
        "all", "trials that several share are done once", str(len(trials)), minutes(sum(t.seconds for t in trials))
    )
    Console().print(table)
    return 0


def minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
