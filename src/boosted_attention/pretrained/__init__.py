"""Boosting of pretrained models of transformers.

Importing this package registers fine-tuned models with the trainer, models of ours with transformers' Auto classes,
which know boosted models as soon as ``boosted_attention`` is imported, and boosted families with peft, once that is
imported.
"""

from boosted_attention.autoload import once_imported
from boosted_attention.validation import InputError

try:
    import transformers  # noqa: F401
except ImportError:
    raise InputError("boosted_attention.pretrained needs transformers (pip install 'boosted-attention[hf]')") from None

from boosted_attention.pretrained import adapters
from boosted_attention.pretrained.auto import register
from boosted_attention.pretrained.conversion import boost, unboost
from boosted_attention.pretrained.correction import load_correction, save_correction
from boosted_attention.pretrained.finetune import FinetuneConfig
from boosted_attention.pretrained.named import print_trainable_parameters
from boosted_attention.pretrained.native import from_transformers, to_transformers
from boosted_attention.pretrained.trained_parts import add_lora
from boosted_attention.train.kinds import register_model_kind

register_model_kind("pretrained", FinetuneConfig.from_dict)
once_imported(adapters.TABLES, adapters.extend)

__all__ = [
    "FinetuneConfig",
    "add_lora",
    "boost",
    "from_transformers",
    "load_correction",
    "print_trainable_parameters",
    "register",
    "save_correction",
    "to_transformers",
    "unboost",
]
