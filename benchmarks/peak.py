"""Peak memory of one training step, in a process of its own: what the step adds to a process that is ready for it.

    python -m benchmarks.peak '{"who": "plain", "rows": 8, "config": {...}}'

Before the step, a tiny one has loaded every library and made the optimizer's state; so weights and moments are not
counted, gradients, activations and logits are.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from boosted_attention.model.config import LanguageModelConfig

STATUS = Path("/proc/self/status")


def peak_of_step(who: str, config: LanguageModelConfig, rows: int) -> int:
    """Return the bytes that a training step adds, measured in a new process.

    Args:
        who: "ours" or "plain".
        config: the model.
        rows: rows of the batch, each as long as the model takes.
    """
    order = json.dumps({"who": who, "rows": rows, "config": config.to_dict()})
    command = [sys.executable, "-m", "benchmarks.peak", order]
    return int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def status(field: str) -> int:
    """Return a figure of /proc/self/status in bytes."""
    found = re.search(rf"{field}:\s+(\d+) kB", STATUS.read_text())
    assert found, f"the kernel tells no {field}"
    return int(found[1]) * 1024


def forget_peak() -> None:
    """Make VmHWM begin again at what the process holds now."""
    Path("/proc/self/clear_refs").write_text("5")


def main(order: str) -> None:
    """Carry out an order of ``peak_of_step`` and print the bytes."""
    import torch

    from benchmarks.ours import our_step, random_batch
    from benchmarks.plain import plain_step

    torch.set_num_threads(1)
    asked = json.loads(order)
    config = LanguageModelConfig.from_dict(asked["config"])
    step = {"ours": our_step, "plain": plain_step}[asked["who"]](config)
    step(*random_batch(config.vocab_size, 1, min(8, config.max_len)))
    ids, targets = random_batch(config.vocab_size, asked["rows"], config.max_len)
    before = status("VmRSS")
    forget_peak()
    step(ids, targets)
    print(status("VmHWM") - before)


if __name__ == "__main__":
    main(sys.argv[1])
