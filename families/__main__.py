"""Try families, each in a process of its own, and write the page."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import warnings
from pathlib import Path
from typing import Any

from families.page import page

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = Path(__file__).with_name("results.json"), ROOT / "docs" / "families.md"
SECONDS = 180  # that a family may take


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m families", description=__doc__)
    parser.add_argument("families", nargs="*", help="model types to try again; those without a result by default")
    parser.add_argument("--all", action="store_true", help="try all again")
    options = parser.parse_args()
    held = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {"versions": {}, "families": {}}
    import torch
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    import families.trial  # noqa: F401  imported once, before processes are forked

    listed = [name for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if not name.startswith("boosted-")]
    held["versions"] = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}
    results: dict[str, Any] = {name: held["families"][name] for name in listed if name in held["families"]}
    chosen = options.families or [name for name in listed if options.all or name not in results]
    torch.set_num_threads(1)
    transformers.LlamaForCausalLM  # noqa: B018  loads what every family needs
    for i, name in enumerate(chosen):
        results[name] = in_a_process(name)
        held["families"] = {name: results[name] for name in listed if name in results}
        RESULTS.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")
        print(f"{i + 1}/{len(chosen)} {name}: {results[name]['status']}", flush=True)
    PAGE.write_text(page(held), encoding="utf-8")
    print(f"written: {PAGE}")
    return 0


def in_a_process(family: str) -> dict[str, Any]:
    """Try a family in a forked process, which may fail or take too long."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(family, theirs))
    process.start()
    theirs.close()
    try:
        found = ours.recv() if ours.poll(SECONDS) else {"status": "could not be built", "why": f"over {SECONDS} s"}
    except EOFError:
        found = {"status": "could not be built", "why": "the process died"}
    process.kill()
    process.join()
    return found


def work(family: str, pipe: Any) -> None:
    from families.trial import try_family

    warnings.simplefilter("ignore")
    from transformers.utils import logging

    logging.set_verbosity_error()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    pipe.send(try_family(family))


if __name__ == "__main__":
    raise SystemExit(main())
