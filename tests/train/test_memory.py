"""Memory: what is counted is what a real step keeps."""

import pytest
import torch

from boosted_attention import LanguageModelConfig, list_attention
from boosted_attention.train.memory import estimate_memory
from boosted_attention.validation import InputError


@pytest.mark.parametrize("name", list_attention())
def test_memory_is_known_of_every_layer(name):
    config = LanguageModelConfig(attention=name, d_model=16, n_layers=2, vocab_size=50, max_len=8)
    memory = estimate_memory(config)
    assert memory.training > 4 * memory.weights
    assert memory.decoding > memory.weights


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("name", ["standard", "boosted", "twicing", "differential", "hopfield"])
def test_memory_counts_what_a_real_step_keeps(name, dropout):
    config = LanguageModelConfig(attention=name, d_model=32, vocab_size=50, max_len=16, dropout=dropout)
    model, kept = config.build(), {}
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    ids = torch.zeros(3, 16, dtype=torch.long)

    def keep(t):
        if t.untyped_storage().data_ptr() not in own:
            kept[t.untyped_storage().data_ptr()] = (t, t.untyped_storage().nbytes())
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        loss = model.loss(ids, ids)
    memory = estimate_memory(config, batch_size=3)
    assert memory.activations == pytest.approx(sum(size for _, size in kept.values()), rel=0.02)
    assert memory.weights == 4 * config.num_params()
    assert memory.training == 4 * memory.weights + memory.activations + memory.logits
    tensors = {"boosted": 4, "twicing": 3}.get(name, 2)
    assert memory.cache == config.n_layers * tensors * 3 * 16 * 32 * 4
    assert loss.isfinite()


def test_muon_keeps_one_buffer_per_matrix():
    """Counted by hand: blocks of two rounds, all matrices but the gate's."""
    config = LanguageModelConfig(d_model=16, n_layers=2, vocab_size=50, max_len=8)
    matrices = 2 * (2 * 3 * 16 * 16 + 16 * 16 + 2 * 4 * 16 * 16)  # qkv of both rounds, out_proj, feed-forward network
    rest = config.num_params() - matrices
    assert estimate_memory(config, optimizer="adamw").optimizer == 4 * 2 * config.num_params()
    assert estimate_memory(config, optimizer="muon").optimizer == 4 * (matrices + 2 * rest)
    with pytest.raises(InputError, match="did you mean 'muon'"):
        estimate_memory(config, optimizer="moun")
