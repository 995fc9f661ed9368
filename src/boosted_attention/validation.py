"""Error messages that name the option, the value and what would have been right."""

import difflib
import math
from collections.abc import Collection, Iterable, Sequence
from typing import TypeGuard


class InputError(ValueError):
    """What the user passed is wrong; the message says which input, what was wrong and what would be right."""


def nearest(value: object, allowed: Iterable[str]) -> str:
    """A hint such as "; did you mean 'vector'?", or nothing when no allowed name is close."""
    match = difflib.get_close_matches(str(value), list(allowed), n=1, cutoff=0.5)
    return f"; did you mean {match[0]!r}?" if match else ""


def require_choice(option: str, value: object, allowed: Collection[str]) -> None:
    """Raise InputError unless ``value`` is one of the ``allowed`` names."""
    if value not in allowed:
        allowed = list(allowed)
        names = ", ".join(repr(name) for name in allowed)
        raise InputError(f"{option}={value!r} is not one of {names}{nearest(value, allowed)}")


def require(condition: bool, message: str) -> None:
    """Raise InputError(message) unless the condition holds: for what the user passed, never for invariants."""
    if not condition:
        raise InputError(message)


def is_count(value: object) -> bool:
    """Whether it is an integer of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def is_seed(value: object) -> bool:
    """Whether it is an integer that torch takes as a seed."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a finite int or float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def divisors(n: int) -> str:
    """List the divisors of n, for messages that say what would be allowed."""
    small = [i for i in range(1, math.isqrt(n) + 1) if n % i == 0]
    return shortened([str(i) for i in sorted({*small, *(n // i for i in small)})], 24)


def require_count(option: str, value: object, most: int) -> None:
    """Raise InputError unless a value is an integer from 1 to ``most``."""
    require(is_count(value), f"{option}={value!r} must be an integer of at least 1")
    if isinstance(value, int):
        require(value <= most, f"{option}={value} is more than {most:,}, the most that is possible")


def shortened(names: Sequence[str], shown: int = 3) -> str:
    """A list that fits into a message."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
