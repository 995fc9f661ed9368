"""Reading what a check has measured."""


def only(values: dict[str, float], part: str) -> float:
    """The one value whose name has a part."""
    (value,) = (v for name, v in values.items() if part in name)
    return value
