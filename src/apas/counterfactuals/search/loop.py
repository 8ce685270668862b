"""The search of each row: a loop that asks a source for candidates, and the tests that certify them.

A search that may test several candidates must not certify each at full confidence: the one that passes was selected. So
every certifying test of a row draws from a stream of its own, which nothing else has looked at, and test number j may
use the part 1 / (j (j + 1)) of the risk; these parts add up to 1. Further counterfactuals of a row pay for their rank
likewise. Before that, candidates are looked at on draws of the search, as often as it likes: these certify nothing.

Rows share the draws of their j-th tests: the candidate of a row never depends on them, unless a time limit cuts its
search off after the test of another row took long.

All rows advance together, so that their candidates are looked at and tested in one batch.

A path is tested on draws that all its rows share, at full confidence. For a false claim to be made, the first row of
the path whose claim is false must pass its test, since every later one is only reached through it. So nothing is paid
for the length of a path, as long as its order is not chosen by looking at the draws that test it, and nothing is
claimed after the first row that fails.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from apas._random import Stream
from apas._typing import Array, Floats
from apas.certification.certificate import BoundEvidence, Certificate
from apas.certification.claims import Most, Verdict, search_tries
from apas.certification.derived_seed import DerivedSeed, decide_derived
from apas.certification.failing_draws import block_size
from apas.certification.question import Cuts, Draws, LeastDraws, Method, Question, decide
from apas.counterfactuals.result import Counterfactual, Status
from apas.counterfactuals.search.observed_split import listed_as_they_are, models_together, quick_encoder
from apas.counterfactuals.search.stacked import DrawnModels, NetworkStack, SideBySide, StackedNetworks
from apas.counterfactuals.sources.base import Candidate, CandidateSource, NoneExists, Search, SearchTest, Task
from apas.display.numbers import at_most
from apas.models.as_model import encoded_rows
from apas.models.base import Model, offers
from apas.models.feedforward import FeedForward
from apas.shifts.base import Listed, OnPoints, OtherMoves, ShiftSet
from apas.stats import allowed_failures, sample_size
from apas.worst_case.exact_arithmetic import PIECEWISE_LINEAR, exact_sign

KEPT = 800  # how many of the draws that do worst at a point are kept to look at points near it
HELD = 64_000_000  # so many numbers of draws are kept for all rows of a call; more are drawn again each time
SEEN = 4_000_000  # so many margins are held at a time
FEW = 1000  # fewer draws than this leave the worst shift of all much worse than the worst that was drawn
TOGETHER = 256  # points that are looked at together
#: So many standard deviations fewer failures than a test allows are asked of the look, so that most tests pass.
CAUTION = 2.0
#: Slacks are cut to a grid, in units of the rounding band: what a source does next must not depend on the last bits of
#: a margin, which depend on how many rows are looked at together.
GRID = 1024.0


@dataclass(frozen=True)
class BoundSearchTest:
    """Bounds over every shift, by the method itself."""

    test: CertifyingTest
    target: Any
    delta: float
    demand: float = 0.0
    few: ClassVar[bool] = False  # a bound holds for all
    all_accept: ClassVar[bool] = True

    @property
    def refits(self) -> Sequence[Model] | None:
        """The models that must all accept, if they are listed."""
        return listed_as_they_are(self.test.shifts, self.delta)

    def slacks(self, points: Floats) -> Floats:
        """Proved bounds on the margin, 0 or more where the claim is certified."""
        return self._bounds(points) - self.demand

    def _bounds(self, points: Floats) -> Floats:
        looks = self.test.look(points, *_repeat(self.target, self.delta, len(points)))
        return np.array([np.nan if look.slack is None else look.slack for look in looks])

    def slopes(self, point: Floats, others: Floats) -> Floats:
        """Differences of the bounds."""
        found = self._bounds(np.vstack([point[None], others]))
        return np.asarray(np.nan_to_num(found[1:] - found[0]))

    def near(self, point: Floats) -> BoundSearchTest:
        """Itself: a bound costs the same everywhere."""
        return self

    def cut(self, point: Floats) -> Floats | None:
        """A linear score of the last layer that is at least the bound, if the method has a bound that is concave."""
        method, question = self.test.method, self.test.question(point[None], *_repeat(self.target, self.delta, 1))
        return method.cut(question) if offers(method, Cuts) else None

    def with_more_slack(self, more: float) -> BoundSearchTest:
        """The same test, which asks for some slack more."""
        return replace(self, demand=more)


@dataclass(frozen=True)
class DrawnSearchTest:
    """Draws of the search: the slack is the margin that all but a number of them exceed."""

    test: CertifyingTest
    target: Any
    delta: float
    samples: int
    rank: int
    some: SideBySide | None = None  # of all the models those that matter near a point
    demand: float = 0.0
    _seen: dict[bytes, Floats] = field(default_factory=dict, repr=False, compare=False)
    all_accept: ClassVar[bool] = False

    @property
    def refits(self) -> Sequence[Model] | None:
        """The models of the search, if they are listed; never those that certify."""
        return listed_as_they_are(self.test.searched, self.delta)

    @property
    def few(self) -> bool:
        """Whether the draws are so few that the worst shift of all is much worse than the worst that was drawn."""
        return self.samples < FEW

    @property
    def models(self) -> SideBySide:
        """Those that are looked at, not kept here: they may be large, and what is passed to workers should not be."""
        return self.some or self.test.search_models(self.delta)

    def slacks(self, points: Floats) -> Floats:
        """The margin that all but `rank` draws exceed."""
        together = max(1, min(TOGETHER, SEEN // self.samples))
        parts = (self._margins(points[a : a + together]) for a in range(0, len(points), together))
        return (
            np.concatenate([np.empty(0), *(np.partition(m, self.rank, axis=0)[self.rank] for m in parts)]) - self.demand
        )

    def _margins(self, points: Floats) -> Floats:
        """Margins on all models, shape (models, points); those of the last single point are remembered."""
        key = points.tobytes()
        if key in self._seen:
            return self._seen[key]
        margins = self.models.margins(points, self.target)
        margins = np.where(np.isnan(margins), -np.inf, margins) if np.isnan(margins.sum()) else margins
        if len(points) == 1:
            self._seen.clear()
            self._seen[key] = margins
        return margins

    def slopes(self, point: Floats, others: Floats) -> Floats:
        """Mean over the draws whose margins are next to the slack: one draw alone would lead astray."""
        width = max(3, self.rank // 2)
        ranks = np.argsort(self._margins(point[None])[:, 0])[max(0, self.rank - width) : self.rank + width + 1]
        # small differences of large numbers: they are taken in float64
        margins = self.models.take(ranks, np.float64).margins(np.vstack([point[None], others]), self.target)
        return np.asarray(np.nan_to_num(margins[:, 1:] - margins[:, :1]).mean(axis=0))

    def near(self, point: Floats) -> DrawnSearchTest:
        """The draws that do worst at `point`."""
        keep = max(KEPT, 8 * (self.rank + 1))
        if self.samples <= keep or self.some is not None or self.test.searched is not None:
            return self
        worst = np.argpartition(self._margins(point[None])[:, 0], keep)[:keep]
        return replace(self, some=self.models.take(worst), samples=keep, _seen={})

    def with_more_slack(self, more: float) -> DrawnSearchTest:
        """The same test, which asks for some slack more."""
        return replace(self, demand=more)


def smallest_margins(blocks: Iterable[Floats], count: int) -> Floats:
    """The least margins of each row over all blocks of draws, shape (count, rows); NaN is least of all."""
    least: Floats | None = None
    for margins in blocks:
        margins = np.nan_to_num(margins, nan=-np.inf)
        least = np.full((count, margins.shape[1]), np.inf) if least is None else least
        least = np.partition(np.concatenate([least, margins]), count - 1, axis=0)[:count]
    return np.empty((count, 0)) if least is None else least


def _repeat(target: Any, delta: float, count: int) -> tuple[Array, Floats]:
    labels = np.empty(count, dtype=object)
    labels[:] = [target] * count
    return labels, np.full(count, delta)


@dataclass(frozen=True)
class Look:
    """What is seen of a candidate before it is tested."""

    slack: float | None
    hopeful: bool
    certificate: Certificate | None = None


@dataclass(frozen=True)
class CertifyingTest:
    """Looks at candidates, and certifies them; of listed models it has some, and the search has others (`searched`)."""

    task: Task
    shifts: ShiftSet
    method: Method
    entropy: int
    searched: ShiftSet | None = None
    n_deltas: int = 1  # how many different deltas the rows of the call have
    together: int = 1  # how many counterfactuals the confidence must hold for
    seed: DerivedSeed | None = None

    @cached_property
    def draws(self) -> Draws | None:
        """The method as one that draws, or None if it proves its claim."""
        return self.method if offers(self.method, Draws) else None

    def question(
        self, points: Floats, targets: Array, deltas: Floats, tries: int = 1, shifts: ShiftSet | None = None
    ) -> Question:
        """The question about candidates, as `certify` would ask it about the same rows in raw units."""
        raw, encoded = encoded_rows(self.task.model, self.task.space.table(points))
        risk = {"claim_rows": self.together, "tries": tries, "bits": self.seed.bits if self.seed else None}
        about: dict[str, Any] = {**risk, "points": raw, "method": self.method}
        return Question(self.task.model, encoded, targets, deltas, shifts or self.shifts, **about)

    def can_test(self, rank: int, number: int) -> bool:
        """Whether test number `number` of a rank (0: that of a path) could certify anything: with few draws not all."""
        if self.searched is not None:  # of listed models there are enough for one test of whatever kind
            return number <= 1
        if self.draws is None or self.draws.n_samples is None:
            return True
        claim = self._claim(self.draws, search_tries(rank, number))
        if offers(self.draws, LeastDraws):
            return self.draws.n_samples >= self.draws.least_draws(claim)
        return self.draws.n_samples >= sample_size(coverage=claim.coverage, confidence=claim.row_confidence)

    def look(self, points: Floats, targets: Array, deltas: Floats, rank: int = 0) -> list[Look]:
        """What is seen of each candidate for a rank without spending anything."""
        if self.searched is not None:
            rows = zip(points, targets, deltas, strict=True)
            slacks = [float(self.for_search(target, delta).slacks(point[None])[0]) for point, target, delta in rows]
            return [Look(slack, slack >= 0) for slack in slacks]
        question = self.question(points, targets, deltas, tries=search_tries(rank, 1))
        if self.draws is not None:
            return self._look_at_draws(self.draws, question, points)
        return [_look_at_bound(c) for c in self.decided(question, Stream(self.entropy, "generate"))]

    def certify(self, points: Floats, targets: Array, deltas: Floats, rank: int, number: int) -> list[Certificate]:
        """Certificates of test number `number` for counterfactuals of a rank; number 0 is the one test of a path."""
        # listed models certify one candidate of a row once, so that there is nothing to divide the risk among
        tries = 1 if self.searched is not None else search_tries(rank, number)
        question = self.question(points, targets, deltas, tries=tries)
        if self.seed is not None:  # that of each candidate follows from it alone, so that its draws are fresh
            alone = [question.take(slice(i, i + 1)) for i in range(len(question))]
            return [c for one in alone for c in decide_derived(one, self.seed)]
        return self.decided(question, Stream(self.entropy, f"generate/{rank}/{number}"))

    def decided(self, question: Question, stream: Stream) -> list[Certificate]:
        """What the method says."""
        return decide(question, self.method, stream)

    def for_search(self, target: Any, delta: float, rank: int = 0) -> SearchTest:
        """What the search for one counterfactual of a row may ask as often as it likes."""
        if self.draws is None:
            return BoundSearchTest(self, target, delta)
        samples, allowed = self.allowance
        if rank:  # its test allows fewer failures, so that the search had better aim at fewer
            allowed = max(0, _most_failures(samples, self._claim(self.draws, search_tries(rank, 0))))
        return DrawnSearchTest(self, target, delta, samples, allowed)

    def search_models(self, delta: float) -> SideBySide:
        """All shifted models that the search looks at."""
        return self.task.once(("search models", delta), lambda: self._search_models(delta))

    def _search_models(self, delta: float) -> SideBySide:
        if self.searched is not None and delta == 1 and self.listed_models is not None:
            return self.listed_models
        samples, stream, net = self.allowance[0], Stream(self.entropy, "generate/search"), self._network
        if net is None or self.n_deltas * samples * len(net.parameters) > HELD:
            drawn = DrawnModels(partial(self._about, delta=delta), samples, stream)
            fits = self.searched is None and 8 * samples * len(self._nobody.coordinates) <= HELD
            return drawn.take(np.arange(samples)) if fits else drawn
        step = max(1, min(2048, SEEN // len(net.parameters)))
        draws = (self._nobody.directions(stream, a, min(a + step, samples)) for a in range(0, samples, step))
        stack = NetworkStack.of(net, (net.parameters.values + delta * block for block in draws), samples)
        return StackedNetworks(stack, quick_encoder(self.task))

    @cached_property
    def _network(self) -> FeedForward | None:
        """The model as a network whose parameters move, if it is one and they do."""
        others = self.searched is not None or offers(self.shifts, OnPoints) or offers(self.shifts, OtherMoves)
        return None if others else self._nobody.network

    def _about(self, points: Floats, target: Any, *, delta: float) -> Question:
        """The question about points of a row on the draws of the search."""
        if not len(points):
            return replace(self._nobody, shifts=self.searched or self.shifts)
        labels, deltas = _repeat(target, delta, len(points))
        if self.searched is not None or offers(self.shifts, OnPoints):
            return self.question(points, labels, deltas, shifts=self.searched)
        # without a detour through data frames, which costs more than the margins
        return Question(self.task.model, self.task.encoded(points), labels, deltas, self.shifts)

    @cached_property
    def listed_models(self) -> SideBySide | None:
        """The listed models of the search as they are, where they can be asked together."""
        return None if self.searched is None else models_together(self.searched, self.task)

    @cached_property
    def _nobody(self) -> Question:
        """A question without rows."""
        model = self.task.model
        nothing = np.empty((0, model.n_features)), np.empty(0, dtype=object), np.empty(0)
        return Question(model, *nothing, self.shifts)

    @cached_property
    def allowance(self) -> tuple[int, int]:
        """How many draws the search looks at, and how many of them may fail: those of a test at full confidence."""
        if offers(self.searched, Listed):
            return len(self.searched.models), 0  # the test allows next to none
        assert self.draws is not None
        claim = self._claim(self.draws)
        samples = self.draws.samples(self._nobody, claim)
        return samples, _most_failures(samples, claim)

    def _claim(self, method: Draws, tries: int = 1) -> Most:
        """What a test of so many tries claims, without words: nobody reads it."""
        bits = None if self.seed is None else self.seed.bits
        return Most(method.coverage, method.confidence, "", self.together, tries, bits)

    def _look_at_draws(self, method: Draws, question: Question, points: Floats) -> list[Look]:
        """How candidates do on the draws of the search: the margin that all but the bearable number of draws exceed."""
        claim = self._claim(method, question.tries)
        samples = method.samples(question, claim)
        allowed = _most_failures(samples, claim)
        if allowed < 0:  # enough for the one test of a path only, which has the whole risk
            allowed = max(0, _most_failures(samples, self._claim(method)))
        # the largest m with m + CAUTION sqrt(m) <= allowed: counts of failures have a standard deviation of about
        # sqrt(m), so that a candidate with m of them in the search seldom has more than `allowed` in the test
        bearable = int((np.sqrt(allowed + CAUTION**2 / 4) - CAUTION / 2) ** 2)
        if self._network is not None and samples <= self.allowance[0]:  # row by row: no digit depends on the others
            rows = zip(points, question.target, question.delta.tolist(), strict=True)
            kept = [self.search_models(delta).margins(point[None], target)[:samples] for point, target, delta in rows]
            least = smallest_margins([np.hstack(kept)], allowed + 1)
        else:
            stream, block = Stream(self.entropy, "generate/search"), block_size(question)
            drawn = (question.directions(stream, a, min(a + block, samples)) for a in range(0, samples, block))
            least = smallest_margins((question.margins(directions) for directions in drawn), allowed + 1)
        slacks = np.partition(least, bearable, axis=0)[bearable] - question.band
        # rounded down to multiples of a power of two, which is exact; what is negative stays so
        grid = np.exp2(np.ceil(np.log2(GRID * np.maximum(question.band, np.finfo(float).tiny))))
        slacks = np.floor(slacks / grid) * grid
        hopeful = least.max(axis=0) > question.band
        return [Look(float(slack), bool(hope)) for slack, hope in zip(slacks, hopeful, strict=True)]


def _most_failures(samples: int, claim: Most) -> int:
    return allowed_failures(samples, coverage=claim.coverage, confidence=claim.row_confidence)


def _look_at_bound(certificate: Certificate) -> Look:
    """For a method that proves, to look is to test: proofs cost no confidence."""
    bound = getattr(certificate.evidence, "bound", None)
    if certificate.is_certified:
        return Look(max(0.0, bound or 0.0), True, certificate)
    # what is not certified must have a slack below 0, also where the bound itself is 0 and the class needs more
    return Look(None if bound is None else min(bound, -np.finfo(float).tiny), False, certificate)


@dataclass(frozen=True)
class UnshiftedTest(CertifyingTest):
    """The test at delta 0: what is called certified is valid on the model itself, no more."""

    def decided(self, question: Question, stream: Stream) -> list[Certificate]:
        """Whether rows are valid beyond what rounding could do, or else in float64 and in exact arithmetic."""
        sure, slacks, net = question.valid_rows(), question.base_margins - question.band, question.network
        for i in np.flatnonzero(sure & ~(slacks > 0)).tolist():
            sign = -1  # of others nobody knows
            if net is not None and not question.single and PIECEWISE_LINEAR.issuperset(net.activations):
                tensors, wanted = (net.weights, net.biases, net.activations), int(question.wanted[i])
                sign = exact_sign(*tensors, question.X[i], wanted, net.offset)
            sure[i], slacks[i] = sign > 0 or (sign == 0 and not question.strict[i]), 0.0
        verdicts = [Verdict.CERTIFIED if ok else Verdict.REFUTED for ok in sure & ~question.doubtful_rows()]
        rows = zip(verdicts, question.target, np.nan_to_num(slacks, nan=-np.inf).tolist(), strict=True)
        claim, about = self.method.claim(question), (0.0, "model", "valid on the model itself")
        return [Certificate(claim, v, about[0], t, about[1], BoundEvidence("model", s), about[2]) for v, t, s in rows]


AHEAD = 8  # rows of each path that are tested together before it is seen whether one failed
HALVINGS = 10  # how often the way between two rows of a path is halved where that costs nothing
PROBES = 20  # a source may look at so many times as many points as it may offer
Answer = tuple[Counterfactual, Floats]  # an answer, and the numbers per cell of what was found (NaN if nothing)
_Answers = dict[tuple[int, int], Answer]  # by row and rank


@dataclass(frozen=True)
class Limits:
    """When to stop: so many counterfactuals per row, candidates for each, and a moment for all."""

    k: int
    max_candidates: int
    deadline: float


@dataclass
class RowSearch:
    """The search for one counterfactual of one row."""

    search: Search
    rank: int
    delta: float
    source: CandidateSource
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
        self.stream = self.source.candidates(self.search)

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

    def advance(self, limits: Limits) -> None:
        """Ask for the next candidate that is new, or note why there is none."""
        while True:
            if self.candidates >= limits.max_candidates or self.asked >= PROBES * limits.max_candidates:
                return self.give_up("the limit of candidates is reached")
            if time.monotonic() > limits.deadline:
                return self.give_up("time is up")
            try:
                begun = self.stream if isinstance(self.stream, Generator) and self.asked else None
                self.candidate = next(self.stream) if begun is None else begun.send(self.slack)
            except StopIteration as end:
                if time.monotonic() > limits.deadline:  # what a source gave up for that is not exhausted
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
        return self.source.ordered or self.best is None or search.cost(candidate.point) < self.best[0]

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


def run_rows(
    searches: list[Search], deltas: Floats, source: CandidateSource, test: CertifyingTest, limits: Limits, report: Any
) -> list[Answer]:
    """`limits.k` answers per search, in order; `report`, if there is one, is told how many searches have ended."""
    waiting = [RowSearch(s, 0, float(d), source) for s, d in zip(searches, deltas, strict=True)]
    done: _Answers = {}
    paths = list[RowSearch]()  # tested together once all rows have theirs: some models take long to read a table
    while waiting or paths:
        for row in waiting:
            row.advance(limits)
        going = [row for row in waiting if row.ended is None]
        paths += [row for row in going if row.candidate.path is not None]
        waiting = [row for row in waiting if row.ended is not None or row.candidate.path is None]
        _look_and_test([row for row in going if row.candidate.path is None], test)
        if all(row.ended is not None for row in waiting):
            _test_paths(paths, test)
            waiting, paths = waiting + paths, []
        still, before = [], len(done)
        for row in waiting:
            if row.ended is not None:
                done[row.search.row, row.rank] = row.answer()
            still += [row] if row.ended is None else _next_rank(row, test, limits, done)
        waiting = still
        if report is not None and len(done) > before:
            report(len(done) - before)
    return [done[s.row, rank] for s in searches for rank in range(limits.k)]


def _asked_about(rows: list[RowSearch], points: Floats | None = None) -> tuple[Floats, Array, Floats]:
    """Points (those of the candidates unless given), wanted classes and deltas."""
    targets = np.empty(len(rows), dtype=object)
    targets[:] = [row.search.target for row in rows]
    found = np.stack([row.candidate.point for row in rows]) if points is None else points
    return found, targets, np.array([row.delta for row in rows])


def _look_and_test(rows: list[RowSearch], test: CertifyingTest) -> None:
    """Look at candidates, then test those that are worth it: one batch for all rows at the same number of tests."""
    for rank in sorted({row.rank for row in rows}):
        batch = [row for row in rows if row.rank == rank]
        for row, look in zip(batch, test.look(*_asked_about(batch), rank), strict=True):
            row.slack, row.hopeful, row.certificate = look.slack, look.hopeful, look.certificate
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
        for row, certificate in zip(batch, test.certify(*_asked_about(batch), rank, number), strict=True):
            row.certificate = certificate
    for row in rows:
        if row.certificate is not None and row.certificate.is_certified:
            row.best = (row.search.cost(row.candidate.point), row.candidate.point, row.certificate)
            if row.source.ordered:
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
            going, place = _test_part(going, test, rank, place, ahead), place + ahead


def _test_part(rows: list[RowSearch], test: CertifyingTest, rank: int, place: int, ahead: int) -> list[RowSearch]:
    """Test the next rows of each path on the draws that all of it shares; which paths go on after that."""
    parts = [path[place : place + ahead] for row in rows if (path := row.candidate.path) is not None]
    owners = [row for row, part in zip(rows, parts, strict=True) for _ in part]
    points = np.concatenate(parts)
    certificates = iter(test.certify(*_asked_about(owners, points), rank, 0) if len(points) else ())
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
        certificate = test.certify(*_asked_about([row], middle[None]), 0, 0)[0]
        if not certificate.is_certified or not row.keep_if_cheaper(middle, certificate):
            failed = middle


def _next_rank(row: RowSearch, test: CertifyingTest, limits: Limits, done: _Answers) -> list[RowSearch]:
    """The search for the next counterfactual of a row; where one was not found, the further ones are not either."""
    answer, point = done[row.search.row, row.rank]
    if answer.is_found and row.rank + 1 < limits.k:
        changed = frozenset(np.flatnonzero(point != row.search.input).tolist())
        of_row = test.for_search(row.search.target, row.delta, row.rank + 1)
        search = replace(row.search, avoid=(*row.search.avoid, changed), test=of_row)
        return [RowSearch(search, row.rank + 1, row.delta, row.source)]
    for rank in range(row.rank + 1, limits.k):
        done[row.search.row, rank] = replace(answer, rank=rank, candidates=0, tests=0), point
    return []
