"""Our language models behind transformers' interface: the same numbers, cached or not, saved and loaded."""

import pytest
import torch
import transformers
from torch import nn

from boosted_attention import LanguageModelConfig, capture, list_attention
from boosted_attention.attention.trace import traced_layers
from boosted_attention.cli.main import main
from boosted_attention.pretrained import from_transformers, to_transformers
from tests.cli.test_train import TINY, refused

SIZE = {"vocab_size": 50, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_len": 32}
PLAIN = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None, "max_new_tokens": 8}


KINDS = [{}, {"positions": "rotary", "tie_weights": False, "norm": "post"}]


def made(**options):
    torch.manual_seed(0)
    model = LanguageModelConfig(**{**SIZE, **options}).build().eval()
    for p in model.parameters():
        nn.init.normal_(p, std=0.3)
    return model


@pytest.mark.parametrize("attention", list_attention())
@pytest.mark.parametrize("options", KINDS, ids=["learned", "rotary"])
def test_the_same_model(attention, options, tmp_path):
    model, ids = made(attention=attention, **options), torch.randint(1, 50, (2, 7))
    theirs = to_transformers(model)
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    with torch.no_grad():
        assert torch.equal(theirs(ids).logits, model(ids))
        assert torch.equal(theirs(ids, attention_mask=mask).logits[1], model(ids, mask)[1])
        loss = theirs(ids, labels=ids).loss
        torch.testing.assert_close(loss, model.loss(ids[:, :-1], ids[:, 1:]), rtol=1e-5, atol=1e-5)
    greedy = theirs.generate(ids, attention_mask=torch.ones_like(ids), **PLAIN)
    assert torch.equal(greedy, model.generate(ids, 8))
    beams = [theirs.generate(ids, attention_mask=mask, num_beams=3, use_cache=use, **PLAIN) for use in (True, False)]
    assert torch.equal(*beams)
    theirs.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert type(loaded) is type(theirs)
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, model(ids))
        assert torch.equal(from_transformers(tmp_path).eval()(ids), model(ids))
    assert from_transformers(theirs) is theirs.model
    assert from_transformers(theirs).config == model.config


DEPTHS = [
    {"n_repeats": 2, "halting": "act", "value_residual": True},
    {"n_repeats": 3, "halting": "ponder", "positions": "rotary"},
    {"feed": "cross", "value_residual": True},
    {"feed": "attention"},
    {"attention": "boosted-shared", "attention_options": {"halting": True, "n_rounds": 3}},
]


@pytest.mark.parametrize("options", DEPTHS, ids=str)
def test_the_same_model_however_its_layers_are_fed_and_repeated(options, tmp_path):
    model, ids = made(**options), torch.randint(1, 50, (2, 7))
    theirs = to_transformers(model)
    with torch.no_grad():
        assert torch.equal(theirs(ids).logits, model(ids))
    greedy = theirs.generate(ids, attention_mask=torch.ones_like(ids), **PLAIN)
    assert torch.equal(greedy, model.generate(ids, 8))
    beams = [theirs.generate(ids, num_beams=3, use_cache=use, **PLAIN) for use in (True, False)]
    assert torch.equal(*beams)
    theirs.save_pretrained(tmp_path)
    assert torch.equal(from_transformers(tmp_path).eval()(ids), model(ids))


@pytest.mark.parametrize("options", [options for options in DEPTHS if "feed" not in options], ids=str)
def test_in_training_a_model_that_halts_pays_for_it(options):
    """The loss is that of the model itself, whose halting unit it trains; in evaluation it is a cross-entropy."""
    model, ids = made(ponder_cost=0.5, **options), torch.randint(1, 50, (2, 9))
    labels = ids.masked_fill(torch.rand(ids.shape) < 0.3, -100)
    theirs, targets = to_transformers(model), torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
    plain = theirs(ids, labels=labels).loss
    torch.testing.assert_close(plain, model.loss(ids, targets))
    theirs.train()
    paid = theirs(ids, labels=labels).loss
    assert paid > plain + 0.1
    torch.testing.assert_close(paid, model.train().loss(ids, targets))
    paid.backward()
    units = [p for name, p in theirs.named_parameters() if "unit" in name or "halting" in name]
    assert units
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in units)


@pytest.mark.parametrize("kind", ["static", "offloaded"])
def test_other_caches_are_refused(kind):
    model = to_transformers(made())
    with pytest.raises(ValueError, match="cannot hold the rounds of this model; use a DynamicCache"):
        model.generate(torch.ones(1, 3, dtype=torch.long), cache_implementation=kind, **PLAIN)
    with pytest.raises(ValueError, match="past_key_values=tuple: use a DynamicCache"):
        model(torch.ones(1, 3, dtype=torch.long), past_key_values=())


LENGTHS = (4, 1, 7)


def flattened(ids):
    """Rows of one batch as transformers packs them: one row, positions that begin anew, no mask."""
    rows = [{"input_ids": row.tolist()} for row in ids]
    return transformers.DataCollatorWithFlattening(return_tensors="pt")(rows)


@pytest.mark.parametrize("attention", list_attention())
@pytest.mark.parametrize("options", KINDS, ids=["learned", "rotary"])
def test_packed_rows_are_their_documents_alone(attention, options):
    theirs = to_transformers(made(attention=attention, **options).double())
    documents = [torch.randint(1, 50, (n,)) for n in LENGTHS]
    batch = flattened(documents)
    with torch.no_grad():
        alone = torch.cat([theirs(document[None]).logits for document in documents], dim=1)
        packed = theirs(**batch)
        torch.testing.assert_close(packed.logits, alone, rtol=1e-6, atol=1e-6)
        padded = torch.cat([batch["input_ids"], torch.zeros(1, 3, dtype=torch.long)], dim=1)
        positions = torch.cat([batch["position_ids"], torch.zeros(1, 3, dtype=torch.long)], dim=1)
        mask = (torch.arange(15) < 12).long()[None]
        got = theirs(padded, attention_mask=mask, position_ids=positions).logits[:, :12]
        torch.testing.assert_close(got, alone, rtol=1e-6, atol=1e-6)


def test_the_loss_leaves_out_predictions_across_documents():
    theirs = to_transformers(made())
    batch = flattened([torch.randint(1, 50, (n,)) for n in LENGTHS])
    unmasked = {**batch, "labels": batch["input_ids"]}
    assert (batch["labels"] == -100).sum() == len(LENGTHS)
    assert torch.equal(theirs(**batch).loss, theirs(**unmasked).loss)


def test_documents_begin_where_transformers_says():
    from transformers.masking_utils import find_packed_sequence_indices

    from boosted_attention.attention.masks import documents_from

    positions = torch.tensor([[0, 1, 2, 0, 1, 0], [3, 4, 5, 6, 9, 10], [0, 0, 0, 1, 1, 1]])
    assert torch.equal(documents_from(positions), find_packed_sequence_indices(positions))
    assert documents_from(positions[:1, :3]) is None
    padded = torch.tensor([[1, 1, 0, 1, 2, 2], [0, 1, 0, 2, 3, 1]])
    real = torch.tensor([[0, 0, 1, 1, 1, 0], [1, 1, 0, 1, 1, 0]]).bool()
    assert documents_from(padded, real) is None  # padding has no position


@pytest.mark.parametrize("options", KINDS, ids=["learned", "rotary"])
def test_left_padding_is_the_same_with_position_ids_and_without(options):
    theirs, ids = to_transformers(made(attention="local", **options)), torch.randint(1, 50, (3, 7))
    mask = torch.ones_like(ids)
    mask[0, :3], mask[1, :6] = 0, 0
    positions = theirs._prepare_position_ids_for_generation(ids, {"attention_mask": mask})
    with torch.no_grad():
        plain = theirs(ids, attention_mask=mask).logits
        for at_padding in (0, 1):
            given = positions.masked_fill(mask == 0, at_padding)
            got = theirs(ids, attention_mask=mask, position_ids=given).logits
            assert torch.equal(got[mask.bool()], plain[mask.bool()])
        alone = theirs(ids[1:2, 6:]).logits
        torch.testing.assert_close(plain[1:2, 6:], alone, rtol=1e-5, atol=1e-5)
    together = theirs.generate(ids, attention_mask=mask, **PLAIN)
    assert torch.equal(together[0, 3:], theirs.generate(ids[:1, 3:], **PLAIN)[0])


def test_positions_are_used_as_they_are_given():
    theirs, ids = to_transformers(made()), torch.randint(1, 50, (2, 5))
    with torch.no_grad():
        plain, moved = theirs(ids).logits, theirs(ids, position_ids=torch.arange(3, 8)[None]).logits
        assert torch.equal(theirs(ids, position_ids=torch.arange(5).expand(2, -1)).logits, plain)
        assert not torch.allclose(moved, plain)
        first = theirs(ids[:, :3], use_cache=True)
        rest = theirs(ids[:, 3:], past_key_values=first.past_key_values, position_ids=torch.tensor([[3, 4]]))
        torch.testing.assert_close(rest.logits, plain[:, 3:], rtol=1e-4, atol=1e-5)


def test_packed_rows_and_caches_exclude_each_other():
    theirs, ids = to_transformers(made()), torch.randint(1, 50, (2, 5))
    refusal = "position_ids begin anew inside a row: a cache holds one document per row; pass use_cache=False"
    with pytest.raises(ValueError, match=refusal):
        theirs(ids, position_ids=torch.tensor([[0, 1, 2, 0, 1]]), use_cache=True)
    cache = theirs(ids, use_cache=True).past_key_values
    with pytest.raises(ValueError, match=refusal):
        theirs(ids[:, :1], position_ids=torch.tensor([[0]]), past_key_values=cache)
    with pytest.raises(ValueError, match=refusal):
        theirs(ids[:, :1], attention_mask=torch.ones(2, 6), position_ids=torch.tensor([[0]]), past_key_values=cache)


def test_vectors_in_the_place_of_embeddings():
    theirs, ids = to_transformers(made()), torch.randint(1, 50, (2, 5))
    vectors = theirs.get_input_embeddings()(ids)
    with torch.no_grad():
        assert torch.equal(theirs(inputs_embeds=vectors).logits, theirs(ids).logits)
    assert torch.equal(theirs.generate(inputs_embeds=vectors, **PLAIN), theirs.generate(ids, **PLAIN)[:, 5:])
    for both in ({}, {"input_ids": ids, "inputs_embeds": vectors}):
        with pytest.raises(ValueError, match="input_ids or inputs_embeds: pass exactly one of the two"):
            theirs(**both)


@pytest.mark.parametrize("options", [{}, {"n_repeats": 2, "halting": "act"}], ids=str)
def test_hidden_states_and_attention_weights(options):
    theirs, ids = to_transformers(made(**options)), torch.randint(1, 50, (2, 5))
    n = theirs.config.num_hidden_layers
    with torch.no_grad():
        found = theirs(ids, output_hidden_states=True, output_attentions=True)
        assert len(found.hidden_states) == n + 1
        assert len(found.attentions) == n == 2 * options.get("n_repeats", 1)
        assert torch.equal(found.hidden_states[-1] @ theirs.get_output_embeddings().weight.T, found.logits)
        with capture(theirs) as traces:
            plain = theirs(ids)
        assert plain.hidden_states is None
        assert plain.attentions is None
        torch.testing.assert_close(plain.logits, found.logits, rtol=1e-4, atol=1e-4)
        last = list(traces.values())[-1].rounds[0].weights
        torch.testing.assert_close(found.attentions[-1], last, rtol=1e-4, atol=1e-5)
        assert all(layer.trace is None and not layer._forward_hooks for layer in traced_layers(theirs).values())
        assert found.attentions[0].shape == (2, 4, 5, 5)
        theirs.config.output_attentions = theirs.config.output_hidden_states = True
        assert len(theirs(ids).attentions) == n
        assert len(theirs(ids).hidden_states) == n + 1
    shown = {"output_attentions": True, "output_hidden_states": True, "return_dict_in_generate": True}
    steps = theirs.generate(ids, **shown, **PLAIN)
    assert [step[0].shape[-2:] for step in steps.attentions] == [(5, 5), *((1, k) for k in range(6, 13))]
    assert len(steps.hidden_states) == 8
    with pytest.raises(ValueError, match="feed='cross': layers read all that was given before them"):
        to_transformers(made(feed="cross"))(ids, output_hidden_states=True)


def test_tuples_some_logits_and_unknown_arguments():
    theirs, ids = to_transformers(made()), torch.randint(1, 50, (2, 5))
    with torch.no_grad():
        found = theirs(ids, labels=ids, use_cache=True)
        loss, logits, cache = theirs(ids, labels=ids, use_cache=True, return_dict=False)
        assert torch.equal(loss, found.loss)
        assert torch.equal(logits, found.logits)
        assert cache.get_seq_length() == 5
        theirs.config.return_dict = False
        assert torch.equal(theirs(ids)[0], logits)
        assert torch.equal(theirs(ids, logits_to_keep=2, return_dict=True).logits, logits[:, -2:])
        assert torch.equal(theirs(ids, logits_to_keep=torch.tensor([0, 3]))[0], logits[:, [0, 3]])
    with pytest.raises(ValueError, match="the loss needs the logits of all positions"):
        theirs(ids, labels=ids, logits_to_keep=1)
    with pytest.raises(TypeError, match="token_type_ids"):
        theirs(ids, token_type_ids=ids)
    with pytest.raises(ValueError, match="head_mask"):
        theirs.generate(ids, head_mask=ids, **PLAIN)
    with pytest.raises(ValueError, match=r"position_ids has shape \(3, 2, 5\); expected \(2, 5\)"):
        theirs(ids, position_ids=ids.expand(3, 2, 5))
    with pytest.raises(ValueError, match=r"attention_mask has shape \(2, 1, 5, 5\); expected \(2, 5\)"):
        theirs(ids, attention_mask=torch.ones(2, 1, 5, 5))


@pytest.mark.parametrize("options", [*DEPTHS, {"dropout": 0.2}], ids=str)
def test_checkpointed_blocks_give_the_same_gradients(options):
    theirs, ids = to_transformers(made(**options)).train(), torch.randint(1, 50, (2, 7))
    calls = []
    hooks = [block.attention.register_forward_hook(lambda *_: calls.append(1)) for block in theirs.model.blocks()]

    def gradients():
        torch.manual_seed(1)
        calls.clear()
        theirs.zero_grad()
        theirs(ids, labels=ids).loss.backward()
        return {name: p.grad for name, p in theirs.named_parameters()}, len(calls)

    plain, once = gradients()
    for every, runs in ((1, 2.0), (2, 1.5)):
        theirs.activation_checkpointing_enable(every_n_layers=every)
        assert theirs.is_activation_checkpointing
        checkpointed, count = gradients()
        assert count == runs * once
        for name, gradient in plain.items():
            assert (gradient is None and checkpointed[name] is None) or torch.equal(gradient, checkpointed[name])
    theirs.activation_checkpointing_disable()
    assert not theirs.is_activation_checkpointing
    assert gradients()[1] == once == len(hooks) * theirs.config.num_hidden_layers // 2
    assert set(theirs.state_dict()) == set(plain)


def test_what_checkpointed_blocks_cannot_do_is_refused():
    theirs, ids = to_transformers(made()).train(), torch.randint(1, 50, (2, 5))
    with pytest.raises(ValueError, match="use_reentrant=True: what blocks hand to each other"):
        theirs.activation_checkpointing_enable({"use_reentrant": True})
    theirs.activation_checkpointing_enable()
    with pytest.raises(ValueError, match="use_cache=True: checkpointed blocks run twice"):
        theirs(ids, use_cache=True)
    with pytest.raises(ValueError, match="output_attentions=True: checkpointed blocks run twice"):
        theirs(ids, output_attentions=True)
    generated = theirs.eval().generate(ids, **PLAIN)
    theirs.activation_checkpointing_disable()
    assert torch.equal(theirs.generate(ids, **PLAIN), generated)


@pytest.mark.parametrize("tied", [True, False])
def test_another_number_of_tokens(tied, tmp_path):
    theirs, ids = to_transformers(made(tie_weights=tied)), torch.randint(1, 50, (2, 5))
    with torch.no_grad():
        before = theirs(ids).logits
        theirs.resize_token_embeddings(60)
        after = theirs(ids).logits
    assert after.shape == (2, 5, 60)
    torch.testing.assert_close(after[..., :50], before, rtol=1e-6, atol=1e-6)
    assert theirs.config.vocab_size == theirs.config.model["vocab_size"] == theirs.model.config.vocab_size == 60
    assert (theirs.get_output_embeddings() is theirs.get_input_embeddings()) is tied
    theirs(ids + 10, labels=ids + 10).loss.backward()
    theirs.save_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()(ids).logits, after)
        assert torch.equal(from_transformers(tmp_path).eval()(ids), after)
        theirs.resize_token_embeddings(50, pad_to_multiple_of=8)
        assert theirs(ids).logits.shape[-1] == theirs.model.config.vocab_size == 56
    if tied:
        with pytest.raises(ValueError, match="the embedding is the vocabulary projection"):
            theirs.set_output_embeddings(nn.Linear(32, 56))


def test_assisted_decoding_and_sampling():
    model = to_transformers(made())
    ids = torch.randint(1, 50, (1, 7))
    plain = model.generate(ids, **PLAIN)
    assert torch.equal(model.generate(ids, prompt_lookup_num_tokens=2, **PLAIN), plain)
    sampling = {**PLAIN, "do_sample": True, "top_k": 5}
    torch.manual_seed(1)
    first = model.generate(ids, **sampling)
    torch.manual_seed(1)
    assert torch.equal(model.generate(ids, use_cache=False, **sampling), first)


def test_export_of_a_run(text_file, tmp_path, capsys):
    run, out = tmp_path / "run", tmp_path / "model"
    with pytest.raises(SystemExit):
        main(["train", "--corpus", f"text:{text_file}", "--steps", "4", "--eval-every", "2", "--out", str(run), *TINY])
    with pytest.raises(SystemExit) as stop:
        main(["export", str(run), str(out)])
    assert stop.value.code == 0
    from boosted_attention.train.folder import load_run

    trained = load_run(run)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    model = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    text = "bado kere, \n mipu."
    ids = tokenizer(text, return_tensors="pt").input_ids
    assert ids[0].tolist() == trained.tokenizer.encode(text)
    assert tokenizer.decode(ids[0]) == text
    with torch.no_grad():
        assert torch.equal(model(ids).logits, trained.model(ids))
    assert {path.suffix for path in out.iterdir()} <= {".json", ".safetensors", ".md"}
    capsys.readouterr()
    assert "is not an empty folder" in refused(["export", run, out], capsys)
    assert "is not a run folder" in refused(["export", tmp_path / "nowhere", tmp_path / "x"], capsys)
    assert not (tmp_path / "x").exists()
