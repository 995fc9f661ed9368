"""What a model card says of the model itself, as Markdown."""

from __future__ import annotations

import json

from transformers import PreTrainedModel

from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.pretrained.markdown import code
from boosted_attention.pretrained.named import stages_of
from boosted_attention.pretrained.origin import hub_name
from boosted_attention.pretrained.stages import Stage

OURS = "boosted-attention"  # model_type of language models of ours


def base_of(model: PreTrainedModel) -> str | None:
    """Return the hub's name of the model that a model was made from; None where there is none or it is not known."""
    if model.config.model_type == OURS:
        return None
    return getattr(model.config, "unboosted_name", None) if stages_of(model) else hub_name(model.config)


def needs_package(model: PreTrainedModel) -> bool:
    """Say whether this package is needed to load a model."""
    return model.config.model_type == OURS or bool(stages_of(model))


def about_model(model: PreTrainedModel) -> str:
    """Return a paragraph on what a model is.

    Args:
        model: a model of transformers: one of ours, boosted or neither.
    """
    parameters = f"{sum(p.numel() for p in model.parameters()):,} parameters"
    if model.config.model_type == OURS:
        return about_ours(LanguageModelConfig.from_dict(model.config.model), parameters)
    base = base_of(model)
    named = f" made from {code(base)}" if base else ""
    stages = stages_of(model)
    if not stages:
        return f"A {code(type(model).__name__)}{named} with {parameters}."
    return (
        f"A {code(type(model).__name__)}{named}: a model of transformers whose attention layers have correction "
        f"rounds, which attend once more to what the layer's own attention missed. It has {parameters} in all. "
        f"Corrections: {'; '.join(map(about_stage, stages))}."
    )


def about_ours(config: LanguageModelConfig, parameters: str) -> str:
    """Return a paragraph on a language model of ours."""
    options = "".join(f", {code(f'{name}={json.dumps(value)}')}" for name, value in config.attention_options.items())
    layers = sorted(config.attention_layers())
    some = "" if len(layers) == config.n_layers else f" in layers {', '.join(map(str, layers))}, standard in others"
    return (
        f"A decoder language model with {code(config.attention)} attention{options}{some}: {config.n_layers} layers "
        f"of width {config.d_model} with {config.n_heads} heads, {parameters}, a vocabulary of {config.vocab_size:,} "
        f"tokens and sequences of up to {config.max_len:,}."
    )


def about_stage(stage: Stage) -> str:
    """Return a few words on one correction of a boosted model."""
    rounds = f"{stage.n_new} round{'s' * (stage.n_new > 1)} in each of {len(stage.layers)} layers"
    kind = "full" if not stage.is_light else "light" if stage.rank is None else f"light, of rank {stage.rank}"
    keys = ", with the layer's own keys and values" if stage.kv == "shared" else ""
    return f"{code(stage.name)} ({kind}{keys}; {rounds}; gate {code(stage.gate)})"


def ways_to_load(model: PreTrainedModel, name: str) -> list[str]:
    """Return sentences on other ways to load a model, where there are any.

    Args:
        model: a model of transformers.
        name: its name as an argument of Python.
    """
    if not stages_of(model):
        return []
    own = type(model).__name__.removeprefix("Boosted")
    return [
        "In a process that does not import the package, `trust_remote_code=True` loads the model too; the package has "
        f"to be installed all the same. The base's own class, {code(f'{own}.from_pretrained({name})')}, leaves the "
        "corrections out and loads the rest of the weights."
    ]
