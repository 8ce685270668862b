"""Tests of candidates: a look that guides the search and costs nothing, and the test that certifies.

A search that may test several candidates must not certify each at full confidence: the one that passes was selected. So
every certifying test of a row draws from a stream of its own, which nothing else has looked at, and test number j may
use the part 1 / (j (j + 1)) of the risk; these parts add up to 1. Further counterfactuals of a row pay for their rank
likewise. Before that, candidates are looked at on draws of the search, as often as it likes: these certify nothing.

Rows share the draws of their j-th tests: the candidate of a row never depends on them, unless a time limit cuts its
search off after the test of another row took long.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas._random import Stream
from apas.certify.certificate import BoundEvidence, Certificate
from apas.certify.claims import Most, search_tries
from apas.certify.entry import decide
from apas.certify.problem import Method, Problem
from apas.certify.sampling import Sampling
from apas.certify.scan import block_size
from apas.counterfactuals.readmodels import ReadModels
from apas.counterfactuals.source import Task, Trial
from apas.counterfactuals.spared import differences
from apas.counterfactuals.trial import ProvedTrial, SampledTrial, least_margins
from apas.models.convert import encoded_rows
from apas.shifts.observed import ObservedShifts
from apas.shifts.protocol import ShiftSet
from apas.stats import allowed_failures, sample_size

__all__ = ["Judge", "Look"]

_Array = NDArray[np.float64]
#: So many standard deviations fewer failures than a test allows are asked of the look, so that most tests pass.
CAUTION = 2.0
#: Slacks are cut to a grid, in units of the rounding band: what a source does next must not depend on the last bits of
#: a margin, which depend on how many rows are looked at together.
GRID = 1024.0


@dataclass(frozen=True)
class Look:
    """What is seen of a candidate before it is tested.

    Attributes
    ----------
    slack : float or None
        At least 0 if it would very likely pass a test, else how far it is from that; None if unknown.
    hopeful : bool
        Whether a test is worth its price.
    answer : Certificate or None
        The answer itself, where to look is to test.
    """

    slack: float | None
    hopeful: bool
    answer: Certificate | None = None


@dataclass(frozen=True)
class Judge:
    """Looks at candidates, and tests them.

    Parameters
    ----------
    task : Task
    shifts : ShiftSet
        What is certified.
    method : Method
    entropy : int
    searched : ObservedShifts or None
        Models that exist and that the search may look at; `shifts` are then others, and a row has one test, at full
        confidence.
    """

    task: Task
    shifts: ShiftSet
    method: Method
    entropy: int
    searched: ObservedShifts | None = None

    def problem(
        self, points: _Array, targets: NDArray[Any], deltas: _Array, tries: int = 1, shifts: ShiftSet | None = None
    ) -> Problem:
        """The question about candidates, as `certify` would ask it about the same rows in raw units."""
        raw, encoded = encoded_rows(self.task.model, self.task.space.table(points))
        return Problem(self.task.model, encoded, targets, deltas, shifts or self.shifts, tries=tries, points=raw)

    def can_test(self, rank: int, number: int) -> bool:
        """Whether test number `number` of a rank could certify anything: with few draws the later ones cannot.

        Number 0 is the one test of a path; of models that exist there are enough for one test of whatever kind.
        """
        if self.searched is not None:
            return number <= 1
        if not isinstance(self.method, Sampling) or self.method.n_samples is None:
            return True
        asked = Most(self.method.coverage, self.method.confidence, "", tries=search_tries(rank, number))
        return self.method.n_samples >= sample_size(coverage=asked.coverage, confidence=asked.row_confidence)

    def looked(self, points: _Array, targets: NDArray[Any], deltas: _Array, rank: int = 0) -> list[Look]:
        """What is seen of each candidate for a rank without spending anything."""
        if self.searched is not None:
            rows = zip(points, targets, deltas, strict=True)
            slacks = [float(self.trial(target, delta).slacks(point[None])[0]) for point, target, delta in rows]
            return [Look(slack, slack >= 0) for slack in slacks]
        problem = self.problem(points, targets, deltas, tries=search_tries(rank, 1))
        if isinstance(self.method, Sampling):
            return _sampled(self.method, problem, Stream(self.entropy, "generate/search"))
        return [_proved(a) for a in decide(problem, self.method, Stream(self.entropy, "generate"))]

    def tested(
        self, points: _Array, targets: NDArray[Any], deltas: _Array, rank: int, number: int
    ) -> list[Certificate]:  # fmt: skip
        """Certificates of test number `number` for counterfactuals of a rank; number 0 is the one test of a path."""
        tries = 1 if self.searched is not None else search_tries(rank, number)
        problem = self.problem(points, targets, deltas, tries=tries)
        return decide(problem, self.method, Stream(self.entropy, f"generate/{rank}/{number}"))

    def trial(self, target: Any, delta: float, rank: int = 0) -> Trial:
        """What the search for one counterfactual of a row may ask as often as it likes."""
        if not isinstance(self.method, Sampling):
            return ProvedTrial(self, target, delta)
        samples, allowed = self.allowance
        if rank:  # its test allows fewer failures, so that the search had better aim at fewer
            claim = Most(self.method.coverage, self.method.confidence, "", tries=search_tries(rank, 0))
            fewer = allowed_failures(samples, coverage=claim.coverage, confidence=claim.row_confidence)
            allowed = max(0, fewer)
        fixed = self.differences if delta == 1 else None
        read = self.read_models if delta == 1 and fixed is None else None
        return SampledTrial(self, target, delta, samples, allowed, fixed, fixed is not None, read)

    @cached_property
    def differences(self) -> _Array | None:
        """How the models of the search differ from the model, if they can be had by shifting it."""
        return None if self.searched is None else differences(self.searched, self.task.model)

    @cached_property
    def read_models(self) -> ReadModels | None:
        """The models of the search, where it is known what each feature adds to their columns."""
        return None if self.searched is None else ReadModels.of(self.searched, self.task)

    @cached_property
    def allowance(self) -> tuple[int, int]:
        """How many draws the search looks at, and how many of them may fail: those of a test at full confidence."""
        assert isinstance(self.method, Sampling)
        if self.searched is not None:
            return len(self.searched), 0  # the test allows next to none
        problem = Problem(self.task.model, np.empty((0, self.task.model.n_features)), np.empty(0, dtype=object),
                          np.empty(0), self.shifts)  # fmt: skip
        claim = Most(self.method.coverage, self.method.confidence, "")
        samples = self.method.samples(problem, claim)
        return samples, allowed_failures(samples, coverage=claim.coverage, confidence=claim.row_confidence)


def _proved(answer: Certificate) -> Look:
    bound = answer.evidence.bound if isinstance(answer.evidence, BoundEvidence) else None
    if answer.is_certified:
        return Look(max(0.0, bound or 0.0), True, answer)
    return Look(None if bound is None else min(bound, -np.finfo(float).tiny), False, answer)


def _sampled(method: Sampling, problem: Problem, stream: Stream) -> list[Look]:
    """How the candidates do on the draws of the search: the margin that all but the bearable number of draws exceed."""
    claim = Most(method.coverage, method.confidence, "", problem.claim_rows, problem.tries)  # in words for nobody
    samples = method.samples(problem, claim)
    allowed = allowed_failures(samples, coverage=claim.coverage, confidence=claim.row_confidence)
    if allowed < 0:  # enough for the one test of a path only, which has the whole risk
        allowed = allowed_failures(samples, coverage=claim.coverage, confidence=claim.confidence)
    bearable = int((np.sqrt(allowed + CAUTION**2 / 4) - CAUTION / 2) ** 2)
    block = block_size(problem)
    drawn = (problem.directions(stream, a, min(a + block, samples)) for a in range(0, samples, block))
    least = least_margins((problem.margins(directions) for directions in drawn), allowed + 1)
    slacks = _cut(np.partition(least, bearable, axis=0)[bearable] - problem.band, problem.band)
    hopeful = least.max(axis=0) > problem.band
    return [Look(float(slack), bool(hope)) for slack, hope in zip(slacks, hopeful, strict=True)]


def _cut(slacks: _Array, band: _Array) -> _Array:
    """Slacks without their last digits; what is negative stays so.

    Examples
    --------
    >>> _cut(np.array([0.3, 0.3 + 2e-16, -1e-14]), np.full(3, 1e-12))[:2].round(9)
    array([0.3, 0.3])
    """
    grid = np.exp2(np.ceil(np.log2(GRID * np.maximum(band, np.finfo(float).tiny))))
    return np.asarray(np.floor(slacks / grid) * grid)
