"""Kinds of models that a run may train, by the ``kind`` in its config.json.

A configuration without a kind is a ``LanguageModelConfig``. A package with models of its own registers them when it is
imported, under the package's name:

    register_model_kind("pretrained", FinetuneConfig.from_dict)

A run of such a kind can be loaded after ``import boosted_attention.pretrained``; the command line imports it by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.model.protocols import ModelConfig
from boosted_attention.validation import InputError

ModelReader = Callable[[Mapping[str, Any]], ModelConfig]

MODEL_KINDS: dict[str, ModelReader] = {}


def register_model_kind(kind: str, from_dict: ModelReader) -> None:
    """Make runs of a kind of model loadable.

    Args:
        kind: what the configuration's ``to_dict`` writes under "kind": the name of the registering package.
        from_dict: builds the configuration from what ``to_dict`` wrote.
    """
    MODEL_KINDS[kind] = from_dict


def model_config(values: Mapping[str, Any]) -> ModelConfig:
    """Build a model's configuration from what a run's folder says of it.

    Raises:
        MissingKindError: the package of this kind has not been imported.
    """
    kind = values.get("kind")
    if kind is None:
        return LanguageModelConfig.from_dict(values)
    if kind not in MODEL_KINDS:
        raise MissingKindError(f"kind={kind!r}: models of this kind are known after `import boosted_attention.{kind}`")
    return MODEL_KINDS[kind](values)


class MissingKindError(InputError):
    """A run's model is of a kind that no imported package has registered."""
