"""Attention layers that correct their own errors: gradient boosting within a single layer.

Names are imported when they are first used; importing the package does not import torch. The layer classes of
``attention/learners`` are among them, found by being in that folder. Boosted models are known to transformers' Auto
classes from then on (``autoload.py``).
"""

from typing import TYPE_CHECKING

from boosted_attention.attention.discovery import layer_classes
from boosted_attention.autoload import watch
from boosted_attention.lazy import lazy_names

if TYPE_CHECKING:
    from boosted_attention.attention.cache import KVCache as KVCache
    from boosted_attention.attention.catalog import attention_layer as attention_layer
    from boosted_attention.attention.catalog import list_attention as list_attention
    from boosted_attention.attention.catalog import register_layer as register_layer
    from boosted_attention.attention.layer import AttentionLayer as AttentionLayer
    from boosted_attention.attention.layer import BoostedAttention as BoostedAttention
    from boosted_attention.attention.layer import StandardAttention as StandardAttention
    from boosted_attention.attention.learner import list_learners as list_learners
    from boosted_attention.attention.learner import register_learner as register_learner
    from boosted_attention.attention.masks import document_mask as document_mask
    from boosted_attention.attention.masks import document_positions as document_positions
    from boosted_attention.attention.masks import padding_mask as padding_mask
    from boosted_attention.attention.multihead import BoostedMultiheadAttention as BoostedMultiheadAttention
    from boosted_attention.attention.options import LayerOptions as LayerOptions
    from boosted_attention.attention.softmax import SoftmaxLearner as SoftmaxLearner
    from boosted_attention.attention.switch import disable_rounds as disable_rounds
    from boosted_attention.attention.trace import LayerTrace as LayerTrace
    from boosted_attention.attention.trace import RoundTrace as RoundTrace
    from boosted_attention.attention.trace import capture as capture
    from boosted_attention.model.config import LanguageModelConfig as LanguageModelConfig
    from boosted_attention.model.language_model import LanguageModel as LanguageModel
    from boosted_attention.model.original import load_original as load_original
    from boosted_attention.pretrained.conversion import boost as boost
    from boosted_attention.pretrained.conversion import unboost as unboost
    from boosted_attention.validation import InputError as InputError

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_names(__name__, layer_classes())
watch()
