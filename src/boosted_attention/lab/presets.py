"""How much of everything: seconds for the tests, minutes for a newcomer, the paper's own settings."""

from __future__ import annotations

from dataclasses import dataclass, replace

from boosted_attention.names import is_count, require, require_choice


@dataclass(frozen=True, kw_only=True)
class Preset:
    name: str
    seeds: int  # of the paper's own tables
    long_seeds: int  # of the long controls
    steps: int  # the paper's "150 epochs"
    long_steps: int
    test_size: int
    map_size: int  # queries per point of a map

    def with_seeds(self, seeds: int | None) -> Preset:
        if seeds is None:
            return self
        require(is_count(seeds), f"--seeds {seeds} must be at least 1")
        return replace(self, seeds=seeds, long_seeds=seeds)


PRESETS = {
    "smoke": Preset(name="smoke", seeds=2, long_seeds=2, steps=2, long_steps=3, test_size=300, map_size=100),
    "quick": Preset(name="quick", seeds=8, long_seeds=4, steps=150, long_steps=3000, test_size=20_000, map_size=2000),
    "paper": Preset(
        name="paper", seeds=30, long_seeds=30, steps=150, long_steps=3000, test_size=20_000, map_size=20_000
    ),
}


def preset(name: str, seeds: int | None = None) -> Preset:
    require_choice("--preset", name, PRESETS)
    return PRESETS[name].with_seeds(seeds)
