"""A small model with sharp attention, and the traces of a whole batch of its sequences."""

import torch
from torch import nn

from boosted_attention import LanguageModelConfig, capture

VOCABULARY = [f"w{i}" for i in range(40)] + [".", ",", "(", "\n", "�", "_"]
V, T = len(VOCABULARY), 12


def model(attention="boosted", **options):
    torch.manual_seed(1)
    sizes = {"vocab_size": V, "d_model": 16, "n_layers": 2, "n_heads": 2, "max_len": T}
    config = LanguageModelConfig(attention=attention, **{**sizes, **options})
    made = config.build().eval()
    for p in made.parameters():
        nn.init.normal_(p, std=0.3)  # sharper than at the start, so that there is something to see
    return made


def whole_trace(m, rows):
    with torch.no_grad(), capture(m) as traces:
        m(rows[:, :-1])
    return list(traces.values())
