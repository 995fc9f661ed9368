"""Folders of transformers' models: what is looked at before anything is loaded."""

import json

import pytest
import torch
from safetensors.torch import save_file

from boosted_attention.pretrained.folders import require_model_folder, weights_hash
from boosted_attention.storage.documents import DamagedError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    save_file({"w": torch.ones(2)}, tmp_path / "part.safetensors")
    return tmp_path


def write_index(folder, index) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_an_index_names_files_of_the_folder(folder):
    plain = weights_hash(folder)  # which asks require_model_folder
    write_index(folder, {"weight_map": {"w": "part.safetensors"}})
    assert weights_hash(folder) == plain


@pytest.mark.parametrize("index", [{}, [], {"weight_map": ["part.safetensors"]}], ids=str)
def test_an_index_without_a_map_is_damaged(folder, index):
    write_index(folder, index)
    with pytest.raises(DamagedError, match=r"index\.json is damaged: it has no weight_map"):
        require_model_folder(folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../part.safetensors", "is no .* file of the folder"),
        ("pytorch_model.bin", "is no .* file of the folder"),
        ("other.safetensors", "is not whole: it has no other.safetensors"),
    ],
)
def test_an_index_that_leads_elsewhere_is_refused(folder, name, message):
    write_index(folder, {"weight_map": {"w": name}})
    with pytest.raises(ValueError, match=message):
        require_model_folder(folder)


def test_the_hash_follows_the_weights(folder):
    before = weights_hash(folder)
    assert weights_hash(folder) == before
    save_file({"w": torch.zeros(2)}, folder / "part.safetensors")
    assert weights_hash(folder) != before
