"""Folders of models of transformers, as commands know trained runs: to continue, evaluate and look into."""

from __future__ import annotations

from pathlib import Path

from boosted_attention.data.tokenizer import Tokenizer
from boosted_attention.data.tokens import DataConfig
from boosted_attention.pretrained.finetune import FinetuneConfig
from boosted_attention.pretrained.folders import require_model_folder
from boosted_attention.train.config import TrainingConfig
from boosted_attention.train.folder import TrainedRun
from boosted_attention.train.run_config import RunConfig
from boosted_attention.validation import require


def model_as_run(folder: Path, device: str = "cpu") -> TrainedRun:
    """Load a model, boosted or not, with its own tokenizer; it has no text of its own, so its fingerprint is empty.

    Args:
        folder: config.json, *.safetensors and tokenizer.json.
        device: where to put the model.
    """
    require_model_folder(folder)
    path = (folder / "tokenizer.json").absolute()
    require(path.is_file(), f"{folder} has no tokenizer.json; no text can be read as the model reads it")
    tokenizer = Tokenizer.load(path)
    base = str(folder.expanduser().absolute())
    config = RunConfig(
        model=FinetuneConfig(base=base, train="all", vocab_size=tokenizer.vocab_size),
        training=TrainingConfig(),
        data=DataConfig(tokenizer=str(path)),
    )
    model = config.model.build().to(device).eval()
    return TrainedRun(folder, config, model, tokenizer, 0, "")  # type: ignore[arg-type]
