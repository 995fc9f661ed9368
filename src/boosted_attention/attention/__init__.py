"""What happens inside one attention layer.

Names are imported when they are first used, the layer classes found in ``learners`` among them.
"""

from typing import TYPE_CHECKING

from boosted_attention.attention.discovery import layer_classes
from boosted_attention.lazy import lazy_names

if TYPE_CHECKING:
    from boosted_attention.attention.cache import KVCache as KVCache
    from boosted_attention.attention.cache import LayerCache as LayerCache
    from boosted_attention.attention.catalog import attention_layer as attention_layer
    from boosted_attention.attention.catalog import list_attention as list_attention
    from boosted_attention.attention.catalog import register_layer as register_layer
    from boosted_attention.attention.layer import AttentionLayer as AttentionLayer
    from boosted_attention.attention.layer import BoostedAttention as BoostedAttention
    from boosted_attention.attention.layer import StandardAttention as StandardAttention
    from boosted_attention.attention.learner import Learner as Learner
    from boosted_attention.attention.learner import list_learners as list_learners
    from boosted_attention.attention.learner import register_learner as register_learner
    from boosted_attention.attention.masks import document_mask as document_mask
    from boosted_attention.attention.masks import document_positions as document_positions
    from boosted_attention.attention.masks import padding_mask as padding_mask
    from boosted_attention.attention.multihead import BoostedMultiheadAttention as BoostedMultiheadAttention
    from boosted_attention.attention.options import LayerOptions as LayerOptions
    from boosted_attention.attention.round_call import RoundCall as RoundCall
    from boosted_attention.attention.softmax import SoftmaxLearner as SoftmaxLearner
    from boosted_attention.attention.switch import disable_rounds as disable_rounds
    from boosted_attention.attention.trace import LayerTrace as LayerTrace
    from boosted_attention.attention.trace import RoundTrace as RoundTrace
    from boosted_attention.attention.trace import capture as capture

__getattr__, __dir__, __all__ = lazy_names(__name__, layer_classes())
