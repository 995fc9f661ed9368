"""Trained pairs that ship with the project: a standard and a boosted model that share seed, start, text and recipe."""
