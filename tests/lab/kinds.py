"""Work for the runner's tests."""

import os
import time


def count(progress, *, value, log):
    """Leave a line each time it really runs."""
    with open(log, "a") as file:
        file.write(f"{value}\n")
    progress(1.0)
    return {"value": value, "double": 2 * value}


def crash(progress, *, marker):
    """Fail until the marker exists."""
    if not os.path.exists(marker):
        raise RuntimeError("made to crash")
    return "well"


def die(progress):
    os.kill(os.getpid(), 9)


def slow(progress, *, value, seconds):
    for i in range(100):
        time.sleep(seconds / 100)
        progress(i / 100)
    return value


def differently(progress, *, marker):
    """Fail with a reason the first time, without one the second."""
    if os.path.exists(marker):
        os._exit(7)
    open(marker, "w").close()
    raise RuntimeError("old reason")
