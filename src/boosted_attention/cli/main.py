"""The command line's front door: finds the subcommand, and turns bad input into one line and exit code 2."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from boosted_attention.validation import InputError, nearest

PROGRAM = "boosted-attention"
COMMANDS = {
    "reproduce": "run the paper's experiments and controls, and say which of its claims hold",
    "experiments": "list the experiments and the time each takes",
    "claims": "show the ledger of claims with verdicts",
    "report": "make one web page of everything reproduce computed",
    "results": "show the results that come with the project, or write them into its README",
    "data": "turn a corpus into token files, and say what is in it",
    "train": "train a language model on any text, with exact resume",
    "evaluate": "perplexity of a trained run, over every token",
    "generate": "continue a text with a trained run",
    "analyze": "look inside the rounds of a trained run: gates, entropy, importance, corrections",
    "plan": "what training a size that was not run would take: FLOPs, memory, days, commands",
    "boost": "give a pretrained model of transformers correction rounds, without effect until trained",
    "export": "write a trained run as a model of transformers",
    "finetune": "train a boosted pretrained model, or its rivals, on any text",
    "check": "run every layer's parity, causality and cache checks on this machine",
}


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run one subcommand; exit 0 when all is well, 1 when what it checks fails, 2 for bad input."""
    args = list(sys.argv[1:] if args is None else args)
    if not args or args[0] in ("-h", "--help"):
        print(usage())
        sys.exit(0)
    if args[0] == "--version":
        from boosted_attention import __version__

        print(f"{PROGRAM} {__version__}")
        sys.exit(0)
    name = args[0]
    if name not in COMMANDS:
        fail(f"no command {name!r}{nearest(name, COMMANDS)} (commands: {', '.join(COMMANDS)})", silent=not speaks())
    try:
        command = importlib.import_module(f"boosted_attention.cli.{name}")
        run = command.prepare(args[1:]) if hasattr(command, "prepare") else command.run
        code = parse(run, f"{PROGRAM} {name}", args[1:])()
    except InputError as error:
        fail(str(error), silent=not getattr(error, "speaks", speaks()))
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + 13)
    except KeyboardInterrupt:
        print(f"{PROGRAM}: stopped", file=sys.stderr)
        sys.exit(130)
    sys.exit(code)


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [
            f"usage: {PROGRAM} COMMAND [OPTIONS]",
            "",
            "Attention layers that correct their own errors.",
            "",
            *lines,
            "",
            f"{PROGRAM} COMMAND --help explains a command. Example: {PROGRAM} reproduce",
        ]
    )


def parse(run: Callable[..., int], program: str, args: list[str]) -> Callable[[], int]:
    """The call ``run`` with its options taken from the command line."""
    import functools

    import tyro

    @functools.wraps(run)
    def bind(*positional: Any, **options: Any) -> Callable[[], int]:
        return functools.partial(run, *positional, **options)

    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(bind, prog=program, args=args)
    except SystemExit as stop:
        if not stop.code:
            raise
        fail(one_line(complaint.getvalue()), silent=not speaks())


def one_line(box: str) -> str:
    """What tyro's boxed complaint says: its first section, and the option it would have suggested."""
    lines = [line.strip(" │|") for line in box.splitlines()]
    rules = [i for i, line in enumerate(lines) if not line.strip("─-+╭╮╰╯ ")]  # between sections
    titled = lines[0].startswith(("╭", "+"))
    start = 1 if titled else rules[0] + 1
    message = " ".join(lines[start : next(i for i in rules if i > start)])
    if "Perhaps you meant:" in lines:
        suggestion = lines[lines.index("Perhaps you meant:") + 1]
        message += f"; did you mean {suggestion.split()[0]}?"
    return message


def speaks() -> bool:
    """Whether this process is to say what every process of its job would; torchrun may have started several."""
    return "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("RANK", "0") == "0"


def fail(message: str, *, silent: bool = False) -> NoReturn:
    """Exit code 2; of processes that torchrun started, one speaks for those that say the same."""
    if not silent:
        print(f"{PROGRAM}: {message}", file=sys.stderr)
    sys.exit(2)
