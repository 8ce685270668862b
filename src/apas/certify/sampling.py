"""Certificates from random shifts: Lemma 4 of the paper, with a number of allowed failures.

If at most ``c`` of ``n`` independent shifts fail, where ``P(Binomial(n, 1 - coverage) <= c) <= 1 - confidence``, then
at least a share ``coverage`` of all shifts is valid, with that confidence: were it less, so few failures would have
had probability at most ``1 - confidence``. In the same way ``r`` or more failures refute the claim, where ``r`` is the
least number with ``P(Binomial(n, 1 - coverage) >= r) <= 1 - confidence``. ``n`` is fixed before drawing; a row stops
being drawn for at its ``r``-th failure, and its counts end at that very draw.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas._random import Stream
from apas._validation import check_integer, check_probability
from apas.certify.certificate import Certificate
from apas.certify.claims import Most, Verdict
from apas.certify.listed import models_used, too_few_models
from apas.certify.problem import Problem
from apas.certify.scan import first_failures
from apas.certify.witness import DrawnShift
from apas.errors import InputError
from apas.shifts.observed import ObservedShifts
from apas.stats import allowed_failures, coverage_lower, coverage_upper, refuting_failures, sample_size

__all__ = ["Sampling", "SamplingEvidence"]

#: A row whose margins lie within rounding of 0 is given up at this many times the failures that would refute.
DOUBT = 10


@dataclass(frozen=True)
class SamplingEvidence:
    """Counts of a sampling test, and the random stream to go through it again.

    Attributes
    ----------
    entropy : int
        Together with `purpose` the stream that the shifts were drawn from.
    purpose : str
    samples : int
        How many draws were planned.
    allowed, refuting : int
        At most `allowed` failures certify, `refuting` failures refute.
    draws : int
        How many draws count: `samples`, or up to and including failure number `refuting` beyond rounding.
    failures : int
        How many of them failed, margins within rounding of 0 included.
    doubtful : int
        How many of the failures are within rounding of 0; these never refute.
    first_failure : int or None
        Number of the first draw that failed beyond rounding.
    """

    entropy: int
    purpose: str
    samples: int
    allowed: int
    refuting: int
    draws: int
    failures: int
    doubtful: int
    first_failure: int | None

    @property
    def stopped(self) -> bool:
        """Whether the run ended at a failure rather than after all planned draws."""
        return self.failures - self.doubtful == self.refuting or self.failures == DOUBT * self.refuting

    def coverage_lower(self, confidence: float) -> float:
        """One-sided lower bound on the share of valid shifts, at `confidence`; doubtful draws count as failures."""
        if self.doubtful and self.stopped:  # such a run's length depends on both kinds of draws: no simple bound
            return 0.0
        return coverage_lower(self.draws, self.failures, confidence=confidence, stopped=self.stopped)

    def coverage_upper(self, confidence: float) -> float:
        """One-sided upper bound on the share of valid shifts, at `confidence`; doubtful draws count as valid."""
        if self.doubtful:
            sure = self.failures - self.doubtful
            return 1.0 if self.stopped else coverage_upper(self.draws, sure, confidence=confidence)
        return coverage_upper(self.draws, self.failures, confidence=confidence, stopped=self.stopped)

    def to_dict(self) -> dict[str, Any]:
        """The evidence as JSON values; the entropy as hexadecimal text, since it exceeds what JSON readers keep."""
        return {
            "kind": "sampling", "entropy": hex(self.entropy), "purpose": self.purpose, "samples": self.samples,
            "allowed": self.allowed, "refuting": self.refuting, "draws": self.draws, "failures": self.failures,
            "doubtful": self.doubtful, "first_failure": self.first_failure,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Decide `Most` by drawing shifts and counting those on which the row is not valid.

    Parameters
    ----------
    coverage : float, default 0.995
        The share of shifts that must keep the class (the paper's R).
    confidence : float, default 0.999
        The paper's alpha.
    n_samples : int, optional
        How many shifts to draw. Unless given, as many as the claim needs, and up to 20,000 while they are cheap:
        more draws than needed allow some failures, which makes the test tighter, not the claim weaker. Of models that
        exist (`ObservedShifts`) all are used, each once.

    Notes
    -----
    What voids the guarantee: choosing the row, delta or the number of draws by looking at these very draws. Repeating a
    call with new seeds until it certifies is such a choice.

    Examples
    --------
    >>> Sampling(coverage=0.9, confidence=0.9).n_samples is None
    True
    """

    coverage: float = 0.995
    confidence: float = 0.999
    n_samples: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "coverage", check_probability(self.coverage, "coverage", "Sampling"))
        object.__setattr__(self, "confidence", check_probability(self.confidence, "confidence", "Sampling"))
        if self.n_samples is not None:
            object.__setattr__(self, "n_samples", check_integer(self.n_samples, "n_samples", "Sampling", least=1))

    def claim(self, problem: Problem) -> Most:
        """What the method will speak about."""
        return Most(self.coverage, self.confidence, problem.measure, problem.claim_rows, problem.tries)

    def unsupported(self, problem: Problem) -> str | None:
        """None: sampling works on every model and shift set."""
        return None

    def run(self, problem: Problem, stream: Stream) -> list[Certificate]:
        """Draw, count, decide: one certificate per row."""
        claim = self.claim(problem)
        samples, allowed, refuting = self.plan(problem, claim)
        found = first_failures(problem, stream, samples, DOUBT * refuting, refuting)
        clean = SamplingEvidence(stream.entropy, stream.purpose, samples, allowed, refuting, samples, 0, 0, None)
        return [
            self._certificate(problem, i, claim, _with_failures(clean, *found.of(i)) if found.any(i) else clean)
            for i in range(len(problem))
        ]

    def samples(self, problem: Problem, claim: Most) -> int:
        """How many draws to make; whether they are enough for the claim is not asked."""
        if isinstance(problem.shifts, ObservedShifts):
            return models_used(problem.shifts, self.n_samples)
        if self.n_samples is not None:
            return self.n_samples
        cheap = min(20_000, 10**8 // max(1, int(np.count_nonzero(problem.radii))))
        return max(sample_size(coverage=claim.coverage, confidence=claim.row_confidence), cheap)

    def plan(self, problem: Problem, claim: Most) -> tuple[int, int, int]:
        """How many draws, how many failures certify at most, how many refute at least."""
        coverage, confidence = claim.coverage, claim.row_confidence
        samples = self.samples(problem, claim)
        allowed = allowed_failures(samples, coverage=coverage, confidence=confidence)
        if allowed < 0 and isinstance(problem.shifts, ObservedShifts) and samples == len(problem.shifts):
            raise InputError(too_few_models(claim, samples))
        if allowed < 0:
            needed = sample_size(coverage=coverage, confidence=confidence)
            together = f" for {claim.rows} rows together" if claim.rows > 1 else ""
            raise InputError(
                f"`n_samples` of Sampling must be at least {needed} for coverage {coverage} with confidence "
                f"{claim.confidence}{together}, got {samples}; draw more, or leave it out."
            )
        # below a confidence of one half both could apply; a run that may still certify must not be stopped
        refuting = refuting_failures(samples, coverage=coverage, confidence=confidence)
        return samples, allowed, max(refuting, allowed + 1)

    def _certificate(self, problem: Problem, i: int, claim: Most, evidence: SamplingEvidence) -> Certificate:
        verdict = Verdict.UNKNOWN
        if evidence.failures <= evidence.allowed:
            verdict = Verdict.CERTIFIED
        elif evidence.failures - evidence.doubtful >= evidence.refuting:
            verdict = Verdict.REFUTED
        delta = float(problem.delta[i])
        witness = None
        if evidence.first_failure is not None:
            witness = DrawnShift(problem.shifts, delta, evidence.entropy, evidence.purpose, evidence.first_failure)
        return Certificate(
            claim,
            verdict,
            delta,
            problem.target[i],
            "sampling",
            evidence,
            _reason(verdict, evidence),
            witness,
        )


def _with_failures(clean: SamplingEvidence, failing: NDArray[np.int64], sure: NDArray[np.bool_]) -> SamplingEvidence:
    """The evidence of a run without failures, corrected for the failing draws of a row."""
    ended = (np.cumsum(sure) == clean.refuting) | (np.arange(1, len(sure) + 1) == DOUBT * clean.refuting)
    if ended.any():
        last = int(ended.argmax()) + 1
        failing, sure = failing[:last], sure[:last]
    return replace(
        clean,
        draws=int(failing[-1]) + 1 if ended.any() else clean.samples,
        failures=len(failing),
        doubtful=int(np.count_nonzero(~sure)),
        first_failure=int(failing[sure][0]) if sure.any() else None,
    )


def _reason(verdict: Verdict, evidence: SamplingEvidence) -> str:
    counts = f"{evidence.failures} of {evidence.draws} draws failed"
    if verdict is Verdict.CERTIFIED:
        return f"{counts}, at most {evidence.allowed} may"
    if verdict is Verdict.REFUTED:
        return f"{counts}, {evidence.refuting} are too many"
    if evidence.doubtful:
        return f"{counts}, {evidence.doubtful} of them within rounding of the boundary, where nothing can be decided"
    return f"{counts}: more than the {evidence.allowed} that certify, fewer than the {evidence.refuting} that refute"
