"""Training needed to reach each other's end, from validation curves made by hand."""

import pytest

from boosted_attention.lab.experiments.language.convergence import EXPERIMENT, STEPS_TO, steps_to, timings
from boosted_attention.lab.work.timing import StepRatios
from tests.lab.experiments.made import PAPERS_TEXT, TEXT, check, language_result, main_arm, row, text_results, verdicts

# Curves fall on a line from 8.0 to their end over 100 steps; the boosted one falls to 4.0.
ENDS = {"boosted": 4.0, "param-fair": 4.8, "standard": 5.3, "twicing": 5.0}
SMALL = (0.0, 0.02, -0.02)  # by seed, of the goals
FLOPS = {"boosted": 3_000_000, "param-fair": 4_000_000, "standard": 2_000_000, "twicing": 5_000_000}
RATIOS = {"standard": 1.0, "param-fair": 3.0, "twicing": 0.5, "boosted": 1.5}  # of step times


def made(preset=TEXT, ends=ENDS, timed=True):
    def result(corpus, options, i):
        arm = main_arm(options)
        small = 0.0 if arm == "boosted" else SMALL[i]
        end = ends[arm] + small + (0.1 if corpus == preset.text.corpora[1] and arm != "boosted" else 0.0)
        return language_result(
            50.0,
            curve=[(0, 8.0), (50, (8.0 + end) / 2), (100, end)],
            final_validation_loss=end,
            steps=100,
            flops_per_token=FLOPS[arm],
        )

    times = {timings(preset).key: StepRatios(measured=RATIOS)} if timed else {}
    return EXPERIMENT.table(preset, text_results(preset, result, times))


def needed(goal, more=0.0, ends=ENDS):
    """Percent of the goal's run that the boosted model needs beyond it, by seed."""
    return [100 * ((8.0 - (ends[goal] + small + more)) / (8.0 - ends["boosted"]) - 1) for small in SMALL]


def test_steps_to_every_end():
    table = made()
    for other, quantity in STEPS_TO.items():
        check(table, {quantity.on("stdlib"): needed(other), quantity.on("wikitext-103"): needed(other, 0.1)})
        share = sum(needed(other)) / 3 / 100 + 1
        factors = (1.0, FLOPS["boosted"] / FLOPS[other], RATIOS["boosted"] / RATIOS[other])
        assert row(table, f"boosted, to the end of {other} | stdlib") == [100 * (share * f - 1) for f in factors]
        assert row(table, f"{other}, to the end of boosted | stdlib") == [None] * 3
    assert not table.failed  # it is the others that do not arrive


def test_steps_that_were_not_timed_have_no_seconds():
    table = made(timed=False)
    timed = made()
    for other in STEPS_TO:
        label = f"boosted, to the end of {other} | stdlib"
        assert row(table, label) == [*row(timed, label)[:2], None]
    assert table.notes[-1] == "Steps were not timed: there are no seconds."
    assert table.quantities == timed.quantities


def test_an_end_that_is_not_reached_has_failed_and_is_not_left_out():
    table = made(ends={**ENDS, "param-fair": 3.99})
    quantity = STEPS_TO["param-fair"].on("stdlib")
    assert table.failed[quantity] == "reached by 1 of 3 seeds"
    assert any("boosted, to the end of param-fair | stdlib (1 of 3 seeds)" in note for note in table.notes)
    assert quantity not in table.quantities
    assert verdicts(EXPERIMENT, table, "stdlib") == {
        "lm-convergence-wide": "failed",
        "lm-convergence-standard": "reproduced",
    }


def test_an_end_that_two_seeds_do_not_reach_cannot_be_told():
    table = made(TEXT.with_seeds(2), {**ENDS, "param-fair": 3.9})
    quantity = STEPS_TO["param-fair"].on("stdlib")
    assert table.undecided[quantity] == "reached by 0 of 2 seeds, 3 are needed"
    assert not table.failed
    assert verdicts(EXPERIMENT, table, "stdlib")["lm-convergence-wide"] == "cannot tell"


def test_numbers_like_the_papers_reproduce_it():
    found = verdicts(EXPERIMENT, made(PAPERS_TEXT, {**ENDS, "standard": 5.32}), "wikitext-103")
    assert set(found.values()) == {"reproduced"}
    assert len(found) == 4


def test_another_size_of_the_gain_is_not_reproduced():
    found = verdicts(EXPERIMENT, made(PAPERS_TEXT, {**ENDS, "standard": 6.8}), "wikitext-103")
    assert (found["lm-convergence-standard"], found["lm-convergence-standard-size"]) == ("reproduced", "not reproduced")


@pytest.mark.parametrize(("loss", "steps"), [(7.0, 50), (6.0, 100), (5.5, 150), (5.0, 200), (4.0, None)])
def test_steps_lie_on_the_line_between_evaluations(loss, steps):
    assert steps_to([(0, 8.0), (100, 6.0), (200, 5.0)], loss) == steps
