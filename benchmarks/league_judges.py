"""The share of all refits that accept each offer of a unit of the league: thousands of fresh judges, not 100.

Run as ``python -m benchmarks.league_judges adult "logistic regression"``, with the datasets' folder in APAS_DATA. With
``--same-rows`` the fresh judges see the rows of D1 themselves, and differ in their seeds alone, as in others' papers.
"""

from __future__ import annotations

import argparse

import numpy as np

from apas.paper import league
from apas.paper.league import OURS, PROCESSES


def main() -> None:
    """Print how many rows are accepted by at least 95 % of the judges of the league, and of fresh ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table")
    parser.add_argument("kind", choices=list(league.MODELS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", default=OURS, choices=list(league.METHODS))
    parser.add_argument("--knob", default="", help='such as "delta = 0.1"')
    parser.add_argument("--process", default=PROCESSES[0], choices=PROCESSES)
    parser.add_argument("--refits", type=int, default=2000)
    parser.add_argument("--same-rows", action="store_true")
    asked = parser.parse_args()
    ground = league.Ground.of(asked.table, asked.kind, asked.seed, league.WHOLE["inputs"])
    (known, judging), method = ground.refits(asked.process, 100), league.METHODS[asked.method]
    source = dict(league._variants(method.make(ground.base, known), True))[asked.knob]
    options = league._certifying(known) if method.certified else {"delta": 0}
    answer = league._generated(ground, source, options)[0]
    points = ground.tables.space.coding.encode(answer.numbers[answer.found])
    parts = (ground.tables.d1, ground.tables.d2)[: 1 + PROCESSES.index(asked.process)]
    X, y = np.vstack([p.X for p in parts]), np.concatenate([p.y for p in parts])
    rng = np.random.default_rng([asked.seed, 4 + PROCESSES.index(asked.process), 1])  # of no unit of the league
    rows, seeds = rng.integers(0, len(X), (asked.refits, len(X))), rng.integers(0, 2**31, asked.refits).tolist()
    if asked.same_rows:
        rows = np.tile(np.arange(len(X)), (asked.refits, 1))
    fresh = league.MODELS[asked.kind](X, y, rows, seeds=seeds, feature_names=ground.tables.inputs)
    print(f"{asked.method} {asked.knob}, {asked.table}, {asked.kind}, seed {asked.seed}, {asked.process}")
    certifying = known[league.SEARCH :]
    refused = len(certifying) - league.accepted_by(certifying, points)
    print(f"rows that 0, 1, ... of {len(certifying)} certifying refits refuse: {np.bincount(refused).tolist()}")
    judges = {f"{len(judging)} judges": judging, f"{len(fresh)} fresh refits": fresh}
    for name, models in judges.items():
        share = league.accepted_by(models, points) / len(models)
        safe = f"{int((share >= 0.95).sum())} of {len(share)} rows at least 0.95"
        print(f"{name}: mean {share.mean():.4f}, least {share.min():.4f}, {safe}")


if __name__ == "__main__":
    main()
