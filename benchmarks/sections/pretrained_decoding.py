"""What a token costs a boosted pretrained model: cached decoding against the original's, and against LoRA's."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from benchmarks.bench import Bench
from benchmarks.race import Race, Spread
from benchmarks.section import Section, Shown, ratio, seconds, table

RANK = 16
ORIGINAL, FULL, LOW_RANK = "original", "full corrections", f"low-rank, rank {RANK}"
SHARED, LAST = f"shared low-rank, rank {RANK}", f"shared low-rank, rank {RANK}, last third of the layers"
LORA = f"LoRA on all projections, rank {RANK}, not merged"
NAMES = (ORIGINAL, FULL, LOW_RANK, SHARED, LAST, LORA)
TURNS = 15
TOKENS = 6  # that a model decodes in its turn
SMOLLM2_135M: dict[str, Any] = {
    "vocab_size": 49_152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
}
TINY: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
}


@dataclass(frozen=True, kw_only=True)
class PretrainedDecoding:
    """Decoding of a Llama, of its boosted forms, and with LoRA."""

    parameters: int
    layers: int
    context: int  # of the prompt
    tokens: int  # that are decoded in a turn
    decode: Race

    def speed(self, name: str, of: str) -> Spread:
        """Return the speed of one form as a share of another's."""
        return self.decode.ratio(of, name)


def measure(bench: Bench) -> PretrainedDecoding:
    """Time the decoding of random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from boosted_attention.pretrained.decoding import Decoder

    context = 8 if bench.quick else 64
    torch.manual_seed(0)
    config = LlamaConfig(**(TINY if bench.quick else SMOLLM2_135M), tie_word_embeddings=True)
    original = LlamaForCausalLM(config).eval()
    ids = torch.randint(config.vocab_size, (1, context))
    candidates = {name: partial(Decoder(made(original, name), ids), TOKENS) for name in NAMES}
    race = bench.race("tokens from a cache", candidates, TURNS, until=1.0)
    return PretrainedDecoding(
        parameters=sum(p.numel() for p in original.parameters()),
        layers=config.num_hidden_layers,
        context=context,
        tokens=TOKENS,
        decode=race,
    )


def made(original: Any, name: str) -> Any:
    """Return one of NAMES, made of a copy of the original."""
    from boosted_attention import boost
    from boosted_attention.pretrained.trained_parts import with_lora

    model = copy.deepcopy(original)
    if name == ORIGINAL:
        return model
    if name == LORA:
        return with_lora(model, RANK).eval()
    options: dict[str, dict[str, Any]] = {
        FULL: {},
        LOW_RANK: {"rank": RANK},
        SHARED: {"rank": RANK, "kv": "shared"},
        LAST: {"rank": RANK, "kv": "shared", "layers": f"last:{model.config.num_hidden_layers // 3}"},
    }
    return boost(model, **options[name])


def show(decoding: PretrainedDecoding) -> Shown:
    """Make the table."""
    race = decoding.decode
    rows = [
        [
            name,
            seconds(race.median(name) / decoding.tokens),
            ratio(race.ratio(name, ORIGINAL)),
            ratio(decoding.speed(name, ORIGINAL)),
            ratio(decoding.speed(name, LORA)),
        ]
        for name in NAMES
    ]
    text = (
        f"Tokens from a cache, one sequence, after {decoding.context} tokens: a Llama of "
        f"{decoding.parameters / 1e6:.0f} M random parameters in {decoding.layers} layers, the shape of SmolLM2-135M, "
        "so that nothing is downloaded. *Speed* is tokens per second.\n\n"
    )
    header = ["", "per token", "time, times the original's", "speed, share of the original's", "speed, share of LoRA's"]
    return Shown(text=text + table(header, rows))


PRETRAINED_DECODING = Section(
    name="pretrained-decoding",
    title="Decoding with boosted pretrained models",
    minutes=1,
    result=PretrainedDecoding,
    measure=measure,
    show=show,
)
