"""The gain by width, from perplexities made by hand that lie on known lines."""

import math

import pytest

from boosted_attention import LanguageModelConfig
from boosted_attention.lab.experiments.language import scale
from boosted_attention.lab.experiments.language.scale import BY_LOSS, BY_WIDTH, EXPERIMENT, OWN_WIDTH, slope
from boosted_attention.lab.presets import PRESETS
from boosted_attention.train.config import TrainingConfig
from tests.lab.experiments.made import TEXT, check, language_result, ledger, row, text_results

WIDTHS = (8, 16, 24)
STANDARD = {8: (90.0, 92.0, 91.0), 16: (70.0, 71.0, 73.0), 24: (60.0, 62.0, 61.0)}
PER_FOLD = (1.0, 1.5, 2.0)  # points of gain that each seed adds per e-fold of width
AT_OWN = (4.0, 5.0, 6.0)  # percent gained at the preset's width


def gain(width, i, sign=1):
    """Percent by which the boosted model's perplexity is lower."""
    return AT_OWN[i] + sign * PER_FOLD[i] * math.log(width / 16)


def made(sign=1, corpora=(0.0, 20.0)):
    more = dict(zip(TEXT.text.corpora, corpora, strict=True))
    standard_width = {}  # the matched model's own width: that of the boosted one

    def result(corpus, options, i):
        if options["attention"] == "boosted":
            width = options.get("d_model", 16)
            return language_result((STANDARD[width][i] + more[corpus]) * (1 - gain(width, i, sign) / 100))
        width = min(WIDTHS, key=lambda d: abs(d - options.get("d_model", 16)))
        standard_width[options.get("d_model", 16)] = width
        return language_result(STANDARD[width][i] + more[corpus])

    table = EXPERIMENT.table(TEXT, text_results(TEXT, result))
    assert sorted(standard_width.values()) == sorted(WIDTHS)  # one matched model per width
    return table


@pytest.mark.parametrize("sign", [1, -1])
def test_a_gain_that_grows_has_a_slope_above_zero(sign):
    table = made(sign)
    for text, more in zip(TEXT.text.corpora, (0.0, 20.0), strict=True):
        by_loss = []
        for i in range(3):
            x = [math.log(STANDARD[d][i] + more) for d in WIDTHS]
            y = [-gain(d, i, sign) for d in WIDTHS]
            mx, my = sum(x) / 3, sum(y) / 3
            by_loss.append(sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sum((a - mx) ** 2 for a in x))
        check(
            table,
            {
                OWN_WIDTH.on(text): [-g for g in AT_OWN],
                BY_WIDTH.on(text): [sign * g for g in PER_FOLD],
                BY_LOSS.on(text): by_loss,
            },
        )
        for d in WIDTHS:
            mean = sum(STANDARD[d]) / 3 + more
            gained = sum(gain(d, i, sign) for i in range(3)) / 3
            shown = row(table, f"d={d} | {text}")
            assert shown[1:] == [mean, -gained]


def test_the_question_is_answered_and_not_judged():
    judged = ledger(EXPERIMENT, made())
    assert [(row.claim.id, row.verdict) for row in judged.rows] == [("lm-scale", "open")] * 2


def test_the_slope_is_that_of_the_line():
    assert slope([0, 1, 2], [1, 3, 5]) == pytest.approx(2.0)
    assert slope([0, 1, 2], [5, 3, 1]) == pytest.approx(-2.0)


def test_widths_of_lm_scale_are_trained_alike():
    """Tokens per parameter and the part of the schedule that is run are the same at every width."""
    for name in ("quick", "cpu"):
        seen = []
        for width in scale.widths(PRESETS[name]):
            trial, _ = scale.pair(PRESETS[name], "stdlib", width, 42)
            training = TrainingConfig(**trial.config["training"])
            parameters = LanguageModelConfig.from_dict(trial.config["model"]).num_params()
            end = training.lr_at(training.steps, training.steps) / training.lr
            seen.append((training.steps / parameters, end))
        assert [a for a, _ in seen] == pytest.approx([seen[1][0]] * 3, rel=0.02)
        assert [b for _, b in seen] == pytest.approx([seen[1][1]] * 3, abs=0.01)
    paper = PRESETS["paper"]
    steps = [scale.pair(paper, "wikitext-103", w, 42)[0].config["training"]["steps"] for w in scale.widths(paper)]
    assert steps[0] < 18_300 / 2 < 18_300 < steps[2]
