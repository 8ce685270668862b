"""The search of each row: a loop that asks a source for candidates, looks at them, and has them tested.

Rows advance together and share the draws of their j-th tests, which no candidate depends on, unless by a time limit.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from apas._typing import Floats
from apas.certification.certificate import Certificate
from apas.counterfactuals.result import Counterfactual, Status
from apas.counterfactuals.search.tests import Candidates, CertifyingTest
from apas.counterfactuals.sources.base import Candidate, CandidateSource, NoneExists, Search
from apas.display.numbers import at_most

#: Rows of each path that are tested together before it is seen whether one failed: the first ones seldom do, and those
#: near the one that does take the most draws.
AHEAD, LATER = 12, 4
HALVINGS = 10  # how often the way between two rows of a path is halved where that costs nothing
PROBES = 20  # a source may look at so many times as many points as it may offer
Answer = tuple[Counterfactual, Floats]  # an answer, and the numbers per cell of what was found (NaN if nothing)


@dataclass(frozen=True)
class Plan:
    """What the searches of a call share: so many counterfactuals per row, and candidates for each."""

    source: CandidateSource
    test: CertifyingTest
    k: int
    max_candidates: int
    n_jobs: int = 1


@dataclass
class RowSearch:
    """The search for one counterfactual of one row."""

    search: Search
    rank: int
    delta: float
    plan: Plan
    candidate: Candidate = field(init=False)
    slack: float | None = None
    hopeful: bool = False
    asked: int = 0
    candidates: int = 0
    tests: int = 0
    certificate: Certificate | None = None
    best: tuple[float, Floats, Certificate] | None = None
    ended: tuple[Status, str] | None = None
    seen: set[bytes] = field(default_factory=set)
    stream: Iterator[Candidate] = field(init=False)

    def __post_init__(self) -> None:
        self.stream = self.plan.source.candidates(self.search)

    def give_up(self, why: str, status: Status = Status.BUDGET) -> None:
        """End the search: what it has found it keeps."""
        looked = f"{self.asked} point{'s' if self.asked != 1 else ''} looked at, {self.tests} tested, none certified"
        self.ended = (status, f"{why}; {looked}") if self.best is None else (Status.FOUND, self.best[2].reason)

    def keep_if_cheaper(self, point: Floats, certificate: Certificate) -> bool:
        """Keep what was certified if it is the cheapest so far."""
        cost = self.search.cost(point)
        cheaper = self.best is None or cost < self.best[0]
        if cheaper:
            self.best = (cost, point, certificate)
        return cheaper

    def advance(self) -> None:
        """Ask for the next candidate that is new, or note why there is none."""
        most = self.plan.max_candidates
        while True:
            if self.candidates >= most or self.asked >= PROBES * most:
                return self.give_up("the limit of candidates is reached")
            if self.search.task.is_late:
                return self.give_up("time is up")
            try:
                stream, slack = self.stream, self.slack
                self.candidate = stream.send(slack) if isinstance(stream, Generator) else next(stream)
            except StopIteration as end:
                if self.search.task.is_late:  # what a source gave up for that is not exhausted
                    return self.give_up("time is up")
                return self.give_up(end.value or "no further candidates", Status.EXHAUSTED)
            except NoneExists as error:
                self.ended = (Status.INFEASIBLE, str(error))
                return None
            self.asked += 1
            self.candidates += self.candidate.final
            self.slack = None
            if self._is_usable():
                return None

    def _is_usable(self) -> bool:
        """Whether a candidate is worth a look: allowed, and if final new, different, and cheaper than what is there."""
        search, space, path = self.search, self.search.task.space, self.candidate.path
        # Coordinates that went through a scaling and back may differ from the input in their last bits. They are set to
        # the input's own digits before anything is tested: a feature counts as changed only if it is, and what is
        # returned is, bit by bit, what was certified.
        if path is not None:
            path = search.settled(path)
        self.candidate = candidate = replace(self.candidate, point=search.settled(self.candidate.point), path=path)
        if not space.allowed(candidate.point[None], search.input[None]).all():
            return False  # the constraints hold whatever a source says
        if not candidate.final:
            return True
        if path is not None:
            fine = space.allowed(path, np.broadcast_to(search.input, path.shape)).all(axis=1)
            path = path[fine & np.array([search.is_different(p) for p in path], dtype=bool)]
            self.candidate = replace(candidate, path=path)
            return len(path) > 0
        key = candidate.point.tobytes()
        if key in self.seen or not search.is_different(candidate.point):
            return False
        self.seen.add(key)
        return self.plan.source.ordered or self.best is None or search.cost(candidate.point) < self.best[0]

    def answer(self) -> Answer:
        """How the search ended, once it has."""
        search, (status, reason) = self.search, self.ended or (Status.BUDGET, "")
        cost, point, certificate = self.best or (np.nan, np.full_like(search.input, np.nan), None)
        spent = self.candidates, self.tests
        found = Counterfactual(search.row, self.rank, search.target, status, cost, *spent, certificate, reason)
        if search.task.unshifted:  # there is nothing to certify
            found = replace(found, certificate=None, lower_bound=self.candidate.lower_bound if self.best else 0.0)
            near = "" if found.gap is None else f"; {found.nearness.format(at_most(found.gap, 2))}"
            found = replace(found, reason=reason + near)
        return found, point


def run_rows(searches: list[Search], deltas: Floats, plan: Plan, report: Any) -> list[Answer]:
    """`plan.k` answers per search, in order; `report`, if there is one, is told how many searches have ended."""
    waiting = [RowSearch(s, 0, float(d), plan) for s, d in zip(searches, deltas, strict=True)]
    done: dict[tuple[int, int], Answer] = {}  # by row and rank
    paths = list[RowSearch]()  # tested together once all rows have theirs: some models take long to read a table
    while waiting or paths:
        for row in waiting:
            row.advance()
        going = [row for row in waiting if row.ended is None]
        paths += [row for row in going if row.candidate.path is not None]
        waiting = [row for row in waiting if row.ended is not None or row.candidate.path is None]
        _look_and_test([row for row in going if row.candidate.path is None], plan.test)
        if all(row.ended is not None for row in waiting):
            _test_paths(paths, plan.test)
            waiting, paths = waiting + paths, []
        still, before = [], len(done)
        for row in waiting:
            if row.ended is not None:
                done[row.search.row, row.rank] = row.answer()
            still += [row] if row.ended is None else _next_rank(row, done)
        waiting = still
        if report is not None and len(done) > before:
            report(len(done) - before)
    return [done[s.row, rank] for s in searches for rank in range(plan.k)]


def _asked_about(rows: list[RowSearch], points: Floats | None = None) -> Candidates:
    """Points (those of the candidates unless given) of some rows."""
    targets = np.array([row.search.target for row in rows], dtype=object)
    found = np.stack([row.candidate.point for row in rows]) if points is None else points
    return Candidates(found, targets, np.array([r.delta for r in rows]), np.stack([r.search.input for r in rows]))


def _look_and_test(rows: list[RowSearch], test: CertifyingTest) -> None:
    """Look at candidates, then test those that are worth it: one batch for all rows at the same number of tests."""
    for rank in sorted({row.rank for row in rows}):
        batch = [row for row in rows if row.rank == rank]
        for row, look in zip(batch, test.look(_asked_about(batch), rank), strict=True):
            row.slack, row.hopeful, row.certificate = look
    rows = [row for row in rows if row.candidate.final and (row.hopeful or row.certificate is not None)]
    for row in rows:
        row.tests += 1
    for rank, number in sorted({(row.rank, row.tests) for row in rows if row.certificate is None}):
        batch = [row for row in rows if row.certificate is None and (row.rank, row.tests) == (rank, number)]
        # test number j may use the part 1 / (j (j + 1)) of the risk: with few draws not even no failure is enough
        if not test.can_test(rank, number):
            for row in batch:
                row.tests -= 1
                row.give_up("`n_samples` leaves no confidence for a further test")
            continue
        for row, certificate in zip(batch, test.certify(_asked_about(batch), rank, number), strict=True):
            row.certificate = certificate
    for row in rows:
        if row.certificate is not None and row.certificate.is_certified:
            row.best = (row.search.cost(row.candidate.point), row.candidate.point, row.certificate)
            if row.plan.source.ordered:
                note = f"; {row.candidate.note}" if row.candidate.note else ""
                row.ended = (Status.FOUND, row.certificate.reason + note)


def _test_paths(rows: list[RowSearch], test: CertifyingTest) -> None:
    """Test the paths of several rows; each ends with the cheapest row before the first that fails, if there is one."""
    for row in rows:
        if test.draws is not None and row.tests:
            row.give_up("a path needs the whole confidence, and a test before it has used some")
        row.tests += row.ended is None
    for rank in sorted({row.rank for row in rows}):
        going, place = [row for row in rows if row.rank == rank and row.ended is None], 0
        # listed models read a long table as fast as a short one; what comes after a row that fails claims nothing
        ahead = AHEAD if test.searched is None else 1 << 30
        while going:
            going, place, ahead = _test_part(going, test, rank, place, ahead), place + ahead, LATER


def _test_part(rows: list[RowSearch], test: CertifyingTest, rank: int, place: int, ahead: int) -> list[RowSearch]:
    """Test the next rows of each path on the draws that all of it shares; which paths go on after that."""
    parts = [path[place : place + ahead] for row in rows if (path := row.candidate.path) is not None]
    owners = [row for row, part in zip(rows, parts, strict=True) for _ in part]
    points = np.concatenate(parts)
    certificates = iter(test.certify(_asked_about(owners, points), rank, 0) if len(points) else ())
    going = []
    for row, part in zip(rows, parts, strict=True):
        results = [(point, next(certificates)) for point in part]
        passed = next((i for i, (_, c) in enumerate(results) if not c.is_certified), len(results))
        for result in results[:passed]:
            row.keep_if_cheaper(*result)
        if passed == ahead:
            going.append(row)
            continue
        if passed < len(results) and row.candidate.between and test.draws is None:
            _bisect(row, test, results[passed][0])
        if row.best is not None:
            row.ended = (Status.FOUND, row.best[2].reason)
        elif test.draws is not None:
            why = "failed its test, and a second test would need confidence that is used up"
            row.ended = (Status.BUDGET, f"the safest of the rows found {why}")
    return going


def _bisect(row: RowSearch, test: CertifyingTest, failed: Floats) -> None:
    """Halve the way from the cheapest row that is proved to the next of the path: proofs cost no confidence."""
    for _ in range(HALVINGS):
        if row.best is None:
            return
        middle = row.search.snapped((row.best[1] + failed) / 2)
        if not row.search.is_different(middle) or (middle == failed).all() or (middle == row.best[1]).all():
            return
        certificate = test.certify(_asked_about([row], middle[None]), 0, 0)[0]
        if not certificate.is_certified or not row.keep_if_cheaper(middle, certificate):
            failed = middle


def _next_rank(row: RowSearch, done: dict[tuple[int, int], Answer]) -> list[RowSearch]:
    """The search for the next counterfactual of a row; where one was not found, the further ones are not either."""
    (answer, point), rank, search = done[row.search.row, row.rank], row.rank + 1, row.search
    if answer.is_found and rank < row.plan.k:
        changed = frozenset(np.flatnonzero(point != search.input).tolist())
        test = row.plan.test.for_search(search.target, row.delta, rank, search.input)
        return [RowSearch(replace(search, avoid=(*search.avoid, changed), test=test), rank, row.delta, row.plan)]
    for later in range(rank, row.plan.k):
        done[search.row, later] = replace(answer, rank=later, candidates=0, tests=0), point
    return []
