"""``boosted-attention plan``: what a size that was not run would take."""

from __future__ import annotations

RENAMED = {"tflops": "device_tflops", "memory": "device_memory", "per_node": "devices_per_node"}


def run(
    recipe_or_config: tuple[str, ...],
    /,
    *,
    tokens: int | None = None,
    devices: int = 8,
    device_tflops: float = 150.0,
    device_memory: float = 80.0,
    devices_per_node: int = 8,
    markdown: bool = False,
) -> int:
    """Estimate what training a model and the standard models it is compared with would take, with the commands.

    Nothing is run and nothing allocated. Times rest on --device-tflops alone; on real hardware, measure it first.

    Example: boosted-attention plan gpt-125m --tokens 2500000000 --devices 8 --device-tflops 150 --device-memory 80

    Args:
        recipe_or_config: a recipe of ``train``, a run's folder, or a config.json; several give a line for each model.
        tokens: training tokens; 20 per parameter by default.
        devices: number of devices that train one model together.
        device_tflops: TFLOP/s that a device sustains in training.
        device_memory: memory of a device in GB.
        devices_per_node: devices of one machine; more need several, which meet at the first.
        markdown: Markdown output.
    """
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    from boosted_attention.cli.commands import train_command
    from boosted_attention.planning import tables
    from boosted_attention.planning.cluster import Cluster, planned_models
    from boosted_attention.train.recipes import RECIPES
    from boosted_attention.validation import require

    require(bool(recipe_or_config), f"recipe_or_config= is missing; recipes: {', '.join(RECIPES)}")
    cluster = Cluster(devices=devices, tflops=device_tflops, memory=device_memory * 1e9, per_node=devices_per_node)
    planned = [arm for name in recipe_or_config for arm in planned_models(name, tokens, cluster)]
    alone = len(recipe_or_config) == 1
    headings = [arm.name for arm in planned] if alone else tables.OVERVIEW
    table = tables.rows(planned) if alone else tables.overview(planned)
    console = Console(soft_wrap=True)
    if markdown:
        console.print(tables.markdown(headings, table), markup=False, highlight=False)
    else:
        shown = Table(box=SIMPLE, padding=(0, 1, 0, 0), title=f"{', '.join(recipe_or_config)} on {devices} devices")
        shown.add_column("", no_wrap=True)
        for heading in headings:
            shown.add_column(heading, justify="right")
        for label, values in table.items():
            shown.add_row(label, *values)
        Console().print(shown)
    for arm in planned if alone else []:
        command = train_command(arm) or f"does not fit into {device_memory:g} GB"
        console.print(f"{arm.name}: {command}", markup=False, highlight=False)
    return 0
