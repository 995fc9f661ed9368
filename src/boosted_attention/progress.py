"""Progress: how the parts of the library tell how far they are."""

from collections.abc import Callable

Progress = Callable[[float], None]  # called with the fraction that is done
