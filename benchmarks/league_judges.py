"""The share of all refits that accept each certified offer of a unit of the league: thousands of fresh judges, not 100.

Run as ``python -m benchmarks.league_judges adult "logistic regression"``, with the datasets' folder in APAS_DATA.
"""

from __future__ import annotations

import argparse

import numpy as np

from apas.paper import league
from apas.paper.league_tables import OURS, PROCESSES

SEARCHED = (league.SEARCH, league.CERTIFY, league.WHOLE["judges"])


def main() -> None:
    """Print per process how many rows are accepted by at least 95 % of the judges of the league, and of fresh ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table")
    parser.add_argument("kind", choices=list(league.MODELS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", default=OURS, choices=[n for n, m in league.METHODS.items() if m.certified])
    parser.add_argument("--process", default=PROCESSES[0], choices=PROCESSES)
    parser.add_argument("--refits", type=int, default=2000)
    asked = parser.parse_args()
    ground = league.Ground.of(asked.table, asked.kind, asked.seed, league.WHOLE["inputs"])
    known = ground.refits(asked.process, SEARCHED)
    source = league.METHODS[asked.method].make(ground.base, known)
    answer = league._generated(ground, source, league._certifying(known))[0]
    points = ground.tables.space.coding.encode(answer.numbers[answer.found])
    few = league.accepted_by(known.judge, points) / len(known.judge)
    parts = (ground.tables.d1, ground.tables.d2)[: 1 + PROCESSES.index(asked.process)]
    X, y = np.vstack([p.X for p in parts]), np.concatenate([p.y for p in parts])
    rng = np.random.default_rng([asked.seed, 4 + PROCESSES.index(asked.process), 1])  # of no unit of the league
    rows, seeds = rng.integers(0, len(X), (asked.refits, len(X))), rng.integers(0, 2**31, asked.refits).tolist()
    fresh = league.MODELS[asked.kind](X, y, rows, seeds, ground.tables.inputs)
    many = league.accepted_by(fresh, points) / len(fresh)
    certifying = league.accepted_by(known.certify, points)
    print(f"{asked.method}, {asked.table}, {asked.kind}, seed {asked.seed}, {asked.process}: {len(points)} rows")
    refused = np.bincount(len(known.certify) - certifying).tolist()
    print(f"rows that 0, 1, ... of {len(known.certify)} certifying refits refuse: {refused}")
    for name, share in ((f"{len(known.judge)} judges", few), (f"{len(fresh)} fresh refits", many)):
        print(
            f"{name}: mean {share.mean():.4f}, least {share.min():.4f}, {int((share >= 0.95).sum())} rows at least 0.95"
        )


if __name__ == "__main__":
    main()
