"""What boosting a pretrained model costs: a forward pass against the original's, beside the ratio of their FLOPs."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.bench import Bench
from benchmarks.race import Race, Spread
from benchmarks.section import Section, Shown, ratio, seconds, table

ORIGINAL, BOOSTED = "original", "boosted"
TURNS = 9


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """Forward passes of a Llama and of its boosted form."""

    parameters: int
    length: int
    flops: dict[str, int]
    forward: Race

    def price(self) -> Spread:
        """Return time over the original's, divided by FLOPs over the original's."""
        return self.forward.ratio(BOOSTED, ORIGINAL).times(self.flops[ORIGINAL] / self.flops[BOOSTED])


def measure(bench: Bench) -> Pretrained:
    """Time forward passes of random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from boosted_attention import boost
    from boosted_attention.pretrained.finetune import FinetuneConfig
    from boosted_attention.pretrained.folders import quietly

    d, layers, heads, vocabulary, length = (48, 2, 6, 256, 16) if bench.quick else (384, 8, 6, 8192, 256)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=d,
        intermediate_size=8 * d // 3,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        max_position_embeddings=length,
        tie_word_embeddings=True,
    )
    models = {ORIGINAL: LlamaForCausalLM(config).eval(), BOOSTED: boost(LlamaForCausalLM(config).eval())}
    ids = torch.randint(vocabulary, (2, length))

    @torch.no_grad()
    def forward(model: torch.nn.Module) -> None:
        model(ids, use_cache=False)

    race = bench.race(
        "forward pass", {name: partial(forward, model) for name, model in models.items()}, TURNS, until=0.9
    )
    with tempfile.TemporaryDirectory() as folder, quietly():
        models[ORIGINAL].save_pretrained(folder)
        flops = {
            ORIGINAL: FinetuneConfig(base=folder, train="all", max_len=length).flops(),
            BOOSTED: FinetuneConfig(base=folder, boost={}, max_len=length).flops(),
        }
    parameters = sum(p.numel() for p in models[ORIGINAL].parameters())
    return Pretrained(parameters=parameters, length=length, flops=flops, forward=race)


def show(pretrained: Pretrained) -> Shown:
    """Make the table."""
    race, flops = pretrained.forward, pretrained.flops
    row = [
        *(seconds(race.median(name)) for name in (ORIGINAL, BOOSTED)),
        ratio(race.ratio(BOOSTED, ORIGINAL)),
        f"{flops[BOOSTED] / flops[ORIGINAL]:.2f}",
        ratio(pretrained.price()),
    ]
    text = (
        f"Forward pass of a Llama of {pretrained.parameters / 1e6:.0f} M random parameters, {pretrained.length} "
        "tokens, before and after `boost`.\n\n"
    )
    return Shown(text=text + table([ORIGINAL, BOOSTED, "time", "FLOPs", "time over FLOPs"], [row]))


PRETRAINED = Section(
    name="pretrained", title="Boosted pretrained models", minutes=0.2, result=Pretrained, measure=measure, show=show
)
