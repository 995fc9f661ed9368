"""Model cards: they parse, run, state the numbers of the run and nothing else, and leave other people's texts alone."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from boosted_attention import boost, unboost
from boosted_attention.cli.export import known_of
from boosted_attention.cli.main import main
from boosted_attention.data.tokenizer import Tokenizer, byte_tokenizer
from boosted_attention.data.tokens import DataConfig
from boosted_attention.pretrained import FinetuneConfig, to_transformers
from boosted_attention.pretrained.card import Known, is_unchanged, model_card, write_card
from boosted_attention.pretrained.card_run import scores_of, with_run
from boosted_attention.pretrained.native import tokenizer_to_transformers
from boosted_attention.pretrained.origin import hub_name, stated_licence
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.folder import TrainedRun, load_run
from boosted_attention.train.metrics import read_result
from boosted_attention.train.run_config import RunConfig
from tests.pretrained.families import disturb, tiny, tokens
from tests.pretrained.test_boost import logits
from tests.pretrained.test_native import made

RUN = Path(__file__).parents[2] / "pairs" / "stdlib-1" / "boosted"
HOSTILE = "a`b``c* _d_ [x](y) <b>|&amp; 'q' \"r\" #\x1b[31m\u202e\r\n---\n# not a heading"


@pytest.fixture(scope="module")
def run():
    return load_run(RUN)


def export(out: Path) -> Path:
    """Write the run as ``export`` does, and return the folder."""
    with pytest.raises(SystemExit) as stop:
        main(["export", str(RUN), str(out)])
    assert stop.value.code == 0
    return out


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return export(tmp_path_factory.mktemp("exported") / "mini's `model`")


def executed(folder, monkeypatch):
    """The names that the Python block of a folder's card leaves behind, run beside the folder."""
    monkeypatch.chdir(folder.parent)
    (block,) = re.findall(r"^```python\n(.*?)^```$", (folder / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    names = {}
    exec(block, names)
    return names


def test_the_hub_can_read_it_and_numbers_are_those_of_the_run(exported, run):
    card = ModelCard.load(exported / "README.md")
    assert card.data.to_dict() == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["boosted-attention"],
    }
    result = json.loads((RUN / "result.json").read_text())
    test, best = result["test"], result["best"]
    assert (
        f"| test | {test['perplexity']:.4f} | {test['loss']:.4f} | {test['bits_per_byte']:.4f} | {test['tokens']:,} |"
    ) in card.text
    assert f"| {best['validation_perplexity']:.4f} | {best['validation_loss']:.4f} |" in card.text
    assert "Protocol `full`: every token of running text" in card.text
    assert f"{result['parameters']:,} parameters" in card.text
    assert f"{result['tokens']:,} in {result['steps']:,} steps" in card.text
    training = run.config.training
    for said in (
        f"`{result['data']}`",
        "`muon`",
        f"rate {training.lr:g}",
        f"matrices {training.matrix_lr:g}",
        "seed 1",
    ):
        assert said in card.text
    assert f"{training.steps:,} steps with {training.batch_size} rows of 128 tokens" in card.text
    assert (
        "| Boosted attention has a lower perplexity than standard attention. | stdlib, 0.4 M (preset quick) |"
        in card.text
    )
    assert "mini's \\`model\\`" in card.text


def test_the_code_of_an_exported_card_gives_the_same_logits(exported, run, monkeypatch, capsys):
    names = executed(exported, monkeypatch)
    ids = names["inputs"].input_ids
    assert torch.equal(logits(names["model"], ids), run.model(ids))
    assert capsys.readouterr().out.startswith("The")


@pytest.mark.parametrize("kind", ["ours", "boosted", "plain"])
@pytest.mark.parametrize("with_tokenizer", [True, False])
def test_the_code_of_any_card_gives_the_same_logits(kind, with_tokenizer, tmp_path, monkeypatch):
    folder, tokenizer = tmp_path / "a 'model'", tokenizer_to_transformers(Tokenizer(byte_tokenizer(), "bytes"), 32)
    size = len(tokenizer)
    if kind == "ours":
        model = to_transformers(made(vocab_size=size))
    else:
        model = tiny("llama", vocab_size=size)
        if kind == "boosted":
            disturb(boost(model))
    if with_tokenizer:
        tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    if kind == "plain":  # whose class is none of ours
        assert not (folder / "README.md").exists()
        write_card(folder, model, folder.name)
    assert ("AutoTokenizer" in (folder / "README.md").read_text()) == with_tokenizer
    assert ("import boosted_attention" in (folder / "README.md").read_text()) == (kind != "plain")
    names = executed(folder, monkeypatch)
    assert torch.equal(logits(names["model"], tokens()), logits(model, tokens()))


def test_the_class_that_a_card_names_loads_the_rest(tmp_path):
    import transformers

    base = logits(tiny("llama"), tokens())
    model = boost(tiny("llama"))
    disturb(model)
    model.save_pretrained(tmp_path)
    named = re.search(r"`(\w+)\.from_pretrained", (tmp_path / "README.md").read_text())[1]
    assert torch.equal(logits(getattr(transformers, named).from_pretrained(tmp_path).eval(), tokens()), base)


@pytest.mark.parametrize("text", ["my own words\n", "", "---\nlicense: mit\n---\n"])
def test_a_readme_of_ones_own_stays(text, tmp_path):
    model = boost(tiny("llama"))
    (tmp_path / "README.md").write_text(text)
    model.save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == text


def test_a_card_that_was_changed_stays_and_another_follows_the_model(tmp_path):
    model, path = boost(tiny("llama"), name="first"), tmp_path / "README.md"
    model.save_pretrained(tmp_path)
    card = path.read_bytes()
    assert is_unchanged(card)
    assert b"`first`" in card
    boost(model, name="second", n_rounds=3).save_pretrained(tmp_path)
    assert b"`second`" in path.read_bytes()
    changed = path.read_bytes().replace(b"A ", b"My ", 1)
    path.write_bytes(changed)
    model.save_pretrained(tmp_path)
    assert path.read_bytes() == changed
    path.unlink()
    model.save_pretrained(tmp_path, is_main_process=False)
    assert not path.exists()


def test_names_stay_text_on_their_line():
    model = boost(tiny("llama"), name=HOSTILE)
    model.add_model_tags([HOSTILE, "a: b", "- c", "{d}"])
    text = model_card(model, HOSTILE, Known(verdicts=[(HOSTILE, "a|b", "c")]), tokenizer=True)
    assert all(c == "\n" or c.isprintable() for c in text)
    shown = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e").replace("\r\n", "\\r\\n").replace("\n", "\\n")
    card = ModelCard(text)
    assert card.data.tags == ["boosted-attention", shown, "a: b", "- c", "{d}"]
    parsed = MarkdownIt("commonmark").enable("table").parse(card.text)
    headings = [parsed[i + 1] for i, token in enumerate(parsed) if token.type == "heading_open"]
    assert [plain(heading) for heading in headings] == [
        shown,
        "How to load it",
        "What the ledger says of this kind of layer",
    ]
    about = parsed[parsed.index(headings[0]) + 3]
    assert shown in [child.content for child in about.children if child.type == "code_inline"]
    (block,) = [token.content for token in parsed if token.type == "fence"]
    assert block.count(repr(HOSTILE)) == 2
    compile(block, "card", "exec")
    cells = [parsed[i + 1] for i, token in enumerate(parsed) if token.type == "td_open"]
    assert [plain(cell) for cell in cells] == [shown, "a|b", "c"]
    assert not [token for token in parsed if token.type == "html_block" and "sha256" not in token.content]


def plain(token):
    """What is shown of a line, which must have no formatting."""
    assert {child.type for child in token.children} <= {"text", "text_special"}
    return "".join(child.content for child in token.children)


def test_what_is_not_known_is_not_said(run, tmp_path):
    model, result = to_transformers(run.model), read_result(RUN)
    whole = model_card(model, "x", with_run(Known(), run, result))
    assert "## Perplexity" in whole
    unfinished = model_card(model, "x", with_run(Known(), run, None))
    for said in ("Perplexity", "tokens seen", "perplexity"):
        assert said not in unfinished
    assert scores_of(replace(run, step=1200), result) == []  # another checkpoint than the one that was measured
    untested = replace(result, test=None, problem="damaged")
    assert [row[0].split(",")[0] for row in scores_of(run, untested)] == ["validation"]
    alone = model_card(model, "x")
    for said in ("## Training", "license", "datasets", "base_model", "ledger"):
        assert said not in alone
    assert read_result(tmp_path) is None


def test_texts_are_named_without_their_path(run):
    def card_data(corpus):
        config = replace(run.config, data=DataConfig(corpus=corpus))
        known = with_run(Known(), replace(run, config=config), None)
        return ModelCard(model_card(to_transformers(run.model), "x", known))

    own = card_data("text:/home/somebody/secret/no`tes.txt")
    assert "``no`tes.txt``" in own.text
    assert "somebody" not in own.text
    assert own.data.datasets is None
    assert "`notes`" in card_data("text:notes/").text
    assert card_data("wikitext-2").data.datasets == ["Salesforce/wikitext"]
    assert card_data("my-corpus").data.datasets is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("owner/model", "owner/model"),
        ("gpt2", "gpt2"),
        ("/cache/models--owner--model/snapshots/0123abc", "owner/model"),
        ("/cache/models--gpt2/snapshots/0123abc/", "gpt2"),
        ("folder/here", None),
        ("/home/somebody/model", None),
        ("../model", None),
        ("", None),
    ],
)
def test_a_base_is_known_where_it_came_from_the_hub(name, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder" / "here").mkdir(parents=True)
    config = tiny("llama").config
    config.name_or_path = name
    assert hub_name(config) == expected


def test_the_base_of_a_boosted_model_is_remembered(tmp_path):
    model = tiny("llama")
    model.config.name_or_path = "owner/model"
    boost(model).save_pretrained(tmp_path / "boosted")
    loaded = type(model).from_pretrained(tmp_path / "boosted")
    loaded.save_pretrained(tmp_path / "again")
    for name in ("boosted", "again"):
        card = ModelCard.load(tmp_path / name / "README.md")
        assert card.data.base_model == "owner/model"
        assert "made from `owner/model`" in card.text
    unboost(loaded).save_pretrained(tmp_path / "plain")
    assert "unboosted" not in (tmp_path / "plain" / "config.json").read_text()


@pytest.mark.parametrize(
    ("front", "expected"),
    [
        ("---\nlicense: apache-2.0\n---\n", "apache-2.0"),
        ("---\nlicense: other\nlicense_name: mine\n---\n", None),
        ("---\nlicense: [mit, apache-2.0]\n---\n", None),
        ("---\nlicense: 'a: b'\n---\n", None),
        ("---\nlicense: [\n---\n", None),
        ("---\n- a list\n---\n", None),
        ("no front matter\n", None),
        (None, None),
    ],
)
def test_a_licence_is_known_where_the_base_states_it(front, expected, tmp_path, capsys):
    if front is not None:
        (tmp_path / "README.md").write_text(front)
    assert stated_licence(tmp_path) == expected
    assert capsys.readouterr().err == ""


def test_boost_and_fine_tuning_have_cards(tmp_path, capsys):
    base, out = tmp_path / "base", tmp_path / "boosted"
    tokenizer = tokenizer_to_transformers(Tokenizer(byte_tokenizer(), "bytes"), 32)
    tiny("llama", vocab_size=len(tokenizer)).save_pretrained(base)
    tokenizer.save_pretrained(base)
    (base / "README.md").write_text("---\nlicense: mit\n---\n")
    with pytest.raises(SystemExit):
        main(["boost", str(base), str(out), "--rank", "2", "--kv", "shared", "--name", "law"])
    card = ModelCard.load(out / "README.md")
    assert card.data.license == "mit"
    assert card.data.base_model is None
    assert "# boosted\n" in card.text
    assert "The corrections have not been trained" in card.text
    assert "`law` (light, of rank 2, with the layer's own keys and values; 1 round in each of 3 layers;" in card.text
    model = FinetuneConfig(base=str(out), vocab_size=len(tokenizer))
    config = RunConfig(model=model, training=TrainingConfig(epochs=2), data=DataConfig())
    run = TrainedRun(tmp_path / "run", config, model.build(), Tokenizer.load(out / "tokenizer.json"), 7, "abc")
    known = known_of(run)
    assert known.licence == "mit"
    text = model_card(run.model.whole(), "tuned", known)
    for said in ("trained: the corrections alone", f"`{model.weights[:16]}`", "2 epochs with", "after step 7", "`abc`"):
        assert said in text
    assert str(tmp_path) not in text
    assert "not been trained" not in text
    as_model = known_of(replace(run, fingerprint=""))  # a model's folder, of whose training nothing is known
    assert not as_model.training
    capsys.readouterr()


def test_a_result_of_another_run_is_refused(tmp_path):
    shutil.copytree(RUN, tmp_path / "run")
    (tmp_path / "run" / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"config\.json is damaged"):
        read_result(tmp_path / "run")
