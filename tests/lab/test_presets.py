"""Presets: what they promise, and that they survive being written down."""

import json

from boosted_attention.lab.experiments.language._shared import main_arms
from boosted_attention.lab.experiments.language._trials import arm_model
from boosted_attention.lab.presets import PRESETS, Preset
from boosted_attention.lab.reproduce import all_trials
from boosted_attention.records import to_json


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
    assert PRESETS["paper"].text.seeds == (42, 123)
    assert [arm_model(PRESETS["paper"], arm).num_params() for arm in main_arms(PRESETS["paper"]).values()] == [
        7_419_392,
        7_419_392,
        8_789_184,
        8_734_208,
    ]


def test_seeds_can_be_more_than_the_presets():
    assert PRESETS["quick"].with_seeds(3).text.seeds == (42, 123, 1000)
    for preset in PRESETS.values():
        assert Preset.from_dict(json.loads(json.dumps(to_json(preset)))) == preset
    assert len(all_trials(["lm-main"], PRESETS["quick"])) == 8
