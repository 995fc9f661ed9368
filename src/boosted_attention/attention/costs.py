"""What a layer costs, from its shape alone: build it on the meta device, where nothing is allocated or computed.

FLOPs are the multiplications and additions of the mathematics, per query token in the forward pass, with every query
seeing all ``n_keys`` keys (a causal kernel may do half). Softmax, norms and element-wise work are left out, as
``torch.utils.flop_counter`` leaves them out.
"""

from torch import nn

from boosted_attention.attention.learners import SoftmaxLearner


def linear_flops(module: nn.Module) -> int:
    """Each linear layer inside, applied to one token once."""
    return sum(2 * m.weight.numel() for m in module.modules() if isinstance(m, nn.Linear))


def attention_flops(module: nn.Module, n_keys: int) -> int:
    """Scores, weighted sums and what iterated learners repeat, in all attention inside, for one query."""
    return sum(learner.map_flops(n_keys) for learner in learners(module))


def fused_extra_flops(module: nn.Module, n_keys: int) -> int:
    """Scores that the fused kernel computes again, because it cannot hand out its weights."""
    return sum((learner.fused_score_passes - 1) * learner.scores_flops(n_keys) for learner in learners(module))


def learners(module: nn.Module) -> list[SoftmaxLearner]:
    return [m for m in module.modules() if isinstance(m, SoftmaxLearner)]
