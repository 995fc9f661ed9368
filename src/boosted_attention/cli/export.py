"""``boosted-attention export``: a trained run as a model of transformers."""

from __future__ import annotations

from pathlib import Path

RENAMED = {"which": "checkpoint"}


def run(folder: Path, out: Path, /, *, checkpoint: str = "best") -> int:
    """Write a run's model and tokenizer as a folder of transformers: config.json, safetensors, tokenizer.json.

    After ``import boosted_attention.pretrained``, AutoModelForCausalLM and AutoTokenizer load it, and generate works.
    A fine-tuned model is written whole, with its corrections.

    Example: boosted-attention export runs/mini-boosted-stdlib-0 exported/mini

    Args:
        folder: folder of the run.
        out: folder for the model.
        checkpoint: checkpoint to load: best or last.
    """
    from boosted_attention.cli.loading import load_trained
    from boosted_attention.model.language_model import LanguageModel
    from boosted_attention.pretrained.finetune import FinetuneConfig
    from boosted_attention.pretrained.finetuned import FinetunedModel
    from boosted_attention.pretrained.folders import copy_tokenizer, quietly
    from boosted_attention.pretrained.native import to_transformers, tokenizer_to_transformers
    from boosted_attention.storage.writing import require_empty_folder, staged_folder, writing_to

    require_empty_folder(out)
    trained = load_trained(folder, checkpoint)
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
    print(f"written: {out}: {type(model).__name__}, step {trained.step}")
    return 0
