"""`Sampling`: certificates from random shifts (Lemma 4 of the paper), with a number of allowed failures.

If at most ``c`` of ``n`` independent shifts fail, where ``P(Binomial(n, 1 - coverage) <= c) <= 1 - confidence``, then
at least a share ``coverage`` of all shifts is valid, with that confidence: were it less, so few failures would have
had probability at most ``1 - confidence``. In the same way ``r`` or more failures refute the claim, where ``r`` is the
least number with ``P(Binomial(n, 1 - coverage) >= r) <= 1 - confidence``. ``n`` is fixed before drawing; a row stops
being drawn for at its ``r``-th failure, and its counts end at that very draw.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from apas._fields import Fields
from apas._parallel import in_parallel, ranges
from apas._random import Stream
from apas._typing import Bools, Floats, Indices, Integers
from apas._validation import check_integer, check_probability
from apas.certification.certificate import BoundEvidence, Certificate, DrawnShift
from apas.certification.claims import Every, Most, Verdict
from apas.certification.question import Question
from apas.display.numbers import at_least
from apas.display.progress import Progress
from apas.errors import GuaranteeWarning, InputError
from apas.models.base import Described, Model, offers
from apas.models.convert import encoded_rows
from apas.shifts.base import ShiftSet
from apas.shifts.observed import ObservedShifts
from apas.stats import allowed_failures, coverage_lower, coverage_upper, refuting_failures, sample_size

#: How many random numbers are held at a time.
NUMBERS = 1 << 17
#: How many draws and rows are looked at together at most.
DRAWS, ROWS = 2048, 4096
#: With more rows than this, fewer draws at a time keep the intermediate results in the processor's cache.
FEW_ROWS, DRAWS_MANY_ROWS = 8, 256
#: Blocks start at multiples of this, where whole groups of directions are drawn at once.
ALIGN = 128
# glibc gives the memory of a block back to the system as soon as it is freed, and taking it again costs more than the
# arithmetic. It stops doing so for sizes that it has seen freed before: let it see one, of which no page is touched.
np.empty(1 << 20)


@dataclass(frozen=True)
class Failures:
    """The first failing draws of each row."""

    draws: Integers
    sure: Bools
    starts: Indices

    def any(self, row: int) -> bool:
        """Whether the row has any failing draw."""
        return bool(self.starts[row] < self.starts[row + 1])

    def of(self, row: int) -> tuple[Integers, Bools]:
        """Failing draws of one row and whether they are sure."""
        part = slice(self.starts[row], self.starts[row + 1])
        return self.draws[part], self.sure[part]


def first_failures(question: Question, stream: Stream, samples: int, limit: int, sure_limit: int) -> Failures:
    """The first failing draws of each row among draws number 0 to `samples`.

    At least up to the one that makes `limit` failures, or `sure_limit` beyond rounding of 0, and at most `limit`.

    Block sizes, the other rows and the number of workers do not change the answer: a draw is a pure function of its
    number, and a margin within rounding of 0 counts as failing whatever its sign.
    """
    block = block_size(question)
    with Progress(samples, "drawing shifted models") as progress:
        if question.n_jobs == 1 or samples <= block:
            parts = [_scan(question, stream, 0, samples, (limit, sure_limit), block, progress)]
        else:
            parts, cuts = [], ranges(samples, block, question.n_jobs)
            jobs = ((question, stream, a, b, (limit, sure_limit), block, None) for a, b in cuts)
            for (a, b), part in zip(cuts, in_parallel(_scan, jobs, question.n_jobs), strict=True):
                parts.append(part)
                progress.advance(b - a)
    rows, draws, sure = join(parts)
    if not len(rows):
        return Failures(draws, sure, np.zeros(len(question) + 1, dtype=np.intp))
    order = np.lexsort((draws, rows))
    rows, draws, sure = rows[order], draws[order], sure[order]
    starts = np.searchsorted(rows, np.arange(len(question) + 1))
    keep = np.arange(len(rows)) - starts[rows] < limit
    return Failures(draws[keep], sure[keep], np.searchsorted(rows[keep], np.arange(len(question) + 1)))


def block_size(question: Question) -> int:
    """How many draws to look at together: few enough to bound the memory, enough to be fast."""
    fits = NUMBERS // max(1, len(question.coordinates))
    most = DRAWS if len(question) <= FEW_ROWS else DRAWS_MANY_ROWS
    return min(most, fits // ALIGN * ALIGN) if fits >= ALIGN else max(1, fits)


_Part = tuple[Indices, Integers, Bools]


def _scan(
    question: Question,
    stream: Stream,
    start: int,
    stop: int,
    limits: tuple[int, int],
    block: int,
    progress: Progress | None,
) -> _Part:
    failed = np.zeros((2, len(question)), dtype=np.int64)  # all failures, and those beyond rounding
    active = np.arange(len(question))
    found: list[_Part] = [_NOTHING]
    for begin in range(start, stop, block):
        end = min(begin + block, stop)
        # a whole group of directions costs no more than a part of it, and needs no copy
        whole = -(-end // ALIGN) * ALIGN if block >= ALIGN else end
        directions = question.directions(stream, begin, whole)
        for chunk in range(0, len(active), ROWS):
            rows = active[chunk : chunk + ROWS]
            column, sample, sure = _failing(question, rows, directions, end - begin)
            if len(column):
                found.append((rows[column], begin + sample, sure))
                failed[0] += np.bincount(rows[column], minlength=len(question))
                failed[1] += np.bincount(rows[column[sure]], minlength=len(question))
        if len(found) > 1:
            active = active[(failed[0, active] < limits[0]) & (failed[1, active] < limits[1])]
            if not len(active):
                break
        if progress is not None:
            progress.advance(end - begin)
    return join(found)


def join(parts: list[_Part]) -> _Part:
    """The entries of several scans, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]


def _failing(question: Question, rows: Indices, directions: Floats, count: int) -> _Part:
    """Row and sample of each margin that is not clearly positive, and whether it is clearly not.

    Only the first `count` directions are asked about.
    """
    some = slice(None) if len(rows) == len(question) else rows
    band, margins = question.band[some], question.margins(directions, some)[:count]
    good = margins > band  # written so that a NaN fails
    if good.all():
        return _NOTHING
    sample, column = np.nonzero(~good)
    return column, sample, ~(margins[sample, column] >= -band[column])


_NOTHING: _Part = (np.empty(0, dtype=np.intp), np.empty(0, dtype=np.int64), np.empty(0, dtype=bool))


def default_delta(shifts: ShiftSet, delta: Any) -> Any:
    """The delta of models that exist is 1 unless given; of other sets there is no default."""
    return 1.0 if delta is None and isinstance(shifts, ObservedShifts) else delta


def models_used(shifts: ObservedShifts, asked: int | None) -> int:
    """How many of the models `Sampling` takes: all, or as many as it was told to."""
    if asked is not None and asked > len(shifts):
        raise InputError(
            f"`n_samples` of Sampling must be at most {len(shifts)}, as ObservedShifts has models, got {asked}; none "
            "is used twice, so leave it out, or retrain more."
        )
    return len(shifts) if asked is None else asked


def too_few_models(claim: Most, models: int) -> str:
    """The error a user reads, with the confidence that so many models reach."""
    needed = sample_size(coverage=claim.coverage, confidence=claim.row_confidence)
    together = f" for {claim.rows} rows together" if claim.rows > 1 else ""
    risk = claim.rows * Fraction(repr(claim.coverage)) ** models
    # rounded down, so that the confidence as printed is reached
    reached = Fraction(int((1 - risk) * 10_000), 10_000)
    reach = f"{models} reach a confidence of {float(reached):g}{together}" if reached > 0 else "they reach none"
    return (
        f"`models` of ObservedShifts must number at least {needed} for coverage {claim.coverage} with confidence "
        f"{claim.confidence}{together}, got {models}; {reach}, so retrain more or ask Sampling for less."
    )


def check_models(shifts: ObservedShifts, model: Model, points: Any) -> Iterator[tuple[Model, Floats, str]]:
    """Each listed model, the rows as it reads them, and what to call it; warn of another threshold than the model's."""
    warned = False
    for number, other in enumerate(shifts.models):
        name = f"`models[{number}]` of ObservedShifts"
        ours, theirs = (m.describe().get("threshold") if offers(m, Described) else None for m in (model, other))
        if None not in (ours, theirs) and ours != theirs and not warned:
            warned = True
            warnings.warn(
                f"{name} gives its second class from {theirs:g} on, but the model itself from {ours:g} on; the claim "
                "is about models with thresholds of their own.",
                GuaranteeWarning,
                stacklevel=4,
            )
        try:
            yield other, encoded_rows(other, points)[1], name
        except InputError as error:
            raise InputError(f"{name} cannot read the rows: {error}") from error


def decided_one_by_one(question: Question, method: str) -> list[Certificate]:
    """Ask every listed model: one certificate per row about all of them."""
    shifts = question.shifts
    assert isinstance(shifts, ObservedShifts)
    claim = Every(question.region, question.claim_rows)
    nowhere = Stream(0, "listed")  # nothing is drawn
    least, doubtful = np.full(len(question), np.inf), np.zeros(len(question), dtype=bool)
    broken = np.full(len(question), -1)
    for begin in range(0, len(shifts), block_size(question)):
        margins = question.margins(question.directions(nowhere, begin, begin + block_size(question)))
        fails = ~(margins >= -question.band)  # written so that a NaN fails
        first = np.where(fails.any(axis=0) & (broken < 0), begin + fails.argmax(axis=0), -1)
        broken = np.where(broken < 0, first, broken)
        doubtful |= (~fails & ~(margins > question.band)).any(axis=0)
        least = np.minimum(least, (margins - question.band).min(axis=0))
    answers = []
    for i, number in enumerate(broken.tolist()):
        delta, witness, bound = float(question.delta[i]), None, None
        if number >= 0:
            verdict, reason = Verdict.REFUTED, f"model number {number} does not keep it"
            witness = DrawnShift(shifts, delta, nowhere.entropy, nowhere.purpose, number)
        elif doubtful[i]:
            verdict, reason = Verdict.UNKNOWN, "on some model it is within rounding of the boundary"
        else:
            written = at_least(float(least[i]))
            verdict, bound = Verdict.CERTIFIED, float(written)
            asked = f"each of the {len(shifts)}" if len(shifts) > 1 else "it"
            reason = f"{asked} was asked, and the least margin is {written}"
        evidence = BoundEvidence("models", bound, len(shifts), exact=bound is not None)
        answers.append(Certificate(claim, verdict, delta, question.target[i], method, evidence, reason, witness))
    return answers


#: A row whose margins lie within rounding of 0 is given up at this many times the failures that would refute.
DOUBT = 10


@dataclass(frozen=True)
class SamplingEvidence:
    """Integers of a sampling test, and the random stream to go through it again.

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
    kind: ClassVar[str] = "sampling"

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
        return {"kind": self.kind, **vars(self), "entropy": hex(self.entropy)}

    @classmethod
    def from_dict(cls, about: Fields) -> SamplingEvidence:
        """The evidence that a file describes."""
        counts = ("samples", "allowed", "refuting", "draws", "failures", "doubtful")
        about.only("kind", "entropy", "purpose", *counts, "first_failure")
        first = None if about.is_null("first_failure") else about.integer("first_failure")
        numbers = {key: about.integer(key) for key in counts}
        return cls(about.entropy("entropy"), about.text("purpose"), **numbers, first_failure=first)


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

    def claim(self, question: Question) -> Most:
        """What the method will speak about."""
        return Most(self.coverage, self.confidence, question.measure, question.claim_rows, question.tries)

    def unsupported(self, question: Question) -> str | None:
        """None: sampling works on every model and shift set."""
        return None

    def run(self, question: Question, stream: Stream) -> list[Certificate]:
        """Draw, count, decide: one certificate per row."""
        claim = self.claim(question)
        samples, allowed, refuting = self.plan(question, claim)
        found = first_failures(question, stream, samples, DOUBT * refuting, refuting)
        clean = SamplingEvidence(stream.entropy, stream.purpose, samples, allowed, refuting, samples, 0, 0, None)
        return [
            self._certificate(question, i, claim, _with_failures(clean, *found.of(i)) if found.any(i) else clean)
            for i in range(len(question))
        ]

    def samples(self, question: Question, claim: Most) -> int:
        """How many draws to make; whether they are enough for the claim is not asked."""
        if isinstance(question.shifts, ObservedShifts):
            return models_used(question.shifts, self.n_samples)
        if self.n_samples is not None:
            return self.n_samples
        cheap = min(20_000, 10**8 // max(1, int(np.count_nonzero(question.radii))))
        return max(sample_size(coverage=claim.coverage, confidence=claim.row_confidence), cheap)

    def plan(self, question: Question, claim: Most) -> tuple[int, int, int]:
        """How many draws, how many failures certify at most, how many refute at least."""
        coverage, confidence = claim.coverage, claim.row_confidence
        samples = self.samples(question, claim)
        allowed = allowed_failures(samples, coverage=coverage, confidence=confidence)
        if allowed < 0 and isinstance(question.shifts, ObservedShifts) and samples == len(question.shifts):
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

    def _certificate(self, question: Question, i: int, claim: Most, evidence: SamplingEvidence) -> Certificate:
        verdict = Verdict.UNKNOWN
        if evidence.failures <= evidence.allowed:
            verdict = Verdict.CERTIFIED
        elif evidence.failures - evidence.doubtful >= evidence.refuting:
            verdict = Verdict.REFUTED
        delta = float(question.delta[i])
        witness = None
        if evidence.first_failure is not None:
            witness = DrawnShift(question.shifts, delta, evidence.entropy, evidence.purpose, evidence.first_failure)
        return Certificate(
            claim, verdict, delta, question.target[i], "sampling", evidence, _reason(verdict, evidence), witness
        )


def _with_failures(clean: SamplingEvidence, failing: Integers, sure: Bools) -> SamplingEvidence:
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
