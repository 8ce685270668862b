"""The loop of Algorithm 2 for many rows at once: ask the source, look, test, go on.

All rows advance together, so that their candidates are looked at and tested in one batch.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.counterfactuals.hunt import Hunt, asked_about, given_up
from apas.counterfactuals.judge import Judge
from apas.counterfactuals.result import Counterfactual, Status
from apas.counterfactuals.source import CandidateSource, NoneExists, Search
from apas.counterfactuals.walking import walk

__all__ = ["Limits", "Outcome", "run_rows"]

_Array = NDArray[np.float64]
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
    point: _Array


def run_rows(
    searches: list[Search], deltas: _Array, source: CandidateSource, judge: Judge, limits: Limits, report: Any
) -> list[Outcome]:  # fmt: skip
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


def _allowed_path(search: Search, path: _Array) -> _Array:
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
    hunt: Hunt, outcome: Outcome, source: CandidateSource, judge: Judge, limits: Limits,
    done: dict[tuple[int, int], Outcome], report: Any,
) -> list[Hunt]:  # fmt: skip
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
