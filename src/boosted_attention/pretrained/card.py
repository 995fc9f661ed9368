"""Model cards: the README.md of a saved model, whose front matter the Hugging Face hub reads.

A card says what is known of a model. Its last line is a comment with the sha256 of the rest: a card that nobody has
changed is written anew with the model, and any other README.md is its author's own and stays.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from huggingface_hub import ModelCardData
from jinja2 import Environment, StrictUndefined
from transformers import PreTrainedModel

from boosted_attention.pretrained.card_model import about_model, base_of, needs_package, ways_to_load
from boosted_attention.pretrained.markdown import escaped, printable
from boosted_attention.pretrained.origin import CARD, LARGEST_CARD
from boosted_attention.storage.documents import DamagedError, is_there, read_bytes
from boosted_attention.storage.writing import write_atomically

TAG = "boosted-attention"
SEAL = "<!-- boosted-attention, sha256 {} -->\n"
SEALED = re.compile(SEAL.format("(?P<sha256>[0-9a-f]{64})").encode() + rb"\Z")
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json")
Row = Sequence[str]  # of a table


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a model beyond the model itself; sentences, lines and rows of scores are Markdown.

    Args:
        licence: the hub's name of its licence.
        datasets: names on the hub of what it was trained on.
        remarks: sentences that follow its description.
        training: lines on text and recipe.
        scores: rows of split, perplexity, nats per token, bits per byte and tokens.
        protocol: sentences on how they were measured.
        verdicts: rows of statement, place and verdict: what a ledger says of its kind of layer.
    """

    licence: str | None = None
    datasets: Sequence[str] = ()
    remarks: Sequence[str] = ()
    training: Sequence[str] = ()
    scores: Sequence[Row] = ()
    protocol: str = ""
    verdicts: Sequence[Row] = ()


NOTHING = Known()


def model_card(model: PreTrainedModel, name: str, known: Known = NOTHING, *, tokenizer: bool = False) -> str:
    """Return the card of a model.

    Args:
        model: a model of transformers: one of ours, boosted or neither.
        name: name of its repository on the hub, or of its folder.
        known: what is known beyond the model itself.
        tokenizer: whether a tokenizer is stored with it.
    """
    front = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=[TAG, *map(printable, model.model_tags or [])],
        base_model=base_of(model),
        datasets=list(known.datasets) or None,
        license=known.licence,
    )
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    template = (files("boosted_attention.pretrained") / "card.md.j2").read_text(encoding="utf-8")
    text = environment.from_string(template).render(
        front=front.to_yaml(),
        title=escaped(name),
        about=about_model(model),
        package=needs_package(model),
        tokenizer=tokenizer,
        name=repr(name),
        loading=ways_to_load(model, repr(name)),
        known=known,
        verdicts=[list(map(escaped, row)) for row in known.verdicts],
    )
    return text + SEAL.format(hashlib.sha256(text.encode()).hexdigest())


def is_unchanged(content: bytes) -> bool:
    """Say whether a README.md is a card of ours that nobody has changed."""
    seal = SEALED.search(content)
    return seal is not None and hashlib.sha256(content[: seal.start()]).hexdigest().encode() == seal["sha256"]


def write_card(folder: Path, model: PreTrainedModel, name: str, known: Known = NOTHING) -> None:
    """Write a model's card into its folder, unless a README.md is there that is its author's own.

    Args:
        folder: folder in which the model is saved.
        model: the model.
        name: name of its repository on the hub, or of its folder.
        known: what is known beyond the model itself.
    """
    if not has_own_readme(folder):
        tokenizer = all((folder / file).is_file() for file in TOKENIZERS)
        write_atomically(folder / CARD, model_card(model, name, known, tokenizer=tokenizer))


def has_own_readme(folder: Path) -> bool:
    """Say whether a folder has a README.md that is no unchanged card of ours."""
    path = folder / CARD
    try:
        return is_there(path) and not is_unchanged(read_bytes(path, LARGEST_CARD))
    except DamagedError:  # a folder, or longer than any card
        return True
