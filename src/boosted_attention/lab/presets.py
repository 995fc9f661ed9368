"""Presets: how much of everything, from seconds for the tests to the paper's own settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from boosted_attention.records import from_json
from boosted_attention.train.recipes import LanguageModelRun, find_recipe
from boosted_attention.train.run_config import RunConfig
from boosted_attention.validation import is_count, require, require_choice, require_count

PAIR = ("boosted", "param-fair")  # the boosted model, and the standard one with as many parameters
MOST_SEEDS = 10_000
PAPERS_SEEDS = (42, 123)  # of its language models
PAPERS_RECIPE = "paper-small"  # the paper's own
PAPERS_STEPS = 150  # of the retrieval task
THIRDS = (1 / 3, 1.0, 3.0)  # factors on learning rates of fine-tuning


class UndecidedError(Exception):
    """What is asked for follows from results that are not there yet.

    Args:
        experiment: name of the experiment whose results decide it.
    """

    def __init__(self, experiment: str):
        super().__init__(f"{experiment} decides it")
        self.experiment = experiment


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """Trainings whose scatter decides how many seeds the boosted model and the one of equal parameters get."""

    seeds: tuple[int, ...]  # used nowhere else
    effect: float  # percent of perplexity that is to be seen, and the margin of "equal"
    most: int  # seeds at most; at least those that the arms have without a pilot


@dataclass(frozen=True, kw_only=True)
class Size:
    """A further size at which the boosted model and the one of equal parameters are trained."""

    recipe: str
    seeds: int  # the preset's first
    rates: tuple[float, ...] = (0.5, 1.0, 2.0)  # as those of the preset


@dataclass(frozen=True, kw_only=True)
class Tournament:
    """Stages in which forms of attention are compared at equal time; each stage has seeds of its own."""

    forms: tuple[str, ...]  # names of those that enter
    rates: tuple[float, ...]  # factors that the first stage tries
    first_seed: int
    first_share: float  # of the preset's steps that the standard model trains in the first stage
    second_seeds: tuple[int, ...]
    into_second: int  # forms at most
    final_seeds: tuple[int, ...]
    into_final: int  # forms at most
    wide: Size | None = None  # a further size for those that were confirmed


@dataclass(frozen=True, kw_only=True)
class DecidedForms:
    """What the stages of a tournament have decided so far."""

    times: Mapping[str, float] = field(default_factory=dict)  # step of each form as a multiple of standard's
    wide_times: Mapping[str, float] = field(default_factory=dict)  # the same at the further size
    rates: Mapping[str, float] = field(default_factory=dict)  # best factor of each form, and of standard
    second: tuple[str, ...] | None = None  # forms of the second stage, best first
    final: tuple[str, ...] | None = None  # forms that are confirmed, best first


@dataclass(frozen=True, kw_only=True)
class Decided:
    """What results have decided so far, by rules in code; nobody types it."""

    grids: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)  # recipe: arm: factors tried
    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # recipe: arm: best factor
    pair_seeds: int | None = None  # of the boosted model and the one of equal parameters
    step_times: Mapping[str, float] = field(default_factory=dict)  # arm: its step as a multiple of the boosted one's
    forms: DecidedForms = DecidedForms()


@dataclass(frozen=True, kw_only=True)
class TextPreset:
    """The language-model half: a training recipe by name, and what differs from it."""

    recipe: str = "mini"
    seeds: tuple[int, ...] = PAPERS_SEEDS
    corpora: tuple[str, ...] = ("stdlib",)
    model: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    timed_steps: int = 15  # of each model, where step times are compared
    analysed_sequences: int = 50
    hull_pairs: int = 600  # (position, head) pairs per layer
    rates: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)  # factors on all learning rates that a sweep tries
    sweep_seed: int = 31  # which no table uses
    tuned: bool = False  # every arm at its own best rate, as lm-sweep finds it on the first text
    arms: Mapping[str, int] = field(default_factory=dict)  # seeds of each arm; all seeds of all arms if empty
    arms_elsewhere: Mapping[str, int] = field(default_factory=dict)  # the same on all texts but the first
    analysed_seeds: int | None = None  # pairs that are analysed; all by default
    reward_seeds: tuple[int, ...] = ()  # of what asks what width, depth and tokens bring; the others' if empty
    pilot: Pilot | None = None
    sizes: tuple[Size, ...] = ()
    tournament: Tournament | None = None
    decided: Decided = Decided()

    def configuration(self) -> LanguageModelRun:
        """Model, training and data, as the recipe and the differences say."""
        return self._configuration

    @cached_property
    def _configuration(self) -> LanguageModelRun:
        base = find_recipe(self.recipe)
        model = replace(base.model, **self.model)
        return RunConfig(
            model=model, training=replace(base.training, **self.training), data=replace(base.data, **self.data)
        )

    def arms_on(self, corpus: str) -> Mapping[str, int]:
        """The number of seeds of every arm on a text; empty where all arms have all seeds."""
        return self.arms if corpus == self.corpora[0] else self.arms_elsewhere or self.arms

    @property
    def is_the_papers(self) -> bool:
        """Whether the models have the paper's own size and training."""
        return self.recipe == PAPERS_RECIPE


@dataclass(frozen=True, kw_only=True)
class DecidedRates:
    """What sweeps of learning rates have decided so far."""

    grids: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # arm: factors tried
    rates: Mapping[str, float] = field(default_factory=dict)  # arm: best factor


@dataclass(frozen=True, kw_only=True)
class FinetunePreset:
    """Fine-tuning of a pretrained model: steps, rows and evaluation size."""

    steps: int = 40
    batch_size: int = 2
    max_len: int = 64
    held_out: int = 2000  # tokens of each evaluation
    n_seeds: int = 2  # of the language models' seeds, unless a number is asked for
    rates: tuple[float, ...] = (1.0,)  # factors on an arm's rate that its sweep tries; of one alone there is none
    timed_steps: int = 5
    decoded: int = 16  # tokens of each model in a turn, where decoding is timed
    pretrained: Mapping[str, str] = field(default_factory=dict)  # name and hash of the model; a tiny one if empty
    decided: DecidedRates = DecidedRates()


@dataclass(frozen=True, kw_only=True)
class RecallPreset:
    """Sequence tasks: which layers learn them, and how long."""

    layers: tuple[str, ...] = ("standard", "twicing", "boosted", "boosted-input", "parallel", "sequential")
    """Names of the catalog, all of it if empty; the widths are chosen for the parameters of "boosted"."""
    seeds: tuple[int, ...] = (0, 1)
    d_model: int = 64  # of "boosted"
    n_layers: int = 1
    steps: int = 250
    test_size: int = 500  # sequences of either length


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Seeds, steps and sizes of a reproduction."""

    name: str
    seeds: int  # of the paper's own tables
    long_seeds: int  # of the long controls
    steps: int  # the paper's "150 epochs"
    long_steps: int
    test_size: int
    map_size: int  # queries per point of a map
    text: TextPreset = TextPreset()
    finetune: FinetunePreset = FinetunePreset()
    recall: RecallPreset = RecallPreset()
    tree_seeds: int = 1  # of gradient-boosted trees
    tree_rounds: int = 50  # of the same, at least 3
    experiments: tuple[str, ...] = ()  # done unasked, the most important first; those of every preset if empty

    @property
    def has_papers_steps(self) -> bool:
        """Whether the retrieval models are trained as long as the paper's."""
        return self.steps == PAPERS_STEPS

    def with_seeds(self, seeds: int | None) -> Preset:
        """The preset with another number of seeds; language models get the preset's own first, then count on."""
        if seeds is None:
            return self
        require_count("seeds", seeds, MOST_SEEDS)
        more = (*self.text.seeds, *(s for s in range(1000, 1000 + seeds)))[:seeds]
        return replace(
            self,
            seeds=seeds,
            long_seeds=seeds,
            text=replace(self.text, seeds=more),
            finetune=replace(self.finetune, n_seeds=seeds),
            recall=replace(self.recall, seeds=tuple(range(seeds))),
            tree_seeds=seeds,
        )

    def with_corpora(self, corpora: Sequence[str]) -> Preset:
        """The preset on other texts, if any are named."""
        return self if not corpora else replace(self, text=replace(self.text, corpora=tuple(dict.fromkeys(corpora))))

    def with_rates(self, rates: Sequence[float]) -> Preset:
        """The preset with other factors on the learning rates of a sweep, if any are given."""
        if not rates:
            return self
        distinct = tuple(sorted(set(rates)))
        require(
            len(distinct) >= 3 and distinct[0] > 0,
            f"rates={tuple(rates)}: a sweep needs at least three positive factors, so that the best can have one on "
            "either side",
        )
        return replace(self, text=replace(self.text, rates=distinct))

    def at(self, size: Size) -> Preset:
        """The preset at a further size, with the two arms that are trained there."""
        text = replace(self.text, recipe=size.recipe, rates=size.rates, arms=dict.fromkeys(PAIR, size.seeds))
        return replace(self, text=replace(text, arms_elsewhere={}, pilot=None, sizes=(), tournament=None))

    def with_pretrained(self, name: str, weights: str) -> Preset:
        """The preset with a pretrained model to fine-tune, known by the hash of its weights."""
        return replace(self, finetune=replace(self.finetune, pretrained={"name": name, "weights": weights}))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Preset:
        """A preset from JSON; ValueError if it is none."""
        preset = from_json(cls, values)
        numbers = (preset.seeds, preset.long_seeds, preset.steps, preset.long_steps, preset.test_size, preset.map_size)
        require(all(map(is_count, numbers)) and bool(preset.text.seeds), "a preset is made of counts, and needs seeds")
        preset.text.configuration()
        return preset


SYNTHETIC: dict[str, Any] = {
    "seeds": 8,
    "long_seeds": 4,
    "steps": PAPERS_STEPS,
    "long_steps": 3000,
    "test_size": 20_000,
    "map_size": 2000,
}

# How many seeds each arm of the arena gets, fixed before the first run: those of comparisons named beforehand have
# eight, the rest of the main table and equal time five, what else the paper and its related work have three. Arms not
# named get none.
ARENA_ARMS = {
    **dict.fromkeys((*PAIR, "standard", "parallel"), 8),
    **dict.fromkeys(("twicing", "FLOP-matched width", "one more layer", "shared K/V"), 5),
    **dict.fromkeys(("standard, equal time", "param-fair, equal time"), 5),
    **dict.fromkeys(("standard, post", "param-fair, post", "boosted, post"), 3),
    **dict.fromkeys(("input K/V", "three rounds", "scalar gate"), 3),
    **dict.fromkeys(("differential-v2", "gated", "boosted-differential", "half as wide again"), 3),
}

# Forms of attention that enter the tournament, fixed before its first run; lm-forms says what each is.
FORMS_OF_THE_TOURNAMENT = (
    "local",
    "exclusive",
    "value residual",
    "local, exclusive, value residual",
    "value-basis",
    "value-basis, one layer",
    "Parallax",
    "low-rank correction, headwise gate",
    "normalised residual",
    "shared K/V, headwise gate",
    "shared K/V, headwise gate, one layer",
)

PRESETS = {
    "smoke": Preset(
        name="smoke",
        seeds=2,
        long_seeds=2,
        steps=4,
        long_steps=5,
        test_size=300,
        map_size=100,
        text=TextPreset(
            recipe="arena",
            model={"vocab_size": 300, "d_model": 16, "n_layers": 4, "n_heads": 2, "max_len": 16},
            training={"steps": 3, "batch_size": 4, "eval_every": 1},
            data={"train_tokens": 4096, "held_out_tokens": 512},
            timed_steps=3,
            analysed_sequences=4,
            hull_pairs=12,
        ),
        finetune=FinetunePreset(steps=3, max_len=16, held_out=200, timed_steps=1, decoded=2),
        recall=RecallPreset(
            layers=("standard", "boosted", "boosted-input", "parallel"), seeds=(0,), d_model=16, steps=2, test_size=8
        ),
        tree_rounds=3,
    ),
    "quick": Preset(
        name="quick",
        **SYNTHETIC,
        text=TextPreset(recipe="arena", training={"steps": 150, "eval_every": 50}, data={"held_out_tokens": 65_536}),
    ),
    "cpu": Preset(
        name="cpu",
        **SYNTHETIC,
        text=TextPreset(recipe="arena", seeds=(42, 123, 7)),
        finetune=FinetunePreset(
            steps=60, batch_size=1, max_len=512, held_out=32_768, n_seeds=3, rates=THIRDS, timed_steps=9
        ),
        recall=RecallPreset(layers=(), seeds=(0, 1, 2)),
        tree_seeds=3,
    ),
    "arena": Preset(
        name="arena",
        **SYNTHETIC,
        experiments=(
            "lm-rewards",
            "lm-sweep",
            "lm-pilot",
            "lm-main",
            "lm-controls",
            "lm-equal-cost",
            "lm-normalization",
            "lm-kv-source",
            "lm-rounds",
            "lm-convergence",
            "analysis",
            "lm-pareto",
            "lm-scale",
        ),
        text=TextPreset(
            recipe="arena",
            corpora=("wikitext-2", "enwik8-clean"),
            training={"eval_every": 130},
            data={"held_out_tokens": 65_536},
            seeds=tuple(range(101, 117)),
            tuned=True,
            rates=(0.25, 0.5, 1.0, 2.0),
            arms=ARENA_ARMS,
            arms_elsewhere=dict.fromkeys(PAIR, 5),
            analysed_seeds=5,
            reward_seeds=tuple(range(201, 206)),
            pilot=Pilot(seeds=tuple(range(301, 305)), effect=1.5, most=16),
            sizes=(Size(recipe="arena-128", seeds=5),),
            timed_steps=40,
        ),
    ),
    "forms": Preset(
        name="forms",
        **SYNTHETIC,
        experiments=("lm-forms",),
        text=TextPreset(
            recipe="arena",
            corpora=("wikitext-2",),
            data={"held_out_tokens": 65_536},
            seeds=tuple(range(601, 611)),
            tournament=Tournament(
                forms=FORMS_OF_THE_TOURNAMENT,
                rates=(0.5, 1.0, 2.0),
                first_seed=501,
                first_share=0.5,
                second_seeds=(511, 512, 513),
                into_second=5,
                final_seeds=tuple(range(601, 611)),
                into_final=2,
                wide=Size(recipe="arena-128", seeds=5),
            ),
            timed_steps=200,
        ),
    ),
    "rounds": Preset(
        name="rounds",
        **SYNTHETIC,
        experiments=("lm-related", "lm-stagewise", "lm-halting"),
        text=TextPreset(recipe="arena", corpora=("wikitext-2",), seeds=(42, 123, 7)),
    ),
    "look": Preset(
        name="look",
        **SYNTHETIC,
        experiments=("lm-main",),
        text=TextPreset(
            recipe="arena",
            corpora=("enwik8-clean",),
            model={"vocab_size": 16_384, "d_model": 256, "max_len": 256},
            training={"steps": 1953, "batch_size": 8, "eval_every": 651},  # 4 million tokens
            data={"tokenizer": "paper", "train_tokens": 4_000_000, "held_out_tokens": 65_536},
            seeds=(401,),
            arms=dict.fromkeys((*PAIR, "standard"), 1),
        ),
    ),
    "paper": Preset(
        name="paper",
        **{**SYNTHETIC, "seeds": 30, "long_seeds": 30, "map_size": 20_000},
        text=TextPreset(  # with three seeds of ours, since two decide nothing
            recipe=PAPERS_RECIPE, corpora=("wikitext-103", "openwebtext"), seeds=(*PAPERS_SEEDS, 7, 8, 9)
        ),
        finetune=FinetunePreset(
            steps=2000, batch_size=8, max_len=1024, held_out=131_072, n_seeds=5, rates=THIRDS, timed_steps=9
        ),
        recall=RecallPreset(layers=(), seeds=(0, 1, 2)),
        tree_seeds=3,
    ),
}


def preset(name: str, seeds: int | None = None, corpora: Sequence[str] = ()) -> Preset:
    """A preset by name.

    Args:
        name: smoke (seconds), quick (minutes), cpu (hours), arena and forms (half a day each), look (the paper's
            model, once, for hours) or paper (its settings, with five seeds per language model where it had two).
        seeds: seeds per model instead of the preset's.
        corpora: texts of the language models instead of the preset's.
    """
    require_choice("preset", name, PRESETS)
    return PRESETS[name].with_seeds(seeds).with_corpora(corpora)
