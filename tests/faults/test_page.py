"""docs/reliability.md says what the last full run counted."""

from tests.faults.hunts import HUNTS
from tests.faults.page import PAGE, kept, render


def test_the_page_is_that_of_the_counts():
    assert PAGE.read_text() == render(kept())


def test_the_last_full_run_was_full():
    assert {name: count.done for name, count in kept().items()} == {hunt.name: hunt.attempts for hunt in HUNTS}
