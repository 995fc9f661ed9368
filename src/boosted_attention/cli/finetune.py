"""``boosted-attention finetune``: train a boosted pretrained model, or its rivals, on any text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tyro

from boosted_attention.cli.train import Options, absolute, value_of
from boosted_attention.cli.train import train as run_training
from boosted_attention.data.tokens import DataConfig
from boosted_attention.storage.documents import read_json
from boosted_attention.train.config import TrainingConfig

RENAMED = {"folder": "out", "strategy": "parallel"}
DEFAULTS = TrainingConfig(
    steps=200, batch_size=4, accumulate=4, lr=1e-4, horizon=0, weight_decay=0.0, eval_every=50, layout="windows"
)
LOW_RANK_LR = 1e-3  # of corrections by matrices of low rank, and of adapters; three times that breaks some of the first
RATES = {"lora": LOW_RANK_LR, "all": 3e-5}  # of what is trained, where corrections are not


def prepare(args: Sequence[str]) -> Callable[..., int]:
    """Return the command with a learning rate that suits what is trained as its default, so that --help shows it."""
    is_low_rank = any(has_low_rank_corrections(Path(arg)) for arg in args)
    corrections = LOW_RANK_LR if is_low_rank else DEFAULTS.lr
    defaults = replace(DEFAULTS, lr=RATES.get(value_of(args, "--train") or "correction", corrections))

    def run(
        model: Path,
        /,
        *,
        out: Path | None = None,
        train: str = "correction",
        lora_rank: int = 8,
        max_len: int = 0,
        resume: bool = False,
        device: str = "cpu",
        checkpoint_every: int = 50,
        log_to: tuple[str, ...] = (),
        parallel: str = "ddp",
        checkpoint_activations: bool = False,
        training: Annotated[TrainingConfig, tyro.conf.OmitArgPrefixes] = defaults,
        data: Annotated[DataConfig, tyro.conf.OmitArgPrefixes] = DataConfig(),  # noqa: B008
    ) -> int:
        """Fine-tune a model of transformers with this project's trainer: same checkpoints, same exact resume.

        The text is read with the model's own tokenizer. Checkpoints hold what was trained; the run's folder needs the
        model again to be used by ``evaluate``, ``generate`` or ``analyze``.

        Example: boosted-attention finetune boosted/SmolLM2-135M-Instruct --corpus text:notes/ --steps 200

        Args:
            model: folder of the model, boosted by ``boosted-attention boost`` for --train correction.
            out: folder of the run; runs/MODEL-TRAIN-SEED by default.
            train: trained part: correction (the correction rounds alone, frozen ones left out), all,
                or lora.
            lora_rank: rank of the adapters of --train lora.
            max_len: tokens per row; 0 takes 512, or as many as the model has positions.
            resume: continuation from the last checkpoint in --out; a run that has not begun begins.
            device: device to train on: cpu, cuda or mps.
            checkpoint_every: steps between checkpoints.
            log_to: tools that get copies of metrics.jsonl, one or several: tensorboard, trackio, csv.
            parallel: sharing of the model by torchrun's processes: ddp (each holds all) or fsdp (each holds a part).
            checkpoint_activations: activations computed twice instead of kept, to save memory.
        """
        from boosted_attention.pretrained.finetune import FinetuneConfig
        from boosted_attention.pretrained.folders import require_model_folder
        from boosted_attention.train.run_config import RunConfig
        from boosted_attention.validation import require

        require_model_folder(model)
        tokenizer = model / "tokenizer.json"
        require(tokenizer.is_file(), f"{model} has no tokenizer.json; the text cannot be read as the model reads it")
        base = str(model.expanduser().absolute())
        config = RunConfig(
            model=FinetuneConfig(base=base, train=train, lora_rank=lora_rank, max_len=max_len),
            training=training,
            data=replace(absolute(data), tokenizer=str(tokenizer.absolute())),
        )
        place = out or Path("runs") / f"{model.name}-{train}-{training.seed}"
        options = Options(
            resume=resume,
            device=device,
            checkpoint_every=checkpoint_every,
            log_to=log_to,
            parallel=parallel,
            checkpoint_activations=checkpoint_activations,
        )
        return run_training(config, place, options)

    return run


def has_low_rank_corrections(folder: Path) -> bool:
    """Whether a folder holds a boosted model with low-rank corrections alone; a folder that is unsound has none."""
    try:
        config = read_json(folder / "config.json")
    except (OSError, ValueError):
        return False
    stages = config.get("boosting") if isinstance(config, dict) else None
    return isinstance(stages, list) and bool(stages) and all(isinstance(s, dict) and s.get("rank") for s in stages)
