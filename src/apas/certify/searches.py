"""Two searches for the largest delta that work on every model: confirmed on fresh draws, and as published."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas._random import Stream
from apas.certify.claims import Most
from apas.certify.problem import Problem
from apas.certify.scan import first_failures
from apas.stats import Telescoping, allowed_failures, sample_size, spend

__all__ = ["Searched", "confirmed", "pilot", "published"]

_Array = NDArray[np.float64]
#: How often a candidate may be tried on fresh draws, and by what factor the next one is smaller.
TRIES, SHRINK = 12, 0.97
#: Where the published search starts, and how far it narrows its bracket.
PUBLISHED = 1e-4


@dataclass(frozen=True)
class Searched:
    """The largest delta that passed, per row, and what the search did."""

    delta: _Array
    reason: list[str]
    trace: list[dict[str, Any]]


def failures_at(problem: Problem, delta: _Array, stream: Stream, samples: int, limit: int) -> NDArray[np.intp]:
    """Per row how many of `samples` draws fail at its delta, counted up to `limit`."""
    found = first_failures(replace(problem, delta=delta), stream, samples, limit, limit)
    return np.diff(found.starts)


def confirmed(problem: Problem, claim: Most, entropy: int, samples: int, limit: float, floor: _Array) -> Searched:
    """Search on one stream, then test the candidate on fresh ones until it passes.

    The j-th test of a row runs at confidence ``1 - (1 - confidence) / (j (j + 1))`` on draws used nowhere before; these
    risks add up to ``1 - confidence``, so that whichever candidate passes is certified at the full confidence.
    """
    candidate = pilot(problem, claim, Stream(entropy, "max_shift/search"), samples, limit, floor)
    rows = np.arange(len(problem))
    delta, tests = np.zeros(len(problem)), np.zeros(len(problem), dtype=int)
    reason = ["no candidate passed its test on fresh draws"] * len(problem)
    for j in range(1, TRIES + 1):
        level = spend(claim.row_confidence, Telescoping(), j)
        drawn = max(samples, sample_size(coverage=claim.coverage, confidence=level))
        allowed = allowed_failures(drawn, coverage=claim.coverage, confidence=level)
        fresh = Stream(entropy, f"max_shift/confirm/{j}")
        failed = failures_at(problem.take(rows), candidate[rows], fresh, drawn, allowed + 1)
        tests[rows] += 1
        passed = failed <= allowed
        for row, count in zip(rows[passed], failed[passed], strict=True):
            delta[row] = candidate[row]
            reason[row] = f"test number {j}, on fresh draws: {count} of {drawn} failed, at most {allowed} may"
        rows = rows[~passed]
        candidate[rows] *= SHRINK
        if not len(rows):
            break
    trace = [
        {"search": "confirm", "claim": "pointwise", "entropy": hex(entropy), "samples": samples, "tests": int(t)}
        for t in tests
    ]
    return Searched(delta, reason, trace)


def pilot(problem: Problem, claim: Most, stream: Stream, planned: int, limit: float, floor: _Array) -> _Array:
    """A delta at which about 60 % of the failures that the claim allows are seen; any heuristic would do here."""
    samples = min(planned, 4000)
    allowed = allowed_failures(planned, coverage=claim.coverage, confidence=claim.row_confidence)
    wanted = max(0.6 * allowed, 0.3) / planned * samples
    low = np.log(np.maximum(floor, limit * 1e-6))
    high = np.full(len(problem), np.log(limit))
    best = low.copy()
    at_limit = failures_at(problem, np.exp(high), stream, samples, int(wanted) + 1) <= wanted
    for _ in range(14):
        middle = 0.5 * (low + high)
        passed = failures_at(problem, np.exp(middle), stream, samples, int(wanted) + 1) <= wanted
        best = np.where(passed, middle, best)
        low, high = np.where(passed, middle, low), np.where(passed, high, middle)
    return np.where(at_limit, limit, np.exp(best))


def published(problem: Problem, entropy: int, samples: int, limit: float) -> Searched:
    """Algorithm 1 as published: double from 1e-4 while no draw fails, then bisect to 1e-4.

    Every test draws anew. The confidence holds for each test by itself, not for the delta that comes out: that one was
    chosen among several by looking at their results.
    """
    tests = np.zeros(len(problem), dtype=int)

    def passes(rows: NDArray[np.intp], delta: _Array) -> NDArray[np.bool_]:
        tests[rows] += 1
        passed = np.empty(len(rows), dtype=bool)
        for number in np.unique(tests[rows]):  # a row's draws depend on its own tests alone
            some = tests[rows] == number
            stream = Stream(entropy, f"max_shift/paper/{number}")
            passed[some] = failures_at(problem.take(rows[some]), delta[some], stream, samples, 1) == 0
        return passed

    low, high = np.zeros(len(problem)), np.full(len(problem), PUBLISHED)
    rows = np.arange(len(problem))
    while len(rows):
        passed = passes(rows, high[rows])
        rows = rows[passed]
        low[rows] = high[rows]
        rows = rows[high[rows] < limit]
        high[rows] = np.minimum(2 * high[rows], limit)
    rows = np.flatnonzero((low > 0) & (low < limit))
    while len(rows):
        rows = rows[high[rows] - low[rows] > PUBLISHED * (1 + 1e-9)]
        middle = 0.5 * (low[rows] + high[rows])
        passed = passes(rows, middle) if len(rows) else np.empty(0, dtype=bool)
        low[rows] = np.where(passed, middle, low[rows])
        high[rows] = np.where(passed, high[rows], middle)
    reason = ["as published: the confidence holds for each of its tests, not for the delta they led to"] * len(problem)
    trace = [
        {
            "search": "paper",
            "claim": "per test",
            "entropy": hex(entropy),
            "samples": samples,
            "tests": int(t),
            "forward_passes": int(t) * samples,
        }
        for t in tests
    ]
    return Searched(low, reason, trace)
