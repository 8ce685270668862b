"""Tests of candidates: a look that guides the search, and the test that certifies.

A search that may test several candidates must not certify each at full confidence: the one that passes was selected. So
every certifying test of a row draws from a stream of its own, which nothing else has looked at, and test number j may
use the part 1 / (j (j + 1)) of the risk; these parts add up to 1. Further counterfactuals of a row pay for their rank
likewise. Before that, candidates are looked at on draws of the search, as often as it likes: these certify nothing.

Rows share the draws of their j-th tests: the candidate of a row never depends on them, unless a time limit cuts its
search off after the test of another row took long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from apas._random import Stream
from apas._typing import Array, Floats
from apas.certification.certificate import BoundEvidence, Certificate
from apas.certification.claims import Most, search_tries
from apas.certification.methods.sampling import block_size
from apas.certification.question import Draws, Method, Question, decide
from apas.counterfactuals.search.observed_split import AdditiveModels, differences
from apas.counterfactuals.search.source import SearchTest, Task
from apas.models.base import offers
from apas.models.convert import encoded_rows
from apas.shifts.base import Listed, OnPoints, ShiftSet
from apas.shifts.linf import LinfShifts
from apas.stats import allowed_failures, sample_size

#: How many of the draws that do worst at a point are kept to look at points near it.
KEPT = 800
#: So many numbers of draws are kept for all rows of a call; more are drawn again each time.
HELD = 5_000_000
#: Fewer draws than this leave the worst shift of all much worse than the worst that was drawn.
FEW = 1000
#: Points that are looked at together.
TOGETHER = 256
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

    def slacks(self, points: Floats) -> Floats:
        """Proved bounds on the margin, 0 or more where the claim is certified."""
        return self._bounds(points) - self.demand

    def _bounds(self, points: Floats) -> Floats:
        looks = self.test.look(points, *_repeated(self.target, self.delta, len(points)))
        return np.array([np.nan if look.slack is None else look.slack for look in looks])

    def slopes(self, point: Floats, others: Floats) -> Floats:
        """Differences of the bounds."""
        found = self._bounds(np.vstack([point[None], others]))
        return np.asarray(np.nan_to_num(found[1:] - found[0]))

    def near(self, point: Floats) -> BoundSearchTest:
        """Itself: a bound costs the same everywhere."""
        return self

    def demanding(self, more: float) -> BoundSearchTest:
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
    directions: Floats | None = None
    fixed: bool = False
    models: AdditiveModels | None = None
    demand: float = 0.0

    @property
    def few(self) -> bool:
        """Whether there are fewer draws than tell the share that fails to within a third of a percent."""
        return self.samples < FEW

    def slacks(self, points: Floats) -> Floats:
        """The margin that all but `rank` draws exceed."""
        found = [np.empty(0)]
        for start in range(0, len(points), TOGETHER):
            margins, band = self._margins_and_band(points[start : start + TOGETHER])
            found.append(least_margins(margins, self.rank + 1).max(axis=0) - band)
        return np.concatenate(found) - self.demand

    def _margins_and_band(self, points: Floats) -> tuple[Iterator[Floats], Floats]:
        """Margins on all draws, block by block, and below which margin a sign may be owed to rounding."""
        if self.models is not None:
            return iter([self.models.margins(points, self.target)]), np.zeros(len(points))
        question = self._question(points)
        return (self._margins(question, directions) for directions in self._blocks(question)), question.band

    def slopes(self, point: Floats, others: Floats) -> Floats:
        """Mean over the draws whose margins are next to the slack: one draw alone would lead astray."""
        margins = np.concatenate(list(self._margins_and_band(np.vstack([point[None], others]))[0]))
        order = np.argsort(margins[:, 0])
        width = max(3, self.rank // 2)
        ranks = order[max(0, self.rank - width) : self.rank + width + 1]
        return np.asarray(np.nan_to_num(margins[ranks, 1:] - margins[ranks, :1]).mean(axis=0))

    def near(self, point: Floats) -> DrawnSearchTest:
        """The draws that do worst at `point`."""
        keep = max(KEPT, 8 * (self.rank + 1))
        if self.samples <= keep or self.models is not None:
            return self
        question = self._question(point[None])
        blocks = [(block, self._margins(question, block)[:, 0]) for block in self._blocks(question)]
        margins = np.nan_to_num(np.concatenate([m for _, m in blocks]), nan=-np.inf)
        worst = np.zeros(len(margins), dtype=bool)
        worst[np.argpartition(margins, keep)[:keep]] = True
        ends = np.cumsum([0, *(len(m) for _, m in blocks)])
        kept = [block[worst[a : a + len(block)]] for (block, _), a in zip(blocks, ends[:-1], strict=True)]
        return replace(self, directions=np.concatenate(kept))

    def demanding(self, more: float) -> DrawnSearchTest:
        """The same test, which asks for some slack more."""
        return replace(self, demand=more)

    def _margins(self, question: Question, directions: Floats) -> Floats:
        if self.fixed:
            return question.model.shifted_margins(question.X, self.target, directions, 1.0)
        return question.margins(directions)

    def _question(self, points: Floats) -> Question:
        labels, deltas = _repeated(self.target, self.delta, len(points))
        if not self.fixed and (self.test.searched is not None or offers(self.test.shifts, OnPoints)):
            return self.test.question(points, labels, deltas, shifts=self.test.searched)
        task = self.test.task  # without a detour through data frames, which costs more than the margins
        shifts = LinfShifts() if self.fixed else self.test.shifts
        return Question(task.model, task.encoded(points), labels, deltas, shifts)

    def _blocks(self, question: Question) -> Iterable[Floats]:
        if self.directions is not None:
            return [self.directions]
        if self.test.searched is None and self.samples * len(question.coordinates) <= HELD:
            return self.test.task.once("search draws", lambda: list(self._drawn(question)))
        return self._drawn(question)

    def _drawn(self, question: Question) -> Iterator[Floats]:
        stream, block = Stream(self.test.entropy, "generate/search"), block_size(question)
        for start in range(0, self.samples, block):
            yield question.directions(stream, start, min(start + block, self.samples)).copy()


def least_margins(blocks: Iterable[Floats], count: int) -> Floats:
    """The least margins of each row over all blocks of draws, shape (count, rows); NaN is least of all."""
    least: Floats | None = None
    for margins in blocks:
        margins = np.nan_to_num(margins, nan=-np.inf)
        least = np.full((count, margins.shape[1]), np.inf) if least is None else least
        least = np.partition(np.concatenate([least, margins]), count - 1, axis=0)[:count]
    return np.empty((count, 0)) if least is None else least


def _repeated(target: Any, delta: float, count: int) -> tuple[Array, Floats]:
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

    @cached_property
    def draws(self) -> Draws | None:
        """The method as one that draws, or None if it proves its claim."""
        return self.method if offers(self.method, Draws) else None

    def question(
        self, points: Floats, targets: Array, deltas: Floats, tries: int = 1, shifts: ShiftSet | None = None
    ) -> Question:
        """The question about candidates, as `certify` would ask it about the same rows in raw units."""
        raw, encoded = encoded_rows(self.task.model, self.task.space.table(points))
        return Question(self.task.model, encoded, targets, deltas, shifts or self.shifts, tries=tries, points=raw)

    def can_test(self, rank: int, number: int) -> bool:
        """Whether test number `number` of a rank could certify anything: with few draws the later ones cannot.

        Number 0 is the one test of a path; of listed models there are enough for one test of whatever kind.
        """
        if self.searched is not None:
            return number <= 1
        if self.draws is None or self.draws.n_samples is None:
            return True
        claim = self._claim(self.draws, search_tries(rank, number))
        return self.draws.n_samples >= sample_size(coverage=claim.coverage, confidence=claim.row_confidence)

    def look(self, points: Floats, targets: Array, deltas: Floats, rank: int = 0) -> list[Look]:
        """What is seen of each candidate for a rank without spending anything."""
        if self.searched is not None:
            rows = zip(points, targets, deltas, strict=True)
            slacks = [float(self.for_search(target, delta).slacks(point[None])[0]) for point, target, delta in rows]
            return [Look(slack, slack >= 0) for slack in slacks]
        question = self.question(points, targets, deltas, tries=search_tries(rank, 1))
        if self.draws is not None:
            return self._look_at_draws(self.draws, question)
        return [_look_at_bound(c) for c in decide(question, self.method, Stream(self.entropy, "generate"))]

    def certify(self, points: Floats, targets: Array, deltas: Floats, rank: int, number: int) -> list[Certificate]:
        """Certificates of test number `number` for counterfactuals of a rank; number 0 is the one test of a path."""
        # listed models certify one candidate of a row once, so that there is nothing to divide the risk among
        tries = 1 if self.searched is not None else search_tries(rank, number)
        question = self.question(points, targets, deltas, tries=tries)
        return decide(question, self.method, Stream(self.entropy, f"generate/{rank}/{number}"))

    def for_search(self, target: Any, delta: float, rank: int = 0) -> SearchTest:
        """What the search for one counterfactual of a row may ask as often as it likes."""
        if self.draws is None:
            return BoundSearchTest(self, target, delta)
        samples, allowed = self.allowance
        if rank:  # its test allows fewer failures, so that the search had better aim at fewer
            allowed = max(0, _allowed(samples, self._claim(self.draws, search_tries(rank, 0))))
        changes = self.changes if delta == 1 else None
        models = self.additive_models if delta == 1 and changes is None else None
        return DrawnSearchTest(self, target, delta, samples, allowed, changes, changes is not None, models)

    @cached_property
    def changes(self) -> Floats | None:
        """How the models of the search differ from the model, if they can be had by shifting it."""
        return None if self.searched is None else differences(self.searched, self.task.model)

    @cached_property
    def additive_models(self) -> AdditiveModels | None:
        """The models of the search, where it is known what each feature adds to their columns."""
        return None if self.searched is None else AdditiveModels.of(self.searched, self.task)

    @cached_property
    def allowance(self) -> tuple[int, int]:
        """How many draws the search looks at, and how many of them may fail: those of a test at full confidence."""
        if offers(self.searched, Listed):
            return len(self.searched.models), 0  # the test allows next to none
        assert self.draws is not None
        model, claim = self.task.model, self._claim(self.draws)
        nobody = np.empty(0, dtype=object)
        samples = self.draws.samples(
            Question(model, np.empty((0, model.n_features)), nobody, np.empty(0), self.shifts), claim
        )
        return samples, _allowed(samples, claim)

    def _claim(self, method: Draws, tries: int = 1) -> Most:
        """What a test of so many tries claims, without words: nobody reads it."""
        return Most(method.coverage, method.confidence, "", tries=tries)

    def _look_at_draws(self, method: Draws, question: Question) -> list[Look]:
        """How candidates do on the draws of the search: the margin that all but the bearable number of draws exceed."""
        claim, stream = self._claim(method, question.tries), Stream(self.entropy, "generate/search")
        samples = method.samples(question, claim)
        allowed = _allowed(samples, claim)
        if allowed < 0:  # enough for the one test of a path only, which has the whole risk
            allowed = allowed_failures(samples, coverage=claim.coverage, confidence=claim.confidence)
        # the largest m with m + CAUTION sqrt(m) <= allowed: counts of failures have a standard deviation of about
        # sqrt(m), so that a candidate with m of them in the search seldom has more than `allowed` in the test
        bearable = int((np.sqrt(allowed + CAUTION**2 / 4) - CAUTION / 2) ** 2)
        block = block_size(question)
        drawn = (question.directions(stream, a, min(a + block, samples)) for a in range(0, samples, block))
        least = least_margins((question.margins(directions) for directions in drawn), allowed + 1)
        slacks = _on_grid(np.partition(least, bearable, axis=0)[bearable] - question.band, question.band)
        hopeful = least.max(axis=0) > question.band
        return [Look(float(slack), bool(hope)) for slack, hope in zip(slacks, hopeful, strict=True)]


def _allowed(samples: int, claim: Most) -> int:
    return allowed_failures(samples, coverage=claim.coverage, confidence=claim.row_confidence)


def _look_at_bound(certificate: Certificate) -> Look:
    """For a method that proves, to look is to test: proofs cost no confidence."""
    bound = certificate.evidence.bound if isinstance(certificate.evidence, BoundEvidence) else None
    if certificate.is_certified:
        return Look(max(0.0, bound or 0.0), True, certificate)
    # what is not certified must have a slack below 0, also where the bound itself is 0 and the class needs more
    return Look(None if bound is None else min(bound, -np.finfo(float).tiny), False, certificate)


def _on_grid(slacks: Floats, band: Floats) -> Floats:
    """Slacks rounded down to multiples of a power of two, which is exact; what is negative stays so."""
    grid = np.exp2(np.ceil(np.log2(GRID * np.maximum(band, np.finfo(float).tiny))))
    return np.asarray(np.floor(slacks / grid) * grid)
