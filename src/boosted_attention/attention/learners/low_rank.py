"""Low-rank softmax attention: multi-head attention in a compressed space, a weak learner for corrections.

    y = E softmax(scale Q K^T) V,    Q, K, V = W z with rank rows each,    E: rank -> n_heads * head_dim

Its n_heads heads are rank / n_heads wide, and the scale and the angles of rotary embedding are those of that width.
Projections, scores and sums cost rank / (n_heads * head_dim) of what a full round's cost. The expansion E has no bias,
so that a query that sees nothing still gives zero.

Reference: Bhojanapalli et al., "Low-Rank Bottleneck in Multi-head Attention Models", ICML 2020,
https://arxiv.org/abs/2002.07028 (what heads narrower than the sequence is long cannot express)
"""

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from boosted_attention.attention.catalog import register_layer
from boosted_attention.attention.layer import AttentionLayer, BoostedAttention
from boosted_attention.attention.learner import register_learner
from boosted_attention.attention.options import LayerOptions
from boosted_attention.attention.round_call import RoundCall
from boosted_attention.attention.softmax import SoftmaxLearner
from boosted_attention.validation import is_count, require


@register_learner("low-rank")
class LowRankLearner(SoftmaxLearner):
    """Softmax attention with narrow heads, whose outputs a linear map expands.

    Args:
        rank: Width of queries, of keys and of values, all heads together, a multiple of n_heads; None for a quarter of
            n_heads * head_dim, but at least one number per head, two with rotary embedding.
    """

    def __init__(self, options: LayerOptions, index: int, *, rank: int | None = None):
        rank = checked_rank(options, rank)
        super().__init__(options, index, d_head=rank // options.n_heads)
        self.expand = nn.Linear(rank, options.d_inner, bias=False, **options.factory)

    def reset_parameters(self) -> None:
        """Draw all weights anew, in the order of construction."""
        super().reset_parameters()
        self.expand.reset_parameters()

    def attend(self, z: Tensor, q: Tensor, k: Tensor, v: Tensor, call: RoundCall) -> Tensor:
        return self.expand(super().attend(z, q, k, v, call))  # (B, T, rank) -> (B, T, H*dh)


def checked_rank(options: LayerOptions, rank: int | None) -> int:
    """Return the rank that is meant, or raise InputError."""
    n_heads, widest = options.n_heads, options.d_inner
    unit, called = (n_heads, "n_heads") if options.rope_theta is None else (2 * n_heads, "2 * n_heads with rope_theta")
    if rank is None:
        return max(widest // 4 // unit, 1) * unit
    require(
        is_count(rank) and rank % unit == 0 and rank <= widest,
        f"rank={rank!r} must be a multiple of {unit} ({called}) between {unit} and {widest} (n_heads * head_dim)",
    )
    return rank


class LowRankAttention(AttentionLayer, learner="low-rank"):
    """Low-rank attention, E softmax(scale Q K^T) V: multi-head attention in a narrow space, expanded by E.

    x (B, T, d_model) -> (B, T, d_model). Q, K and V are ``rank`` wide, all heads together, and E, without a bias, makes
    n_heads * head_dim of it. Behind a full round, as ``learner=("softmax", "low-rank")``, it makes cheap corrections.
    Reference: Bhojanapalli et al., "Low-Rank Bottleneck in Multi-head Attention Models", ICML 2020,
    https://arxiv.org/abs/2002.07028
    """

    if TYPE_CHECKING:  # options of the learner's own are known at run time

        def __init__(self, d_model: int, n_heads: int, **options: Any): ...


register_layer("low-rank", LowRankAttention)
register_layer("boosted-low-rank", BoostedAttention, learner=("softmax", "low-rank"))
