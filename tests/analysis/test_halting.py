"""Rounds taken by tokens: counted against the traces, by layer and by kind of token."""

import pytest
import torch

from boosted_attention import InputError, LanguageModelConfig, capture
from boosted_attention.analysis.halting import TOKEN_KINDS, rounds_taken, token_kind

VOCABULARY = [" the", "ing", " 12", ",", "\n", "7"]
SIZE = {"vocab_size": len(VOCABULARY), "d_model": 16, "n_layers": 2, "n_heads": 2, "max_len": 8}


def halting_model():
    options = {"n_rounds": 3, "halting": True}
    model = LanguageModelConfig(**SIZE, attention="boosted-shared", attention_options=options).build(seed=0).eval()
    with torch.no_grad():
        for block in model.layers:
            block.attention.halting.weight.normal_(std=3.0)
    return model


def test_kinds_are_told_by_the_text():
    assert [token_kind(text) for text in VOCABULARY] == [
        "word",
        "part of a word",
        "number",
        "punctuation",
        "space",
        "number",
    ]


def test_means_are_those_of_the_traces():
    model, rows = halting_model(), torch.randint(len(VOCABULARY), (5, 9))
    found = rounds_taken(model, rows, VOCABULARY)
    with torch.no_grad(), capture(model) as traces:
        model(rows[:, :-1])
    taken = torch.stack([trace.rounds_taken for trace in traces.values()]).double()  # (layers, B, T)
    assert len(taken.unique()) > 1
    assert found.mean == pytest.approx(float(taken.mean()), rel=1e-5)
    assert found.layers == pytest.approx(taken.mean(dim=(1, 2)).tolist(), rel=1e-5)
    for kind in TOKEN_KINDS:
        of_kind = torch.tensor([token_kind(text) == kind for text in VOCABULARY])[rows[:, :-1]]
        assert found.kinds[kind] == pytest.approx(float(taken[:, of_kind].mean()), rel=1e-5)


def test_a_kind_that_does_not_occur_has_no_mean():
    found = rounds_taken(halting_model(), torch.zeros(2, 9, dtype=torch.long), VOCABULARY)
    assert set(found.kinds) == {"word"}


@pytest.mark.parametrize("n_repeats", [1, 2])
def test_a_model_that_does_not_halt_is_refused(n_repeats):
    model = LanguageModelConfig(**SIZE, n_repeats=n_repeats).build(seed=0)
    with pytest.raises(InputError, match="no layer of the model halts: build it with halting=True"):
        rounds_taken(model, torch.zeros(1, 9, dtype=torch.long), VOCABULARY)


def test_repeats_are_those_at_which_tokens_stop():
    """Counted from the probabilities, which with one block come from that block's states alone."""
    model = LanguageModelConfig(**SIZE, n_repeats=3, halting="act", attention="standard").build(seed=0).eval()
    with torch.no_grad():
        model.repeats.unit.weight.normal_(std=100.0)
        model.repeats.unit.bias.zero_()
    rows, said = torch.randint(len(VOCABULARY), (5, 9)), []
    hook = model.repeats.unit.register_forward_hook(lambda module, args, logit: said.append(logit.sigmoid()))
    found = rounds_taken(model, rows, VOCABULARY)
    hook.remove()
    assert not model.repeats._forward_hooks
    first, second = torch.cat(said[0::2]), torch.cat(said[1::2])  # (B, T): after the first repeat, and the second
    taken = torch.where(first >= 0.99, 1.0, torch.where(first + second >= 0.99, 2.0, 3.0)).double()
    assert len(taken.unique()) > 1
    assert found.mean == pytest.approx(float(taken.mean()), rel=1e-5)
    assert found.layers == [found.mean]
    for kind in TOKEN_KINDS:
        of_kind = torch.tensor([token_kind(text) == kind for text in VOCABULARY])[rows[:, :-1]]
        assert found.kinds[kind] == pytest.approx(float(taken[of_kind].mean()), rel=1e-5)
