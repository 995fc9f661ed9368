"""Every reader of JSON on documents that nobody wrote: typed values, or one line that names the file."""

import json
import random
import shutil

import pytest

from boosted_attention.data.tokens import Manifest
from boosted_attention.lab.reproduce import stored_preset
from boosted_attention.lab.trials.store import load_record
from boosted_attention.planning.cluster import recipe_or_config
from boosted_attention.pretrained.correction import read_settings as read_correction
from boosted_attention.pretrained.folders import require_index
from boosted_attention.storage.sealing import write_sealed
from boosted_attention.train import checkpoint
from boosted_attention.train.metrics import metrics_of, sealed_rows
from boosted_attention.train.settings import read_settings
from boosted_attention.validation import InputError
from tests.faults.corruption import VALUES, changed
from tests.faults.workshop import Workshop

READERS = {
    "config.json": lambda folder: read_settings(folder).config(),
    "state.json": lambda folder: metrics_of(checkpoint.open_checkpoint(folder)),
    "manifest.json": Manifest.read,
    "result.json": load_record,
    "claims.json": stored_preset,
    "correction.json": lambda folder: read_correction(folder, 2),
    "model.safetensors.index.json": require_index,
}


@pytest.fixture(scope="module")
def workshop(made_once):
    return Workshop(made_once("workshop", lambda folder: None))


def whole(name, workshop):
    """A document as it is written."""
    if name == "model.safetensors.index.json":
        return {"metadata": {"total_size": 1}, "weight_map": {"w": "model.safetensors"}}
    found = {
        "config.json": lambda: workshop.run / name,
        "state.json": lambda: max((workshop.run / "checkpoints").glob("step-*")) / name,
        "manifest.json": lambda: next(workshop.cache.glob("data/*/manifest.json")),
        "result.json": lambda: min(
            (workshop.results / "trials").glob("*/result.json"), key=lambda path: path.stat().st_size
        ),
        "claims.json": lambda: workshop.results / name,
        "correction.json": lambda: workshop.correction / name,
    }
    return json.loads(found[name]().read_text())


def drawn(draw, depth=0):
    """Any JSON."""
    kind = draw.random()
    if depth > 4 or kind < 0.5:
        return draw.choice(VALUES)
    if kind < 0.75:
        return [drawn(draw, depth + 1) for _ in range(draw.randrange(4))]
    keys = ("model", "files", "step", "best", "config", "splits", "preset", "trial", "sha256", "boosting", "base", "x")
    return {draw.choice(keys): drawn(draw, depth + 1) for _ in range(draw.randrange(5))}


@pytest.mark.parametrize("name", READERS)
def test_a_reader_gives_typed_values_or_one_line(name, workshop, full, tmp_path):
    document, refused = whole(name, workshop), []
    attempts = 400 if full else 40
    for number in range(attempts):
        draw = random.Random(f"{name} {number}")
        made = changed(draw, document) if number % 2 else drawn(draw)
        folder = tmp_path / str(number)
        folder.mkdir()
        if isinstance(made, dict) and draw.random() < 0.7:
            write_sealed(folder / name, {key: value for key, value in made.items() if key != "sha256"})
        else:
            (folder / name).write_text(json.dumps(made))
        try:
            READERS[name](folder)
        except InputError as error:
            refused.append(str(error))
        shutil.rmtree(folder)
    assert len(refused) > attempts // 4
    assert not any("\n" in said for said in refused)


@pytest.mark.parametrize("number", range(20))
def test_a_plan_of_any_document_is_a_plan_or_one_line(number, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(drawn(random.Random(f"plan {number}"))))
    with pytest.raises(InputError):
        recipe_or_config(str(path))


def test_rows_of_a_run_without_any_are_none(tmp_path):
    assert sealed_rows(tmp_path) == []
