"""The largest delta by a search on one stream, confirmed on fresh draws; and the search as published."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from apas._random import Stream
from apas._typing import Bools, Floats, Indices
from apas.certification.claims import Most
from apas.certification.failing_draws import first_failures
from apas.certification.max_shift.grid import NONE, candidates, climb, ladder
from apas.certification.question import Question
from apas.stats import Telescoping, allowed_failures, sample_size, spend

#: How often a candidate may be tried on fresh draws, and by what factor the next one is smaller.
TRIES, SHRINK = 12, 0.97
#: At how many rungs a draw is looked at in a test, and where they begin if nothing is proved, as a share of the top.
RUNGS, LOWEST = 12, 1 / 32
#: Where the published search starts, and how far it narrows its bracket.
PUBLISHED = 1e-4


@dataclass(frozen=True)
class Searched:
    """The largest delta that passed, per row, and what the search did."""

    delta: Floats
    reason: list[str]
    trace: list[dict[str, Any]]


def confirm_rows(question: Question, claim: Most, entropy: int, samples: int, limit: float, floor: Floats) -> Searched:
    """Search on one stream, then test the candidate on fresh ones until it passes.

    A draw fails a test if it fails at any rung between the proved delta and the candidate; the rungs are fixed before
    it is made. The j-th test of a row runs at confidence ``1 - (1 - confidence) / (j (j + 1))`` on draws used nowhere
    before; these risks add up to ``1 - confidence``, so that whichever candidate passes is certified at the full
    confidence, at all its rungs together.
    """
    candidate = candidates(question, claim, Stream(entropy, "max_shift/search"), samples, limit, floor)
    delta, tests = np.zeros(len(question)), np.zeros(len(question), dtype=int)
    rungs: list[list[float]] = [[] for _ in delta]
    reason = ["the search found no delta that was worth a test"] * len(delta)
    rows = np.flatnonzero(candidate > floor)
    for j in range(1, TRIES + 1):
        if not len(rows):
            break
        level = spend(claim.row_confidence, Telescoping(), j)
        drawn = max(samples, sample_size(coverage=claim.coverage, confidence=level))
        allowed = allowed_failures(drawn, coverage=claim.coverage, confidence=level)
        # where nothing is proved, no rung can be the first: they begin at a share of the candidate
        start = np.where(floor[rows] > 0, floor[rows], LOWEST * candidate[rows])
        # from the top, where most candidates fail that do, then from below
        values = np.roll(ladder(start, candidate[rows], RUNGS), 1, axis=1)
        failed = [NONE] * len(rows)
        fresh = Stream(entropy, f"max_shift/confirm/{j}")
        climbed = climb(question.take(rows), values, fresh, drawn, allowed, failed)
        tests[rows] += 1
        passed = climbed == RUNGS
        for i, row in enumerate(rows):
            reason[row] = "no candidate passed its test on fresh draws"
            if passed[i]:
                delta[row], rungs[row] = candidate[row], sorted(values[i].tolist())
                counts = f"{len(failed[i])} of {drawn} fresh draws failed at any of them, at most {allowed} may"
                reason[row] = f"at {RUNGS} rungs up to delta: {counts} (test number {j})"
            else:
                candidate[row] = SHRINK * values[i, climbed[i]]
        rows = rows[~passed & (candidate[rows] > floor[rows])]
    common = {"search": "confirm", "claim": "pathwise", "exact_roots": False, "entropy": hex(entropy)}
    trace = [{**common, "samples": samples, "tests": int(t), "rungs": r} for t, r in zip(tests, rungs, strict=True)]
    return Searched(delta, reason, trace)


def published_search(question: Question, entropy: int, samples: int, limit: float) -> Searched:
    """Algorithm 1 as published: double from 1e-4 while no draw fails, then bisect to 1e-4.

    Every test draws anew. The confidence holds for each test by itself, not for the delta that comes out: that one was
    chosen among several by looking at their results.
    """
    tests = np.zeros(len(question), dtype=int)

    def passes(rows: Indices, delta: Floats) -> Bools:
        tests[rows] += 1
        passed = np.empty(len(rows), dtype=bool)
        for number in np.unique(tests[rows]):  # a row's draws depend on its own tests alone
            some = tests[rows] == number
            stream = Stream(entropy, f"max_shift/paper/{number}")
            here = replace(question.take(rows[some]), delta=delta[some])
            passed[some] = np.diff(first_failures(here, stream, samples, 1, 1).starts) == 0
        return passed

    low, high = np.zeros(len(question)), np.full(len(question), PUBLISHED)
    rows = np.arange(len(question))
    while len(rows):
        passed = passes(rows, high[rows])
        rows = rows[passed]
        low[rows] = high[rows]
        rows = rows[high[rows] < limit]
        high[rows] = np.minimum(2 * high[rows], limit)
    rows = np.flatnonzero((low > 0) & (low < limit))
    while len(rows):
        rows = rows[high[rows] - low[rows] > PUBLISHED * (1 + 1e-9)]  # a bracket of that very width is closed
        middle = 0.5 * (low[rows] + high[rows])
        passed = passes(rows, middle) if len(rows) else np.empty(0, dtype=bool)
        low[rows] = np.where(passed, middle, low[rows])
        high[rows] = np.where(passed, high[rows], middle)
    reason = ["as published: the confidence holds for each of its tests, not for the delta they led to"] * len(question)
    common = {"search": "paper", "claim": "per test", "entropy": hex(entropy), "samples": samples}
    trace = [{**common, "tests": int(t), "forward_passes": int(t) * samples} for t in tests]
    return Searched(low, reason, trace)
