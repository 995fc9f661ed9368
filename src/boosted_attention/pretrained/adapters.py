"""Where peft puts adapters on boosted models when it is not told: where it does on the base, and on no correction.

    get_peft_model(boost(model), LoraConfig(r=8))   # without target_modules

peft keeps a table for each of its methods, from a model_type to endings of names, such as q_proj. A full correction is
a copy of an attention module, whose projections end alike: those of the model's own attention are told apart by the
name of the module around them, as in self_attn.q_proj. Families that a table does not have, or has a pattern for, stay
unknown to it.
"""

from __future__ import annotations

from typing import Any

from boosted_attention.autoload import PREFIX
from boosted_attention.pretrained.families import ATTENTION_NAMES, PROJECTIONS

TABLES = "peft.utils.constants"
AROUND = (*ATTENTION_NAMES, "encoder_attn", "mlp")  # others that have projections of the same names


def own_projections(names: list[str]) -> list[str]:
    """Return endings of names that fit what the given ones fit in a base, and nothing in a correction.

    Args:
        names: endings of names of modules.
    """
    found = [[f"{around}.{name}" for around in AROUND] if name in PROJECTIONS else [name] for name in names]
    return [name for endings in found for name in endings]


def extend(module: Any) -> None:
    """Make peft's tables know boosted families.

    Args:
        module: the module of peft that has them.
    """
    for name, table in vars(module).items():
        is_table = name.startswith("TRANSFORMERS_MODELS_TO_") and name.endswith("_MODULES_MAPPING")
        if is_table and isinstance(table, dict):
            known = {family: names for family, names in table.items() if isinstance(names, list)}
            table.update({PREFIX + family: own_projections(names) for family, names in known.items()})
