"""Presets: what they promise, and that they survive being written down."""

import json
from collections import defaultdict

import pytest

from boosted_attention.lab.experiments.language._arms import arm_model, main_arms
from boosted_attention.lab.judging.verdicts import FEWEST_SEEDS
from boosted_attention.lab.presets import PAPERS_SEEDS, PRESETS, Preset
from boosted_attention.lab.reproduce import all_trials
from boosted_attention.records import to_json
from boosted_attention.validation import InputError


def test_the_paper_preset_is_the_papers():
    base = PRESETS["paper"].text.configuration()
    t, d = base.training, base.data
    assert (t.epochs, t.batch_size, t.lr, t.warmup, t.horizon, t.weight_decay, t.clip) == (
        15,
        32,
        3e-4,
        1500,
        0,
        0.01,
        1.0,
    )
    assert (t.layout, t.protocol, t.eval_every, t.eval_unit, t.beta2) == ("rows", "paper", 1, "epochs", 0.999)
    assert (d.tokenizer, d.train_tokens) == ("paper", 10_000_000)
    m = base.model
    assert (m.vocab_size, m.max_len, m.n_layers, m.n_heads, m.dropout, m.norm) == (16_384, 256, 4, 4, 0.1, "pre")
    assert PAPERS_SEEDS == (42, 123)
    assert PRESETS["paper"].text.seeds[:2] == PAPERS_SEEDS  # and three of ours
    assert [arm_model(PRESETS["paper"], arm).num_params() for arm in main_arms(PRESETS["paper"]).values()] == [
        7_419_392,
        7_419_392,
        8_789_184,
        8_734_208,
    ]


# Where a preset is meant to decide something; elsewhere it shows that everything runs, or what one seed looks like.
TEXTS = ("cpu", "arena", "forms", "rounds", "paper")
DECIDES = {"synthetic": ("quick", "look", *TEXTS), "text": TEXTS}


def test_a_preset_has_seeds_enough_where_it_is_meant_to_decide():
    for name, preset in PRESETS.items():
        assert name in DECIDES["synthetic"] or not preset.has_papers_steps  # where its figures are judged
        assert name in DECIDES["text"] or not preset.text.is_the_papers
        if name in DECIDES["synthetic"]:
            assert min(preset.seeds, preset.long_seeds) >= FEWEST_SEEDS, name
        if name in DECIDES["text"]:
            text = preset.text
            assert min([len(text.seeds), *text.arms.values(), *text.arms_elsewhere.values()]) >= FEWEST_SEEDS, name
            assert all(size.seeds >= FEWEST_SEEDS for size in text.sizes), name
            assert text.tournament is None or len(text.tournament.final_seeds) >= FEWEST_SEEDS, name
    paper = PRESETS["paper"]
    assert min(paper.finetune.n_seeds, len(paper.recall.seeds), paper.tree_seeds) >= FEWEST_SEEDS
    seeds = defaultdict(set)
    for trial in all_trials(["lm-main", "lm-normalization", "lm-kv-source"], paper):
        seeds[trial.group, trial.config["data"]["corpus"]].add(trial.config["training"]["seed"])
    assert {len(own) for own in seeds.values()} == {5}
    assert len(set(paper.with_seeds(8).text.seeds)) == 8


def test_seeds_can_be_more_than_the_presets():
    assert PRESETS["quick"].with_seeds(3).text.seeds == (42, 123, 1000)
    for preset in PRESETS.values():
        assert Preset.from_dict(json.loads(json.dumps(to_json(preset)))) == preset
    assert len(all_trials(["lm-main"], PRESETS["quick"])) == 8


def test_more_seeds_are_given_to_every_half():
    more = PRESETS["cpu"].with_seeds(5)
    assert (more.seeds, more.long_seeds, more.finetune.n_seeds) == (5, 5, 5)
    assert more.text.seeds == (42, 123, 7, 1000, 1001)
    assert PRESETS["cpu"].with_seeds(2).text.seeds == (42, 123)
    assert PRESETS["cpu"].with_seeds(None) == PRESETS["cpu"]
    with pytest.raises(InputError, match="seeds=0 must be an integer of at least 1"):
        PRESETS["cpu"].with_seeds(0)


def test_texts_are_taken_in_order_and_once():
    assert PRESETS["cpu"].with_corpora(["b", "a", "b"]).text.corpora == ("b", "a")
    assert PRESETS["cpu"].with_corpora([]) == PRESETS["cpu"]
    assert PRESETS["cpu"].with_pretrained("m", "abc").finetune.pretrained == {"name": "m", "weights": "abc"}


def test_only_the_papers_own_settings_count_as_the_papers():
    assert {name: preset.has_papers_steps for name, preset in PRESETS.items()} == {
        "smoke": False,
        "quick": True,
        "cpu": True,
        "arena": True,
        "forms": True,
        "rounds": True,
        "look": True,
        "paper": True,
    }
    assert [name for name, preset in PRESETS.items() if preset.text.is_the_papers] == ["paper"]


@pytest.mark.parametrize(
    ("key", "value"), [("seeds", 0), ("steps", -1), ("test_size", "many"), ("text", {"seeds": []})]
)
def test_a_damaged_preset_is_refused(key, value):
    with pytest.raises(ValueError, match=r"counts|must be"):
        Preset.from_dict({**to_json(PRESETS["quick"]), key: value})


def test_a_look_at_the_papers_model_is_no_part_of_the_arena():
    """Its size and its wider rival are the paper's, its training the arena's; one seed cannot tell anything."""
    look = PRESETS["look"]
    base = look.text.configuration()
    assert (base.model.d_model, base.model.vocab_size, base.model.max_len) == (256, 16_384, 256)
    assert base.training.steps * base.training.batch_size * base.model.max_len == pytest.approx(4e6, rel=1e-3)
    assert (base.training.optimizer, len(look.text.seeds)) == ("muon", 1)
    assert {t.group for t in all_trials(look.experiments, look)} == {"standard", "boosted", "param-fair"}
    assert main_arms(look)["param-fair"]["d_model"] == 288
    assert not look.text.is_the_papers
