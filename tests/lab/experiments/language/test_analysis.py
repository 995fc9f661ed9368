"""Section 6.4 from analyses made by hand: every number tells its seed, layer, round and kind."""

import pytest

from boosted_attention.analysis.corrections import Corrections
from boosted_attention.analysis.dynamics import RoundDynamics
from boosted_attention.analysis.entropy import EntropyComparison, EntropyFinding, EntropyRatio
from boosted_attention.analysis.examine import Analysis, Relations
from boosted_attention.analysis.gates import GateFinding
from boosted_attention.analysis.hull import OUTPUT_KINDS, HullComparison, HullDistances, HullFinding, LayerHull
from boosted_attention.analysis.importance import Importance, LayerImportance
from boosted_attention.analysis.interval import Interval
from boosted_attention.analysis.specialisation import (
    KEY_KINDS,
    AttentionShares,
    Specialisation,
    SpecialisationComparison,
)
from boosted_attention.analysis.survey import Distribution
from boosted_attention.lab.experiments.language import analysis
from boosted_attention.lab.experiments.language.analysis import (
    BETTER,
    BY_LAYER,
    ENTROPY_0,
    ENTROPY_1,
    ENTROPY_STANDARD,
    EXPERIMENT,
    FARTHER,
    FITS,
    GAIN,
    HULL_AND_GATE,
    HULL_DISTANCE,
    IMPORTANCE_AND_GATE,
    LAYER_0_GATE,
    LAYER_1_GATE,
    LAYER_1_SPREAD,
    MEAN_GATE,
    OUTSIDE,
    RATIO_0,
    RATIO_1,
    ROUND_0_OVER_STANDARD,
    ROUND_1_OVER_STANDARD,
    SHARPNESS_AND_GATE,
    SPREAD,
    bounded,
)
from boosted_attention.lab.work.language import Diverged
from boosted_attention.statistics import estimate
from tests.lab.experiments.made import PAPERS_TEXT, TEXT, check, is_estimate, minus, of_key, papers, row, verdicts

LAYERS = range(4)
SMALL = (0.0, 0.01, -0.01)  # by seed
GATE = (0.33, 0.49, 0.39, 0.36)
SPREADS = (0.08, 0.22, 0.10, 0.12)
HULL = (0.88, 5.19, 4.25, 3.41)
NOTHING = Distribution(low=0.0, high=1.0, share=[1.0])
RELATIONS = Relations(sharpness_and_gate=0.7, hull_distance_and_gate=0.99, importance_and_gate=0.6)


def entropies(level, m):
    return [EntropyFinding(layer=i, round=m, mean=level + 0.1 * (i - 1.5), heads=[], histogram=NOTHING) for i in LAYERS]


def distances(mean, outside=1.0):
    return HullDistances(
        n=9,
        up_to_head_dim=1.0,
        mean=mean,
        relative=0.5,
        largest_relative=0.6,
        outside=outside,
        largest_gap=0.0,
        deciles=[],
    )


def hulls(seed, outside, sign):
    """By kind, the distances of OUTPUT_KINDS differ by tens; beyond head_dim by hundreds."""
    beyond = dict(zip(OUTPUT_KINDS, (150.0 + sign * 50, 1.0, 2.0, 150.0 - 10 * SMALL[seed]), strict=True))
    return [
        LayerHull(
            layer=i,
            head_dim=8,
            paper={kind: distances(HULL[i] + SMALL[seed] + 10 * n, outside) for n, kind in enumerate(OUTPUT_KINDS)},
            beyond_head_dim={kind: distances(mean) for kind, mean in beyond.items()},
        )
        for i in LAYERS
    ]


def shares(s, thousands, m=None):
    """Shares of attention that tell the map by thousandths, the layer by ten-thousandths and the kind by hundredths."""
    return [
        AttentionShares(
            layer=i,
            round=thousands - 1 if m is None else m,
            mean={kind: thousands / 1000 + i / 10_000 + n / 100 + s / 10 for n, kind in enumerate(KEY_KINDS)},
            heads={},
        )
        for i in LAYERS
    ]


def one(seed, sign=1, outside=1.0, relations=RELATIONS, gates=GATE, spreads=SPREADS):
    """The analysis of a seed, by its number; sign -1 turns every direction round."""
    s = SMALL[seed]
    standard, first, second = 2.71 + s, 2.71 + sign * 0.63 - s, 2.71 - sign * 0.16 + s / 2
    first_left, second_left = 1.0 + 0.1 * s, 1.0 - sign * 0.2
    return Analysis(
        layers=[f"layer {i}" for i in LAYERS],
        rounds=[2] * 4,
        sequences=5,
        length=16,
        gates=[
            GateFinding(
                layer=i,
                round=1,
                mean=gates[i] + s / 10,
                spread=spreads[i] + s / 5,
                std=9.0,
                open=0.25,
                histogram=NOTHING,
                dimensions=[],
                positions=[],
                widest_tokens=[],
                narrowest_tokens=[],
            )
            for i in LAYERS
        ],
        entropy=EntropyComparison(
            model=[*entropies(first, 0), *entropies(second, 1)],
            against=entropies(standard, 0),
            ratios=[
                EntropyRatio(layer=i, round=m, percent=level + 10 * (i - 1) + 5 * s)
                for m, level in enumerate((27.0, -45.0))
                for i in LAYERS
            ],
        ),
        dynamics=[
            RoundDynamics(layer=i, round=m, left=left + i, cosine=0.1 * i, gate=0.5)
            for m, left in enumerate((first_left, second_left))
            for i in LAYERS
        ],
        specialisation=SpecialisationComparison(
            model=Specialisation(uniform=dict.fromkeys(KEY_KINDS, 0.125), rows=[*shares(s, 1), *shares(s, 2)]),
            against=Specialisation(uniform={}, rows=shares(s, 3, m=0)),
        ),
        importance=Importance(
            loss=3.0,
            all=None,
            layers=[LayerImportance(layer=i, mean=0.01 * (i + 1), low=0.0, high=1.0, n=5) for i in LAYERS],
            worth_boosting=[seed],
        ),
        corrections=Corrections(
            tokens=80,
            gain=Interval(mean=sign * (0.05 + s), low=0.0, high=9.0, n=5),
            share_better=0.5 + sign * (0.1 + s),
            quantiles={},
            gains=[],
            losses=[],
        ),
        hull=HullComparison(
            model=HullFinding(layers=hulls(seed, outside, sign), refused=None),
            against=HullFinding(layers=hulls(seed, 0.0, sign), refused=None),
        ),
        explorer=None,
        relations=relations,
    )


def made(preset=TEXT, **options):
    """The first text as the options say, the second as it is."""
    known = {}
    for n, corpus in enumerate(preset.text.corpora):
        for i, trial in enumerate(analysis.analyses(preset, corpus).values()):
            known[trial.key] = one(i, **({} if n else options))
    return EXPERIMENT.table(preset, of_key(known))


def of_seeds(value):
    return [value(s) for s in SMALL]


@pytest.mark.parametrize("sign", [1, -1])
def test_differences_are_of_round_and_model(sign):
    standard = of_seeds(lambda s: 2.71 + s)
    first, second = of_seeds(lambda s: 2.71 + sign * 0.63 - s), of_seeds(lambda s: 2.71 - sign * 0.16 + s / 2)
    table = made(sign=sign)
    check(
        table,
        {
            ENTROPY_STANDARD.on("stdlib"): standard,
            ENTROPY_0.on("stdlib"): first,
            ENTROPY_1.on("stdlib"): second,
            ROUND_0_OVER_STANDARD.on("stdlib"): minus(first, standard),
            ROUND_1_OVER_STANDARD.on("stdlib"): minus(second, standard),
            FITS.on("stdlib"): of_seeds(lambda s: -sign * 0.2 - 0.1 * s),
            GAIN.on("stdlib"): of_seeds(lambda s: sign * (50 + 1000 * s)),
            BETTER.on("stdlib"): of_seeds(lambda s: sign * (10 + 100 * s)),
            FARTHER.on("stdlib"): of_seeds(lambda s: 100 * ((150 + sign * 50) / (150 - 10 * s) - 1)),
        },
    )


def test_layers_are_told_apart():
    table = made()
    rows = {MEAN_GATE: (GATE, 0.1), SPREAD: (SPREADS, 0.2), HULL_DISTANCE: (HULL, 1.0)}
    for name, (values, scale) in rows.items():
        for i in LAYERS:
            check(table, {BY_LAYER[name, i].on("stdlib"): [values[i] + scale * s for s in SMALL]})
        assert row(table, f"{name} | stdlib") == list(values)
    check(
        table,
        {
            LAYER_1_GATE.on("stdlib"): of_seeds(lambda s: 0.49 - 0.39),
            LAYER_0_GATE.on("stdlib"): of_seeds(lambda s: 0.33 - 0.36),
            LAYER_1_SPREAD.on("stdlib"): of_seeds(lambda s: 0.22 - 0.12),
            BY_LAYER[RATIO_0, 1].on("stdlib"): of_seeds(lambda s: 27 + 5 * s),
            BY_LAYER[RATIO_1, 1].on("stdlib"): of_seeds(lambda s: -45 + 5 * s),
            SHARPNESS_AND_GATE.on("stdlib"): [0.7] * 3,
            HULL_AND_GATE.on("stdlib"): [0.99] * 3,
            IMPORTANCE_AND_GATE.on("stdlib"): [0.6] * 3,
            OUTSIDE.on("stdlib"): [100.0] * 3,
        },
    )


def test_rows_are_of_their_kind_round_and_model():
    table = made()
    expected = {
        "entropy, standard": [2.71 + 0.1 * (i - 1.5) for i in LAYERS],
        "entropy, round 0": [3.34 + 0.1 * (i - 1.5) for i in LAYERS],
        "entropy, round 1": [2.55 + 0.1 * (i - 1.5) for i in LAYERS],
        "loss without the correction (millinats)": [10.0, 20.0, 30.0, 40.0],
        "gates above one half (%)": [25.0] * 4,
        "hull distance, standard": [h + 10 for h in HULL],
        "hull distance, twicing": [h + 20 for h in HULL],
        "hull distance, random correction": [h + 30 for h in HULL],
        "hull distance beyond head_dim": [200.0] * 4,
        "hull distance beyond head_dim, random correction": [150.0] * 4,
        "outside the hull (%)": [100.0] * 4,
        "outside the hull, standard (%)": [0.0] * 4,
        "norm of x - F over norm of x, round 0": [1.0 + i for i in LAYERS],
        "norm of x - F over norm of x, round 1": [0.8 + i for i in LAYERS],
        "cosine of correction and residual": [0.1 * i for i in LAYERS],
        "relative hull distance": [0.5] * 4,
    }
    maps = {"round 0": 0.1, "round 1": 0.2, "standard": 0.3}  # percent
    expected |= {
        f"attention to {kind}, {name} (%)": [level + i / 100 + n for i in LAYERS]
        for n, kind in enumerate(KEY_KINDS)
        for name, level in maps.items()
    }
    assert {name: row(table, f"{name} | stdlib") for name in expected} == expected
    cell = table.rows["attention to itself, round 1 (%) | stdlib"][0]
    assert cell is not None
    assert is_estimate(cell.ours, [0.2 + 10 * s for s in SMALL])
    assert "in percent: itself 12.5, previous token 12.5" in table.notes[3]
    assert "seed 42: [0]; seed 123: [1]; seed 7: [2]" in table.notes[3]


def test_numbers_like_the_papers_reproduce_it():
    table = made(PAPERS_TEXT)
    found = verdicts(EXPERIMENT, table, "wikitext-103")
    assert set(found.values()) == {"reproduced"}
    assert len(found) == len(EXPERIMENT.claims)
    assert papers(table, f"{HULL_DISTANCE} | wikitext-103") == list(HULL)
    assert papers(made(), f"{HULL_DISTANCE} | wikitext-103") == [None] * 4


def test_everything_turned_round_contradicts_it_on_that_text():
    opposite = Relations(sharpness_and_gate=-0.7, hull_distance_and_gate=-0.9, importance_and_gate=-0.6)
    table = made(sign=-1, outside=0.2, relations=opposite, gates=GATE[::-1], spreads=[-v for v in SPREADS])
    here, there = (verdicts(EXPERIMENT, table, text) for text in TEXT.text.corpora)
    assert set(here.values()) == {"contradicted"}
    assert set(there.values()) == {"reproduced"}


def test_relations_that_no_layers_have_are_missing_with_a_reason():
    table = made(relations=Relations(sharpness_and_gate=None, hull_distance_and_gate=1.0, importance_and_gate=1.0))
    assert "too few layers" in table.missing[SHARPNESS_AND_GATE.on("stdlib")]
    assert SHARPNESS_AND_GATE.on("wikitext-103") in table.quantities


def test_intervals_stay_within_the_range_of_their_quantity():
    wide = estimate([90.0, 100.0, 95.0])
    assert (bounded("outside (%)", wide).low, bounded("outside (%)", wide).high) == (wide.low, 100.0)
    assert bounded("a correlation", estimate([-0.9, -1.0, -0.8])).low == -1.0
    assert bounded("mean gate", wide) == wide


def test_the_analysis_knows_what_it_builds_on():
    """The boosted model first, the standard one second, both of its own seed; the first seed has an explorer."""
    for corpus in TEXT.text.corpora:
        for seed, trial in analysis.analyses(TEXT, corpus).items():
            model, against = trial.config["model"], trial.config["against"]
            assert [c["model"]["attention"] for c in (model, against)] == ["boosted", "standard"]
            assert {c["training"]["seed"] for c in (model, against)} == {seed}
            assert trial.config["with_explorer"] == (seed == TEXT.text.seeds[0])


def test_a_pair_that_diverged_fails_on_its_text_alone_and_is_named():
    known = {}
    for n, corpus in enumerate(TEXT.text.corpora):
        for i, trial in enumerate(analysis.analyses(TEXT, corpus).values()):
            known[trial.key] = Diverged(diverged="step 7: loss NaN", data="d") if (n, i) == (0, 1) else one(i)
    table = EXPERIMENT.table(TEXT, of_key(known))
    first, second = TEXT.text.corpora
    assert table.failed[FITS.on(first)] == "a model diverged"
    assert FITS.on(second) in table.quantities
    assert any("seed 123: step 7: loss NaN" in note for note in table.notes)
    assert not any(label.endswith(f"| {first}") for label in table.rows)
