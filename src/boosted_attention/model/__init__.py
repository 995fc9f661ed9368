"""The decoder language model around the attention layers. Names are imported when they are first used."""

from typing import TYPE_CHECKING

from boosted_attention.lazy import lazy_names

if TYPE_CHECKING:
    from boosted_attention.model.config import LanguageModelConfig as LanguageModelConfig
    from boosted_attention.model.language_model import LanguageModel as LanguageModel
    from boosted_attention.model.original import load_original as load_original
    from boosted_attention.model.protocols import CausalModel as CausalModel
    from boosted_attention.model.protocols import ModelConfig as ModelConfig

__getattr__, __dir__, __all__ = lazy_names(__name__)
