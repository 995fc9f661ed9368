"""Seals on results that were written before there were seals; the numbers stay as they are.

python -m boosted_attention.lab.trials.earlier results/arena
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

from boosted_attention.lab.trials.store import FOLDER, RESULT, Record
from boosted_attention.lab.trials.trial import canonical
from boosted_attention.records import to_json
from boosted_attention.storage.documents import read_json, typed
from boosted_attention.storage.sealing import SEAL, listing, seal_of, write_sealed
from boosted_attention.validation import require


def seal_record(path: Path) -> bool:
    """Seal the record of a trial whose result has the sha256 it was written with; return whether it had no seal.

    Args:
        path: the trial's result.json.
    """
    record: dict[str, Any] = read_json(path)
    if record[SEAL] == seal_of(record):
        return False
    own = hashlib.sha256(canonical(record["result"]).encode()).hexdigest()
    require(record[SEAL] == own, f"{path} is damaged: its result is not what was written")
    write_sealed(path, to_json(typed(Record, {key: value for key, value in record.items() if key != SEAL}, path)))
    return True


def seal_claims(out: Path) -> bool:
    """Seal the ledger of a folder of results; return whether it had no seal."""
    path = out / "claims.json"
    if not path.exists() or SEAL in (ledger := read_json(path)):
        return False
    write_sealed(path, ledger, listing(out, ("results.json", "tables.md")))
    return True


def main(folders: list[str]) -> None:
    """Seal every record and ledger of the folders, and say how many there were."""
    for out in map(Path, folders):
        sealed = [seal_record(path) for path in sorted((out / FOLDER).glob(f"*/{RESULT}"))]
        print(f"{out}: {sum(sealed)} of {len(sealed)} records sealed, ledger: {seal_claims(out)}")


if __name__ == "__main__":
    main(sys.argv[1:])
