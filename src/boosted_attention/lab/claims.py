"""The ledger: every sentence of the paper that software can test, what it says, and what decides it.

A claim's ``quantity`` is a name in its experiment's table. Verdicts are computed, never written here.
"""

from __future__ import annotations

from dataclasses import dataclass

from boosted_attention.lab.experiments import gates, negative, rounds, scaling
from boosted_attention.lab.experiments.common import SIX
from boosted_attention.lab.table import Table
from boosted_attention.lab.verdicts import NOT_REPRODUCED, NOT_RUN, REPRODUCED, WITHIN_NOISE, Criterion
from boosted_attention.statistics import Estimate


@dataclass(frozen=True, kw_only=True)
class Claim:
    id: str
    section: str
    sentence: str  # in our own words
    paper: str  # its number
    experiment: str
    quantity: str
    criterion: Criterion
    given: str | None = None  # a difference that must lie below zero for the claim to be about anything
    control: bool = False  # what the paper's reading implies but it does not say: tested beside its claims

    @property
    def needs_full_size(self) -> bool:
        """A figure of a language model or its inside means nothing at another size, text or tokenizer."""
        of_text = self.experiment.startswith("lm-") or self.experiment == "analysis"
        return of_text and self.criterion.rule == "number"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim with our number and the verdict that follows from it."""

    claim: Claim
    ours: Estimate | None
    verdict: str
    scale: str | None = None  # what was run, where it is smaller than the paper's own


def judge(claim: Claim, tables: dict[str, Table]) -> Judged:
    table = tables.get(claim.experiment)
    if table is None:
        return Judged(claim=claim, ours=None, verdict=NOT_RUN)
    scale = None if claim.quantity in table.at_full_size else table.scale
    if claim.quantity not in table.quantities or (scale is not None and claim.needs_full_size):
        return Judged(claim=claim, ours=None, verdict=NOT_RUN)
    ours = table.quantities[claim.quantity]
    if claim.given is not None:  # a gain must be there before one can ask how it is divided
        gain = below().judge(table.quantities[claim.given])
        if gain != REPRODUCED:
            verdict = WITHIN_NOISE if gain == WITHIN_NOISE else NOT_REPRODUCED
            return Judged(claim=claim, ours=ours, verdict=verdict, scale=scale)
    return Judged(claim=claim, ours=ours, verdict=claim.criterion.judge(ours), scale=scale)


def number(target: float, margin: float = 0.0) -> Criterion:
    return Criterion(rule="number", target=target, margin=margin)


def above(target: float = 0.0) -> Criterion:
    return Criterion(rule="above", target=target)


def below(target: float = 0.0) -> Criterion:
    return Criterion(rule="below", target=target)


def equal(target: float, margin: float) -> Criterion:
    return Criterion(rule="equal", target=target, margin=margin)


HOLDS = Criterion(rule="holds")
EVALUATION_NOISE = 0.5  # points: the sampling error of the paper's own test set, whose size it does not give


# What the paper's reading implies, or asks, without saying it: judged, shown and counted apart from its claims.
CONTROLS = {
    "rounds-converged",
    "rounds-residual",
    "lm-residual",
    "lm-flops",
    "lm-scale",
    "lm-selective",
    "hull-random",
    "gate-importance",
}


GIVEN = {
    "lm-rounds-enough": "M=2 - M=1",
    "lm-scale": "boosted - matched at the preset's width",
    "lm-selective": "chosen layers - standard",
}


def claim(
    id: str, section: str, experiment: str, quantity: str, criterion: Criterion, paper: str, sentence: str
) -> Claim:
    return Claim(
        id=id,
        section=section,
        sentence=sentence,
        paper=paper,
        experiment=experiment,
        quantity=quantity,
        criterion=criterion,
        control=id in CONTROLS,
        given=GIVEN.get(id),
    )


def theory() -> list[Claim]:
    rows = [
        ("energy", "2.2", "The Hopfield update is xi minus the energy's gradient and never raises the energy."),
        ("fixed-points", "2.2", "Fixed points are global averages, averages over subsets, or single patterns."),
        ("1a", "4.1", "One step of attention lands in the convex hull of the values."),
        ("1b", "4.1", "What is orthogonal to the patterns is erased in one step."),
        ("1c", "4.1", "Every fixed point lies in the convex hull of the patterns."),
        ("1-remark", "4.1", "Queries of one contraction region converge to the same point."),
        ("2", "4.2", "The residual x - F is the negative gradient of the squared loss."),
        ("2-gate", "3.1", "With a scalar gate the layer is exactly boosting with shrinkage."),
        ("bayes", "App. C", "The Bayes predictor is attention with identity projections and beta = 1/sigma^2."),
        ("3a", "4.3", "Twicing stays in the row span of the values."),
        ("3b", "4.3", "Twicing's correction has no parameters of its own."),
        ("3c", "4.3", "Boosting's correction leaves the row span of round 0's values."),
        ("3-hull", "6.4", "The boosted output leaves the hull of round 0's values at every position up to d_h."),
        ("3-spectrum", "4.3", "Twicing slows the decay of capacity with depth from 1/n to 1/sqrt(n)."),
        ("4a", "4.4", "Under Pre-LN a correction enters the stream unchanged."),
        ("4b", "4.4", "Under Post-LN it passes LayerNorm's Jacobian, of rank d - 2."),
        ("4-stream", "4.4", "A Pre-LN stream is its start plus the sum of what the layers add."),
    ]
    return [
        claim(f"theory-{name}", section, "propositions", f"{name} holds", HOLDS, "proved", sentence)
        for name, section, sentence in rows
    ]


def table_2() -> list[Claim]:
    found = []
    for i, c in enumerate(SIX):
        where, tag = negative.column(*c), f"{c[1]}-{c[2]}"
        for label in ("Bayes", "one-step"):
            value = negative.PAPER[label][i]
            found.append(
                claim(
                    f"negative-{label.lower()}-{tag}",
                    "5",
                    "negative",
                    f"{label} | {where}",
                    number(value, EVALUATION_NOISE),
                    f"{value}",
                    f"{label} attention retrieves {value} % at {where}.",
                )
            )
        for label, how in (
            ("converged, unrolled", "backpropagation"),
            ("converged, implicit", "implicit differentiation"),
        ):
            value = negative.PAPER[label][i]
            found.append(
                claim(
                    f"negative-{label.split()[1]}-{tag}",
                    "5",
                    "negative",
                    f"{label} - chance | {where}",
                    equal(0.0, 2.0),
                    f"{value} (chance {100 / c[1]:.1f})",
                    f"Iterated to convergence and trained by {how}, attention is at chance at {where}.",
                )
            )
        found.append(
            claim(
                f"negative-loss-{tag}",
                "5",
                "negative",
                f"one-step - converged | {where}",
                above(),
                f"{negative.PAPER['one-step'][i] - negative.PAPER['converged, unrolled'][i]:+.1f}",
                f"One step beats convergence at {where}.",
            )
        )
    main = negative.column(64, 16, 0.5)
    return [
        *found,
        claim(
            "negative-structural",
            "5",
            "temperature",
            "kept at beta=8 - Bayes | d=64 K=16 sigma=0.5",
            below(-10.0),
            "at chance",
            "The collapse is structural: iteration destroys accuracy whatever the parameters.",
        ),
        claim(
            "negative-any-training",
            "5",
            "negative",
            f"implicit - unrolled | {main}",
            equal(0.0, 2.0),
            "identical",
            "How gradients are computed does not matter: exact implicit ones change nothing.",
        ),
        claim(
            "negative-iterated",
            "4.1",
            "routing",
            "one-step attention, iterated - chance",
            equal(0.0, 2.0),
            "near chance",
            "Attention trained for one step and then iterated to convergence is near chance.",
        ),
    ]


def table_5() -> list[Claim]:
    numbers = [
        claim(
            f"rounds-{m}",
            "6.3",
            "rounds",
            f"accuracy | M={m}",
            number(p, EVALUATION_NOISE),
            f"{p}",
            f"{m} round{'s' if m > 1 else ''}: {p} % retrieved.",
        )
        for m, p in zip(rounds.ROUNDS, rounds.PAPER, strict=True)
    ]
    return [
        *numbers,
        claim("rounds-gain", "6.3", "rounds", "M=2 - M=1", above(), "+9.5", "A second round retrieves more than one."),
        claim(
            "rounds-gain-size",
            "6.3",
            "rounds",
            "M=2 - M=1",
            number(9.5, EVALUATION_NOISE),
            "+9.5",
            "It gains 9.5 points.",
        ),
        claim(
            "rounds-diminishing",
            "6.3",
            "rounds",
            "(M=2 - M=1) - (M=5 - M=2)",
            above(),
            "9.5 against 1.5",
            "The step from one to two rounds is larger than all later ones together.",
        ),
        claim(
            "rounds-ceiling",
            "6.3",
            "rounds",
            "M=4 - Bayes",
            equal(0.0, 1.0),
            "58.1 and 58.1",
            "Four rounds nearly match the Bayes ceiling.",
        ),
        claim(
            "rounds-converged",
            "6.3",
            "budget",
            "M=2 - M=1, 20 times the steps",
            above(),
            "not tested",
            "The gain belongs to the rounds: it remains when training is long enough.",
        ),
        claim(
            "rounds-residual",
            "6.3",
            "residual-control",
            "residual - input x (parallel), M=2",
            above(),
            "not tested",
            "A second attention on x itself, without the residual, gains less.",
        ),
        claim(
            "rounds-key",
            "6.3",
            "residual-control",
            "half the gain - parallel's gain, M=2",
            above(),
            "key ingredient",
            "The residual is the key ingredient: without it at least half of the gain is lost.",
        ),
    ]


def table_6() -> list[Claim]:
    found = []
    for gate, gain in gates.GAINS.items():
        value = gates.PAPER[gate]
        found += [
            claim(
                f"gates-{gate}",
                "6.3",
                "gates",
                f"accuracy | {gate}",
                number(value, EVALUATION_NOISE),
                f"{value}",
                f"Two rounds with gate {gate!r}: {value} % retrieved.",
            ),
            claim(
                f"gates-{gate}-gain",
                "6.3",
                "gates",
                f"{gate} - baseline",
                above(),
                f"{gain:+}",
                f"Gate {gate!r} improves on one round.",
            ),
            claim(
                f"gates-{gate}-gain-size",
                "6.3",
                "gates",
                f"{gate} - baseline",
                number(gain, EVALUATION_NOISE),
                f"{gain:+}",
                f"It gains {gain} points.",
            ),
        ]
    return [
        *found,
        claim(
            "gates-baseline",
            "6.3",
            "gates",
            "accuracy | baseline M=1",
            number(48.2, EVALUATION_NOISE),
            "48.2",
            "The single-round baseline of the gate table retrieves 48.2 %.",
        ),
        claim(
            "gates-scalar-vector",
            "6.3",
            "gates",
            "scalar - vector",
            equal(0.0, 1.5),
            "+0.9",
            "A single learned scalar does as well as the per-dimension gate.",
        ),
        claim(
            "gates-none-vector",
            "6.3",
            "gates",
            "none - vector",
            equal(0.0, 1.5),
            "-0.2",
            "No gate at all does nearly as well.",
        ),
    ]


def appendix_c() -> list[Claim]:
    found = []
    for (size, sigma), gain in scaling.PAPER_GAIN.items():
        where = f"({size[0]}, {size[1]}) sigma={sigma}"
        found += [
            claim(
                f"scaling-{size[1]}",
                "6.3",
                "scaling",
                f"gain {where}",
                above(),
                f"{gain:+}",
                f"A second round helps at d, K = {where}.",
            ),
            claim(
                f"scaling-{size[1]}-size",
                "6.3",
                "scaling",
                f"gain {where}",
                number(gain, EVALUATION_NOISE),
                f"{gain:+}",
                f"It gains {gain} points there.",
            ),
        ]
    for d, k in scaling.SIZES:
        found.append(
            claim(
                f"scaling-gap-{k}",
                "6.3",
                "scaling",
                f"M=2 - halfway to Bayes, ({d}, {k}) sigma=0.5",
                above(),
                "most",
                f"Two rounds close more than half of the gap to Bayes at sigma = 0.5 and d, K = ({d}, {k}).",
            )
        )
        found.append(
            claim(
                f"scaling-noise-{k}",
                "6.3",
                "scaling",
                f"gain at sigma=0.5 - at 0.3, ({d}, {k})",
                above(),
                "grows",
                f"Up to sigma = 0.5 the benefit grows with the noise at d, K = ({d}, {k}).",
            )
        )
        found.append(
            claim(
                f"scaling-fades-{k}",
                "App. C",
                "scaling",
                f"gain at sigma=0.8 - at 0.5, ({d}, {k})",
                below(),
                "diminishes",
                f"At sigma = 0.8 the gain is smaller than at 0.5 at d, K = ({d}, {k}).",
            )
        )
    found.append(
        claim(
            "scaling-patterns",
            "6.3",
            "scaling",
            "gain (128, 32) - gain (32, 8), sigma=0.3",
            above(),
            "13.5 against 14.6",
            "The benefit grows with the number of patterns.",
        )
    )
    return found


def section_5_routing() -> list[Claim]:
    return [
        claim(
            f"routing-{features}",
            "5",
            "routing",
            f"{features} | queries sent to one-step (%)",
            equal(100.0, 1.0),
            "always",
            f"A gate that sees {what} learns to take the one-step answer always.",
        )
        for features, what in (
            ("outputs", "both answers"),
            ("difference", "their difference"),
            ("divergence", "their distance"),
            ("entropy", "the attention's entropy"),
            ("all", "all of these"),
        )
    ]


def language_model() -> list[Claim]:
    """Decided by experiments on text; the quantities are relative differences in percent unless they name a unit."""
    rows: list[tuple[str, str, str, str, Criterion, str, str]] = []
    for corpus, tag, gain, wide, twice in (
        ("wikitext-103", "wt103", -6.0, "69.0 to 67.9", "-1.7 points"),
        ("openwebtext", "owt", -5.6, "110.2 to 108.5", "-2.2 points"),
    ):
        numbers = {
            "wikitext-103": {"standard": 72.2, "twicing": 69.6, "param-fair": 69.0, "boosted": 67.9},
            "openwebtext": {"standard": 114.9, "twicing": 110.7, "param-fair": 110.2, "boosted": 108.5},
        }[corpus]
        for arm, value in numbers.items():
            rows.append(
                (
                    f"lm-{tag}-{arm}",
                    "6.1",
                    "lm-main",
                    f"{arm} | {corpus}",
                    number(value),
                    f"{value}",
                    f"The {arm} model reaches a test perplexity of {value} on {corpus}.",
                )
            )
        for other, value in (("standard", f"{gain} %"), ("param-fair", wide), ("twicing", twice)):
            rows.append(
                (
                    f"lm-{tag}-vs-{other}",
                    "6.1",
                    "lm-main",
                    f"boosted - {other} | {corpus}",
                    below(),
                    value,
                    f"Boosted attention has a lower perplexity than {other} on {corpus}.",
                )
            )
        rows.append(
            (
                f"lm-{tag}-size",
                "6.1",
                "lm-main",
                f"boosted - standard | {corpus}",
                number(gain),
                f"{gain:+} %",
                f"The reduction against standard attention on {corpus} is {-gain} %.",
            )
        )
        rows.append(
            (
                f"lm-{tag}-twicing-helps",
                "6.1",
                "lm-main",
                f"twicing - standard | {corpus}",
                below(),
                "lower",
                f"Twicing has a lower perplexity than standard attention on {corpus}.",
            )
        )
    rows += [
        (
            "lm-params",
            "3.1",
            "lm-main",
            "parameters, boosted - standard",
            number(18.0, 1.0),
            "+18 %",
            "Two rounds add about 18 % parameters to the model.",
        ),
        (
            "lm-post-standard",
            "6.2",
            "lm-normalization",
            "perplexity, standard, post",
            number(77.2),
            "77.2",
            "Under Post-LN the standard model reaches 77.2.",
        ),
        (
            "lm-post-wide",
            "6.2",
            "lm-normalization",
            "perplexity, param-fair, post",
            number(71.8),
            "71.8",
            "Under Post-LN the wider model reaches 71.8.",
        ),
        (
            "lm-post-boosted",
            "6.2",
            "lm-normalization",
            "perplexity, boosted, post",
            number(84.6),
            "84.6",
            "Under Post-LN the boosted model reaches 84.6.",
        ),
        (
            "lm-post-reverses",
            "6.2",
            "lm-normalization",
            "boosted - standard, post",
            above(),
            "+9.6 %",
            "Under Post-LN boosting makes perplexity worse.",
        ),
        (
            "lm-post-wide-helps",
            "6.2",
            "lm-normalization",
            "param-fair - standard, post",
            below(),
            "-7.0 %",
            "Under Post-LN the wider model still improves.",
        ),
        (
            "lm-pre-wide-helps",
            "6.2",
            "lm-normalization",
            "param-fair - standard, pre",
            below(),
            "-4.4 %",
            "Under Pre-LN the wider model improves.",
        ),
        (
            "lm-kv-residual",
            "App. D",
            "lm-kv-source",
            "residual - input",
            below(),
            "-1.4 points",
            "Keys and values from the residual beat keys and values from the input.",
        ),
        (
            "lm-kv-input",
            "App. D",
            "lm-kv-source",
            "perplexity, input",
            number(69.3),
            "69.3",
            "With keys and values from the input the test perplexity is 69.3.",
        ),
        (
            "lm-kv-residual-val",
            "App. D",
            "lm-kv-source",
            "validation perplexity, residual",
            number(68.1),
            "68.1",
            "With keys and values from the residual the validation perplexity is 68.1.",
        ),
        (
            "lm-kv-input-val",
            "App. D",
            "lm-kv-source",
            "validation perplexity, input",
            number(69.5),
            "69.5",
            "With keys and values from the input the validation perplexity is 69.5.",
        ),
        (
            "lm-convergence-wide",
            "App. B",
            "lm-convergence",
            "steps to the param-fair model's end",
            number(-20.0, 5.0),
            "-20 %",
            "The boosted model reaches the wider model's final perplexity in 20 % fewer steps.",
        ),
        (
            "lm-convergence-standard",
            "App. B",
            "lm-convergence",
            "steps to the standard model's end",
            number(-33.0, 5.0),
            "-33 %",
            "It reaches the standard model's final perplexity in a third fewer steps.",
        ),
        (
            "lm-rounds-enough",
            "1",
            "lm-rounds",
            "(M=2 - M=1) - (M=3 - M=2)",
            below(),
            "most of the benefit",
            "Two rounds capture most of the benefit in the language model.",
        ),
        (
            "lm-residual",
            "6.1",
            "lm-controls",
            "boosted - parallel",
            below(),
            "not tested",
            "It is the residual: a parallel second attention on x gains less.",
        ),
        (
            "lm-flops",
            "6.1",
            "lm-controls",
            "boosted - FLOP-matched width",
            below(),
            "not tested",
            "The gain cannot be had by spending the same compute on width.",
        ),
        (
            "lm-scale",
            "8",
            "lm-scale",
            "slope of the gain against log width",
            above(),
            "open",
            "The relative gain does not shrink as models grow.",
        ),
        (
            "lm-selective",
            "8",
            "lm-selective",
            "chosen layers - random layers",
            below(),
            "suggested",
            "Boosting only the layers that matter is better than boosting as many others.",
        ),
    ]
    for layer, value in enumerate((0.33, 0.49, 0.39, 0.36)):
        rows.append(
            (
                f"gate-layer-{layer}",
                "6.4",
                "analysis",
                f"mean gate | layer {layer}",
                number(value),
                f"{value}",
                f"The mean gate of layer {layer} is {value}.",
            )
        )
    for layer, value in enumerate((0.88, 5.19, 4.25, 3.41)):
        rows.append(
            (
                f"hull-layer-{layer}",
                "6.4",
                "analysis",
                f"hull distance | layer {layer}",
                number(value),
                f"{value}",
                f"The mean distance from the hull in layer {layer} is {value}.",
            )
        )
    rows += [
        (
            "gate-layer-0-spread",
            "6.4",
            "analysis",
            "spread of gates | layer 0",
            number(0.08),
            "0.08",
            "Layer 0's gates have a standard deviation of 0.08 over dimensions.",
        ),
        (
            "gate-spread",
            "6.4",
            "analysis",
            "spread of gates, layer 1 - other layers",
            above(),
            "0.22",
            "Layer 1's gates vary most over dimensions.",
        ),
        (
            "hull-ranking",
            "6.4",
            "analysis",
            "rank correlation of hull distance and gate",
            above(),
            "the same ranking",
            "The layers' hull distances rank as their gates do.",
        ),
        (
            "hull-all",
            "6.4",
            "analysis",
            "share of outputs outside the hull (%)",
            number(100.0),
            "100 %",
            "Every sampled output is outside the hull.",
        ),
        (
            "entropy-standard",
            "6.4",
            "analysis",
            "entropy | standard",
            number(2.71),
            "2.71 nats",
            "Standard attention's mean entropy is 2.71 nats.",
        ),
        (
            "entropy-round-0-size",
            "6.4",
            "analysis",
            "entropy | round 0",
            number(3.34),
            "3.34 nats",
            "Round 0's mean entropy is 3.34 nats.",
        ),
        (
            "entropy-round-1-size",
            "6.4",
            "analysis",
            "entropy | round 1",
            number(2.55),
            "2.55 nats",
            "Round 1's mean entropy is 2.55 nats.",
        ),
        (
            "entropy-round-0",
            "6.4",
            "analysis",
            "entropy, round 0 - standard",
            above(),
            "3.34 against 2.71",
            "Round 0 of the boosted model is more diffuse than standard attention.",
        ),
        (
            "entropy-round-1",
            "6.4",
            "analysis",
            "entropy, round 1 - standard",
            below(),
            "2.55 against 2.71",
            "Round 1 is more focused than standard attention.",
        ),
        (
            "entropy-layer-1-round-0",
            "6.4",
            "analysis",
            "entropy ratio, round 0 | layer 1",
            number(27.0, 5.0),
            "+27 %",
            "In layer 1 round 0 is 27 % more diffuse.",
        ),
        (
            "entropy-layer-1-round-1",
            "6.4",
            "analysis",
            "entropy ratio, round 1 | layer 1",
            number(-45.0, 5.0),
            "-45 %",
            "In layer 1 round 1 is 45 % less diffuse.",
        ),
        (
            "hull-random",
            "6.4",
            "analysis",
            "hull distance beyond head_dim, boosted over random (%)",
            above(),
            "not measured",
            "A learned correction leaves the hull farther than a random one of the same norm, where more values are visible than a head has dimensions.",
        ),
        (
            "gate-importance",
            "6.4",
            "analysis",
            "rank correlation of importance and gate",
            above(),
            "not measured",
            "The layers with wider gates are those whose correction matters more.",
        ),
        (
            "entropy-gate",
            "6.4",
            "analysis",
            "correlation of sharpness and gate",
            above(),
            "correlated",
            "Layers whose correction is sharper open their gate wider.",
        ),
    ]
    return [
        claim(id, section, experiment, quantity, criterion, paper, sentence)
        for id, section, experiment, quantity, criterion, paper, sentence in rows
    ]


CLAIMS: list[Claim] = [
    *theory(),
    *table_2(),
    *section_5_routing(),
    *language_model(),
    *table_5(),
    *table_6(),
    *appendix_c(),
]
