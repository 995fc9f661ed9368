"""Parts of the sections that could measure something else than they say."""

import pytest
import torch
from rich.console import Console

from benchmarks.bench import Bench
from benchmarks.ours import PAPER, Size, random_batch
from benchmarks.peak import peak_of_step
from benchmarks.race import Race, Stopwatch, spread
from benchmarks.results import load
from benchmarks.sections import decoding, halting, pretrained_decoding
from benchmarks.sections.growth import exponent
from benchmarks.sections.steps import FORMS, STEPS, droppable
from boosted_attention.attention.trace import capture
from boosted_attention.model.generation import Sampling
from boosted_attention.pretrained.layer import corrected_layers, shares_kv
from boosted_attention.pretrained.light import LowRank
from tests.benchmarks.test_page import RESULTS

SIZE = Size(d_model=16, n_layers=1, n_heads=2, vocab_size=31)


def test_a_decoder_goes_on_as_generate_does_by_as_many_tokens_as_it_is_told(monkeypatch):
    model, told = SIZE.config("boosted", 40, 0.0).build(), []
    ids, _ = random_batch(SIZE.vocab_size, 2, 5)
    whole = model.generate(ids, 6)
    choose = Sampling.choose
    monkeypatch.setattr(Sampling, "choose", lambda *args: told.append(choose(*args)) or told[-1])
    monkeypatch.setattr(decoding, "ROOM", 6)
    advance = decoding.Decoder(model, ids)
    assert not told
    for total, tokens in ((3, 3), (4, 1), (6, 2)):
        advance(tokens)
        assert len(told) == advance.decoded == total
    assert torch.equal(torch.stack(told, dim=1), whole[:, 5:])
    with pytest.raises(StopIteration):
        advance(1)


@pytest.mark.parametrize("name", pretrained_decoding.NAMES)
def test_every_form_of_a_pretrained_model_is_what_its_name_says(name):
    from peft.tuners.lora import LoraLayer
    from transformers import LlamaConfig, LlamaForCausalLM

    model = pretrained_decoding.made(LlamaForCausalLM(LlamaConfig(**pretrained_decoding.TINY)).eval(), name)
    found = {int(place.split(".")[2]): layer for place, layer in corrected_layers(model).items()}
    is_last, has_none = "last third" in name, name in (pretrained_decoding.ORIGINAL, pretrained_decoding.LORA)
    assert list(found) == ([] if has_none else [2] if is_last else [0, 1, 2])
    assert len([m for m in model.modules() if isinstance(m, LoraLayer)]) == (12 if "LoRA" in name else 0)
    for layer in found.values():
        (correction,) = layer.corrections
        assert shares_kv(correction) == ("shared" in name)
        assert any(isinstance(m, LowRank) for m in correction.modules()) == ("low-rank" in name)


@pytest.mark.parametrize("taken", halting.TAKEN)
def test_tokens_stop_after_as_many_rounds_as_the_page_says(taken):
    model = halting.build(SIZE, 5, taken)
    ids, _ = random_batch(SIZE.vocab_size, 2, 5)
    with capture(model) as traces:
        model(ids)
    assert [trace.rounds_taken.unique().tolist() for trace in traces.values()] == [[taken]] * SIZE.n_layers


def test_mixed_tokens_stop_at_different_rounds():
    """With a mean between the fewest and the most, which is the one that the page shows."""
    model = halting.build(SIZE, 5, halting.MIXED)
    ids, _ = random_batch(SIZE.vocab_size, 8, 5)
    with capture(model) as traces:
        model(ids)
    (taken,) = (trace.rounds_taken for trace in traces.values())
    assert len(taken.unique()) > 1
    whole = model.generate(ids, 6)
    with capture(model) as traces, torch.no_grad():
        model(whole)
    (taken,) = (trace.rounds_taken[:, 5:] for trace in traces.values())  # of the tokens that were decoded
    assert halting.mean_rounds(model, ids, 6) == pytest.approx(float(taken.double().mean()))


def test_flops_of_decoding_are_those_of_the_mean_context():
    """Two turns of eight tokens, and one to warm up: the tokens that count stand at 5 + 8 to 5 + 24."""
    bench = Bench({"x": 1.0}, quick=True, console=Console(quiet=True))
    point = decoding.measure_point(bench, SIZE, batch=2, context=5, until=1.0)
    assert point.flops == {form: SIZE.config(form, 21, 0.0).flops() for form in decoding.FORMS}


def test_the_exponent_of_a_power_is_its_exponent():
    assert exponent([1, 2, 8], [3.0, 12.0, 192.0]) == pytest.approx(2.0)
    assert exponent([1, 2, 4], [5.0, 5.0, 5.0]) == pytest.approx(0.0)


def test_the_page_names_every_layer_that_takes_dropout():
    """Measured or not: a layer that came later cannot be missing in silence."""
    steps = load(RESULTS).of(STEPS)
    shown = STEPS.show(steps).text.partition("### What dropout costs")[2]
    rows, _, absent = shown.partition("Not measured, since the catalog has them from later on: ")
    measured = [line.split("|")[1].strip() for line in rows.splitlines() if line.startswith("|")][2:]
    later = absent.strip().removesuffix(".").split(", ") if absent else []
    assert sorted(measured + later) == sorted(droppable(PAPER))
    assert not set(measured) & set(later)


def test_layers_that_refuse_dropout_are_left_out():
    found = droppable(SIZE)
    assert set(FORMS) <= set(found)
    assert "equilibrium" not in found


def test_the_peak_of_a_plain_step_holds_its_logits():
    size, rows, length = Size(d_model=8, n_layers=1, n_heads=1, vocab_size=8192), 8, 128
    logits = 4 * rows * length * size.vocab_size
    peak = peak_of_step("plain", size.config("standard", length, 0.0), rows)
    assert 2 * logits < peak < 6 * logits  # logits and their gradient at least


def test_quartiles_are_of_ratios_within_a_turn():
    race = Race(clock="CPU", seconds={"a": [1.0, 10.0, 4.0], "b": [2.0, 20.0, 4.0]})
    assert race.ratio("b", "a") == spread([2.0, 2.0, 1.0])
    assert (race.ratio("b", "a").median, race.median("a")) == (2.0, 4.0)


def test_a_stopwatch_counts_what_candidates_tell_it():
    watch = Stopwatch("wall")
    bench = Bench({"x": 1.0}, quick=True, console=Console(quiet=True))
    race = bench.race("x", {"a": lambda: watch.add(1.5), "b": lambda: watch.add(3.0)}, 2, until=1.0, clock=watch)
    assert race == Race(clock="wall", seconds={"a": [1.5, 1.5], "b": [3.0, 3.0]})
