"""Searches for the largest delta that work on every model: confirmed on fresh draws, and as published."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from apas._random import Stream
from apas._typing import Bools, Floats, Indices, Integers
from apas.certification.claims import Most
from apas.certification.methods.sampling import first_failures
from apas.certification.question import Question
from apas.stats import Telescoping, allowed_failures, sample_size, spend

#: How often a candidate may be tried on fresh draws, and by what factor the next one is smaller.
TRIES, SHRINK = 12, 0.97
#: At how many rungs a draw is looked at in a test, and where they begin if nothing is proved, as a share of the top.
RUNGS, LOWEST = 12, 1 / 32
#: In how many steps a candidate is looked for, how often the last of them is halved, and where they begin if nothing
#: is proved, as a share of the limit.
COARSE, HALVINGS, LEAST = 24, 7, 1e-6
#: Where the published search starts, and how far it narrows its bracket.
PUBLISHED = 1e-4
_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Searched:
    """The largest delta that passed, per row, and what the search did."""

    delta: Floats
    reason: list[str]
    trace: list[dict[str, Any]]


def failures_at(question: Question, delta: Floats, stream: Stream, samples: int, limit: int) -> Indices:
    """Per row how many of `samples` draws fail at its delta, counted up to `limit`."""
    found = first_failures(replace(question, delta=delta), stream, samples, limit, limit)
    return np.diff(found.starts)


def confirmed(question: Question, claim: Most, entropy: int, samples: int, limit: float, floor: Floats) -> Searched:
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
        ladder = np.roll(_ladder(start, candidate[rows], RUNGS), 1, axis=1)
        failed = [_NONE] * len(rows)
        fresh = Stream(entropy, f"max_shift/confirm/{j}")
        climbed = _climbed(question.take(rows), ladder, fresh, drawn, allowed, failed)
        tests[rows] += 1
        passed = climbed == RUNGS
        for i, row in enumerate(rows):
            reason[row] = "no candidate passed its test on fresh draws"
            if passed[i]:
                delta[row], rungs[row] = candidate[row], sorted(ladder[i].tolist())
                counts = f"{len(failed[i])} of {drawn} fresh draws failed at any of them, at most {allowed} may"
                reason[row] = f"at {RUNGS} rungs up to delta: {counts} (test number {j})"
            else:
                candidate[row] = SHRINK * ladder[i, climbed[i]]
        rows = rows[~passed & (candidate[rows] > floor[rows])]
    common = {"search": "confirm", "claim": "pathwise", "exact_roots": False, "entropy": hex(entropy)}
    trace = [{**common, "samples": samples, "tests": int(t), "rungs": r} for t, r in zip(tests, rungs, strict=True)]
    return Searched(delta, reason, trace)


def _ladder(low: Floats, high: Floats, rungs: int) -> Floats:
    """Per row a geometric sequence that begins above `low` and ends at `high` itself."""
    # by logarithms: the ratio of a tiny proved delta and the limit may not be finite
    begin, end = np.log(low)[:, None], np.log(high)[:, None]
    ladder = np.exp(begin + (end - begin) * np.arange(1, rungs + 1) / rungs)
    ladder[:, -1] = high
    return np.asarray(ladder)


def _climbed(
    question: Question, ladder: Floats, stream: Stream, samples: int, most: int, failed: list[Integers]
) -> Indices:
    """How many rungs each row climbs before more than `most` of the draws have failed at one of them.

    `failed` holds per row the draws that failed before; those that fail on the climbed rungs are added.
    """
    climbed = np.full(len(question), ladder.shape[1], dtype=np.intp)
    rows = np.arange(len(question))
    for rung in range(ladder.shape[1]):
        # a row with no more than `most` failures has them all counted; one with more is at its end anyway
        found = first_failures(
            replace(question.take(rows), delta=ladder[rows, rung]), stream, samples, most + 1, most + 1
        )
        for i, row in enumerate(rows):
            together = np.union1d(failed[row], found.of(i)[0])
            if len(together) > most:
                climbed[row] = rung
            else:
                failed[row] = together
        rows = rows[climbed[rows] > rung]
        if not len(rows):
            break
    return climbed


def candidates(question: Question, claim: Most, stream: Stream, planned: int, limit: float, floor: Floats) -> Floats:
    """Per row a delta up to which about 60 % of the failures that the claim allows are seen, or the floor.

    Any heuristic would do here. This one climbs, so that a network that recovers does not lure it beyond the failures.
    """
    samples = min(planned, 4000)
    allowed = allowed_failures(planned, coverage=claim.coverage, confidence=claim.row_confidence)
    most = int(max(0.6 * allowed, 0.3) / planned * samples)
    low = np.where(floor > 0, floor, limit * LEAST)
    high = np.full(len(question), limit)
    failed = [_NONE] * len(low)
    ladder = _ladder(low, high, COARSE)
    climbed = _climbed(question, ladder, stream, samples, most, failed)
    found = np.where(climbed > 0, ladder[np.arange(len(low)), climbed - 1], floor)
    rows = np.flatnonzero((climbed < COARSE) & (found > 0))
    high[rows] = ladder[rows, climbed[rows]]
    for _ in range(HALVINGS):
        if not len(rows):
            break
        middle = np.sqrt(found[rows]) * np.sqrt(high[rows])
        some = [failed[row] for row in rows]
        passed = _climbed(question.take(rows), middle[:, None], stream, samples, most, some) == 1
        for row, seen in zip(rows, some, strict=True):
            failed[row] = seen
        found[rows] = np.where(passed, middle, found[rows])
        high[rows] = np.where(passed, high[rows], middle)
    return found


def published(question: Question, entropy: int, samples: int, limit: float) -> Searched:
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
            passed[some] = failures_at(question.take(rows[some]), delta[some], stream, samples, 1) == 0
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
        rows = rows[high[rows] - low[rows] > PUBLISHED * (1 + 1e-9)]
        middle = 0.5 * (low[rows] + high[rows])
        passed = passes(rows, middle) if len(rows) else np.empty(0, dtype=bool)
        low[rows] = np.where(passed, middle, low[rows])
        high[rows] = np.where(passed, high[rows], middle)
    reason = ["as published: the confidence holds for each of its tests, not for the delta they led to"] * len(question)
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
