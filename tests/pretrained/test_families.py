"""Families: each that is entered is put to all tests of boosting, under its own name."""

import transformers

from boosted_attention.pretrained import families
from tests.pretrained.families import FAMILIES


def test_every_family_is_tried():
    assert set(FAMILIES) == set(families.FAMILIES)
    assert all(getattr(transformers, config).model_type == family for family, (config, _, _) in FAMILIES.items())
