"""``boosted-attention export``: a trained run as a model of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boosted_attention.pretrained.card import Known
    from boosted_attention.train.folder import TrainedRun

RENAMED = {"which": "checkpoint"}


def run(folder: Path, out: Path, /, *, checkpoint: str = "best", push: str | None = None, private: bool = False) -> int:
    """Write a run's model and tokenizer as a folder of transformers: config.json, safetensors, tokenizer.json, a card.

    After ``import boosted_attention.pretrained``, AutoModelForCausalLM and AutoTokenizer load it, and generate works.
    A fine-tuned model is written whole, with its corrections. The card, README.md, says what is known of the run: text,
    recipe, perplexity, and how to load the model.

    Example: boosted-attention export runs/mini-boosted-stdlib-0 exported/mini

    Args:
        folder: folder of the run.
        out: folder for the model.
        checkpoint: checkpoint to load: best or last.
        push: repository of the Hugging Face hub, OWNER/NAME, to which the folder is uploaded too; made if need be.
        private: privacy of that repository.
    """
    from boosted_attention.cli.loading import load_trained
    from boosted_attention.model.language_model import LanguageModel
    from boosted_attention.pretrained.card import write_card
    from boosted_attention.pretrained.finetune import FinetuneConfig
    from boosted_attention.pretrained.finetuned import FinetunedModel
    from boosted_attention.pretrained.folders import copy_tokenizer, quietly
    from boosted_attention.pretrained.hub import push_folder, require_pushable
    from boosted_attention.pretrained.native import to_transformers, tokenizer_to_transformers
    from boosted_attention.storage.writing import require_empty_folder, staged_folder, writing_to
    from boosted_attention.validation import require

    require_empty_folder(out)
    require(push is not None or not private, "private=True is for push=OWNER/NAME")
    if push is not None:
        require_pushable(push)
    trained = load_trained(folder, checkpoint)
    known = known_of(trained)
    if isinstance(trained.model, FinetunedModel):
        model = trained.model.whole()
    else:
        assert isinstance(trained.model, LanguageModel)
        model = to_transformers(trained.model)
    with writing_to(out), staged_folder(out) as place, quietly():
        model.save_pretrained(place)
        if isinstance(trained.config.model, FinetuneConfig):
            copy_tokenizer(Path(trained.config.model.base), place)
        else:
            tokenizer_to_transformers(trained.tokenizer, trained.config.model.max_len).save_pretrained(place)
        write_card(place, model, push or out.resolve().name, known)
    print(f"written: {out}: {type(model).__name__}, step {trained.step}", flush=True)
    if push is not None:
        print(f"uploaded: {push_folder(out, push, private=private)}")
    return 0


def known_of(trained: TrainedRun) -> Known:
    """Return what is known of a run's model: text, recipe and result, the base's licence, and the ledger's verdicts."""
    import boosted_attention
    from boosted_attention.lab.judging.recorded import CORRECTIONS, recorded_verdicts
    from boosted_attention.pretrained.card import Known
    from boosted_attention.pretrained.card_run import with_run
    from boosted_attention.pretrained.finetune import FinetuneConfig
    from boosted_attention.pretrained.origin import stated_licence
    from boosted_attention.train.metrics import read_result

    results = Path(boosted_attention.__file__).parents[2] / "results"  # of a checkout
    config: Any = trained.config.model
    if isinstance(config, FinetuneConfig):
        corrected = config.boost is not None or bool(getattr(config.hf_config, "boosting", None))
        known = Known(
            licence=stated_licence(Path(config.base)),
            verdicts=recorded_verdicts(results, CORRECTIONS) if corrected else [],
        )
    else:
        as_judged = not config.attention_options and config.boosted_layers == "all"  # and no variant of the layer
        known = Known(verdicts=recorded_verdicts(results, config.attention) if as_judged else [])
    is_run = bool(trained.fingerprint)  # and not a model's folder
    return with_run(known, trained, read_result(trained.folder)) if is_run else known
