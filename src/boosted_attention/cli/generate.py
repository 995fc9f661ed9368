"""``boosted-attention generate``: a trained run or a boosted model continues a text, as it goes."""

from __future__ import annotations

from pathlib import Path

from boosted_attention.cli.terminal import for_terminal
from boosted_attention.validation import require

RENAMED = {"which": "checkpoint", "max_new_tokens": "tokens"}


def run(
    folder: Path,
    prompt: str = "\n",
    /,
    *,
    tokens: int = 200,
    temperature: float = 0.8,
    top_k: int | None = None,
    top_p: float | None = 0.95,
    seed: int | None = None,
    samples: int = 1,
    stop: bool = True,
    checkpoint: str = "best",
    device: str = "cpu",
) -> int:
    """Continue a prompt with a trained run or a boosted model, printing as it goes.

    Example: boosted-attention generate runs/mini-boosted-stdlib-0 "def read(" --tokens 100

    Args:
        folder: the run, or the folder of a boosted model.
        prompt: the text to continue.
        tokens: largest number of tokens to add.
        temperature: randomness: 0 takes the likeliest token, 1 samples from the model.
        top_k: number of likeliest tokens to sample among; all by default.
        top_p: probability of the likeliest tokens to sample among, together.
        seed: random seed; the same seed gives the same text.
        samples: number of continuations, printed one after the other.
        stop: end at the end of a document.
        checkpoint: checkpoint of a run to load: best or last.
        device: device to run on: cpu, cuda or mps.
    """
    import torch

    from boosted_attention.attention.selfcheck import usable_dtypes
    from boosted_attention.cli.loading import load_trained
    from boosted_attention.model.generation import Sampling

    usable_dtypes(device)
    Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)  # wrong options are known before any output
    require(samples >= 1, f"samples={samples} must be at least 1")
    require(tokens >= 0, f"tokens={tokens} must not be negative")
    trained = load_trained(folder, checkpoint, device)
    ids = trained.tokenizer.encode(prompt)
    require(bool(ids), f"prompt={prompt!r} has no token of this vocabulary; give a text")
    batch = torch.tensor([ids] * samples, device=device)
    end = trained.tokenizer.end_of_text if stop else None
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed, "stop": end}
    if samples == 1:
        printer = Printer(trained.tokenizer, ids)
        trained.model.generate(batch, tokens, stream=lambda token: printer.add(int(token[0])), **options)
        printer.end()
        return 0
    for i, row in enumerate(trained.model.generate(batch, tokens, **options).tolist()):
        if end is not None and end in row[len(ids) :]:
            row = row[: row.index(end, len(ids))]
        print(f"--- {i + 1} ---\n{for_terminal(trained.tokenizer.decode(row))}")
    return 0


class Printer:
    """Prints text as its tokens come; a character that is not whole yet is held back."""

    def __init__(self, tokenizer, ids: list[int]):
        self.tokenizer, self.ids, self.shown = tokenizer, list(ids), 0
        self.add(None)

    def add(self, token: int | None) -> None:
        if token is not None and token != self.tokenizer.end_of_text:
            self.ids.append(token)
        text = self.tokenizer.decode(self.ids)
        whole = text.rstrip("\ufffd")  # half of a character
        if len(whole) > self.shown:
            print(for_terminal(whole[self.shown :]), end="", flush=True)
            self.shown = len(whole)

    def end(self) -> None:
        print(for_terminal(self.tokenizer.decode(self.ids)[self.shown :]))
