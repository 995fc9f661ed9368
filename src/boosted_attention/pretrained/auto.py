"""Classes of boosted models: they save, load and answer to the Auto classes like those of transformers.

A boosted ``LlamaForCausalLM`` is a ``BoostedLlamaForCausalLM``, a subclass made on demand; its config is a
``BoostedLlamaConfig`` with model_type "boosted-llama" and a list ``boosting``, one entry per stage. Both are registered
when a model is boosted, or when the Auto classes look the model_type up (``boosted_attention.autoload``).

A saved folder holds the base under its own names, so that ``LlamaForCausalLM`` loads it without the corrections. Its
``auto_map`` and a small file of code beside it serve processes that have not imported this package, with
``trust_remote_code=True``.
"""

from __future__ import annotations

import copy
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.conversion_mapping import get_checkpoint_conversion_mapping, register_checkpoint_conversion_mapping
from transformers.core_model_loading import WeightRenaming
from transformers.models.auto import tokenization_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, model_type_to_module_name
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from boosted_attention.autoload import PREFIX
from boosted_attention.pretrained.named import (
    Trained,
    active_corrections,
    disable_corrections,
    names_of,
    print_trainable_parameters,
    remove_correction,
    set_corrections,
    stages_of,
    train_as,
    what_is_trained,
)
from boosted_attention.pretrained.origin import hub_name
from boosted_attention.pretrained.places import find_attention
from boosted_attention.pretrained.sharing import SharedModel
from boosted_attention.pretrained.stages import Stage, install, read_stages
from boosted_attention.records import from_json
from boosted_attention.storage.writing import write_atomically
from boosted_attention.validation import require

CODE = "modeling_boosted"
AUTO_MAP = {"AutoConfig": f"{CODE}.BoostedConfig", "AutoModelForCausalLM": f"{CODE}.BoostedForCausalLM"}
CODE_TEXT = '''"""Loads this model in a process that has not imported boosted_attention, with trust_remote_code=True."""

try:
    from boosted_attention.pretrained.auto import classes_of
except ImportError as error:
    raise ImportError(
        "this model's attention has correction rounds: pip install boosted-attention (needed to load it; without them, "
        "the class of the base model loads the base alone)"
    ) from error

BoostedConfig, BoostedForCausalLM = classes_of("{family}")
'''


class OldNames(WeightRenaming):
    """Names of round 0's weights as they were stored at first, behind ``rounds.0``; nothing is stored so again."""

    __slots__ = ()

    def reverse_transform(self) -> OldNames:
        return self.copy(self._original_source_patterns, self._original_target_patterns)  # type: ignore[return-value]


class BoostedConfig:
    """Base of boosted models' configurations: their folders say how to load them where this package is not imported."""

    auto_map: ClassVar[dict[str, str]] = {}  # of a folder without one; TRL asks for it whatever class it loads

    def save_pretrained(self, save_directory: Any, push_to_hub: bool = False, **kwargs: Any) -> None:
        self.auto_map = dict(AUTO_MAP)  # type: ignore[misc]  # of this folder
        Path(save_directory).mkdir(parents=True, exist_ok=True)
        family = type(self).model_type.removeprefix(PREFIX)  # type: ignore[attr-defined]
        write_atomically(Path(save_directory) / f"{CODE}.py", CODE_TEXT.format(family=family))
        super().save_pretrained(save_directory, push_to_hub=push_to_hub, **kwargs)  # type: ignore[misc]

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoConfig") -> None:
        """Do nothing: the code that folders carry is written above, not copied from this file."""


class BoostedModel(SharedModel):
    """Base of boosted models' classes: adds the rounds that the config names, before weights are loaded."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any):
        super().__init__(config, *args, **kwargs)  # type: ignore[call-arg]
        n_layers = len(find_attention(self))  # type: ignore[arg-type]
        for stage in read_stages(config.boosting, n_layers, "the configuration of this boosted model"):
            install(self, stage)  # type: ignore[arg-type]

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

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Load as transformers does, and freeze the base and the corrections that were frozen when it was saved."""
        made = super().from_pretrained(*args, **kwargs)  # type: ignore[misc]
        model = made[0] if isinstance(made, tuple) else made
        train_as(model, stored_trained(model))
        return made

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        self.config.trained = asdict(what_is_trained(self))  # type: ignore[attr-defined, arg-type]
        super().save_pretrained(*args, **kwargs)

    @classmethod
    def is_custom_code(cls) -> bool:
        """Say whether the base is custom code; transformers initialises and converts what is not by its own rules."""
        return not original_class(cls).__module__.startswith("transformers.")

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoModel") -> None:
        """Do nothing: the code that folders carry is written with the config."""

    def init_continuous_batching(self, *args: Any, **kwargs: Any) -> Any:
        """Return the manager of transformers, where all corrections read the keys and values of the model's own layers.

        Args:
            args: as for other models of transformers.
            kwargs: as for other models of transformers.
        """
        require(
            all(stage.kv == "shared" for stage in stages_of(self)),  # type: ignore[arg-type]
            "continuous batching (generate_batch) lays pages out for the keys and values of the model's own attention, "
            "and has none for those of corrections; boost with kv='shared', use generate, or unboost(model) first",
        )
        return super().init_continuous_batching(*args, **kwargs)  # type: ignore[misc]


def stored_trained(model: PreTrainedModel) -> Trained:
    """Return what of a loaded model is to be trained; of folders saved without a word of it, what was boosted last."""
    stored = getattr(model.config, "trained", None)
    if stored is not None:
        return from_json(Trained, stored)
    last = stages_of(model)[-1]
    trains_all = last.train == "all"
    return Trained(base=trains_all, corrections=names_of(model) if trains_all else [last.name])


def original_class(kind: type) -> type:
    """Return the class that a class of boosted models or configurations was made from."""
    return next(base for base in kind.__mro__ if base not in (kind, BoostedModel, SharedModel, BoostedConfig))


@cache
def config_class(base: type[PreTrainedConfig]) -> type[PreTrainedConfig]:
    """Make the class of boosted configurations, and register it."""
    known = {"model_type": PREFIX + base.model_type, "__module__": __name__}
    kind: Any = type(f"Boosted{base.__name__}", (BoostedConfig, base), known)
    AutoConfig.register(kind.model_type, kind, exist_ok=True)
    globals()[kind.__name__] = kind  # for pickle
    stored_as(kind.model_type, get_checkpoint_conversion_mapping(base.model_type))
    tokenized_as(base, kind)
    return kind


@cache
def model_class(base: type[PreTrainedModel]) -> type[PreTrainedModel]:
    """Make the class of boosted models."""
    assert base.config_class is not None
    config = config_class(base.config_class)
    kind: Any = type(f"Boosted{base.__name__}", (BoostedModel, base), {"config_class": config, "__module__": __name__})
    globals()[kind.__name__] = kind
    by_class = get_checkpoint_conversion_mapping(base.__name__)
    if by_class is not None:
        stored_as(kind.__name__, by_class)
    return kind


def make_known(config: type[PreTrainedConfig], model: type[PreTrainedModel]) -> None:
    """Make AutoModelForCausalLM know a class of boosted models by a class of configurations, which may not be its own.

    Some families have no more than a configuration: their model is Llama's.
    """
    if original_class(model).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
        MODEL_FOR_CAUSAL_LM_MAPPING.register(config, model, exist_ok=True)  # type: ignore[arg-type]


def stored_as(name: str, conversions: list[Any] | None) -> None:
    """Tell transformers how files hold the weights of boosted models: as those of the base, and as they once did."""
    register_checkpoint_conversion_mapping(
        name, [OldNames(r"\.rounds\.0\.", "."), *(conversions or [])], overwrite=True
    )


def tokenized_as(base: type[PreTrainedConfig], kind: type[PreTrainedConfig]) -> None:
    """Make AutoTokenizer choose the tokenizer of a boosted family as it does for the family.

    What a folder says of its tokenizer is not always right, and transformers knows for which families.
    """
    names = tokenization_auto.TOKENIZER_MAPPING_NAMES
    wrong: set[str] = getattr(tokenization_auto, "MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS", set())  # of late versions
    if base.model_type in wrong:
        wrong.add(kind.model_type)
    if names.get(base.model_type) is not None:
        names[kind.model_type] = names[base.model_type]
        known = tokenization_auto.TOKENIZER_MAPPING
        known.register(kind, known[base], exist_ok=True)  # type: ignore[index, arg-type]


def become_boosted(model: PreTrainedModel, stage: Stage) -> None:
    """Change class and config of a model whose rounds are in place."""
    if not isinstance(model, BoostedModel):
        before, own = model.config, copy.deepcopy(model.config)  # another model may have been made from the same config
        had = vars(own).get("auto_map")
        for module in model.modules():
            if vars(module).get("config") is before:
                module.config = own  # type: ignore[assignment]
        own.__class__ = config_class(type(own))
        own.boosting = []
        own.unboosted_architectures = own.architectures
        if (name := hub_name(own)) is not None:
            own.unboosted_name = name
        if had is not None:
            own.unboosted_auto_map = had
        own.auto_map = dict(AUTO_MAP)
        model.__class__ = model_class(type(model))
        make_known(type(own), type(model))
    model.config.boosting = [*model.config.boosting, stage.to_dict()]
    model.config.architectures = [type(model).__name__]


def become_original(model: PreTrainedModel) -> None:
    """Give a model whose rounds are removed its own class and config back."""
    config, base = model.config, original_class(type(model))
    for name in ("boosting", "trained", "auto_map", "unboosted_name"):
        vars(config).pop(name, None)
    if had := vars(config).pop("unboosted_auto_map", None):
        config.auto_map = had
    config.__class__ = original_class(type(config))
    model.__class__ = base
    config.architectures = vars(config).pop("unboosted_architectures", [base.__name__])


def classes_of(family: str) -> tuple[type[PreTrainedConfig], type[PreTrainedModel]]:
    """Return the classes of a family's boosted configurations and models, known to the Auto classes.

    Args:
        family: its model_type, such as "llama".
    """
    base = CONFIG_MAPPING[family]
    config, model = config_class(base), model_class(causal_class(base))
    make_known(config, model)
    return config, model


def causal_class(config: type[PreTrainedConfig]) -> type[PreTrainedModel]:
    """Return the causal model of a configuration, which may be that of the text part of a larger model.

    Raises:
        KeyError: there is none.
    """
    found: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(config, None)
    if found is not None:
        return found
    package = config.__module__.split(".")[-2]
    around = [name for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if model_type_to_module_name(name) == package]
    models: list[Any] = [MODEL_FOR_CAUSAL_LM_MAPPING[CONFIG_MAPPING[name]] for name in around]
    for model in models:
        if model.config_class is config:
            return model
    raise KeyError(config.model_type)


def register(model_type: str) -> None:
    """Make the Auto classes know boosted models of a family, which they do by themselves when one is looked up.

    Args:
        model_type: transformers' name of the family, such as "llama".
    """
    classes_of(model_type)
