"""The loop of Algorithm 2 for many rows at once: ask the source, look, test, go on.

A false claim needs the first row of the path whose claim is false to pass its test; every later one is only reached
through it. So nothing is paid for the length of a path, as long as its order is not chosen by looking at the draws that
test it, and nothing is claimed after the first row that fails.

All rows advance together, so that their candidates are looked at and tested in one batch.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from apas._typing import Array, Floats
from apas.certification.certificate import Certificate
from apas.certification.methods.sampling import Sampling
from apas.counterfactuals.result import Counterfactual, Status
from apas.counterfactuals.search.source import Candidate, CandidateSource, NoneExists, Search
from apas.counterfactuals.search.tests import Judge


@dataclass
class Hunt:
    """The search for one counterfactual of one row."""

    search: Search
    rank: int
    delta: float
    stream: Iterator[Candidate]
    candidate: Candidate | None = None
    slack: float | None = None
    hopeful: bool = False
    asked: int = 0
    candidates: int = 0
    tests: int = 0
    answer: Certificate | None = None
    best: tuple[float, Floats, Certificate] | None = None
    ended: tuple[Status, str] | None = None
    seen: set[bytes] = field(default_factory=set)


def asked_about(hunts: list[Hunt]) -> tuple[Floats, Array, Floats]:
    """Points, wanted classes and deltas of the candidates of several hunts."""
    points = np.stack([h.candidate.point for h in hunts if h.candidate is not None])
    targets = np.empty(len(hunts), dtype=object)
    targets[:] = [h.search.target for h in hunts]
    return points, targets, np.array([h.delta for h in hunts])


def given_up(hunt: Hunt, why: str, status: Status = Status.BUDGET) -> tuple[Status, str]:
    """How a hunt ends that goes no further: what it has found it keeps."""
    if hunt.best is not None:
        return Status.FOUND, hunt.best[2].reason
    looked = f"{hunt.asked} point{'s' if hunt.asked != 1 else ''} looked at, {hunt.tests} tested, none certified"
    return status, f"{why}; {looked}"


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


def _close_in(hunt: Hunt, judge: Judge, failed: Floats) -> None:
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


#: A source may look at so many times as many points as it may offer.
PROBES = 20


@dataclass(frozen=True)
class Limits:
    """When to stop: so many counterfactuals per row, candidates for each, and a moment for all."""

    k: int
    max_candidates: int
    deadline: float


@dataclass(frozen=True)
class Outcome:
    """An answer and the numbers per cell of what was found (NaN if nothing)."""

    answer: Counterfactual
    point: Floats


def run_rows(
    searches: list[Search], deltas: Floats, source: CandidateSource, judge: Judge, limits: Limits, report: Any
) -> list[Outcome]:
    """`limits.k` outcomes per search, in order; `report` is told how many searches have ended."""
    waiting = [Hunt(s, 0, float(d), source.candidates(s)) for s, d in zip(searches, deltas, strict=True)]
    done: dict[tuple[int, int], Outcome] = {}
    while waiting:
        for hunt in waiting:
            _advance(hunt, source, limits)
        _look([h for h in waiting if h.ended is None], judge)
        going = [h for h in waiting if h.ended is None and h.candidate is not None]
        _test([h for h in going if h.candidate is not None and h.candidate.path is None], source, judge)
        walk([h for h in going if h.candidate is not None and h.candidate.path is not None], judge)
        still = []
        for hunt in waiting:
            if hunt.ended is None:
                still.append(hunt)
                continue
            done[hunt.search.row, hunt.rank] = outcome = _outcome(hunt)
            report(1)
            still += _next_rank(hunt, outcome, source, judge, limits, done, report)
        waiting = still
    return [done[s.row, rank] for s in searches for rank in range(limits.k)]


def _advance(hunt: Hunt, source: CandidateSource, limits: Limits) -> None:
    """Ask for the next candidate that is new, or note why there is none."""
    while True:
        if hunt.candidates >= limits.max_candidates or hunt.asked >= PROBES * limits.max_candidates:
            hunt.ended = given_up(hunt, "the limit of candidates is reached")
        elif time.monotonic() > limits.deadline:
            hunt.ended = given_up(hunt, "time is up")
        if hunt.ended is not None:
            return
        try:
            stream = hunt.stream
            hunt.candidate = stream.send(hunt.slack) if isinstance(stream, Generator) and hunt.asked else next(stream)
        except StopIteration as end:
            if time.monotonic() > limits.deadline:  # what a source gave up for that is not exhausted
                hunt.ended = given_up(hunt, "time is up")
            else:
                hunt.ended = given_up(hunt, end.value or "no further candidates", Status.EXHAUSTED)
            return
        except NoneExists as error:
            hunt.ended = (Status.INFEASIBLE, str(error))
            return
        hunt.asked += 1
        hunt.candidates += hunt.candidate.final
        hunt.slack = None
        if _is_usable(hunt, source):
            return


def _is_usable(hunt: Hunt, source: CandidateSource) -> bool:
    """Whether a candidate is worth a look: allowed, and if final new, different, and cheaper than what is there."""
    assert hunt.candidate is not None
    search, space = hunt.search, hunt.search.task.space
    # before anything is certified: what rounding has moved is not changed, and what is returned is what was tested
    path = hunt.candidate.path if hunt.candidate.path is None else search.settled(hunt.candidate.path)
    hunt.candidate = candidate = replace(hunt.candidate, point=search.settled(hunt.candidate.point), path=path)
    if not space.allowed(candidate.point[None], search.input[None]).all():
        return False  # the constraints hold whatever a source says
    if not candidate.final:
        return True
    if candidate.path is not None:
        path = _allowed_path(search, candidate.path)
        hunt.candidate = replace(candidate, path=path)
        return len(path) > 0
    key = candidate.point.tobytes()
    if key in hunt.seen or not search.is_different(candidate.point):
        return False
    hunt.seen.add(key)
    return source.ordered or hunt.best is None or search.cost(candidate.point) < hunt.best[0]


def _allowed_path(search: Search, path: Floats) -> Floats:
    """The rows of a path that the space allows and that differ from what there is."""
    fine = search.task.space.allowed(path, np.broadcast_to(search.input, path.shape)).all(axis=1)
    return path[fine & np.array([search.is_different(p) for p in path], dtype=bool)]


def _look(hunts: list[Hunt], judge: Judge) -> None:
    """Give each hunt the slack of its candidate, and the answer where to look is to test."""
    hunts = [h for h in hunts if h.candidate is not None and h.candidate.path is None]
    for rank in sorted({h.rank for h in hunts}):
        batch = [h for h in hunts if h.rank == rank]
        for hunt, look in zip(batch, judge.looked(*asked_about(batch), rank), strict=True):
            hunt.slack, hunt.hopeful, hunt.answer = look.slack, look.hopeful, look.answer


def _test(hunts: list[Hunt], source: CandidateSource, judge: Judge) -> None:
    """Test the final candidates that are worth it: one batch for all rows that are at the same number of tests."""
    hunts = [h for h in hunts if h.candidate is not None and h.candidate.final and (h.hopeful or h.answer is not None)]
    for hunt in hunts:
        hunt.tests += 1
    for rank, number in sorted({(h.rank, h.tests) for h in hunts if h.answer is None}):
        batch = [h for h in hunts if h.answer is None and (h.rank, h.tests) == (rank, number)]
        if not judge.can_test(rank, number):
            for hunt in batch:
                hunt.tests -= 1
                hunt.ended = given_up(hunt, "`n_samples` leaves no confidence for a further test")
            continue
        for hunt, answer in zip(batch, judge.tested(*asked_about(batch), rank, number), strict=True):
            hunt.answer = answer
    for hunt in hunts:
        if hunt.answer is not None and hunt.answer.is_certified and hunt.candidate is not None:
            hunt.best = (hunt.search.cost(hunt.candidate.point), hunt.candidate.point, hunt.answer)
            if source.ordered:
                note = f"; {hunt.candidate.note}" if hunt.candidate.note else ""
                hunt.ended = (Status.FOUND, hunt.answer.reason + note)


def _outcome(hunt: Hunt) -> Outcome:
    status, reason = hunt.ended if hunt.ended is not None else (Status.BUDGET, "")
    cost, point, certificate = hunt.best or (np.nan, np.full_like(hunt.search.input, np.nan), None)
    search = hunt.search
    answer = Counterfactual(
        search.row, hunt.rank, search.target, status, cost, hunt.candidates, hunt.tests, certificate, reason
    )
    return Outcome(answer, point)


def _next_rank(
    hunt: Hunt,
    outcome: Outcome,
    source: CandidateSource,
    judge: Judge,
    limits: Limits,
    done: dict[tuple[int, int], Outcome],
    report: Any,
) -> list[Hunt]:
    """The hunt for the next counterfactual of a row; where one was not found, the further ones are not either."""
    if hunt.rank + 1 >= limits.k:
        return []
    if outcome.answer.is_found:
        changed = frozenset(np.flatnonzero(outcome.point != hunt.search.input).tolist())
        trial = judge.trial(hunt.search.target, hunt.delta, hunt.rank + 1)
        search = replace(hunt.search, avoid=(*hunt.search.avoid, changed), trial=trial)
        return [Hunt(search, hunt.rank + 1, hunt.delta, source.candidates(search))]
    for rank in range(hunt.rank + 1, limits.k):
        answer = replace(outcome.answer, rank=rank, candidates=0, tests=0)
        done[hunt.search.row, rank] = Outcome(answer, outcome.point)
        report(1)
    return []
