"""The largest delta by a search on one stream, confirmed on fresh draws; and the search as published."""

from __future__ import annotations

from collections.abc import Callable
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


def confirm_rows(question: Question, claim: Most, own: Stream, samples: int, limit: float, floor: Floats) -> Searched:
    """Search on one stream, then test the candidate on fresh ones until it passes."""
    # a draw fails a test if it fails at any of its rungs, which are fixed before it is made. The j-th test runs at
    # confidence 1 - (1 - confidence) / (j (j + 1)) on draws used nowhere before, and these risks add up to
    # 1 - confidence: whichever candidate passes is certified at the full confidence, at all its rungs together
    candidate = candidates(question, claim, own.part("search"), samples, limit, floor)
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
        fresh = own.part(f"confirm/{j}")
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
    common = {"search": "confirm", "claim": "pathwise", "exact_roots": False, "entropy": hex(own.entropy)}
    trace = [{**common, "samples": samples, "tests": int(t), "rungs": r} for t, r in zip(tests, rungs, strict=True)]
    return Searched(delta, reason, trace)


def published_search(question: Question, stream: Stream, samples: int, limit: float) -> Searched:
    """Algorithm 1 as published, each test on fresh draws: the delta was chosen by looking at their results."""
    tests = np.zeros(len(question), dtype=int)

    def passes(rows: Indices, delta: Floats) -> Bools:
        tests[rows] += 1
        passed = np.empty(len(rows), dtype=bool)
        for number in np.unique(tests[rows]):  # a row's draws depend on its own tests alone
            some = tests[rows] == number
            fresh = stream.part(f"paper/{number}")
            here = replace(question.take(rows[some]), delta=delta[some])
            passed[some] = np.diff(first_failures(here, fresh, samples, 1, 1).starts) == 0
        return passed

    # a bracket of the published width, up to rounding, is closed
    found = double_and_bisect(passes, len(question), limit, PUBLISHED * (1 + 1e-9))
    reason = ["as published: the confidence holds for each of its tests, not for the delta they led to"] * len(question)
    common = {"search": "paper", "claim": "per test", "entropy": hex(stream.entropy), "samples": samples}
    trace = [{**common, "tests": int(t), "forward_passes": int(t) * samples} for t in tests]
    return Searched(found, reason, trace)


def double_and_bisect(passes: Callable[[Indices, Floats], Bools], rows: int, limit: float, width: float) -> Floats:
    """Double from 1e-4 while a row passes, up to `limit`; then halve brackets of at least `width`: their lower ends."""
    low, high = np.zeros(rows), np.full(rows, PUBLISHED)
    going = np.arange(rows)
    while len(going):
        going = going[passes(going, high[going])]
        low[going] = high[going]
        going = going[high[going] < limit]
        high[going] = np.minimum(2 * high[going], limit)
    going = np.flatnonzero((low > 0) & (low < high))
    while len(going := going[high[going] - low[going] >= width]):
        middle = 0.5 * (low[going] + high[going])
        passed = passes(going, middle)
        low[going[passed]], high[going[~passed]] = middle[passed], middle[~passed]
    return low
