"""How much of everything: seconds for the tests, minutes for a newcomer, hours of a CPU, the paper's own settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from boosted_attention.validation import is_count, require, require_choice


@dataclass(frozen=True, kw_only=True)
class TextPreset:
    """The language-model half: a training recipe by name, and what differs from it."""

    recipe: str = "mini"
    seeds: tuple[int, ...] = (42, 123)
    corpora: tuple[str, ...] = ("stdlib",)
    model: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    pretrained: Mapping[str, str] = field(default_factory=dict)  # name and hash of the model that is fine-tuned

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TextPreset:
        return cls(**{**values, "seeds": tuple(values["seeds"]), "corpora": tuple(values["corpora"])})


@dataclass(frozen=True, kw_only=True)
class Preset:
    name: str
    seeds: int  # of the paper's own tables
    long_seeds: int  # of the long controls
    steps: int  # the paper's "150 epochs"
    long_steps: int
    test_size: int
    map_size: int  # queries per point of a map
    text: TextPreset

    def with_seeds(self, seeds: int | None) -> Preset:
        """Another number of seeds; the language models get theirs from the preset's, then count on."""
        if seeds is None:
            return self
        require(is_count(seeds), f"--seeds {seeds} must be at least 1")
        more = (*self.text.seeds, *(s for s in range(1000, 1000 + seeds)))[:seeds]
        return replace(self, seeds=seeds, long_seeds=seeds, text=replace(self.text, seeds=more))

    def with_corpora(self, corpora: Sequence[str]) -> Preset:
        return self if not corpora else replace(self, text=replace(self.text, corpora=tuple(dict.fromkeys(corpora))))

    def with_pretrained(self, name: str, weights: str) -> Preset:
        return replace(self, text=replace(self.text, pretrained={"name": name, "weights": weights}))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Preset:
        preset = cls(**{**values, "text": TextPreset.from_dict(values["text"])})
        numbers = (preset.seeds, preset.long_seeds, preset.steps, preset.long_steps, preset.test_size, preset.map_size)
        require(all(map(is_count, numbers)) and bool(preset.text.seeds), "a preset is made of counts, and needs seeds")
        return preset


SYNTHETIC = {"seeds": 8, "long_seeds": 4, "steps": 150, "long_steps": 3000, "test_size": 20_000, "map_size": 2000}

PRESETS = {
    "smoke": Preset(
        name="smoke",
        seeds=2,
        long_seeds=2,
        steps=2,
        long_steps=3,
        test_size=300,
        map_size=100,
        text=TextPreset(
            model={"vocab_size": 300, "d_model": 16, "n_layers": 4, "n_heads": 2, "max_len": 16},
            training={"steps": 3, "batch_size": 4, "eval_every": 1},
            data={"train_tokens": 4096, "held_out_tokens": 512},
        ),
    ),
    "quick": Preset(
        name="quick",
        **SYNTHETIC,
        text=TextPreset(training={"steps": 150, "eval_every": 50}, data={"held_out_tokens": 65_536}),
    ),
    "cpu": Preset(name="cpu", **SYNTHETIC, text=TextPreset(seeds=(42, 123, 7))),
    "paper": Preset(
        name="paper",
        **{**SYNTHETIC, "seeds": 30, "long_seeds": 30, "map_size": 20_000},
        text=TextPreset(recipe="paper-small", corpora=("wikitext-103", "openwebtext")),
    ),
}


def preset(name: str, seeds: int | None = None, corpora: Sequence[str] = ()) -> Preset:
    require_choice("--preset", name, PRESETS)
    return PRESETS[name].with_seeds(seeds).with_corpora(corpora)
