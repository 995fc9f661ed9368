"""What a person sees while trials go on, outside a terminal."""

import io

from rich.console import Console

from boosted_attention.lab.trials.display import Display
from boosted_attention.lab.trials.trial import Trial
from tests.lab.trials import works  # noqa: F401  registers them


def trials(*labels):
    return [Trial(work="test.count", config={"value": i}, label=label, seconds=10.0) for i, label in enumerate(labels)]


def test_labels_and_problems_are_shown_as_they_are():
    """Square brackets are no markup, whatever a folder or a text is called."""
    shown = io.StringIO()
    label = "boosted, text:[bold]x[/bold].txt"
    (one, two) = trials(label, "another")
    with Display([one, two], 3, Console(file=shown, width=200)) as display:
        display.start(one, "job 7 on [red]node[/red]")
        display.end(one, 2.0, None)
        display.start(two)
        display.end(two, 3.0, "no [dim]luck[/dim]")
    lines = shown.getvalue().splitlines()
    assert lines[0] == f"{label}: job 7 on [red]node[/red]"
    assert lines[1].startswith(f"[4/5] {label}: done, 2.0 s; ")
    assert lines[2].startswith("[5/5] another: FAILED (no [dim]luck[/dim]), 3.0 s; ")
    assert len(lines) == 3


def test_the_time_left_follows_from_the_work_done(monkeypatch):
    """A quarter of the expected work in ten seconds leaves thirty."""
    (one, two) = trials("one", "two")
    display = Display([one, two], 0, Console(file=io.StringIO()))
    assert display.left() == "?"
    display.start(one)
    display.advance(one, 0.5)
    display.started = 0.0
    monkeypatch.setattr("boosted_attention.lab.trials.display.time.monotonic", lambda: 10.0)
    assert display.left() == "0:30"
    display.end(one, 10.0, None)
    assert display.left() == "0:10"
