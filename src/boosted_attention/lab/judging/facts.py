"""Facts: what the paper's abstract and conclusions come down to, and the questions that are ours.

Every claim belongs to a fact. Its parts decide it, place by place; its numbers stand beside it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One statement that a reader takes away.

    Args:
        id: short name.
        title: a few words for narrow columns.
        sentence: what is said, in our own words.
        section: where the paper says it.
        theory: proposition whose mathematics its checks of theory are about; they say nothing about perplexity.
        needs_all: whether every part must hold; otherwise one is enough, and parts that were not run say nothing.
        is_ours: whether the question is ours, and not a statement of the paper.
    """

    id: str
    title: str
    sentence: str
    section: str
    theory: str = ""
    needs_all: bool = True
    is_ours: bool = False


BEATS_STANDARD = Fact(
    id="beats-standard",
    title="beats standard attention",
    sentence="Boosted attention has a lower perplexity than standard attention.",
    section="6.1",
)
BEATS_EQUAL_PARAMETERS = Fact(
    id="beats-equal-parameters",
    title="beats as many parameters",
    sentence="Boosted attention has a lower perplexity than a wider standard model with as many parameters.",
    section="6.1",
)
BEATS_TWICING = Fact(
    id="beats-twicing",
    title="beats twicing",
    sentence="Boosted attention has a lower perplexity than twicing.",
    section="6.1",
)
TWO_ROUNDS = Fact(
    id="two-rounds", title="two rounds capture most", sentence="Two rounds capture most of the benefit.", section="6.3"
)
RESIDUAL_IS_KEY = Fact(
    id="residual-is-key",
    title="the residual, not the gate",
    sentence="The attention to the residual, not the gating, is the key ingredient.",
    section="6.3",
)
ITERATION_COLLAPSES = Fact(
    id="iteration-collapses",
    title="iteration collapses",
    sentence="Iterated attention loses its query and collapses, under all training procedures tested.",
    section="4.1, 5",
    theory="Prop. 1",
)
FRIEDMANS_BOOSTING = Fact(
    id="friedmans-boosting",
    title="is Friedman's boosting",
    sentence="Under a squared loss the construction is Friedman's gradient boosting.",
    section="4.2",
    theory="Prop. 2",
)
SEPARATE_PROJECTIONS = Fact(
    id="separate-projections",
    title="reaches beyond twicing",
    sentence="Separate projections reach what twicing cannot, outside the hull of the values.",
    section="4.3, 6.4",
    theory="Prop. 3",
)
NEEDS_PRE_LN = Fact(
    id="needs-pre-ln",
    title="needs Pre-LN",
    sentence="Boosting needs Pre-LN: under Post-LN it makes perplexity worse, where width still helps.",
    section="4.4, 6.2",
    theory="Prop. 4",
)
DIVIDES_LABOUR = Fact(
    id="divides-labour",
    title="rounds divide the labour",
    sentence="Round 0 attends more widely than standard attention, and round 1 more sharply.",
    section="6.4",
)
GROWS_WITH_DIFFICULTY = Fact(
    id="grows-with-difficulty",
    title="gain grows with difficulty",
    sentence="The gain grows with the number of patterns and with the noise, up to moderate noise.",
    section="6.3",
)
FEWER_STEPS = Fact(
    id="fewer-steps",
    title="fewer steps to the same loss",
    sentence="Boosted attention reaches the other models' final loss in fewer steps.",
    section="App. B",
)
FINETUNING = Fact(
    id="fine-tuning",
    title="beats LoRA in fine-tuning",
    sentence="Low-rank corrections that share keys and values learn a new text better than LoRA of their rank.",
    section="8",
    is_ours=True,
)
SIZE = Fact(
    id="size",
    title="gain by size",
    sentence="How the gain over the model with as many parameters changes with size, which the paper leaves open.",
    section="8",
    is_ours=True,
)
EQUALS_WIDTH = Fact(
    id="equals-width",
    title="equal to as many parameters",
    sentence="Boosted attention and a wider standard model with as many parameters have the same perplexity.",
    section="6.1",
    is_ours=True,
)
A_FORM_PAYS = Fact(
    id="a-form-pays",
    title="a further round pays",
    sentence="Of the forms of a further round that got as far as the last stage, some has a lower perplexity than the "
    "standard model that trains as long.",
    section="8",
    needs_all=False,
    is_ours=True,
)
KV_SOURCE = Fact(
    id="kv-source",
    title="K/V from the residual",
    sentence="Corrections do better with keys and values from the residual than from the input.",
    section="App. D",
    is_ours=True,
)
OWN_PROJECTIONS = Fact(
    id="own-projections",
    title="own weights",
    sentence="Rounds with projections of their own bring more than the same attention repeated, which learns when to "
    "halt.",
    section="7",
    is_ours=True,
)
COMBINES = Fact(
    id="combines",
    title="combines with differential",
    sentence="Boosting with differential attention has a lower perplexity than either alone.",
    section="7",
    is_ours=True,
)
RECALL = Fact(
    id="recall",
    title="recalls and composes",
    sentence="Boosted attention recalls associations and composes permutations better than a standard model with as "
    "many parameters.",
    section="8",
    is_ours=True,
)
TOGETHER = Fact(
    id="together",
    title="rounds trained together",
    sentence="Rounds trained together do better than rounds trained one after the other, as boosting trains them.",
    section="4.2",
    is_ours=True,
)

FACTS = (
    BEATS_STANDARD,
    BEATS_EQUAL_PARAMETERS,
    BEATS_TWICING,
    TWO_ROUNDS,
    RESIDUAL_IS_KEY,
    ITERATION_COLLAPSES,
    FRIEDMANS_BOOSTING,
    SEPARATE_PROJECTIONS,
    NEEDS_PRE_LN,
    DIVIDES_LABOUR,
    GROWS_WITH_DIFFICULTY,
    FEWER_STEPS,
    FINETUNING,
    EQUALS_WIDTH,
    SIZE,
    KV_SOURCE,
    A_FORM_PAYS,
    OWN_PROJECTIONS,
    COMBINES,
    RECALL,
    TOGETHER,
)
