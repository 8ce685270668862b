"""Paths of candidates: the one test a row has at full confidence, spent on many rows in a fixed order.

A false claim needs the first row of the path whose claim is false to pass its test; every later one is only reached
through it. So nothing is paid for the length of a path, as long as its order is not chosen by looking at the draws that
test it, and nothing is claimed after the first row that fails.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apas.certify.sampling import Sampling
from apas.counterfactuals.hunt import Hunt, given_up
from apas.counterfactuals.judge import Judge
from apas.counterfactuals.result import Status

__all__ = ["walk"]

_Array = NDArray[np.float64]

#: Rows of each path that are tested together before it is seen whether one failed.
AHEAD = 8
#: How often the way between two rows of a path is halved where that costs nothing.
HALVINGS = 10


def walk(hunts: list[Hunt], judge: Judge) -> None:
    """Test the paths of several rows; each ends with the cheapest row before the first that fails, if there is one."""
    sampled = isinstance(judge.method, Sampling)
    for hunt in hunts:
        if sampled and hunt.tests:
            hunt.ended = given_up(hunt, "a path needs the whole confidence, and a test before it has used some")
        hunt.tests += hunt.ended is None
    for rank in sorted({h.rank for h in hunts}):
        _walk_together([h for h in hunts if h.rank == rank and h.ended is None], judge, rank)


def _walk_together(hunts: list[Hunt], judge: Judge, rank: int) -> None:
    place = 0
    while hunts:
        parts = [h.candidate.path[place : place + AHEAD] for h in hunts if h.candidate and h.candidate.path is not None]
        owners = [h for h, part in zip(hunts, parts, strict=True) for _ in part]
        targets = np.empty(len(owners), dtype=object)
        targets[:] = [h.search.target for h in owners]
        points, deltas = np.concatenate(parts), np.array([h.delta for h in owners])
        answers = iter(judge.tested(points, targets, deltas, rank, 0)) if len(points) else iter(())
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
                continue
            closer = hunt.candidate is not None and hunt.candidate.between and not isinstance(judge.method, Sampling)
            if passed < len(results) and closer:
                _close_in(hunt, judge, results[passed][0])
            _end(hunt, judge)
        hunts, place = going, place + AHEAD


def _close_in(hunt: Hunt, judge: Judge, failed: _Array) -> None:
    """Halve the way from the cheapest row that is proved to the next of the path: proofs cost no confidence."""
    search = hunt.search
    for _ in range(HALVINGS if hunt.best is not None else 0):
        assert hunt.best is not None
        middle = search.snapped((hunt.best[1] + failed) / 2)
        if not search.is_different(middle) or (middle == failed).all() or (middle == hunt.best[1]).all():
            return
        answer = judge.tested(middle[None], np.array([search.target], dtype=object), np.array([hunt.delta]), 0, 0)[0]
        cost = search.cost(middle)
        if answer.is_certified and cost < hunt.best[0]:
            hunt.best = (cost, middle, answer)
        else:
            failed = middle


def _end(hunt: Hunt, judge: Judge) -> None:
    if hunt.best is not None:
        hunt.ended = (Status.FOUND, hunt.best[2].reason)
    elif isinstance(judge.method, Sampling):
        why = "the safest of the rows found failed its test, and a second test would need confidence that is used up"
        hunt.ended = (Status.BUDGET, why)
