"""Erasure by retrieval: a wrong update is found."""

from boosted_attention.theory import erasure


def test_a_wrong_update_would_be_found(monkeypatch):
    monkeypatch.setattr(erasure, "retrieve", lambda x, patterns, beta: x)
    assert not erasure.stays_in_hull(0).holds
    assert not erasure.forgets_the_orthogonal_part(0).holds
