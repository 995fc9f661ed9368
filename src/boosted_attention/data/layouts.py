"""Names of the ways in which tokens are cut into training rows; ``batches.py`` and ``packing.py`` say what they mean.

They stand in a file of their own so that a configuration can be checked without importing torch.
"""

LAYOUTS = ("windows", "rows")
PACKS = ("none", "documents")
