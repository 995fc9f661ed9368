"""The paper's propositions as executable checks, each with the case in which it says nothing or fails.

for check in CHECKS:
    print(check(0))     # a Finding: what was measured, whether it bears the statement out, and the same for its limit
"""

from boosted_attention.theory.catalog import CHECKS
from boosted_attention.theory.finding import Finding

__all__ = ["CHECKS", "Finding"]
