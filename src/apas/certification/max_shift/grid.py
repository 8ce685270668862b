"""The largest delta of models that can only be asked for margins: draws looked at on a grid of deltas.

A pilot on a stream of its own lays the grid of a row before the certifying rays are drawn: a finer grid where these
look promising would be a selection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from apas._random import Stream
from apas._typing import Bools, Floats, Indices, Integers
from apas.certification.claims import Most
from apas.certification.failing_draws import drawn_blocks, first_failures
from apas.certification.max_shift.result import MaxShift, Plan, Trace
from apas.certification.question import Question
from apas.display.progress import Progress
from apas.stats import Telescoping, allowed_failures, sample_size, spend

#: In how many steps a candidate is looked for, how often the last of them is halved, and where they begin if nothing
#: is proved, as a share of the limit.
STEPS, HALVINGS, LEAST = 24, 7, 1e-6
#: Shares of the pilot's answer below and around it, and how fast the grid grows beyond.
COARSE, FINE, BEYOND = (0.05, 0.1, 0.2, 0.4, 0.6, 0.7), 1.02, 1.3
#: How many rows are looked at together, and for how many rays the grid of the anytime test is laid.
TOGETHER, PLANNED = 64, 50_000
#: No draw has failed yet.
NONE = np.empty(0, dtype=np.int64)


def ladder(low: Floats, high: Floats, rungs: int) -> Floats:
    """Per row a geometric sequence that begins above `low` and ends at `high` itself."""
    # by logarithms: the ratio of a tiny proved delta and the limit may not be finite
    begin, end = np.log(low)[:, None], np.log(high)[:, None]
    values = np.exp(begin + (end - begin) * np.arange(1, rungs + 1) / rungs)
    values[:, -1] = high
    return np.asarray(values)


def climb(question: Question, rungs: Floats, stream: Stream, draws: int, most: int, failed: list[Integers]) -> Indices:
    """How many rungs each row climbs before more than `most` draws fail; adds those that do to `failed`."""
    climbed = np.full(len(question), rungs.shape[1], dtype=np.intp)
    rows = np.arange(len(question))
    for rung in range(rungs.shape[1]):
        # a row with no more than `most` failures has them all counted; one with more is at its end anyway
        here = replace(question.take(rows), delta=rungs[rows, rung])
        found = first_failures(here, stream, draws, most + 1, most + 1)
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
    """Per row a delta up to which about 60 % of the failures that the claim allows are seen, or the floor."""
    # any heuristic would do; this one climbs, so that a network that recovers does not lure it beyond the failures
    samples = min(planned, 4000)  # a pilot: more draws would cost as much as the test itself
    allowed = allowed_failures(planned, coverage=claim.coverage, confidence=claim.row_confidence)
    # below what the claim allows, so that certifying draws pass as a rule; where none may fail, 0.3 of one is still
    # none here, as the pilot never has more draws than the test
    most = int(max(0.6 * allowed, 0.3) / planned * samples)
    low = np.where(floor > 0, floor, limit * LEAST)
    high = np.full(len(question), limit)
    failed = [NONE] * len(low)
    rungs = ladder(low, high, STEPS)
    climbed = climb(question, rungs, stream, samples, most, failed)
    found = np.where(climbed > 0, rungs[np.arange(len(low)), climbed - 1], floor)
    rows = np.flatnonzero((climbed < STEPS) & (found > 0))
    high[rows] = rungs[rows, climbed[rows]]
    for _ in range(HALVINGS):
        if not len(rows):
            break
        middle = np.sqrt(found[rows]) * np.sqrt(high[rows])
        some = [failed[row] for row in rows]
        passed = climb(question.take(rows), middle[:, None], stream, samples, most, some) == 1
        for row, seen in zip(rows, some, strict=True):
            failed[row] = seen
        found[rows] = np.where(passed, middle, found[rows])
        high[rows] = np.where(passed, high[rows], middle)
    return found


def crossings(question: Question, stream: Stream, grid: Floats, samples: int, ranks: tuple[int, int]) -> Indices:
    """First rungs up to which as many rays are not clearly valid, and clearly fail, as the ranks say; (rows, 2)."""
    rungs = grid.shape[1]
    found = np.full((len(question), 2), rungs)
    failed = np.zeros((2, len(question), samples), dtype=bool)  # not clearly valid, and clearly failing
    rows = np.arange(len(question))
    for rung in range(rungs):
        part = replace(question.take(rows), delta=grid[rows, rung])
        for begin, end, directions in drawn_blocks(part, stream, samples):
            margins, band = part.margins(directions), part.band
            failed[0, rows, begin:end] |= ~(margins > band).T
            failed[1, rows, begin:end] |= ~(margins >= -band).T
        counts = failed[:, rows].sum(axis=2)
        for k, rank in enumerate(ranks):
            hit = rows[(counts[k] >= rank) & (found[rows, k] == rungs)]
            found[hit, k] = rung
        rows = rows[(counts[0] < ranks[0]) | (counts[1] < ranks[1])]
        if not len(rows):
            break
    return found


def along_grid(question: Question, claim: Most, own: Stream, plan: Plan, limit: float, trace: Trace) -> list[MaxShift]:
    """First failures on rungs along rays, as an answer per row, for models that can only be asked for margins."""
    answers, (samples, allowed, refuting), rays = list[MaxShift](), plan, own.part("rays")
    with Progress(len(question), "looking along rays") as progress:
        for begin in range(0, len(question), TOGETHER):
            part = question.take(slice(begin, begin + TOGETHER))
            # a test that may be continued must have one grid, however many rays it will see
            planned = PLANNED if "test" in trace else samples
            found = candidates(part, claim, own.part("pilot"), planned, limit, np.zeros(len(part)))
            # fine from 0.8 to 1.6 times the pilot's answer; then 39 steps up to 28,000 times that, then the limit
            fine = 0.8 * FINE ** np.arange(int(np.ceil(np.log(2.0) / np.log(FINE))) + 1)
            shares = np.concatenate([COARSE, fine, fine[-1] * BEYOND ** np.arange(1, 40)])
            grid = np.minimum(np.maximum(found, limit * LEAST)[:, None] * shares, limit)
            grid[:, -1] = limit
            rungs = grid.shape[1]
            for i, (certify_at, refute_at) in enumerate(crossings(part, rays, grid, samples, (allowed + 1, refuting))):
                delta = float(grid[i, certify_at - 1]) if certify_at else 0.0
                upper = float(grid[i, refute_at]) if refute_at < rungs else np.inf
                ended = bool(certify_at == rungs)
                reason = f"at every grid value up to delta{', which is the limit' if ended else ''}"
                reason += f": at most {allowed} of {samples} rays failed before"
                if not delta:
                    reason = f"more than {allowed} of {samples} rays failed at the first grid value already"
                told = {**trace, "rungs": np.unique(grid[i, :certify_at]).tolist()}
                ends = (delta, max(upper, delta), 0.0, np.inf, False, ended)
                answers.append(MaxShift(*ends, claim, part.target[i], reason, told))
            progress.advance(len(part))
    return answers


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
