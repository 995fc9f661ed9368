"""The explorer: attention as the page reads it."""

import numpy as np
import pytest
import torch

from boosted_attention.analysis.explorer import explore, pack
from tests.analysis.made import VOCABULARY, T, model, whole_trace


def test_the_explorer_holds_the_attention(rows):
    import base64

    m = model()
    found = explore(m, None, rows[0], VOCABULARY)
    trace = whole_trace(m, rows[:1])
    assert found.against is None
    assert found.tokens == [VOCABULARY[i] for i in rows[0].tolist()]
    for layer, rounds in enumerate(found.model.layers):
        for r, one in enumerate(rounds):
            flat = np.frombuffer(base64.b64decode(one.attention), dtype="<u2") / 65_535
            weights = trace[layer].rounds[r].weights[0].mean(dim=0)
            assert flat == pytest.approx(weights.numpy()[np.tril_indices(T)], abs=1e-5)
            assert one.residual == pytest.approx(trace[layer].rounds[r].residual[0].norm(dim=-1).tolist(), abs=1e-5)
            assert (one.gate is None) == (r == 0)
    assert len(pack(torch.eye(3))) == 16
