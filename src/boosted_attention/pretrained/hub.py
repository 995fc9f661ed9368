"""Folders on the Hugging Face hub: uploaded by the hub's own library, and what goes wrong there as one line.

The token is the one that is logged in (``hf auth login``) or HF_TOKEN; no message contains it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, HfApi, constants, get_token
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RevisionNotFoundError
from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars, logging

from boosted_attention import __version__
from boosted_attention.pretrained.card import has_own_readme
from boosted_attention.pretrained.folders import first_line
from boosted_attention.pretrained.origin import CARD, is_repo_id
from boosted_attention.validation import InputError, require

# What an answer of the hub means for somebody who uploads; others are said by their number.
MEANINGS = {
    401: "the hub does not accept the token; log in anew (hf auth login), or set HF_TOKEN",
    403: "the token may not write there; it needs write access to the repository or its owner",
    404: "there is no such owner or repository, or the token does not show it",
    409: "something else is changing the repository; try again",
    429: "too many requests; try again later",
}


def upload(
    folder: Path,
    repo_id: str,
    *,
    private: bool | None = None,
    token: bool | str | None = None,
    revision: str | None = None,
    **options: Any,
) -> CommitInfo:
    """Upload a folder to a repository of the hub, which is made if it does not exist.

    A README.md there that is no unchanged card of ours is its author's own, and stays.

    Args:
        folder: folder of a model.
        repo_id: name of the repository.
        private: whether it is private; True refuses one that is there and is not.
        token: token of the hub; by default the one that is logged in.
        revision: branch, which is made if it does not exist.
        options: further options of the hub's ``upload_folder``.
    """
    api = HfApi(token=token, library_name="boosted-attention", library_version=__version__)
    repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
    if private:
        info = api.repo_info(repo_id)
        require(bool(info.private), f"private=True: {repo_id} is there already and is not private; give another name")
    if revision is not None and not revision.startswith("refs/pr"):
        api.create_branch(repo_id, branch=revision, exist_ok=True)
    kept = [CARD] if has_own_card(api, repo_id, revision) else None
    return api.upload_folder(repo_id=repo_id, folder_path=folder, revision=revision, ignore_patterns=kept, **options)


def has_own_card(api: HfApi, repo_id: str, revision: str | None) -> bool:
    """Say whether a repository has a README.md that is no unchanged card of ours."""
    try:
        found = api.hf_hub_download(repo_id, CARD, revision=revision)
    except (EntryNotFoundError, RevisionNotFoundError):
        return False
    return has_own_readme(Path(found).parent)


def require_pushable(repo_id: str) -> None:
    """Raise InputError unless a folder can be sent under a name as far as this machine knows: nothing is asked yet.

    Args:
        repo_id: name of a repository of the hub.
    """
    given = f"push={repo_id!r}"
    named = "/" in repo_id and is_repo_id(repo_id)
    require(named, f"{given} is no name of a repository; it is OWNER/NAME, of letters, digits, - _ and .")
    require(
        not constants.is_offline_mode(), f"{given}: the hub's library is told to stay offline; unset HF_HUB_OFFLINE"
    )
    try:
        token = get_token()
    except Exception as error:  # of whatever kind of login
        raise InputError(f"{given}: the login fails: {first_line(error)}") from None
    require(token is not None, f"{given} needs a login: hf auth login, or a token in HF_TOKEN")


def push_folder(folder: Path, repo_id: str, *, private: bool = False) -> str:
    """Upload a folder and return its address on the hub; the folder stays whatever happens.

    Args:
        folder: folder of a model.
        repo_id: name of a repository.
        private: whether it must be private.

    Raises:
        InputError: the hub refused, or the way there broke off; the message says why.
    """
    try:
        with shown_on_terminals():
            upload(folder, repo_id, private=private or None, commit_message="Upload model")
    except Exception as error:  # of the hub's library, of the two that it sends with, and of the system
        whole = f"{folder} is whole, and hf upload sends it once that is mended"
        raise InputError(f"push={repo_id!r} failed: {reason(error)}; {whole}") from None
    return f"{constants.ENDPOINT}/{repo_id}"


def reason(error: Exception) -> str:
    """Return why an upload failed, on one line and without the token."""
    if isinstance(error, InputError):
        return str(error)
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    answered = next((one for one in causes if isinstance(one, HfHubHTTPError)), None)
    if answered is None:
        said = f"the way to {constants.ENDPOINT} broke off: {first_line(causes[-1])}"
    else:
        status, told = answered.response.status_code, (answered.server_message or "").strip().splitlines()
        meaning = MEANINGS.get(status, "the hub cannot do it now; try again later")
        said = f"{meaning} (it answered {': '.join([str(status), *told[:1]])})"
    token = get_token()
    return said.replace(token, "(token)") if token else said


@contextmanager
def shown_on_terminals() -> Iterator[None]:
    """Show the hub's progress on a terminal and nowhere else, and leave what it logs to the one line of an error."""
    level, hidden = logging.get_verbosity(), are_progress_bars_disabled()
    logging.set_verbosity_error()
    if not hidden and not sys.stderr.isatty():
        disable_progress_bars()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if not hidden:
            enable_progress_bars()
