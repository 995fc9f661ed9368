"""Encoding text: our pipeline against the bare tokenizer, and its peak memory for a small and a large text."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.race import Race, Spread, Stopwatch
from benchmarks.section import Section, Shown, megabytes, ratio, table
from boosted_attention.data.corpora import CorpusConfig
from boosted_attention.data.tokenizer import Tokenizer, build_tokenizer
from boosted_attention.data.tokens import DataConfig, prepare

OURS, RAW = "our pipeline", ("encode_batch", "encode_batch_fast")
TURNS = 5
PREPARE = """
import sys
from pathlib import Path
from benchmarks.peak import forget_peak, status
from boosted_attention.data.tokens import DataConfig, prepare

def encode(path):
    prepare(DataConfig(corpus=f"text:{path}", tokenizer=sys.argv[1]), 0, cache=Path(sys.argv[4]))

encode(sys.argv[2])
before = status("VmRSS")
forget_peak()
encode(sys.argv[3])
print(status("VmHWM") - before)
"""


@dataclass(frozen=True, kw_only=True)
class Data:
    """Times of encoding one text, and what the pipeline adds to a process, by bytes of text."""

    text_bytes: int
    types: int
    encoding: Race
    peaks: dict[int, int]

    def speed(self) -> Spread:
        """Return our speed as a multiple of the bare tokenizer's, in the faster of its two forms."""
        fastest = min(RAW, key=self.encoding.median)
        return self.encoding.ratio(fastest, OURS)


def measure(bench: Bench) -> Data:
    """Encode source code of Python's standard library, which is on every machine."""
    n_bytes, types, factor = (200_000, 400, 4) if bench.quick else (16_000_000, 16_384, 4)
    with tempfile.TemporaryDirectory() as name:
        folder, cache = Path(name), Path(name) / "cache"
        text = stdlib_text(n_bytes)
        paths = {count: folder / f"{count}.txt" for count in (1, factor)}
        for count, path in paths.items():
            path.write_text(text * count, encoding="utf-8")
        (folder / "tiny.txt").write_text(text[:5000])
        stored = folder / "tokenizer.json"
        build_tokenizer("bpe", types, [text[: n_bytes // 4]]).save(stored)
        bench.part("a tokenizer", 0.2)
        config = DataConfig(corpus=f"text:{paths[1]}", tokenizer=str(stored))
        corpus = config.open()
        blocks = [block.text for split in ("train", "validation", "test") for block in corpus.blocks(split)]

        watch = Stopwatch("wall")

        def ours() -> None:
            shutil.rmtree(cache, ignore_errors=True)  # or the tokens would be found there
            with watch.running():
                prepare(config, types, cache=cache)

        def bare(method: str) -> None:
            encode = getattr(Tokenizer.load(stored).core, method)  # a used one remembers the words it has met
            with watch.running():
                encode(blocks, add_special_tokens=False)

        candidates = {OURS: ours} | {method: partial(bare, method) for method in RAW}
        race = bench.race("encoding", candidates, TURNS, until=0.8, clock=watch)
        peaks = {}
        for count, path in paths.items():
            shutil.rmtree(cache, ignore_errors=True)
            command = [sys.executable, "-c", PREPARE, str(stored), str(folder / "tiny.txt"), str(path), str(cache)]
            peaks[path.stat().st_size] = int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
            bench.part(f"memory of {count} times the text", 1.0)
    return Data(text_bytes=sum(len(block.encode()) for block in blocks), types=types, encoding=race, peaks=peaks)


def stdlib_text(n_bytes: int) -> str:
    """Return about so many bytes of the standard library's source, from its beginning again where it is shorter."""
    held: list[str] = []
    for block in cycle(CorpusConfig().open().blocks("train")):
        held.append(block.text)
        n_bytes -= len(block.text)
        if n_bytes <= 0:
            break
    return "".join(held)


def show(data: Data) -> Shown:
    """Make the tables."""
    rows = [
        [name, f"{data.text_bytes / 1e6 / data.encoding.median(name):.1f} MB/s", ratio(data.encoding.ratio(name, OURS))]
        for name in (OURS, *RAW)
    ]
    peaks = [[megabytes(size), megabytes(peak)] for size, peak in sorted(data.peaks.items())]
    text = (
        f"{megabytes(data.text_bytes)} of Python's standard library, byte-level BPE of {data.types:,} types, "
        "wall-clock time on all cores. Our pipeline reads tokenizer and file, encodes, hashes and writes token files; "
        "the bare tokenizer, as freshly read, is given the same blocks in memory.\n\n"
    )
    text += table(["", "speed", "time, times ours"], rows)
    text += "\nWhat encoding adds to a process, for two sizes of text:\n\n" + table(["text", "peak"], peaks)
    return Shown(text=text)


DATA = Section(name="data", title="Encoding text", minutes=3, result=Data, measure=measure, show=show)
