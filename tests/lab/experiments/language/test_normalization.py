"""Table 4 from perplexities made by hand."""

import pytest

from boosted_attention.lab.experiments.language.normalization import (
    BOOSTED_POST,
    BOOSTED_PRE,
    EXPERIMENT,
    FAIR_POST,
    FAIR_PRE,
    PERPLEXITY,
)
from tests.lab.experiments.made import (
    PAPERS_TEXT,
    TEXT,
    check,
    main_arm,
    papers,
    percent,
    perplexities,
    row,
    shifted,
    verdicts,
)

VALUES = {
    "standard": (72.1, 72.3, 72.2),
    "param-fair": (69.05, 68.95, 69.0),
    "boosted": (67.95, 67.85, 67.9),
    "standard, post": (77.1, 77.3, 77.2),
    "param-fair, post": (71.85, 71.75, 71.8),
    "boosted, post": (84.7, 84.5, 84.6),
}


def arm_of(options):
    norm = options.pop("norm", "pre")
    return main_arm(options) + (", post" if norm == "post" else "")


def made(preset, *tables):
    return EXPERIMENT.table(preset, perplexities(preset, dict(zip(preset.text.corpora, tables, strict=True)), arm_of))


def test_each_placement_is_compared_with_its_own_standard():
    other = shifted(VALUES, 50.0)
    table = made(TEXT, VALUES, other)
    for text, v in (("stdlib", VALUES), ("wikitext-103", other)):
        check(
            table,
            {
                BOOSTED_PRE.quantity.on(text): percent(v["boosted"], v["standard"]),
                BOOSTED_POST.quantity.on(text): percent(v["boosted, post"], v["standard, post"]),
                FAIR_PRE.quantity.on(text): percent(v["param-fair"], v["standard"]),
                FAIR_POST.quantity.on(text): percent(v["param-fair, post"], v["standard, post"]),
            },
        )
        check(table, {q.on(text): v[f"{arm}, post"] for arm, q in PERPLEXITY.items()})
        assert {label: row(table, f"{label} | {text}")[0] for label in v} == {k: sum(own) / 3 for k, own in v.items()}


def test_the_papers_percentages_follow_from_its_perplexities():
    assert [r.quantity.paper for r in (BOOSTED_PRE, BOOSTED_POST, FAIR_PRE, FAIR_POST)] == [-6.0, 9.6, -4.4, -7.0]


def test_numbers_like_the_papers_reproduce_it():
    table = made(PAPERS_TEXT, VALUES, shifted(VALUES, 0.0))
    found = verdicts(EXPERIMENT, table, "wikitext-103")
    assert set(found.values()) == {"reproduced"}
    assert len(found) == len(EXPERIMENT.claims)
    assert papers(table, "boosted, post | wikitext-103")[0] == 84.6
    assert papers(table, "boosted, post | openwebtext")[0] is None


@pytest.mark.parametrize(
    ("arm", "value", "claim"),
    [
        ("boosted, post", 60.0, "lm-post-reverses"),
        ("boosted", 90.0, "lm-pre-helps"),
        ("param-fair, post", 90.0, "lm-post-wide-helps"),
        ("param-fair", 90.0, "lm-pre-wide-helps"),
    ],
)
def test_each_part_is_contradicted_by_its_own_arm(arm, value, claim):
    moved = {**VALUES, arm: [value, value + 0.2, value - 0.1]}
    found = verdicts(EXPERIMENT, made(TEXT, moved, VALUES), "stdlib")
    assert [id for id, verdict in found.items() if verdict == "contradicted"] == [claim]
