"""Work that needs no training: every check of the propositions with its counter-case, and the sizes of models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from boosted_attention.lab.trials.trial import Context, work
from boosted_attention.model.config import LanguageModelConfig
from boosted_attention.records import to_json
from boosted_attention.theory.catalog import CHECKS
from boosted_attention.train.recipes import find_recipe


@work("theory.propositions", schema=2)  # 2: Proposition 4 is measured on our own blocks
def propositions(context: Context, *, seed: int) -> list[dict[str, Any]]:
    """Run all checks with one seed; one finding each."""
    findings = []
    for done, check in enumerate(CHECKS):
        findings.append(to_json(check(seed)))
        context.progress((done + 1) / len(CHECKS))
    return findings


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """What a model has and what its attention costs."""

    parameters: int
    attention_flops: int  # per token, of projections, gates and maps


SIZED = ("standard", "twicing", "wide", "boosted", "boosted with three rounds")  # the paper's models, and one more


@work("theory.sizes")
def sizes(context: Context) -> dict[str, Any]:
    """Count parameters and attention FLOPs of the paper's models: {name: ModelSize}."""
    boosted = find_recipe("paper-small-boosted").model
    three = replace(boosted, attention_options={"n_rounds": 3})
    models = [find_recipe(f"paper-small-{name}").model for name in SIZED[:3]]
    return to_json({name: size_of(model) for name, model in zip(SIZED, [*models, boosted, three], strict=True)})


def size_of(model: LanguageModelConfig) -> ModelSize:
    parts = model.flops_by_part()
    attention = sum(flops for part, flops in parts.items() if part not in ("feed-forward", "head"))
    return ModelSize(parameters=model.num_params(), attention_flops=attention)
