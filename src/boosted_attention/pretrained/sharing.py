"""Models whose saved folders have a card, which goes to the hub with them."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import CommitInfo

from boosted_attention.pretrained.card import write_card
from boosted_attention.pretrained.hub import upload


class SharedModel:
    """Base of our models and of boosted ones, before a class of transformers: it saves and uploads with a card.

    transformers would put a form to be filled in into what it uploads, over any README.md in the folder.
    """

    def save_pretrained(
        self,
        save_directory: Any,
        is_main_process: bool = True,
        state_dict: Any = None,
        push_to_hub: bool = False,
        **kwargs: Any,
    ) -> None:
        """Save as transformers does, with a card; a README.md in the folder that is its author's own stays.

        Args:
            save_directory: folder to save to.
            is_main_process: whether this is the process that writes.
            state_dict: weights in the place of the model's own.
            push_to_hub: whether to upload what is saved to the hub too, as ``repo_id`` or by the folder's name.
            kwargs: further options of transformers' own method, and of uploading.
        """
        folder = Path(save_directory)
        before = written_at(folder)
        super().save_pretrained(save_directory, is_main_process, state_dict, **kwargs)  # type: ignore[misc]
        if not is_main_process or not folder.is_dir():
            return
        name = kwargs.get("repo_id") or folder.resolve().name
        write_card(folder, self, name)  # type: ignore[arg-type]
        if push_to_hub:
            options = {key: kwargs[key] for key in ("private", "token", "commit_message", "create_pr") if key in kwargs}
            saved = [glob.escape(file) for file, time in written_at(folder).items() if before.get(file) != time]
            upload(folder, name, allow_patterns=saved, **options)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        commit_message: str | None = None,
        commit_description: str | None = None,
        private: bool | None = None,
        token: bool | str | None = None,
        revision: str | None = None,
        create_pr: bool = False,
        max_shard_size: int | str = "50GB",
        tags: Sequence[str] | str | None = None,
    ) -> CommitInfo:
        """Upload the model with its card, as transformers does; a README.md there that is its author's own stays.

        Args:
            repo_id: repository on the hub, which is made if it does not exist.
            commit_message: first line of the commit.
            commit_description: further lines of the commit.
            private: whether it is private; True refuses one that is there and is not.
            token: token of the hub; by default the one that is logged in.
            revision: branch, which is made if it does not exist.
            create_pr: whether to open a pull request in place of a commit.
            max_shard_size: largest size of a file of weights.
            tags: tags of the model, added to its own.
        """
        if tags:
            self.add_model_tags([tags] if isinstance(tags, str) else list(tags))  # type: ignore[attr-defined]
        with TemporaryDirectory() as place:
            folder = Path(place)
            self.save_pretrained(folder, max_shard_size=max_shard_size, repo_id=repo_id)
            return upload(
                folder,
                repo_id,
                private=private,
                token=token,
                commit_message=commit_message or "Upload model",
                commit_description=commit_description,
                revision=revision,
                create_pr=create_pr,
            )


def written_at(folder: Path) -> dict[str, int]:
    """Return when each file of a folder was written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*") if path.is_file()}
