"""The command line: finds the subcommand, and turns bad input into one line and exit code 2.

To add a command, write ``cli/NAME.py`` with a function ``run`` whose signature and docstring give its options, and
enter NAME below. The file may define ``RENAMED``, which says what the command calls an argument of the library, and
``prepare(args)``, which returns ``run`` with other defaults.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NoReturn

from boosted_attention.cli.complaint import one_line
from boosted_attention.cli.failure import CommandFailure
from boosted_attention.cli.program import PROGRAM
from boosted_attention.cli.terminal import escaped
from boosted_attention.validation import InputError, nearest

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # what a device says that takes no more
COMMANDS = {
    "reproduce": "run the paper's experiments and controls, and say which of its claims hold",
    "experiments": "list the experiments and the time each takes",
    "claims": "show the ledger of claims with verdicts",
    "report": "make one web page of everything reproduce computed",
    "results": "show the results that come with the project, or write them into a page",
    "data": "turn a corpus into token files, and say what is in it",
    "train": "train a language model on any text, with exact resume",
    "evaluate": "perplexity of a trained run or a boosted model, over every token",
    "generate": "continue a text with a trained run or a boosted model",
    "analyze": "look inside the rounds of a trained run: gates, entropy, importance, corrections",
    "explore": "open a local page that shows and patches the rounds of a run while a text is typed",
    "plan": "what training a size that was not run would take: FLOPs, memory, days, commands",
    "boost": "give a pretrained model of transformers correction rounds, without effect until trained",
    "export": "write a trained run as a model of transformers",
    "finetune": "train a boosted pretrained model, or its rivals, on any text",
    "check": "run every layer's parity, causality and cache checks on this machine",
}

# Loggers that remark, when torchao is imported, on kernels this machine has no use for: lines that would hide our one.
REMARKING = ("torchao", "torch.utils._pytree")


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run one subcommand; exit 0 when all is well, 1 when what it checks fails, 2 for bad input."""
    show_any_text()
    for name in REMARKING:
        logging.getLogger(name).setLevel(logging.ERROR)
    interrupted = remembered_interrupts()
    try:
        code = run_command(list(sys.argv[1:] if args is None else args))
        sys.stdout.flush()  # a device that is full says so only now
    except BrokenPipeError:  # whoever read our output has had enough
        drop_output()
        sys.exit(128 + 13)
    except KeyboardInterrupt:
        stopped()
    except Exception as error:
        if interrupted:  # a library that was just being imported made another error of it
            stopped()
        if not isinstance(error, OSError) or (error.filename is None and error.errno not in FULL):
            raise
        if error.filename is None:
            drop_output()
            fail(f"the output cannot be written: {error.strerror}")
        name = str(error.filename)  # a path that no command has looked at before, such as one that is too long
        fail(f"{name if len(name) < 200 else name[:200] + '...'}: {error.strerror}")
    sys.exit(code)


def remembered_interrupts() -> list[int]:
    """Return a list that grows with every interrupt; none where the shell has interrupts ignored."""
    seen: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    return seen


def stopped() -> NoReturn:
    """End the program as an interrupt ends it."""
    print(f"{PROGRAM}: stopped", file=sys.stderr)
    sys.exit(130)


def run_command(args: list[str]) -> int:
    """Run the subcommand that the arguments name, and return its exit code."""
    if not args or args[0] in ("-h", "--help"):
        print(usage())
        return 0
    if args[0] == "--version":
        from boosted_attention import __version__

        print(f"{PROGRAM} {__version__}")
        return 0
    name = args[0]
    if name not in COMMANDS:
        fail(f"no command {name!r}{nearest(name, COMMANDS)} (commands: {', '.join(COMMANDS)})", silent=not speaks())
    command = importlib.import_module(f"boosted_attention.cli.{name}")
    try:
        run = command.prepare(args[1:]) if hasattr(command, "prepare") else command.run
        return parse(run, f"{PROGRAM} {name}", args[1:])()
    except InputError as error:
        fail(reworded(command, str(error)), silent=not getattr(error, "speaks", speaks()))
    except CommandFailure as failure:
        fail(reworded(command, str(failure)), failure.exit_code, silent=failure.silent)


def show_any_text() -> None:
    """Let a terminal that knows ASCII alone show other characters by their numbers."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """Forget what cannot be written any more, or Python would complain of it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def reworded(command: ModuleType, message: str) -> str:
    """Return a message of the library with the command's options in place of arguments."""
    from boosted_attention.cli.wording import Wording

    run = command.prepare([]) if hasattr(command, "prepare") else command.run
    return Wording(run, getattr(command, "RENAMED", {}))(message)


def usage() -> str:
    """Return what ``boosted-attention --help`` prints."""
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
    """Return the call of ``run`` with its options taken from the command line."""
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
        raise refused_value(stop) or InputError(one_line(complaint.getvalue())) from None


def refused_value(error: BaseException | None) -> InputError | None:
    """Return the library's own error behind tyro's exit: a configuration that refused a value; None for others."""
    while error is not None and not isinstance(error, InputError):
        error = error.__cause__ or error.__context__
    return error


def speaks() -> bool:
    """Say whether this process speaks for all of its job; torchrun may have started several."""
    return "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("RANK", "0") == "0"


def fail(message: str, code: int = 2, *, silent: bool = False) -> NoReturn:
    """End the program with a message; of processes that torchrun started, one speaks for those that say the same."""
    if not silent:
        print(f"{PROGRAM}: {escaped(message)}", file=sys.stderr)
    sys.exit(code)
