"""Our language models behind transformers' interface: the same numbers, cached or not, saved and loaded."""

import pytest
import torch
import transformers
from torch import nn

from boosted_attention import LanguageModelConfig, list_attention
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


def test_other_caches_are_refused():
    model = to_transformers(made())
    with pytest.raises(ValueError, match="cannot hold the rounds of this model; use a DynamicCache"):
        model.generate(torch.ones(1, 3, dtype=torch.long), cache_implementation="static", **PLAIN)


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
    assert {path.suffix for path in out.iterdir()} <= {".json", ".safetensors"}
    capsys.readouterr()
    assert "is not an empty folder" in refused(["export", run, out], capsys)
    assert "is not a run folder" in refused(["export", tmp_path / "nowhere", tmp_path / "x"], capsys)
    assert not (tmp_path / "x").exists()
