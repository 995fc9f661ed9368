"""Look inside the rounds of a boosted model: traces, corrections switched off, and what each correction is worth.

    python examples/look_inside.py

The model is one of the trained pairs that come with the project; it reads the source of this script.
"""

from pathlib import Path

import torch

from boosted_attention import capture, disable_rounds
from boosted_attention.analysis import importance, most_important
from boosted_attention.train import load_run

run = load_run(Path(__file__).parent.parent / "pairs" / "stdlib-1" / "boosted")
model = run.module
source = torch.tensor(run.tokenizer.encode(Path(__file__).read_text()))
rows = source[: len(source) // 65 * 65].view(-1, 65)  # sequences of 64 tokens, each with the one to predict last
ids, targets = rows[:, :-1], rows[:, 1:]

with torch.no_grad():
    with capture(model) as traces:  # what every round of every layer did in the latest forward pass
        loss = run.model.loss(ids, targets)
    with disable_rounds(model, layers=[1]):  # as if layer 1 made no correction
        without = run.model.loss(ids, targets)

for name, trace in traces.items():
    first, correction = trace.rounds
    left = correction.residual.norm() / first.residual.norm()
    moved = (correction.estimate - first.estimate).norm() / first.estimate.norm()
    print(f"{name}: ||x - F|| / ||x|| = {left:.3f} after round 0; round 1 moves F by {moved:.1%} of its norm")
print(f"loss {loss:.4f}, without layer 1's correction {without:.4f}")

found = importance(model, rows)  # the same for every layer, with intervals over sequences
for layer in found.layers:
    print(f"layer {layer.layer}: without its correction the loss changes by {layer.shown()}")
print(f"the two layers whose corrections are missed most: {most_important(found, 2)}")
