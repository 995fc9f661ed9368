"""A run's settings as its folder holds them: sealed, listing the tokenizer, and compared with those of others.

RUN/config.json   model, training, data and the fingerprint of the text; size and sha256 of tokenizer.json; a seal
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boosted_attention.data.tokenizer import Tokenizer
from boosted_attention.model.protocols import ModelConfig
from boosted_attention.storage.documents import DamagedError, is_there
from boosted_attention.storage.sealing import FILES, SEAL, Listing, files_of, listing, read_sealed, verify, write_sealed
from boosted_attention.train.kinds import MissingKindError
from boosted_attention.train.run_config import RunConfig
from boosted_attention.validation import InputError

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
Settings = dict[str, Any]  # of a run: what RunConfig.to_dict gives, and "fingerprint"


@dataclass(frozen=True)
class StoredSettings:
    """What the sealed config.json of a run holds."""

    folder: Path
    settings: Settings
    seal: str
    files: Listing

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the text it was trained on."""
        return str(self.settings.get("fingerprint"))

    def config(self) -> RunConfig[ModelConfig]:
        """Build the run's configuration.

        Raises:
            DamagedError: the settings are none that this version knows.
            MissingKindError: the package of this kind of model has not been imported.
        """
        path = self.folder / CONFIG
        try:
            return RunConfig.from_dict(self.settings)
        except MissingKindError as error:
            raise MissingKindError(f"{path}, {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise DamagedError(f"{path} is damaged: {error}") from None

    def tokenizer(self, kind: str) -> Tokenizer:
        """Load the tokenizer, which must be the one that was sealed."""
        verify(self.folder, self.files, [TOKENIZER])
        return Tokenizer.load(self.folder / TOKENIZER, kind)


def write_settings(folder: Path, settings: Settings) -> None:
    """Seal a run's settings together with its tokenizer, which must be written already."""
    write_sealed(folder / CONFIG, settings, listing(folder, [TOKENIZER]))


def read_settings(folder: Path) -> StoredSettings:
    """Read the settings of a run.

    Args:
        folder: the run's folder.

    Raises:
        DamagedError: there are none, or they were changed after the run began.
    """
    path = folder / CONFIG
    if not is_there(path):
        raise DamagedError(f"{folder} is not a run folder: it has no {CONFIG}")
    document = read_sealed(path)
    settings = {key: value for key, value in document.items() if key not in (SEAL, FILES)}
    return StoredSettings(folder, settings, document[SEAL], files_of(document, path))


def differences(ours: Any, theirs: Any, prefix: str = "") -> list[str]:
    """List the keys under which two configurations differ, with both values."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = sorted({*ours, *theirs})
        return [line for key in keys for line in differences(ours.get(key), theirs.get(key), f"{prefix}{key}.")]
    return [] if ours == theirs else [f"{prefix.rstrip('.')} ({theirs!r} there, {ours!r} here)"]


def settings_differ(ours: Settings, theirs: Any) -> list[str]:
    """List what differs between two runs' settings or texts; where the same text lies does not matter.

    Args:
        ours: settings, with all options of this version.
        theirs: stored settings; options that came after them had then been at what are their defaults.
    """
    if not isinstance(theirs, dict):
        return ["all of them (there are none)"]
    theirs = with_later_options(theirs)
    if ours["fingerprint"] == theirs.get("fingerprint"):
        ours, theirs = ({**settings, "data": None} for settings in (ours, theirs))
    return differences(ours, theirs)


def with_later_options(settings: Settings) -> Settings:
    """Return stored settings with options that came after them, which had then been at what are their defaults."""
    try:
        return {**settings, **RunConfig.from_dict(settings).to_dict()}
    except (InputError, KeyError, TypeError, AttributeError):  # of another package: compared as they are
        return settings
