"""Documentation that is read from where it stands."""

from dataclasses import dataclass, field

from boosted_attention.documentation import argument_texts, documented, field_texts


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
    says_enough: str = ""


def test_strings_below_and_comments_behind():
    texts = field_texts(Whole)
    assert (texts["first"], texts["second"]) == ("The first one, on two lines.", "a half")


def test_a_dataclass_gets_its_arguments():
    assert argument_texts(Whole.__doc__) == {
        "first": "The first one, on two lines.",
        "second": "a half",
        "says_enough": "says enough.",
    }
    assert (Whole.__doc__ or "").startswith("A whole.")
