"""CommandFailure: a command that did what it could and failed."""

from __future__ import annotations


class CommandFailure(Exception):  # noqa: N818
    """Ends a command with a message and an exit code.

    Args:
        message: one line, in the library's words; the command line turns it into its own.
        exit_code: 1 where what was asked for did not come out, 128 + n where signal n asked for the end.
        silent: whether another process says it.
    """

    def __init__(self, message: str, exit_code: int = 1, *, silent: bool = False):
        super().__init__(message)
        self.exit_code, self.silent = exit_code, silent
