"""The name of the command."""

PROGRAM = "boosted-attention"
