"""No contradiction: 500 random networks, 20 explanations each, 5 deltas around the one that breaks each of them.

No CERTIFIED may be broken by 10,000 draws, 1,000 corners or the attack; every REFUTED must be confirmed by its witness;
at most a tenth may stay UNKNOWN. With APAS_SWEEP_REPORT set to a file, each part adds a line of counts to it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from contradiction_sweep import Tally, swept

NETWORKS, PARTS = 500, 10


@pytest.mark.validity
@pytest.mark.parametrize("part", range(PARTS))
def test_no_contradiction(part):
    tally = Tally()
    for seed in range(part, NETWORKS, PARTS):
        tally.add(swept(seed, rows=20, draws=10_000, corners=1_000, time_limit=0.5))
    print(tally.to_json())
    if report := os.environ.get("APAS_SWEEP_REPORT"):
        with Path(report).open("a") as file:
            file.write(tally.to_json() + "\n")
    assert not tally.contradictions
    assert tally.verdicts == NETWORKS // PARTS * 20 * 5
    assert min(tally.counts["CERTIFIED"], tally.counts["REFUTED"]) > 0.3 * tally.verdicts
    assert tally.unknown_share <= 0.1
