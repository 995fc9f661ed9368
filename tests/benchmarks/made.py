"""Results with made-up numbers: everything reaches its target, or nothing does."""

from benchmarks.machine import Machine
from benchmarks.ours import TINY
from benchmarks.peers import GPT2, PEERS
from benchmarks.race import Race
from benchmarks.results import Measured, Results
from benchmarks.sections import data, decoding, imports, memory, pretrained_decoding, steps

MACHINE = Machine(cpu="made up", cores=2, memory_gb=8, python="3.11", versions={"torch": "2.13.0"}, date="2026-01-01")
SETTINGS = (steps.Setting(length=256, rows=8), steps.Setting(length=1024, rows=2))
FLOPS = {"standard": 1_000, "boosted": 1_300, "twicing": 1_100, "boosted-shared": 1_200}


def named_race(seconds: dict[str, float]) -> Race:
    """Two turns, the second of which everything takes twice as long in."""
    return Race(clock="CPU", seconds={name: [value, 2 * value] for name, value in seconds.items()})


def made_steps(good: bool) -> steps.Steps:
    found = []
    for at in SETTINGS:
        product = steps.Product(rows=10, inner=10, columns=10, times=1)
        taken = {}
        for p in steps.DROPOUTS:
            for form in steps.FORMS:
                own = FLOPS[form] * (1.1 if p else 1.0) if good else FLOPS[form] ** 1.5 * (1.5 if p else 1.0)
                taken[steps.run_name(steps.ours(form), p)] = own
                taken[steps.run_name(steps.plain(form), p)] = own * (2.5 if good else 1.1)
            standard = taken[steps.run_name(steps.ours("standard"), p)]
            for peer in PEERS:
                faster = (2.5 if good else 1.4) if peer == next(iter(GPT2)) else 1.2 if good else 0.9
                taken[steps.run_name(peer, p)] = standard * faster
        work = steps.TRAINING * FLOPS["boosted"] * at.length * at.rows
        boosted = taken[steps.run_name(steps.ours("boosted"), 0.0)]
        taken[steps.PRODUCT] = (0.8 if good else 0.5) * boosted * product.flops / work
        layers = {steps.run_name("gated", p): 1.0 + p * (1 if good else 9) for p in steps.DROPOUTS}
        found.append(
            steps.StepsAt(setting=at, product=product, flops=FLOPS, models=named_race(taken), layers=named_race(layers))
        )
    return steps.Steps(size=TINY, settings=found)


def made_decoding(good: bool) -> decoding.Decoding:
    taken = {form: FLOPS[form] ** (1.0 if good else 2.0) for form in decoding.FORMS}
    points = [
        decoding.Point(batch=batch, context=context, tokens=8, flops=FLOPS, decode=named_race(taken))
        for batch in (1, 16)
        for context in (64, 2048)
    ]
    bound = named_race({decoding.MODEL: 1.2 if good else 2.0, decoding.VECTOR: 1.0})
    return decoding.Decoding(
        size=TINY,
        points=points,
        prefill={context: named_race(taken) for context in (1024, 64)},
        from_memory=decoding.FromMemory(weight_bytes=10**7, copies=4, race=bound),
    )


def made_pretrained_decoding(good: bool) -> pretrained_decoding.PretrainedDecoding:
    taken = dict.fromkeys(pretrained_decoding.NAMES, 1.0)
    taken |= {pretrained_decoding.LORA: 1.1, pretrained_decoding.SHARED: 1.1 if good else 1.2}
    taken[pretrained_decoding.LAST] = 1.05 if good else 1.2
    return pretrained_decoding.PretrainedDecoding(
        parameters=10**6, layers=3, context=8, tokens=6, decode=named_race(taken)
    )


def made_results(good: bool) -> Results:
    """Results of every section that has a target."""
    peaks = [
        memory.Peak(setting=steps.Setting(length=length, rows=rows), bytes={"ours": 3 if good else 7, "plain": 10})
        for length, rows in ((512, 8), (1024, 2), (1024, 8))
    ]
    processes = {
        imports.TORCH: 1.0,
        imports.PACKAGE: 1.1 if good else 1.3,
        imports.MODEL: 1.12 if good else 1.4,
        imports.HELP: 0.2 if good else 0.9,
    }
    encoding = {data.OURS: 1.0 if good else 2.0, data.RAW[0]: 3.0, data.RAW[1]: 0.95}
    made = {
        "steps": made_steps(good),
        "decoding": made_decoding(good),
        "memory": memory.Memory(size=TINY, peaks=peaks),
        "data": data.Data(
            text_bytes=10**6, types=400, encoding=named_race(encoding), peaks={10**7: 10**7, 4 * 10**6: 10**7}
        ),
        "imports": imports.Imports(processes=named_race(processes)),
        "pretrained-decoding": made_pretrained_decoding(good),
    }
    sections = {name: Measured(machine=MACHINE, minutes=1.0, result=result) for name, result in made.items()}
    return Results(quick=False, sections=sections)
