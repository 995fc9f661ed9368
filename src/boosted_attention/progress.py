"""Progress: how the parts of the library tell how far they are."""

from collections.abc import Callable

Progress = Callable[[float], None]  # called with the fraction that is done


def part(progress: Progress, first: float, last: float) -> Progress:
    """Return the progress of one part of something.

    Args:
        progress: told the fraction of the whole.
        first: fraction of the whole where the part begins.
        last: fraction where it ends.
    """
    return lambda fraction: progress(first + fraction * (last - first))
