"""Error messages that name the option, the value and what would have been right."""

import difflib
from collections.abc import Collection, Iterable


def nearest(value: object, allowed: Iterable[str]) -> str:
    """A hint such as "; did you mean 'vector'?", or nothing when no allowed name is close."""
    match = difflib.get_close_matches(str(value), list(allowed), n=1, cutoff=0.5)
    return f"; did you mean {match[0]!r}?" if match else ""


def require_choice(option: str, value: object, allowed: Collection[str]) -> None:
    """Raise ValueError unless ``value`` is one of the ``allowed`` names."""
    if value not in allowed:
        allowed = list(allowed)
        names = ", ".join(repr(name) for name in allowed)
        raise ValueError(f"{option}={value!r} is not one of {names}{nearest(value, allowed)}")


def require(condition: bool, message: str) -> None:
    """Raise ValueError(message) unless the condition holds: for what the user passed, never for invariants."""
    if not condition:
        raise ValueError(message)


def is_count(value: object) -> bool:
    """Whether it is an integer of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
