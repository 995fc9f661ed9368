"""Messages of the library in the words of the command line.

The library names its arguments as Python does: ``batch_size=3 is not divisible by 2 processes``, ``resume=True
continues it``, ``a smaller lr= may help``. For a user of the command line, arguments that are options of the command
become ``--batch-size 3``, ``--resume`` and ``--lr``; positional ones become ``OUT notes``. Everything else stays, also
what follows ``attention_options: ``: it is about a layer, whose options may have the command's names.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_origin, get_type_hints

import tyro

# A name that no other word touches, and its value: a Python string, a bracketed list, plain text, or nothing.
ASSIGNMENT = re.compile(
    r"""(?<![\w.\-])(?P<name>[a-z][a-z0-9_]*)=
        (?P<value>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\[[^\]]*\]|\([^)]*\)|[^\s'"\[(;,]*[^\s'"\[(;,:.)]|)""",
    re.VERBOSE,
)
OF_LAYER = "attention_options: "


class Wording:
    """Turns a message of the library into the words of one command.

    Args:
        run: the command's function, whose signature gives its options.
        renamed: names of the library for which the command has others, such as {"folder": "out"}.
    """

    def __init__(self, run: Callable[..., Any], renamed: Mapping[str, str] | None = None):
        self.renamed = dict(renamed or {})
        self.options: dict[str, Any] = {}  # their types
        self.positional: set[str] = set()
        hints = get_type_hints(run, include_extras=True)
        for name, parameter in inspect.signature(run).parameters.items():
            hint = hints.get(name)
            if parameter.kind is parameter.POSITIONAL_ONLY:
                self.positional.add(name)
            elif (options := omitted_prefix(hint)) is not None:
                self.options |= options
            else:
                self.options[name] = hint

    def __call__(self, message: str) -> str:
        """Return the message with the command's options in place of arguments."""
        before, of_layer, rest = message.partition(OF_LAYER)
        flag = "--attention-options: " if "attention_options" in self.options else of_layer
        return ASSIGNMENT.sub(self._reworded, before) + (flag + rest if of_layer else "")

    def _reworded(self, found: re.Match[str]) -> str:
        name = self.renamed.get(found["name"], found["name"])
        value = plain(found["value"])
        if name in self.positional:
            return " ".join(filter(None, (name.upper(), value)))
        if name not in self.options:
            return found[0]
        flag = name.replace("_", "-")
        if value in ("True", "False"):
            if self.options[name] is not bool:
                return found[0]  # an option of something else with the same name, such as a layer
            return f"--{flag}" if value == "True" else f"--no-{flag}"
        return " ".join(filter(None, (f"--{flag}", value)))


def omitted_prefix(hint: Any) -> dict[str, Any] | None:
    """Return the fields of a dataclass whose options stand without its name before them, with their types.

    None for other options.
    """
    marked = tyro.conf.OmitArgPrefixes in getattr(hint, "__metadata__", ())
    kind = getattr(hint, "__origin__", hint) if marked else None
    kind = get_origin(kind) or kind
    if not is_dataclass(kind):
        return None
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}


def plain(value: str) -> str:
    """Return a value as one types it in a shell: without quotes, unless something in it needs them."""
    if value[:1] not in ("'", '"'):
        return value
    return shlex.quote(ast.literal_eval(value))
