"""Experiments on the synthetic retrieval task."""
