"""Documentation that is read from where it stands."""

from dataclasses import dataclass, field, make_dataclass

import pytest

from boosted_attention.documentation import argument_texts, documented, documented_with, field_texts


@dataclass(frozen=True)
class Base:
    """A base."""

    first: int
    """The first one,
    on two lines."""


@documented
@dataclass(frozen=True)
class Whole(Base):
    """A whole."""

    second: float = 0.5  # a half
    hidden: int = field(default=0, init=False)  # made by itself


def test_strings_below_and_comments_behind():
    texts = field_texts(Whole)
    assert (texts["first"], texts["second"]) == ("The first one, on two lines.", "a half")


def test_a_dataclass_gets_its_arguments():
    assert argument_texts(Whole.__doc__) == {"first": "The first one, on two lines.", "second": "a half"}
    assert (Whole.__doc__ or "").startswith("A whole.")


def test_a_field_without_a_text_is_refused():
    @dataclass
    class Untold:
        """Nothing is said about its field."""

        silent: int

    with pytest.raises(AssertionError, match=r"Untold\.silent needs a string below it or a comment behind it"):
        documented(Untold)


def test_without_its_source_a_dataclass_keeps_its_docstring():
    made = make_dataclass("Made", ["silent"])
    before = made.__doc__
    assert documented(made).__doc__ == before


NAMES = ("one", "two")


@documented_with(names=", ".join(NAMES))
@dataclass
class Chosen:
    """A choice."""

    name: str = "one"
    """Name: {names}."""


def test_a_text_takes_parts_that_are_stated_elsewhere():
    assert argument_texts(Chosen.__doc__) == {"name": "Name: one, two."}
    with pytest.raises(AssertionError, match=r"no text of Chosen has \{numbers\}"):
        documented_with(names="", numbers="")(Chosen)
