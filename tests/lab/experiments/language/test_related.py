"""Related systems beside boosting, from perplexities made by hand."""

import pytest

from boosted_attention.analysis.halting import RoundsTaken
from boosted_attention.lab.experiments.language._arms import arm_model
from boosted_attention.lab.experiments.language.related import ARMS, EXPERIMENT, GAINS, OVER, SYSTEMS, counted
from boosted_attention.lab.judging.facts import OWN_PROJECTIONS
from boosted_attention.lab.presets import PRESETS
from tests.lab.experiments.made import TEXT, check, percent, perplexities, row, shifted, verdicts

VALUES = {
    "standard": (70.0, 71.5, 71.0),
    "boosted": (67.0, 68.2, 68.0),
    "Universal Transformer": (69.0, 70.6, 70.0),
    "DeepCrossAttention": (68.0, 69.1, 69.4),
    "Attention Residuals": (66.0, 67.6, 67.0),
}
FED = {"cross": "DeepCrossAttention", "attention": "Attention Residuals"}


def arm_of(options):
    if "feed" in options:
        return FED[options["feed"]]
    return "Universal Transformer" if "n_repeats" in options else options["attention"]


def made(*tables, taken=()):
    counts = {trial.key: RoundsTaken(mean=2.0 + i, layers=[2.0 + i], kinds={}) for i, trial in enumerate(taken)}
    texts = dict(zip(TEXT.text.corpora, tables, strict=True))
    return EXPERIMENT.table(TEXT, perplexities(TEXT, texts, arm_of, counts))


def test_repeats_that_tokens_take_are_told_where_they_were_counted():
    (first, *_) = TEXT.text.corpora
    trials = counted(TEXT, first)
    assert len(trials) == len(TEXT.text.seeds)
    assert all(trial.config["model"]["model"]["halting"] == "act" for trial in trials.values())
    told = [note for note in made(VALUES, VALUES, taken=trials.values()).notes if "of 3 repeats" in note]
    assert [note.partition(" [")[0] for note in told] == [f"{first}: tokens take 3.00"]
    assert not any("of 3 repeats" in note for note in made(VALUES, VALUES).notes)


def test_every_system_is_compared_with_boosting_and_with_the_standard_model():
    other = shifted(VALUES, 30.0)
    table = made(VALUES, other)
    for text, v in (("stdlib", VALUES), ("wikitext-103", other)):
        for system in SYSTEMS:
            check(table, {OVER[system].quantity.on(text): percent(v["boosted"], v[system])})
            check(table, {GAINS[system].quantity.on(text): percent(v[system], v["standard"])})
            mean = sum(v[system]) / 3
            assert row(table, f"{system} | {text}")[:2] == [mean, mean + 1000]


@pytest.mark.parametrize(("by", "verdict"), [(0.0, "reproduced"), (-4.0, "contradicted")])
def test_weights_of_their_own_are_judged_against_repeated_blocks(by, verdict):
    moved = {**VALUES, "Universal Transformer": [v + by for v in VALUES["Universal Transformer"]]}
    assert verdicts(EXPERIMENT, made(moved, VALUES), "stdlib") == {"lm-own-projections": verdict}
    assert EXPERIMENT.claims[0].fact is OWN_PROJECTIONS


def test_repeated_blocks_have_the_standard_models_weights_and_more_flops_than_boosting():
    models = {name: arm_model(PRESETS["arena"], arm) for name, arm in ARMS.items()}
    standard, boosted, universal = models["standard"], models["boosted"], models["Universal Transformer"]
    assert universal.flops() > boosted.flops()
    halting = standard.d_model + 1  # the unit that decides whether a token stops
    assert universal.num_params() == standard.num_params() + halting
