"""What the page shows is what the layers computed, and what patched models compute."""

import time

import pytest
import torch

from boosted_attention import LanguageModelConfig
from boosted_attention.attention.switch import disable_rounds
from boosted_attention.attention.trace import capture
from boosted_attention.explore.lens import lens_of
from boosted_attention.explore.passes import run_pass
from boosted_attention.explore.patching import patched
from boosted_attention.explore.questions import Patch, Question, StepQuestion
from boosted_attention.validation import InputError
from tests.explore.conftest import nothing, side_view, whole_view

TEXT = "def read(self, path):\n    with open(path) as file:\n        return file."


def question(text=TEXT, **more):
    return Question(tab="a", number=1, text=text, **more)


def small(**options):
    """A small model with random weights, in evaluation mode, and some token ids."""
    given = {"vocab_size": 50, "d_model": 16, "n_layers": 2, "n_heads": 2, "max_len": 16, "attention": "boosted"}
    model = LanguageModelConfig(**{**given, "init": "normal", **options}).build(seed=0).eval()
    return model, torch.randint(0, 50, (9,))


def ids_of(explorer):
    return explorer.ids_of(question())


@torch.no_grad()
def test_a_view_shows_the_layers_own_trace(explorer, runs):
    model, ids = runs[0].module, ids_of(explorer)
    t = len(ids) - 3
    view = side_view(model, ids, t, {}, explorer.vocabulary)
    with capture(model) as traces:
        logits = model(ids[None])[0]
    for rounds, trace in zip(view.layers, traces.values(), strict=True):
        assert [r.round for r in rounds] == [0, 1]
        for shown, own in zip(rounds, trace.rounds, strict=True):
            assert shown.attention == own.weights[0, :, t, : t + 1].tolist()
            assert shown.residual == own.residual[0].norm(dim=-1).tolist()
            assert shown.factor == 1
        gate = trace.rounds[1].gate[0]  # (T, D)
        assert rounds[0].gate is None
        assert rounds[1].gate == gate.mean(dim=-1).tolist()
        assert rounds[1].gate_by_head == pytest.approx([head.mean().item() for head in gate[t].chunk(4)])
        added = (gate * trace.rounds[1].correction[0])[t].norm()
        assert rounds[1].added == pytest.approx(added.item())
    p = logits[t].softmax(dim=-1)
    assert [(g.id, g.probability) for g in view.guesses] == [(i, float(p[i])) for i in p.topk(8).indices.tolist()]
    assert view.followed.id == ids[t + 1]
    losses = torch.nn.functional.cross_entropy(logits[:-1], ids[1:], reduction="none")
    assert view.surprise == losses.tolist()


@torch.no_grad()
@pytest.mark.parametrize("off", [{(1, 1)}, {(0, 1), (3, 1)}])
def test_a_round_that_is_switched_off_is_a_disabled_round_exactly(explorer, runs, off):
    model, ids = runs[0].module, ids_of(explorer)
    done = run_pass(model, ids, dict.fromkeys(off, 0.0), nothing)
    with disable_rounds(model, layers=sorted(layer for layer, _ in off)), capture(model) as traces:
        logits = model(ids[None])[0]
    assert torch.equal(done.logits, logits)
    for i, (layer, trace) in enumerate(zip(done.layers, traces.values(), strict=True)):
        assert list(layer.rounds) == ([0] if (i, 1) in off else [0, 1])
        assert torch.equal(layer.rounds[0].weights, trace.rounds[0].weights)
    view = side_view(model, ids, 4, dict.fromkeys(off, 0.0), explorer.vocabulary)
    for layer, m in off:
        shown = view.layers[layer][m]
        assert (shown.factor, shown.attention, shown.gate, shown.lens) == (0, None, None, None)
    before = side_view(model, ids, 4, {}, explorer.vocabulary)
    was = {g.id: g.probability for g in before.guesses}
    kept = [g for g in view.guesses if g.id in was]
    assert kept
    assert [g.was for g in kept] == pytest.approx([was[g.id] for g in kept], rel=1e-4)


@torch.no_grad()
def test_a_factor_multiplies_a_gate_exactly(explorer, runs, monkeypatch):
    model, ids = runs[0].module, ids_of(explorer)
    before = model(ids[None])
    done = run_pass(model, ids, {(2, 1): 1.5}, nothing)
    assert torch.equal(model(ids[None]), before)  # nothing stays behind
    gate = model.layers[2].attention.gates[0]
    forward = gate.forward
    monkeypatch.setattr(gate, "forward", lambda estimate, c: 1.5 * forward(estimate, c))
    with capture(model) as traces:
        logits = model(ids[None])[0]
    assert torch.equal(done.logits, logits)
    assert torch.equal(done.layers[2].rounds[1].gate, list(traces.values())[2].rounds[1].gate)
    assert not torch.equal(logits, before[0])


def test_patches_that_make_no_sense_are_refused(runs):
    model = runs[0].module
    for factors, said in (
        ({(9, 1): 0.0}, "layer=9"),
        ({(-1, 1): 0.0}, "layer=-1"),
        ({(0, 0): 0.0}, "round=0"),
        ({(0, 2): 2.0}, "round=2"),
        ({(0, 1): -1.0}, "factor=-1.0 must lie between 0 and 4"),
        ({(0, 1): float("nan")}, "factor=nan"),
    ):
        with pytest.raises(InputError, match=said), patched(model, factors):
            pass
    assert all(not layer.attention.disabled for layer in model.layers)


@torch.no_grad()
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": "post"},
        {"attention_options": {"space": "output"}},
        {"attention_options": {"n_rounds": 3}},
        {"attention_options": {"gate": "scalar"}},
        {"attention": "standard"},
        {"n_repeats": 2},
    ],
    ids=str,
)
def test_the_lens_reads_the_stream_with_a_round_and_without(options):
    model, ids = small(**options)

    def streams(**disabled):
        """What the feed-forward part of each block reads, as the block itself computes it."""
        found, hooks = {}, []
        for i, block in enumerate(model.layers):
            reads = block.ffn_norm if block.pre else block.ffn
            hooks.append(reads.register_forward_pre_hook(lambda _, inputs, i=i: found.__setitem__(i, inputs[0])))
        with capture(model):  # the kernel that traces use
            if disabled:
                with disable_rounds(model, **disabled):
                    model(ids[None])
            else:
                model(ids[None])
        for hook in hooks:
            hook.remove()
        return found

    done, whole = run_pass(model, ids, {}, nothing), streams()
    for i, layer in enumerate(done.layers):
        last = layer.n_rounds - 1
        assert torch.equal(done.lens.stream(i, layer.rounds[last].estimate), whole[i])
        if last and model.config.n_repeats == 1:
            without = streams(layers=i, rounds=last)[i]
            assert torch.equal(done.lens.stream(i, layer.rounds[last - 1].estimate), without)
    view = side_view(model, ids, 5, {}, [str(i) for i in range(50)])
    for i, rounds in enumerate(view.layers):
        for m, shown in enumerate(rounds):
            stream = done.lens.stream(i, done.layers[i].rounds[m].estimate)[0, 5]
            p = (model.norm(stream) @ model.projection.T).softmax(dim=-1)
            assert shown.lens.followed_after == pytest.approx(float(p[ids[6]]), rel=1e-4)
            assert shown.lens.after[0].id == int(p.argmax())
            if m:
                assert shown.lens.followed_before == rounds[m - 1].lens.followed_after


def test_models_without_a_readable_stream_have_no_lens():
    assert lens_of(small(feed="attention")[0]) is None
    assert lens_of(small(n_repeats=2, halting="act")[0]) is None
    assert lens_of(small(attention_options={"halting": True, "kv_source": "input"})[0]) is None
    assert lens_of(torch.nn.Linear(2, 2)) is None


@pytest.mark.parametrize(
    ("options", "shown"),
    [({}, True), ({"space": "output"}, False), ({"gate": "scalar"}, False), ({"gate": "headwise"}, True)],
)
def test_gates_of_heads_are_shown_where_a_gate_has_them(options, shown):
    model, ids = small(attention_options=options)
    view = side_view(model, ids, 5, {}, [str(i) for i in range(50)])
    gates = view.layers[0][1].gate_by_head
    assert (gates is not None) == shown
    assert gates is None or sum(gates) / 2 == pytest.approx(view.layers[0][1].gate[5])


def test_rounds_without_a_map_are_shown_without_one():
    model, ids = small(attention="local")
    view = side_view(model, ids, 5, {}, [str(i) for i in range(50)])
    assert view.layers[0][0].attention is not None
    assert view.layers[0][1].attention is None
    assert view.layers[0][1].residual is not None


def test_a_view_has_both_models_and_patches_of_one(explorer):
    patch = Patch(side=0, layer=0, round=1, factor=0.0)
    plain, edited = whole_view(explorer, question()), whole_view(explorer, question(patches=[patch]))
    assert plain.tokens == edited.tokens
    assert plain.position == len(plain.tokens) - 1
    assert "".join(plain.tokens) == TEXT
    assert plain.sides[1] == edited.sides[1]
    assert plain.sides[0] != edited.sides[0]
    assert [len(side.layers[0]) for side in plain.sides] == [2, 1]


def test_steps_continue_as_generation_does(explorer, runs):
    added = []
    for _ in range(5):
        step = explorer.step(StepQuestion(tab="a", number=1, text=TEXT, added=added), nothing)
        assert step.chosen == step.alternatives[0]
        added.append(step.chosen.id)
    ids = ids_of(explorer)
    assert runs[0].model.generate(ids[None], 5)[0, len(ids) :].tolist() == added
    drawn = StepQuestion(tab="a", number=1, text=TEXT, by=1, temperature=1.5, seed=3)
    assert explorer.step(drawn, nothing) == explorer.step(drawn, nothing)


def test_what_cannot_be_answered_is_said(explorer):
    for asked, said in (
        (question(text=""), "Type a text"),
        (question(text="word " * 300), "these models read at most 128. Shorten it."),
        (question(added=[10**6]), "outside the vocabulary of 2048"),
        (question(position=500), "position=500"),
        (question(text="\ud800"), "lone surrogate"),
        (question(patches=[Patch(side=7, layer=0, round=1, factor=0.5)]), "side=7"),
    ):
        with pytest.raises(InputError, match=said):
            next(explorer.parts(asked, nothing))
    with pytest.raises(InputError, match="by=2"):
        explorer.step(StepQuestion(tab="a", number=1, text=TEXT, by=2), nothing)


def test_a_keystroke_takes_at_most_a_quarter_of_a_second(explorer):
    """Of one processor, for both models, at their full length and with a patch."""
    text = TEXT
    while len(explorer.tokenizer.encode(text + TEXT)) <= explorer.longest:
        text += TEXT
    asked = question(text=text, patches=[Patch(side=0, layer=1, round=1, factor=0.5)])
    taken = []
    for _ in range(3):
        start = time.process_time()
        whole_view(explorer, asked)
        taken.append(time.process_time() - start)
    assert min(taken) < 0.25
