"""Works for the tests of trials."""

import os
import time

from boosted_attention.lab.trials.trial import work


@work("test.count")
def count(context, *, value, log):
    """Leave a line each time it really runs."""
    with open(log, "a") as file:
        file.write(f"{value}\n")
    context.progress(1.0)
    return {"value": value, "double": 2 * value}


@work("test.crash")
def crash(context, *, marker):
    """Fail until the marker exists."""
    if not os.path.exists(marker):
        raise RuntimeError("made to crash")
    return "well"


@work("test.die")
def die(context):
    os.kill(os.getpid(), 9)


@work("test.slow")
def slow(context, *, value, seconds):
    for i in range(100):
        time.sleep(seconds / 100)
        context.progress(i / 100)
    return value


@work("test.span")
def span(context, *, value):
    """Say from when to when it was done."""
    start = time.monotonic()
    time.sleep(0.3)
    return [start, time.monotonic()]


@work("test.timed", alone=True)
def timed(context, *, value):
    return span(context, value=value)


@work("test.passes")
def passes(context, *, busy):
    """Take 0.4 seconds: of the processor, or asleep."""
    until = time.process_time() + 0.4
    if not busy:
        time.sleep(0.4)
    while busy and time.process_time() < until:
        pass


@work("test.silent")
def silent(context, *, value):
    """Say who does it, and report nothing for a long time."""
    (context.folder / "pid").write_text(str(os.getpid()))
    time.sleep(100)
    return value


@work("test.differently")
def differently(context, *, marker):
    """Fail with a reason the first time, without one the second."""
    if os.path.exists(marker):
        os._exit(7)
    open(marker, "w").close()
    raise RuntimeError("old reason")


@work("test.tell")
def tell(context, *, value):
    """Say what a trial is given besides its configuration."""
    context.shared.mkdir(parents=True, exist_ok=True)
    return {
        "value": value,
        "device": context.settings.device,
        "data_root": context.settings.data_root,
        "folder": context.folder.name,
        "earlier": [{"config": dict(e.config), "result": e.result, "folder": e.folder.name} for e in context.earlier],
    }
