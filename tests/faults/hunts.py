"""All hunts, in the order in which they run."""

from __future__ import annotations

from tests.faults import continuing, corruption, crashes, disks, disturbances, hostile, kills, lies, malformed
from tests.faults.hunt import Hunt

HUNTS: tuple[Hunt, ...] = tuple(
    hunt
    for module in (crashes, malformed, corruption, lies, hostile, disks, disturbances, kills, continuing)
    for hunt in module.HUNTS
)
