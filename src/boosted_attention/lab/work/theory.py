"""Work on the propositions: every check with its counter-case."""

from __future__ import annotations

from typing import Any

from boosted_attention.lab.trials.trial import Context, work
from boosted_attention.records import to_json
from boosted_attention.theory.catalog import CHECKS


@work("theory.propositions")
def propositions(context: Context, *, seed: int) -> list[dict[str, Any]]:
    """Run all checks with one seed; one finding each."""
    findings = []
    for done, check in enumerate(CHECKS):
        findings.append(to_json(check(seed)))
        context.progress((done + 1) / len(CHECKS))
    return findings
