"""Paths of candidates: the one test a row has at full confidence, spent on many rows in a fixed order.

A false claim needs the first row of the path whose claim is false to pass its test; every later one is only reached
through it. So nothing is paid for the length of a path, as long as its order is not chosen by looking at the draws that
test it, and nothing is claimed after the first row that fails.
"""

from __future__ import annotations

import numpy as np

from apas.certify.sampling import Sampling
from apas.counterfactuals.hunt import Hunt
from apas.counterfactuals.judge import Judge
from apas.counterfactuals.result import Status

__all__ = ["walk"]

#: Rows of each path that are tested together before it is seen whether one failed.
AHEAD = 8


def walk(hunts: list[Hunt], judge: Judge) -> None:
    """Test the paths of several rows; each ends with the cheapest row before the first that fails, if there is one."""
    for hunt in hunts:
        hunt.number = 0 if hunt.tests == 0 else hunt.tests + 1  # who has tested before has no full confidence left
        hunt.tests += 1
    for rank, number in sorted({(h.rank, h.number) for h in hunts}):
        _walk_together([h for h in hunts if (h.rank, h.number) == (rank, number)], judge, rank, number)


def _walk_together(hunts: list[Hunt], judge: Judge, rank: int, number: int) -> None:
    place = 0
    while hunts:
        parts = [h.candidate.path[place : place + AHEAD] for h in hunts if h.candidate and h.candidate.path is not None]
        owners = [h for h, part in zip(hunts, parts, strict=True) for _ in part]
        targets = np.empty(len(owners), dtype=object)
        targets[:] = [h.search.target for h in owners]
        points, deltas = np.concatenate(parts), np.array([h.delta for h in owners])
        answers = iter(judge.tested(points, targets, deltas, rank, number)) if len(points) else iter(())
        going = []
        for hunt, part in zip(hunts, parts, strict=True):
            results = [(point, next(answers)) for point in part]
            passed = next((i for i, (_, a) in enumerate(results) if not a.is_certified), len(results))
            for point, answer in results[:passed]:
                cost = hunt.search.cost(point)
                if hunt.best is None or cost < hunt.best[0]:
                    hunt.best = (cost, point, answer)
            if passed == AHEAD:
                going.append(hunt)
            else:
                _end(hunt, judge)
        hunts, place = going, place + AHEAD


def _end(hunt: Hunt, judge: Judge) -> None:
    if hunt.best is not None:
        hunt.ended = (Status.FOUND, hunt.best[2].reason)
    elif isinstance(judge.method, Sampling) and hunt.number == 0:
        why = "the safest of the rows found failed its test, and a second test would need confidence that is used up"
        hunt.ended = (Status.BUDGET, why)
