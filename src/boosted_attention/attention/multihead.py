"""BoostedMultiheadAttention: ``torch.nn.MultiheadAttention``'s interface around a boosted layer.

Its masks have its own convention, the opposite of the layers': a bool mask is True where attention is *not* allowed.
"""

import inspect
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from boosted_attention.attention.layer import BoostedAttention, options_of_class, without_self
from boosted_attention.attention.trace import LayerTrace
from boosted_attention.documentation import Option, with_arguments
from boosted_attention.validation import require

OWN_TEXTS = {
    "add_bias_kv": "Not supported, must be False.",
    "add_zero_attn": "Not supported, must be False.",
    "batch_first": "Whether the batch is the first dimension of inputs and outputs.",
    "self_attention": "True or False for all calls; None decides by identity of query, key and value.",
}
RENAMED = {"d_model": "embed_dim", "n_heads": "num_heads"}


class NotATensor:
    """A stand-in for the weight that torch's encoder looks for, which makes it take the ordinary path."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise TypeError("BoostedMultiheadAttention has no packed projection")


class BoostedMultiheadAttention(nn.Module):
    """Boosted attention as a drop-in for ``nn.MultiheadAttention``, also inside a transformer layer of torch.

        F_0 = Attn_0(query);   r_m = query - F_{m-1};   c_m = Attn_m(r_m);   F_m = F_{m-1} + g_m * c_m
        output = out_proj(F_{M-1})

    query (L, N, E), key and value (S, N, E) -> output (L, N, E) and weights (N, L, S); with ``batch_first=True`` N
    comes first. Self-attention boosts as the paper does; in cross-attention every round's keys and values come from
    ``key`` and ``value``, and only the query becomes the residual. The two are different functions even on equal
    values. A call is self-attention if query, key and value are the same object, unless ``self_attention`` decides it.
    Options of ``BoostedAttention`` may be passed as keywords.
    Reference: "Gradient Boosting within a Single Attention Layer", Algorithm 1, https://arxiv.org/abs/2604.03190
    """

    # nn.TransformerEncoderLayer and nn.TransformerEncoder bypass self_attn.forward in eval mode unless these say that
    # there is no packed projection for their fused kernel; an encoder built before the exchange asks the weights too.
    __signature__: ClassVar[inspect.Signature]
    in_proj_bias = None
    in_proj_weight = NotATensor()
    out_proj = SimpleNamespace(weight=None, bias=None)
    _qkv_same_embed_dim = False
    bias_k = bias_v = None
    add_zero_attn = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        self_attention: bool | None = None,
        **options: Any,
    ):
        super().__init__()
        require(not add_bias_kv, "add_bias_kv=True is not supported; use False")
        require(not add_zero_attn, "add_zero_attn=True is not supported; use False")
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first
        self.dropout, self.self_attention = dropout, self_attention
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        common = {"dropout": dropout, "bias": bias, "kdim": kdim, "vdim": vdim, "device": device, "dtype": dtype}
        for name in ("d_model", "n_heads"):
            require(name not in options, f"{name} is called {RENAMED[name]} here, as in nn.MultiheadAttention")
        self.attention = BoostedAttention(embed_dim, num_heads, **common, **options)
        self.head_dim = self.attention.config.d_head

    def reset_parameters(self) -> None:
        """Draw all weights anew, as construction did."""
        self.attention.reset_parameters()

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend as ``nn.MultiheadAttention.forward`` does, with the same arguments.

        ``attn_mask`` always holds; ``is_causal`` without one makes self-attention causal.

        Returns:
            The output in the form of the query, and round 0's weights before dropout: (N, L, S), or (N, H, L, S) with
            ``average_attn_weights=False`` (2H maps with the learner "differential-v2"). ``capture`` shows every round.
        """
        require(not query.is_nested, "query is a nested tensor; build the encoder with enable_nested_tensor=False")
        is_self = self.self_attention
        if is_self is None:
            is_self = key is query and value is query and self.kdim == self.vdim == self.embed_dim
        batched = query.ndim == 3
        require(query.ndim in (2, 3), f"query has shape {tuple(query.shape)}; expected 2 (unbatched) or 3 dimensions")
        query, key, value = (self._batch_first(t, batched) for t in (query, key, value))
        if key_padding_mask is not None and not batched:
            key_padding_mask = key_padding_mask[None]
        mask = self._mask(attn_mask, key_padding_mask, query.shape[0], query.shape[1], key.shape[1])

        trace = self.attention.trace
        if need_weights and trace is None:
            trace = LayerTrace()
        y = self.attention(
            query,
            memory=None if is_self else (key, value),
            mask=mask,
            is_causal=is_causal and attn_mask is None,
            trace=trace,
        )
        if not batched:
            y = y[0]
        elif not self.batch_first:
            y = y.transpose(0, 1)
        if not need_weights:
            return y, None
        assert trace is not None
        weights = trace.rounds[0].weights  # (N, H, L, S)
        weights = (weights.mean(dim=1) if average_attn_weights else weights).to(y.dtype)
        return y, weights if batched else weights[0]

    def _batch_first(self, t: Tensor, batched: bool) -> Tensor:
        if not batched:
            return t[None]
        return t if self.batch_first else t.transpose(0, 1)

    def _mask(self, attn_mask: Tensor | None, padding: Tensor | None, batch: int, n_queries: int, n_keys: int):
        """Join both masks of nn.MultiheadAttention into one in the layers' convention, (N, H, L, S) or None."""
        masks = []
        if attn_mask is not None:
            heads = (batch * self.num_heads, n_queries, n_keys)
            require(
                attn_mask.shape in (heads[1:], heads),
                f"attn_mask has shape {tuple(attn_mask.shape)}; expected {heads[1:]} or {heads}",
            )
            masks.append(attn_mask if attn_mask.ndim == 2 else attn_mask.unflatten(0, (batch, self.num_heads)))
        if padding is not None:
            require(
                padding.shape == (batch, n_keys),
                f"key_padding_mask has shape {tuple(padding.shape)}; expected {(batch, n_keys)}",
            )
            masks.append(padding[:, None, None, :])
        for mask in masks:
            require(
                mask.dtype == torch.bool or mask.is_floating_point(),
                f"mask has dtype {mask.dtype}; expected torch.bool (True = not allowed) or floating point",
            )
        if not masks:
            return None
        if all(mask.dtype == torch.bool for mask in masks):
            forbidden = masks[0] if len(masks) == 1 else masks[0] | masks[1]
            return ~forbidden
        additive = [as_additive(mask) for mask in masks]
        return additive[0] if len(additive) == 1 else additive[0] + additive[1]


def as_additive(mask: Tensor) -> Tensor:
    """Turn a True-is-forbidden mask into 0 and -inf; additive masks stay as they are."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=torch.get_default_dtype()).masked_fill(mask, -torch.inf)


def document() -> None:
    """Add the options of a boosted layer to the signature and the docstring."""
    own = without_self(inspect.signature(BoostedMultiheadAttention.__init__)).parameters.values()
    own = [p for p in own if p.kind is not p.VAR_KEYWORD]
    options = options_of_class(BoostedAttention)
    added = [option for option in options if option.name not in {*RENAMED, *(p.name for p in own)}]
    parameters = [*own, *(option.parameter(keyword=True) for option in added)]
    BoostedMultiheadAttention.__signature__ = inspect.Signature(parameters)
    texts = {RENAMED.get(option.name, option.name): option.text for option in options} | OWN_TEXTS
    described = [Option(p.name, p.default, texts[p.name], p.annotation) for p in own]
    BoostedMultiheadAttention.__doc__ = with_arguments(BoostedMultiheadAttention.__doc__, [*described, *added])


document()
