"""What boosting a pretrained model costs: a forward pass against the original's, beside the ratio of their FLOPs.

make bench
"""

import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.interleaved import compare
from boosted_attention import boost
from boosted_attention.pretrained.finetune import FinetuneConfig
from boosted_attention.pretrained.folders import quietly

LENGTH = 256
VOCABULARY = 8192


def main() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=8,
        num_attention_heads=6,
        num_key_value_heads=3,
        max_position_embeddings=LENGTH,
        tie_word_embeddings=True,
    )
    original, boosted = LlamaForCausalLM(config).eval(), boost(LlamaForCausalLM(config).eval())
    ids = torch.randint(VOCABULARY, (2, LENGTH))

    def forward(model: torch.nn.Module) -> None:
        with torch.no_grad():
            model(ids, use_cache=False)

    ratios = compare(
        f"forward pass of a Llama of {sum(p.numel() for p in original.parameters()) / 1e6:.0f} M parameters",
        {"original": lambda: forward(original), "boosted": lambda: forward(boosted)},
    )
    with tempfile.TemporaryDirectory() as folder, quietly():
        original.save_pretrained(folder)
        plain = FinetuneConfig(base=folder, train="all", max_len=LENGTH).flops()
        more = FinetuneConfig(base=folder, boost={}, max_len=LENGTH).flops()
    share = ratios["boosted"] / (more / plain)
    print(f"FLOPs: {more / plain:.2f} times the original's; time {share:.2f} of that ratio (at most 1.1 is promised)")


if __name__ == "__main__":
    main()
