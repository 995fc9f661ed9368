"""``boosted-attention boost``: correction rounds for a pretrained model."""

from __future__ import annotations

from pathlib import Path

UNTRAINED = "The corrections have not been trained: what the model computes is what its base computes, bit for bit."


def run(
    model: Path,
    out: Path,
    /,
    *,
    n_rounds: int | None = None,
    gate: str | None = None,
    layers: str = "all",
    kv: str = "own",
    rank: int | None = None,
    init: str = "copy",
    name: str | None = None,
) -> int:
    """Boost a pretrained decoder of transformers: OUT is the same model with correction rounds that do nothing yet.

    The outputs stay the same bit for bit until ``boosted-attention finetune OUT`` has trained the corrections. OUT is
    an ordinary folder of transformers; ``import boosted_attention`` makes AutoModelForCausalLM know it.

    Example: boosted-attention boost models/SmolLM2-135M-Instruct boosted/SmolLM2-135M-Instruct --kv shared --rank 16

    Args:
        model: folder of the model: config.json, *.safetensors, tokenizer.json.
        out: folder for the boosted model.
        n_rounds: rounds per boosted layer, the model's own attention among them; 2 by default.
        gate: gate of each correction: vector (default of full corrections), scalar (default of light ones), mlp or
            none; for light ones also tanh and headwise.
        layers: layers to boost: all, last:k, or indices such as 0,4,-1.
        kv: keys and values of a correction: own, or shared (the model's own, without a further cache).
        rank: rank of the changes to the model's own projections, which makes corrections light; full ones by default.
        init: start of a full correction's queries and keys: copy or random.
        name: name of the correction.
    """
    from boosted_attention.pretrained.card import Known, write_card
    from boosted_attention.pretrained.conversion import boost
    from boosted_attention.pretrained.folders import copy_tokenizer, load_model, quietly, require_model_folder
    from boosted_attention.pretrained.origin import stated_licence
    from boosted_attention.storage.writing import require_empty_folder, staged_folder, writing_to

    require_model_folder(model)
    require_empty_folder(out)
    boosted = boost(
        load_model(model), n_rounds=n_rounds, gate=gate, layers=layers, kv=kv, rank=rank, init=init, name=name
    )
    with writing_to(out), staged_folder(out) as place, quietly():
        boosted.save_pretrained(place)
        copy_tokenizer(model, place)
        known = Known(licence=stated_licence(model), remarks=[UNTRAINED])
        write_card(place, boosted, out.resolve().name, known)
    new = sum(p.numel() for p in boosted.parameters() if p.requires_grad)
    total = sum(p.numel() for p in boosted.parameters())
    print(f"written: {out}: {type(boosted).__name__}, {total:,} parameters, {new:,} of them in corrections and gates")
    return 0
