"""What each layer costs beside standard attention: a training step, and decoding one token from a cache.

make bench
"""

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.interleaved import compare
from boosted_attention import KVCache, attention_layer
from boosted_attention.attention.layer import AttentionLayer

D_MODEL, N_HEADS, BATCH, LENGTH, CONTEXT = 256, 4, 8, 256, 512  # the paper's layer
NAMES = [
    "standard",
    "boosted",
    "boosted-shared",
    "boosted-input",
    "parallel",
    "twicing",
    "differential",
    "differential-v2",
    "gated",
]


def training_step(layer: AttentionLayer, x: Tensor) -> Callable[[], object]:
    def run() -> None:
        layer.zero_grad()
        layer(x, is_causal=True).square().sum().backward()

    return run


def decoding(layer: AttentionLayer, x: Tensor, n_tokens: int = 20) -> Callable[[], object]:
    @torch.no_grad()
    def run() -> None:
        cache = KVCache(max_len=CONTEXT + n_tokens)
        layer(x, is_causal=True, cache=cache)
        for _ in range(n_tokens):
            layer(x[:, :1], is_causal=True, cache=cache)

    return run


def main() -> None:
    torch.manual_seed(0)
    layers = {name: attention_layer(name, d_model=D_MODEL, n_heads=N_HEADS) for name in NAMES}
    x = torch.randn(BATCH, LENGTH, D_MODEL, requires_grad=True)
    shape = f"d={D_MODEL}, {N_HEADS} heads, batch {BATCH}"
    compare(f"Training step, {shape}, T={LENGTH}", {name: training_step(layer, x) for name, layer in layers.items()})

    explicit = attention_layer("boosted", d_model=D_MODEL, n_heads=N_HEADS)
    explicit.kernel = "explicit"
    kernels = {"boosted, fused": training_step(layers["boosted"], x), "boosted, explicit": training_step(explicit, x)}
    compare(f"Kernels, {shape}, T={LENGTH}", kernels)

    context = torch.randn(BATCH, CONTEXT, D_MODEL)
    decoders = {name: decoding(layers[name], context) for name in ("standard", "boosted", "boosted-shared", "twicing")}
    compare(f"Prefill of {CONTEXT} and 20 tokens from the cache, {shape}", decoders)


if __name__ == "__main__":
    main()
