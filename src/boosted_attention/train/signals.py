"""SIGTERM and SIGINT: they end a training after the step it is in, with everything saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from boosted_attention.train.parallel import job

STOPS = (signal.SIGTERM, signal.SIGINT)


class Stopped(Exception):  # noqa: N818
    """A signal asked for the end of a training; everything is saved, and ``exit_code`` is what a shell expects.

    Args:
        signal_number: the signal.
        step: updates done.
    """

    def __init__(self, signal_number: int, step: int):
        super().__init__(f"stopped by {signal.Signals(signal_number).name} after step {step}; resume=True goes on")
        self.exit_code = 128 + signal_number


@contextmanager
def stop_signals() -> Iterator[Callable[[], int | None]]:
    """Remember SIGTERM and SIGINT instead of ending the process; a second one ends it.

    Yields a function that returns the signal that came first, or None. Under torchrun a second signal does not end the
    process: torchrun passes on what the process may have been sent already, and ends it after a while by itself.
    """
    received: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if job() is None:
            signal.signal(number, before[signal.Signals(number)])

    if threading.current_thread() is not threading.main_thread():
        yield lambda: None  # only the main thread may have handlers
        return
    before = {number: signal.getsignal(number) for number in STOPS}
    for number in before:
        signal.signal(number, remember)
    try:
        yield lambda: received[0] if received else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
