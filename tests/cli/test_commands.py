"""Commands as text: they mean what was counted and computed."""

import json
import shlex
from dataclasses import replace

import pytest

from boosted_attention import LanguageModelConfig
from boosted_attention.cli import train as train_cli
from boosted_attention.cli.commands import reproduce_command, train_command
from boosted_attention.cli.main import parse
from boosted_attention.lab.presets import PRESETS
from boosted_attention.planning.cluster import Cluster, planned_models
from boosted_attention.train.recipes import RECIPES

BIG = Cluster(devices=8, tflops=150.0, memory=80e9)


@pytest.mark.parametrize("recipe", ["mini", "paper-small"])
def test_commands_train_what_was_counted(recipe):
    for arm in planned_models(recipe, 10**7, BIG):
        words = train_command(arm).split()
        assert words[:6] == ["torchrun", "--nproc-per-node", "8", "-m", "boosted_attention", "train"]
        given = parse(train_cli.prepare(words[6:]), "train", words[6:]).keywords
        assert given["model"] == arm.model
        assert given["training"].total_steps(10**6) == arm.steps
        tokens = arm.steps * given["training"].batch_size * arm.model.max_len
        assert 10**7 <= tokens < 10**7 + given["training"].batch_size * arm.model.max_len


def test_commands_of_odd_configurations(tmp_path):
    """What a run's config.json may hold comes back from the command line as it was."""
    model = LanguageModelConfig(
        tie_weights=False,
        boosted_layers=(0, 2),
        n_kv_heads=2,
        attention_options={"n_rounds": 3, "n_kv_heads": [4, 2, 1]},
    )
    training = replace(RECIPES["mini"].training, compile=True, batch_size=16)
    text = replace(RECIPES["mini"].data, corpus="text:my notes/*.txt")
    recipe = replace(RECIPES["mini"], model=model, training=training, data=text)
    (tmp_path / "config.json").write_text(json.dumps({**recipe.to_dict(), "fingerprint": ""}))
    arm = planned_models(str(tmp_path), 10**6, replace(BIG, devices=16))[0]
    words = shlex.split(train_command(arm))
    assert words[:5] == ["torchrun", "--nnodes", "2", "--rdzv-backend", "c10d"]
    words = words[words.index("train") + 1 :]
    given = parse(train_cli.prepare(words), "train", words).keywords
    options = dict(map(train_cli.parse_option, given["attention_options"]))
    assert replace(given["model"], boosted_layers=(0, 2), attention_options=options) == arm.model
    assert given["model"].attention_layers() == {0, 2}
    assert (given["training"].compile, given["training"].batch_size) == (True, 16)
    assert given["data"].corpus == "text:my notes/*.txt"
    head = 2 * 16 * arm.model.max_len * 4  # bytes of keys and values
    assert arm.memories[0].cache_of_rounds == (12 * head, 4 * head, 2 * head)  # of 4 + 2 + 4 + 2 heads, 2 + 2, 1 + 1


def test_commands_name_what_differs():
    preset = PRESETS["cpu"].with_corpora(["text:a b.txt"]).with_seeds(5)
    assert reproduce_command("lm-main", preset) == (
        "boosted-attention reproduce lm-main --preset cpu --seeds 5 --corpus 'text:a b.txt'"
    )
    two = PRESETS["quick"].with_corpora(["stdlib", "wikitext-2"])
    assert reproduce_command("lm-main", two).endswith("--preset quick --corpus stdlib wikitext-2")
    assert reproduce_command("rounds", PRESETS["quick"]) == "boosted-attention reproduce rounds --preset quick"
