"""Classes of boosted models: they save, load and answer to the Auto classes like those of transformers.

A boosted ``LlamaForCausalLM`` is a ``BoostedLlamaForCausalLM``, a subclass made on demand; its config is a
``BoostedLlamaConfig`` with model_type "boosted-llama" and a list ``boosting``, one entry per stage. Both are registered
when this module is imported, for the families of ``families.py``, or when a model of another family is boosted.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.conversion_mapping import get_checkpoint_conversion_mapping, register_checkpoint_conversion_mapping
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from boosted_attention.pretrained.families import FAMILIES
from boosted_attention.pretrained.named import (
    active_corrections,
    disable_corrections,
    names_of,
    print_trainable_parameters,
    remove_correction,
    set_corrections,
)
from boosted_attention.pretrained.stages import Stage, install

PREFIX = "boosted-"


class BoostedModel:
    """Base of boosted models' classes: adds the rounds that the config names, before weights are loaded."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any):
        super().__init__(config, *args, **kwargs)  # type: ignore[call-arg]
        for stage in config.boosting:
            install(self, Stage.from_dict(stage))  # type: ignore[arg-type]

    set_corrections = set_corrections
    disable_corrections = disable_corrections
    remove_correction = remove_correction
    print_trainable_parameters = print_trainable_parameters

    @property
    def corrections(self) -> list[str]:
        """Names of the corrections, in order."""
        return names_of(self)  # type: ignore[arg-type]

    @property
    def active_corrections(self) -> list[str]:
        """Names of the corrections that run."""
        return active_corrections(self)  # type: ignore[arg-type]


@cache
def config_class(base: type[PreTrainedConfig]) -> type[PreTrainedConfig]:
    """Make the class of boosted configurations, and register it."""
    kind = type(f"Boosted{base.__name__}", (base,), {"model_type": PREFIX + base.model_type, "__module__": __name__})
    AutoConfig.register(kind.model_type, kind, exist_ok=True)
    globals()[kind.__name__] = kind  # for pickle
    stored = get_checkpoint_conversion_mapping(base.model_type)
    if stored is not None:  # weights of experts, say, are stored otherwise than they are held
        register_checkpoint_conversion_mapping(kind.model_type, stored, overwrite=True)
    return kind


@cache
def model_class(base: type[PreTrainedModel]) -> type[PreTrainedModel]:
    """Make the class of boosted models, and register it."""
    assert base.config_class is not None
    config = config_class(base.config_class)
    kind = type(f"Boosted{base.__name__}", (BoostedModel, base), {"config_class": config, "__module__": __name__})
    globals()[kind.__name__] = kind
    if MODEL_FOR_CAUSAL_LM_MAPPING.get(base.config_class, None) is base:
        AutoModelForCausalLM.register(config, kind, exist_ok=True)
    return kind


def become_boosted(model: PreTrainedModel, stage: Stage) -> None:
    """Change class and config of a model whose rounds are in place."""
    if not isinstance(model, BoostedModel):
        before, own = model.config, copy.deepcopy(model.config)  # another model may have been made from the same config
        for module in model.modules():
            if vars(module).get("config") is before:
                module.config = own  # type: ignore[assignment]
        own.__class__ = config_class(type(own))
        own.boosting = []
        own.unboosted_architectures = own.architectures
        model.__class__ = model_class(type(model))
    model.config.boosting = [*model.config.boosting, stage.to_dict()]
    model.config.architectures = [type(model).__name__]


def become_original(model: PreTrainedModel) -> None:
    """Give a model whose rounds are removed its own class and config back."""
    base = next(kind for kind in type(model).__mro__ if kind not in (type(model), BoostedModel))
    original = next(kind for kind in type(model.config).__mro__ if kind is not type(model.config))
    delattr(model.config, "boosting")
    model.config.__class__ = original
    model.__class__ = base
    model.config.architectures = vars(model.config).pop("unboosted_architectures", [base.__name__])


def register(model_type: str) -> None:
    """Make the Auto classes know boosted models of a family.

    Args:
        model_type: transformers' name of the family, such as "llama".
    """
    config = CONFIG_MAPPING[model_type]
    model_class(MODEL_FOR_CAUSAL_LM_MAPPING[config])


for family in FAMILIES:
    register(family)
