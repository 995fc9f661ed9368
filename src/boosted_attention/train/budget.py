"""Budgets: what a model needs at least, from its sizes alone, so that an absurd one is refused before it is built."""

from __future__ import annotations

import math
import os

from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.model.protocols import ModelConfig
from boosted_attention.validation import InputError

COPIES = 4  # of the weights in training: themselves, gradients, and two moments of the optimizer
NUMBER = 4  # bytes


def least_weights(config: ModelConfig) -> int:
    """Return a number of weights that a model has at the least; 0 where it is not one of ours.

    Args:
        config: the model's configuration.
    """
    if not isinstance(config, LanguageModelConfig):
        return 0
    block = 2 * config.d_model * config.d_ffn + config.d_model**2
    return config.vocab_size * config.d_model + config.n_layers * block


def memory_of_machine() -> int | None:
    """Return the bytes of this machine's memory; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def require_room(config: ModelConfig) -> None:
    """Raise InputError, with an estimate and what would fit, where training needs more memory than the machine has.

    Args:
        config: the model's configuration.
    """
    need, have = COPIES * NUMBER * least_weights(config), memory_of_machine()
    if have is None or need <= have or not isinstance(config, LanguageModelConfig):
        return
    fits = max(1, int(config.d_model * math.sqrt(have / need) / 2)) // config.n_heads * config.n_heads
    advice = f"d_model={fits} would fit" if fits else "fewer tokens, layers or heads would fit"
    raise InputError(
        f"d_model={config.d_model}, n_layers={config.n_layers}, vocab_size={config.vocab_size}: training takes at "
        f"least {need / 2**30:,.0f} GiB of memory and this machine has {have / 2**30:,.0f}; {advice}"
    )
