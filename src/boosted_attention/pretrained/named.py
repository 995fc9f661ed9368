"""Named corrections: several on one model, each of which can be switched, removed and saved alone.

    boost(model, name="law");  boost(model, name="code", rank=16)
    model.set_corrections("code")              # the rounds of "law" are left out
    with model.disable_corrections(): ...      # the base alone
    model.remove_correction("law")

A name belongs to a stage of boosting. Rounds run in the order in which they were added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from boosted_attention.pretrained.layer import CorrectedAttention, become_uncorrected
from boosted_attention.pretrained.places import attention_modules, n_cache_layers
from boosted_attention.pretrained.quantised import count
from boosted_attention.pretrained.stages import Stage, number_slots
from boosted_attention.validation import nearest, require


def stages_of(model: PreTrainedModel) -> list[Stage]:
    """Return the stages of a boosted model, in order; none of one that is not boosted."""
    return [Stage.from_dict(values) for values in getattr(model.config, "boosting", ())]


def names_of(model: PreTrainedModel) -> list[str]:
    """Return the names of a model's corrections, in order."""
    return [stage.name for stage in stages_of(model)]


def rounds_of(model: PreTrainedModel, names: Iterable[str]) -> dict[int, list[int]]:
    """Return the rounds of some corrections, by layer.

    Args:
        model: a boosted model.
        names: names of corrections.
    """
    chosen, found, counted = set(names), {}, {}
    for stage in stages_of(model):
        for layer in stage.layers:
            first = counted.get(layer, 1)
            counted[layer] = first + stage.n_new
            if stage.name in chosen:
                found.setdefault(layer, []).extend(range(first, counted[layer]))
    return found


def require_names(model: PreTrainedModel, names: Iterable[str]) -> None:
    """Raise InputError unless the model has corrections of these names."""
    known = names_of(model)
    for name in names:
        require(
            name in known,
            f"no correction is called {name!r}{nearest(str(name), known)}; there are {', '.join(map(repr, known))}",
        )


def set_corrections(model: PreTrainedModel, names: str | Iterable[str]) -> None:
    """Run a model with these corrections and no others, until told otherwise.

    Args:
        model: a boosted model.
        names: a name, or several; an empty list leaves the base alone.
    """
    require(isinstance(names, Iterable), f"names={names!r} must be a correction's name, or several")
    chosen = [names] if isinstance(names, str) else list(names)
    require_names(model, chosen)
    rounds = rounds_of(model, chosen)
    for i, attention in enumerate(attention_modules(model)):
        if isinstance(attention, CorrectedAttention):
            attention.disabled = frozenset(range(1, attention.n_rounds)) - frozenset(rounds.get(i, ()))


def active_corrections(model: PreTrainedModel) -> list[str]:
    """Return the names of the corrections that run, in order."""
    attentions: list[Any] = attention_modules(model)

    def runs(name: str) -> bool:
        return any(m not in attentions[i].disabled for i, rounds in rounds_of(model, [name]).items() for m in rounds)

    return [name for name in names_of(model) if runs(name)]


@contextmanager
def disable_corrections(model: PreTrainedModel) -> Iterator[None]:
    """Run the base alone inside the block, as a reference model, say.

    Args:
        model: a boosted model.
    """
    attentions: list[Any] = [a for a in attention_modules(model) if isinstance(a, CorrectedAttention)]
    before = [attention.disabled for attention in attentions]
    try:
        for attention in attentions:
            attention.disabled = frozenset(range(1, attention.n_rounds))
        yield
    finally:
        for attention, disabled in zip(attentions, before, strict=True):
            attention.disabled = disabled


def remove_correction(model: PreTrainedModel, name: str) -> None:
    """Take a correction away for good; the rounds of the others move up.

    Args:
        model: a boosted model with more than one correction; ``unboost`` takes the last one away.
        name: name of the correction.
    """
    require_names(model, [name])
    require(
        len(names_of(model)) > 1, f"{name!r} is the model's only correction; unboost(model) gives the original back"
    )
    gone = rounds_of(model, [name])
    modules = attention_modules(model)
    for i, rounds in gone.items():
        attention = modules[i]
        assert isinstance(attention, CorrectedAttention)
        drop(attention, set(rounds))
        if attention.n_rounds == 1:
            become_uncorrected(attention)
    model.config.boosting = [values for values in model.config.boosting if Stage.from_dict(values).name != name]
    number_slots(modules, n_cache_layers(model))


def drop(attention: CorrectedAttention, gone: set[int]) -> None:
    """Remove rounds of a corrected module."""
    kept = [m for m in range(1, attention.n_rounds) if m not in gone]
    attention.rounds = nn.ModuleDict({str(new): attention.rounds[str(m)] for new, m in enumerate(kept, start=1)})
    attention.gates = nn.ModuleList([attention.gates[m - 1] for m in kept])
    attention.residuals = nn.ModuleList([attention.residuals[m - 1] for m in kept])
    attention.outputs = nn.ModuleList([attention.outputs[m] for m in (0, *kept)])
    attention.disabled = frozenset(new for new, m in enumerate(kept, start=1) if m in attention.disabled)
    attention.n_rounds = len(kept) + 1


def modules_of(model: PreTrainedModel, name: str) -> list[nn.Module]:
    """Return the rounds of a correction and their gates."""
    attentions: list[Any] = attention_modules(model)
    places = [(attentions[i], m) for i, rounds in rounds_of(model, [name]).items() for m in rounds]
    return [part for attention, m in places for part in (attention.rounds[str(m)], attention.gates[m - 1])]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What of a boosted model is trained, as a saved folder keeps it."""

    base: bool  # whether anything outside of the corrections is
    corrections: list[str]  # names of those of which anything is
    frozen: list[str] = field(default_factory=list)  # names of parameters of these parts that are not


def what_is_trained(model: PreTrainedModel) -> Trained:
    """Say what of a boosted model is trained."""
    by_name = parameters_by_correction(model)
    trained = {id(p) for p in model.parameters() if p.requires_grad}
    base = bool(trained - set().union(*by_name.values()))
    corrections = [name for name, inside in by_name.items() if inside & trained]
    frozen = parameters_of(model, base, corrections) - trained
    names = [name for name, p in model.named_parameters() if id(p) in frozen]
    return Trained(base=base, corrections=corrections, frozen=names)


def parameters_by_correction(model: PreTrainedModel) -> dict[str, set[int]]:
    """Return the identities of the parameters of each correction."""
    return {name: {id(p) for m in modules_of(model, name) for p in m.parameters()} for name in names_of(model)}


def parameters_of(model: PreTrainedModel, base: bool, corrections: Iterable[str]) -> set[int]:
    """Return the identities of what can be trained of some corrections and, if that is asked for, of the base."""
    by_name = parameters_by_correction(model)
    inside = set().union(*by_name.values())
    chosen = set().union(*(by_name.get(name, ()) for name in corrections))
    able = {id(p) for p in model.parameters() if p.is_floating_point()}  # quantised weights are integers
    return {p for p in able if (p in chosen if p in inside else base)}


def train_as(model: PreTrainedModel, trained: Trained) -> None:
    """Freeze all of a boosted model but what is to be trained."""
    chosen, frozen = parameters_of(model, trained.base, trained.corrections), set(trained.frozen)
    for name, p in model.named_parameters():
        if p.is_floating_point():
            p.requires_grad_(id(p) in chosen and name not in frozen)


def trainable_parameters(model: nn.Module) -> tuple[int, int]:
    """Return how many parameters are trained, and how many there are."""
    counts = [(count(p), p.requires_grad) for p in model.parameters()]
    return sum(n for n, trained in counts if trained), sum(n for n, _ in counts)


def print_trainable_parameters(model: nn.Module) -> None:
    """Print how many parameters are trained, as peft does, and how many of them belong to corrections.

    Args:
        model: a boosted model, or peft's around one.
    """
    trained, total = trainable_parameters(model)
    inside = [p for m in model.modules() if isinstance(m, CorrectedAttention) for p in m.correction_parameters()]
    ours = sum(p.numel() for p in inside if p.requires_grad)
    frozen = "" if ours or not inside else "; the corrections are frozen"
    print(
        f"trainable params: {trained:,} || all params: {total:,} || trainable%: {100 * trained / total:.4f} || "
        f"of corrections: {ours:,}{frozen}"
    )
