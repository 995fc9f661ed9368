"""The sections, in the order of the page. To add one, write its file with one ``Section`` and enter it here."""

from benchmarks.section import Section
from benchmarks.sections.compiled import COMPILED
from benchmarks.sections.data import DATA
from benchmarks.sections.decoding import DECODING
from benchmarks.sections.growth import GROWTH
from benchmarks.sections.halting import HALTING
from benchmarks.sections.hull import HULL
from benchmarks.sections.imports import IMPORTS
from benchmarks.sections.memory import MEMORY
from benchmarks.sections.parallel import PARALLEL
from benchmarks.sections.pretrained import PRETRAINED
from benchmarks.sections.pretrained_decoding import PRETRAINED_DECODING
from benchmarks.sections.price import PRICE
from benchmarks.sections.retrieval import RETRIEVAL
from benchmarks.sections.steps import STEPS

SECTIONS: dict[str, Section] = {
    section.name: section
    for section in (
        STEPS,
        PRICE,
        DECODING,
        HALTING,
        MEMORY,
        DATA,
        IMPORTS,
        GROWTH,
        COMPILED,
        RETRIEVAL,
        PRETRAINED,
        PRETRAINED_DECODING,
        PARALLEL,
        HULL,
    )
}
