"""`Sampling`: certificates from random shifts (Lemma 4 of the paper), with a number of allowed failures.

If at most ``c`` of ``n`` independent shifts fail, where ``P(Binomial(n, 1 - coverage) <= c) <= 1 - confidence``, then
at least a share ``coverage`` of all shifts is valid, with that confidence: were it less, so few failures would have
had probability at most ``1 - confidence``. In the same way ``r`` or more failures refute the claim, where ``r`` is the
least number with ``P(Binomial(n, 1 - coverage) >= r) <= 1 - confidence``. ``n`` is fixed before drawing; a row stops
being drawn for at its ``r``-th failure, and its counts end at that very draw.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from apas._fields import Fields
from apas._parallel import in_parallel, ranges
from apas._random import DERIVED, Stream
from apas._typing import Bools, Floats, Indices, Integers
from apas._validation import check_integer, check_probability
from apas.certification.certificate import Certificate, DrawnShift
from apas.certification.claims import Most, Verdict
from apas.certification.output_range import OutputRange
from apas.certification.question import Question
from apas.certification.robust_fraction import FractionCurve
from apas.display.progress import Progress
from apas.errors import InputError
from apas.shifts.base import Listed
from apas.stats import allowed_failures, coverage_lower, coverage_upper, refuting_failures, sample_size

if TYPE_CHECKING:
    from apas.certification.max_shift.result import MaxShift

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
    if len(question.X) == 1 and block % ALIGN == 0:
        block *= 2  # one row leaves room in the cache for more draws; counts do not depend on it
    with Progress(samples, "drawing shifted models") as progress:
        if question.n_jobs == 1 or samples <= block:
            parts = [_scan(question, stream, (0, samples), (limit, sure_limit), block, progress)]
        else:
            parts, cuts = [], ranges(samples, block, question.n_jobs)
            jobs = ((question, stream, cut, (limit, sure_limit), block, None) for cut in cuts)
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


def drawn_blocks(question: Question, stream: Stream, samples: int) -> Iterator[tuple[int, int, Floats]]:
    """Draws number 0 to `samples`, as many at a time as fit: the first and last of a block, and their directions."""
    block = block_size(question)
    for begin in range(0, samples, block):
        end = min(begin + block, samples)
        yield begin, end, question.directions(stream, begin, end)


def block_size(question: Question) -> int:
    """How many draws to look at together: few enough to bound the memory, enough to be fast."""
    fits = NUMBERS // max(1, question.coordinates.values.size)
    most = DRAWS if len(question.X) <= FEW_ROWS else DRAWS_MANY_ROWS
    return min(most, fits // ALIGN * ALIGN) if fits >= ALIGN else max(1, fits)


_Part = tuple[Indices, Integers, Bools]
_Pair = tuple[int, int]


def _scan(question: Question, stream: Stream, cut: _Pair, most: _Pair, block: int, progress: Progress | None) -> _Part:
    rows_asked, shifts, moving = len(question.X), question.shifts, question.coordinates
    failed = np.zeros((2, rows_asked), dtype=np.int64)  # all failures, and those beyond rounding
    active = np.arange(rows_asked)
    found: list[_Part] = [_NOTHING]
    for begin in range(*cut, block):
        end = min(begin + block, cut[1])
        # a whole group of directions costs no more than a part of it, and needs no copy
        whole = -(-end // ALIGN) * ALIGN if block >= ALIGN else end
        directions = shifts.directions(moving, stream, begin, whole)
        for chunk in range(0, len(active), ROWS):
            rows = active[chunk : chunk + ROWS]
            column, sample, sure = _failing_pairs(question, rows, directions, end - begin)
            if len(column):
                found.append((rows[column], begin + sample, sure))
                failed[0] += np.bincount(rows[column], minlength=rows_asked)
                failed[1] += np.bincount(rows[column[sure]], minlength=rows_asked)
        if len(found) > 1:
            active = active[(failed[0, active] < most[0]) & (failed[1, active] < most[1])]
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


def _failing_pairs(question: Question, rows: Indices, directions: Floats, count: int) -> _Part:
    """Row and sample of each margin of the first `count` directions that is not clearly positive, and if it is sure."""
    some = slice(None) if len(rows) == len(question.X) else rows
    band, margins = question.band[some], question.margins(directions, some)[:count]
    good = margins > band  # written so that a NaN fails
    if good.all():
        return _NOTHING
    sample, column = np.nonzero(~good)
    return column, sample, ~(margins[sample, column] >= -band[column])


_NOTHING: _Part = (np.empty(0, dtype=np.intp), np.empty(0, dtype=np.int64), np.empty(0, dtype=bool))


@lru_cache(maxsize=1024)  # exact arithmetic on long numbers, and most calls ask for the same few
def _least_draws(coverage: float, confidence: Fraction) -> int:
    """The least number of draws with which a claim can be certified."""
    return sample_size(coverage=coverage, confidence=confidence)


@lru_cache(maxsize=1024)
def _thresholds(samples: int, coverage: float, confidence: Fraction) -> tuple[int, int]:
    """How many failures certify at most (-1 if none may), and how many refute at least."""
    allowed = allowed_failures(samples, coverage=coverage, confidence=confidence)
    return allowed, refuting_failures(samples, coverage=coverage, confidence=confidence) if allowed >= 0 else 0


def models_used(shifts: Listed, asked: int | None) -> int:
    """How many of the listed models `Sampling` takes: all, or as many as it was told to."""
    listed = len(shifts.models)
    if asked is not None and asked > listed:
        raise InputError(
            f"`n_samples` of Sampling must be at most {listed}, as {type(shifts).__name__} has models, got {asked}; "
            "none is used twice, so leave it out, or retrain more."
        )
    return listed if asked is None else asked


def too_few_models(claim: Most, models: int, owner: str = "ObservedShifts") -> str:
    """The error a user reads, with the confidence that so many models reach."""
    needed = sample_size(coverage=claim.coverage, confidence=claim.row_confidence)
    together = f" for {claim.rows} rows together" if claim.rows > 1 else ""
    risk = claim.rows * Fraction(repr(claim.coverage)) ** models
    # rounded down, so that the confidence as printed is reached
    reached = Fraction(int((1 - risk) * 10_000), 10_000)
    reach = f"{models} reach a confidence of {float(reached):g}{together}" if reached > 0 else "they reach none"
    return (
        f"`models` of {owner} must number at least {needed} for coverage {claim.coverage} with confidence "
        f"{claim.confidence}{together}, got {models}; {reach}, so retrain more or ask Sampling for less."
    )


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
    siblings : tuple of str or None
        Of a derived seed the digests that lead from the row to the hash of all rows of the call; else None.
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
    siblings: tuple[str, ...] | None = None
    kind: ClassVar[str] = "sampling"

    @property
    def test_name(self) -> str:
        """The test with all that decides when it passes."""
        return f"fixed/{self.samples}"

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
        told = {"kind": self.kind, **vars(self), "entropy": hex(self.entropy)}
        way = told.pop("siblings")
        return told if way is None else {**told, "siblings": list(way)}

    @classmethod
    def from_dict(cls, about: Fields) -> SamplingEvidence:
        """The evidence that a file describes."""
        counts = ("samples", "allowed", "refuting", "draws", "failures", "doubtful")
        derived = about.text("purpose").startswith(DERIVED)
        about.only("kind", "entropy", "purpose", *counts, "first_failure", *(["siblings"] if derived else []))
        first = None if about.is_null("first_failure") else about.integer("first_failure")
        way = about.digests("siblings") if derived else None
        numbers = {key: about.integer(key) for key in counts}
        return cls(about.entropy("entropy"), about.text("purpose"), **numbers, first_failure=first, siblings=way)


class _Unasked(float):
    """A confidence that goes without saying: one of the same size that somebody typed is a plain float."""


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
    confidence: float = _Unasked(0.999)
    n_samples: int | None = None
    name: ClassVar[str] = "sampling"

    def __post_init__(self) -> None:
        object.__setattr__(self, "coverage", check_probability(self.coverage, "coverage", "Sampling"))
        if self.states_confidence:
            object.__setattr__(self, "confidence", check_probability(self.confidence, "confidence", "Sampling"))
        if self.n_samples is not None:
            object.__setattr__(self, "n_samples", check_integer(self.n_samples, "n_samples", "Sampling", least=1))

    def claim(self, question: Question) -> Most:
        """What the method will speak about."""
        asked = (question.measure, question.claim_rows, question.tries, question.bits)
        return Most(self.coverage, self.confidence, *asked)

    @property
    def states_confidence(self) -> bool:
        """Whether somebody asked for the confidence that it has."""
        return not isinstance(self.confidence, _Unasked)

    def test_name(self, question: Question, claim: Most) -> str:
        """The test with all that decides when it passes."""
        return f"fixed/{self.samples(question, claim)}"

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
        if question.listed is not None:
            return models_used(question.shifts, self.n_samples)  # type: ignore[arg-type]
        if self.n_samples is not None:
            return self.n_samples
        cheap = min(20_000, 10**8 // max(1, int(np.count_nonzero(question.radii))))
        return max(_least_draws(claim.coverage, claim.row_confidence), cheap)

    def plan(self, question: Question, claim: Most) -> tuple[int, int, int]:
        """How many draws, how many failures certify at most, how many refute at least."""
        coverage, confidence = claim.coverage, claim.row_confidence
        samples = self.samples(question, claim)
        allowed, refuting = _thresholds(samples, coverage, confidence)
        if allowed < 0 and question.listed is not None and samples == len(question.listed):
            raise InputError(too_few_models(claim, samples, type(question.shifts).__name__))
        if allowed < 0:
            needed, together = _least_draws(coverage, confidence), f" for {claim.rows} rows together" * (claim.rows > 1)
            wanted = f"at least {needed} for coverage {coverage} with confidence {claim.confidence}{together}"
            raise InputError(f"`n_samples` of Sampling must be {wanted}, got {samples}; draw more, or leave it out.")
        # below a confidence of one half both could apply; a run that may still certify must not be stopped
        return samples, allowed, max(refuting, allowed + 1)

    def largest_shift(
        self, question: Question, stream: Stream, *, limit: float, search: str | None = None
    ) -> list[MaxShift]:
        """The largest delta that draws certify, by one of the searches of `max_shift`."""
        from apas.certification.max_shift.api import sampled_answers  # which counts failures as this method does

        return sampled_answers(question, self, stream, limit, search)

    def shares(self, question: Question, deltas: Floats, stream: Stream) -> list[FractionCurve]:
        """Clopper-Pearson bands from the same draws at every delta."""
        samples = self.samples(question, self.claim(question))
        failures, sure = _count_failures(question, deltas, Stream(stream.entropy, "fraction"), samples)
        # every end of every band has the same part of the risk
        level = 1 - (1 - Fraction(repr(self.confidence))) / (2 * len(deltas))
        measure, valid = question.measure_at(deltas), question.valid_rows() | question.doubtful_rows()
        curves = []
        for i, target in enumerate(question.target):
            lower = np.array([coverage_lower(samples, int(k), confidence=level) for k in failures[:, i]])
            upper = np.array([coverage_upper(samples, int(k), confidence=level) for k in sure[:, i]])
            drawn = (samples, self.confidence, target, measure, bool(valid[i]))
            curves.append(FractionCurve(deltas, 1 - failures[:, i] / samples, lower, upper, *drawn))
        return curves

    def ranges(self, question: Question, stream: Stream) -> list[OutputRange]:
        """The extreme margins of the draws, with the share of shifts that each stands for."""
        asked = self.claim(question)
        samples = self.plan(question, asked)[0]
        # what Lemma 4 attaches to the extreme of so many draws: at least the share that was asked for
        share = max(self.coverage, coverage_lower(samples, 0, confidence=self.confidence))
        claim = Most(share, self.confidence, asked.measure)
        low, high, undefined = _extremes(question, Stream(stream.entropy, "range"), samples)
        if question.single:  # what the draws give in float32, whatever the order of its sums
            low, high = low - question.band, high + question.band
        items = []
        for i, ends in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
            attained, base = (bool(np.isfinite(ends[0])), bool(np.isfinite(ends[1]))), float(question.base_margins[i])
            delta, target, missing = float(question.delta[i]), question.target[i], int(undefined[i])
            items.append(OutputRange(*ends, claim, claim, attained, base, delta, target, self.name, missing))
        return items

    def _certificate(self, question: Question, i: int, claim: Most, evidence: SamplingEvidence) -> Certificate:
        delta, witness = float(question.delta[i]), None
        if evidence.first_failure is not None:
            witness = DrawnShift(question.shifts, delta, evidence.entropy, evidence.purpose, evidence.first_failure)
        verdict, reason = _verdict(evidence)
        return Certificate(claim, verdict, delta, question.target[i], self.name, evidence, reason, witness)


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


def _verdict(evidence: SamplingEvidence) -> tuple[Verdict, str]:
    """What the counts decide, and why."""
    allowed, refuting = evidence.allowed, evidence.refuting
    counts = f"{evidence.failures} of {evidence.draws} draws failed"
    if evidence.failures <= allowed:
        return Verdict.CERTIFIED, f"{counts}, at most {allowed} may"
    if evidence.failures - evidence.doubtful >= refuting:
        return Verdict.REFUTED, f"{counts}, {refuting} are too many"
    if evidence.doubtful:
        why = "within rounding of the boundary, where nothing can be decided"
        return Verdict.UNKNOWN, f"{counts}, {evidence.doubtful} of them {why}"
    return Verdict.UNKNOWN, f"{counts}: more than the {allowed} that certify, fewer than the {refuting} that refute"


def _count_failures(question: Question, deltas: Floats, stream: Stream, samples: int) -> tuple[Integers, Integers]:
    """How many draws fail at each delta for each row: all of them, and those beyond rounding."""
    questions = [replace(question, delta=np.full(len(question), delta)) for delta in deltas]
    block = block_size(question)
    cuts = ranges(samples, block, question.n_jobs)
    parts = in_parallel(_count, ((questions, stream, a, b, block) for a, b in cuts), question.n_jobs)
    total = np.zeros((2, len(deltas), len(question)), dtype=np.int64)
    with Progress(samples, "drawing shifted models") as progress:
        for (a, b), part in zip(cuts, parts, strict=True):
            total += part
            progress.advance(b - a)
    return total[0], total[1]


def _count(questions: list[Question], stream: Stream, start: int, stop: int, block: int) -> Integers:
    first = questions[0]
    counts = np.zeros((2, len(questions), len(first)), dtype=np.int64)
    for begin in range(start, stop, block):
        end = min(begin + block, stop)
        whole = -(-end // ALIGN) * ALIGN if block >= ALIGN else end  # whole groups of directions need no copy
        directions = first.directions(stream, begin, whole)
        for question, count in zip(questions, counts.transpose(1, 0, 2), strict=True):
            for chunk in range(0, len(question), ROWS):
                rows = slice(chunk, chunk + ROWS)
                margins = question.margins(directions, rows)[: end - begin]
                band = question.band[rows]
                # written so that a NaN fails beyond doubt
                count[0, rows] += np.count_nonzero(~(margins > band), axis=0)
                count[1, rows] += np.count_nonzero(~(margins >= -band), axis=0)
    return counts


def _extremes(question: Question, stream: Stream, samples: int) -> tuple[Floats, Floats, Integers]:
    """Least and largest margin of each row over the draws, and how many draws give no number."""
    low, high = np.full(len(question), np.inf), np.full(len(question), -np.inf)
    undefined = np.zeros(len(question), dtype=np.int64)
    with Progress(samples, "drawing shifted models") as progress:
        for begin, end, directions in drawn_blocks(question, stream, samples):
            for chunk in range(0, len(question), ROWS):
                rows = slice(chunk, chunk + ROWS)
                margins = question.margins(directions, rows)
                # a model that gives no number is on neither side of any: then no end is known
                missing = np.isnan(margins)
                undefined[rows] += np.count_nonzero(missing, axis=0)
                low[rows] = np.minimum(low[rows], np.where(missing, -np.inf, margins).min(axis=0))
                high[rows] = np.maximum(high[rows], np.where(missing, np.inf, margins).max(axis=0))
            progress.advance(end - begin)
    return low, high, undefined
