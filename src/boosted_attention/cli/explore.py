"""``boosted-attention explore``: a local page on which a run is looked into while a text is typed."""

from __future__ import annotations

from pathlib import Path

from boosted_attention.validation import InputError, require

RENAMED = {"which": "checkpoint"}


def run(
    folder: Path, /, *, against: Path | None = None, port: int = 8421, browser: bool = True, checkpoint: str = "best"
) -> int:
    """Open a page that shows, for any text, what each round looks at, how far its gate opens and what it changes.

    Rounds can be switched off or weighed otherwise, and texts continued token by token. The page is for this machine
    alone: its address holds a token, and nothing typed leaves the machine. Ctrl-C ends it.

    Example: boosted-attention explore pairs/stdlib-1/boosted --against pairs/stdlib-1/standard

    Args:
        folder: the run, or the folder of a boosted model.
        against: run or model to show beside it, with the same tokenizer.
        port: port on 127.0.0.1; 0 takes any that is free.
        browser: open the page in the default browser.
        checkpoint: checkpoint of a run to load: best or last.
    """
    require(0 <= port < 65_536, f"port={port} must lie between 0 and 65535")

    from boosted_attention.cli.loading import load_trained
    from boosted_attention.explore.explorer import Explorer
    from boosted_attention.explore.server import Server

    folders = [folder] if against is None else [folder, against]
    runs = [load_trained(one, checkpoint) for one in folders]
    require(
        all(run.tokenizer.sha256 == runs[0].tokenizer.sha256 for run in runs),
        f"against={str(against)!r} has another vocabulary than {folder}; compare runs with the same tokenizer",
    )
    explorer = Explorer(runs, names_of(folders), command_of(folders))
    try:
        server = Server(explorer, port)
    except OSError as error:
        taken = f"port={port} cannot be used ({error.strerror}); choose another, or 0 for any that is free"
        raise InputError(taken) from None
    with server:
        print(f"exploring {' beside '.join(explorer.names)} at\n{server.address}\nCtrl-C ends it", flush=True)
        if browser:
            import webbrowser

            webbrowser.open(server.address)
        server.serve_forever()
    return 0


def names_of(folders: list[Path]) -> list[str]:
    """Name runs by their folders, and by the folders around them where those are the same."""
    names = [folder.absolute().name for folder in folders]
    if len(set(names)) == len(names):
        return names
    return [str(folder) for folder in folders]


def command_of(folders: list[Path]) -> str:
    """Return the command that opens the page again."""
    import shlex

    from boosted_attention.cli.program import PROGRAM

    first, *others = (shlex.quote(str(folder)) for folder in folders)
    return " ".join([PROGRAM, "explore", first, *(f"--against {other}" for other in others)])
