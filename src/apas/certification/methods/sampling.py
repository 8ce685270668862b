"""`Sampling`: certificates from random shifts (Lemma 4 of the paper), with a number of allowed failures.

If at most ``c`` of ``n`` independent shifts fail, where ``P(Binomial(n, 1 - coverage) <= c) <= 1 - confidence``, at
least a share ``coverage`` of all is valid, with that confidence; in the same way many failures refute. ``n`` is fixed
before drawing. The anytime test (`apas.stats.sequential`) may be looked at after every draw and be continued.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from apas import stats
from apas._fields import Fields
from apas._random import DERIVED, Stream
from apas._typing import Bools, Floats, Integers
from apas._validation import check_integer, check_number, check_probability
from apas.certification import failing_draws
from apas.certification.api import FractionCurve, OutputRange
from apas.certification.certificate import Certificate, DrawnShift
from apas.certification.claims import Most, Verdict
from apas.certification.max_shift.result import MaxShift
from apas.certification.methods.enumeration import closed_certificates, computed_shares
from apas.certification.question import Question
from apas.certification.results import AnswerColumn
from apas.display.progress import Progress
from apas.errors import InputError
from apas.shifts.base import Listed, in_training_order
from apas.stats.binomial import Number, coverage_bounds
from apas.stats.sequential import ANYTIME, boundary


@lru_cache(maxsize=1024)  # exact arithmetic on long numbers, and most calls ask for the same few
def _least_draws(coverage: float, confidence: Fraction) -> int:
    return stats.sample_size(coverage=coverage, confidence=confidence)


@lru_cache(maxsize=1024)
def _thresholds(samples: int, claim: Most) -> tuple[int, int]:
    """How many failures certify at most (-1 if none may), and how many refute at least."""
    coverage, confidence = claim.coverage, claim.row_confidence
    allowed = stats.allowed_failures(samples, coverage=coverage, confidence=confidence)
    return allowed, stats.refuting_failures(samples, coverage=coverage, confidence=confidence) if allowed >= 0 else 0


def models_used(shifts: Listed, asked: int | None) -> int:
    """How many of the listed models `Sampling` takes: all, or as many as it was told to."""
    listed = len(shifts.models)
    if in_training_order(shifts):
        what = "models that are trained until they suffice are for certify with the anytime test"
        instead = "make a number of them that is fixed beforehand with retrain, and list these in"
        raise InputError(f"{what}; {instead} {type(shifts).__name__}.")
    if asked is not None and asked > listed:
        told = f"must be at most {listed}, as {type(shifts).__name__} has models, got {asked}"
        raise InputError(f"`n_samples` of Sampling {told}; none is used twice, so leave it out, or retrain more.")
    return listed if asked is None else asked


def too_few_models(claim: Most, models: int, owner: str = "ObservedShifts") -> str:
    """The error a user reads, with the confidence that so many models reach."""
    needed = stats.sample_size(coverage=claim.coverage, confidence=claim.row_confidence)
    together = f" for {claim.rows} rows together" if claim.rows > 1 else ""
    risk = claim.rows * Fraction(repr(claim.coverage)) ** models
    # rounded down, so that the confidence as printed is reached
    reached = Fraction(int((1 - risk) * 10_000), 10_000)
    reach = f"{models} reach a confidence of {float(reached):g}{together}" if reached > 0 else "they reach none"
    wanted = f"at least {needed} for coverage {claim.coverage} with confidence {claim.confidence}{together}"
    instead = f"{reach}, so retrain more or ask Sampling for less"
    return f"`models` of {owner} must number {wanted}, got {models}; {instead}."


#: A row whose margins lie within rounding of 0 is given up at this many times the failures that would refute.
DOUBT = 10
#: Name of the test whose number of draws is fixed beforehand.
FIXED = "fixed"
#: How many draws are made unless a number is given, by the fixed test and at most by the anytime test, and how many
#: random numbers that may take.
CHEAP, CAP, MOST_NUMBERS = 20_000, 50_000, 10**8


@dataclass(frozen=True)
class SamplingEvidence:
    """Integers of a sampling test, and the random stream (`entropy`, `purpose`) to go through it again.

    Attributes
    ----------
    samples : int
        How many draws were planned; of the anytime test how many were made at most.
    allowed, refuting : int or None
        At most `allowed` failures certify, `refuting` failures refute; None in the anytime test.
    draws : int
        How many draws count: `samples`, or up to and including failure number `refuting` beyond rounding; in the
        anytime test up to and including the draw that decides.
    failures, doubtful : int
        How many of them failed, margins within rounding of 0 included, and how many of those; these never refute.
    first_failure : int or None
        Number of the first draw that failed beyond rounding.
    test : str
        "fixed", or the version of the anytime test.
    siblings : tuple of str or None
        Of a derived seed the digests that lead from the row to the hash of all rows of the call; else None.
    """

    entropy: int
    purpose: str
    samples: int
    allowed: int | None
    refuting: int | None
    draws: int
    failures: int
    doubtful: int
    first_failure: int | None
    test: str = FIXED
    siblings: tuple[str, ...] | None = None
    kind: ClassVar[str] = "sampling"

    @property
    def anytime(self) -> bool:
        """Whether the test is one that may be continued."""
        return self.test != FIXED

    @property
    def stopped(self) -> bool:
        """Whether the run ended before all planned draws were made."""
        if self.refuting is None:
            return self.draws < self.samples
        return self.failures - self.doubtful == self.refuting or self.failures == DOUBT * self.refuting

    def coverage_lower(self, confidence: Number) -> float:
        """One-sided lower bound on the share of valid shifts, at `confidence`; doubtful draws count as failures."""
        if self.anytime:
            return stats.anytime_coverage_lower(self.draws, self.failures, confidence=confidence)
        if self.doubtful and self.stopped:  # such a run's length depends on both kinds of draws: no simple bound
            return 0.0
        return stats.coverage_lower(self.draws, self.failures, confidence=confidence, stopped=self.stopped)

    def coverage_upper(self, confidence: Number) -> float:
        """One-sided upper bound on the share of valid shifts, at `confidence`; doubtful draws count as valid."""
        if self.anytime:
            return stats.anytime_coverage_upper(self.draws, self.failures - self.doubtful, confidence=confidence)
        if self.doubtful:
            sure = self.failures - self.doubtful
            return 1.0 if self.stopped else stats.coverage_upper(self.draws, sure, confidence=confidence)
        return stats.coverage_upper(self.draws, self.failures, confidence=confidence, stopped=self.stopped)

    def to_dict(self) -> dict[str, Any]:
        """The evidence as JSON values; the entropy as hexadecimal text, since it exceeds what JSON readers keep."""
        told = {"kind": self.kind, **vars(self), "entropy": hex(self.entropy)}
        way = told.pop("siblings")
        return told if way is None else {**told, "siblings": list(way)}

    @classmethod
    def from_dict(cls, about: Fields) -> SamplingEvidence:
        """The evidence that a file describes."""
        counts, limits = ("samples", "draws", "failures", "doubtful"), ("allowed", "refuting")
        way = ("siblings",) if about.text("purpose").startswith(DERIVED) else ()
        about.only("kind", "entropy", "purpose", *counts, *limits, "first_failure", "test", *way)
        numbers: dict[str, Any] = {key: about.integer(key) for key in counts}
        numbers |= {key: about.digests(key) for key in way}
        test = about.choice("test", FIXED, ANYTIME)
        for key in (*limits, "first_failure"):
            absent = about.is_null(key) if key == "first_failure" else test == ANYTIME
            if absent and not about.is_null(key):
                raise about.wrong(key, "null, since the anytime test has no such number")
            numbers[key] = None if absent else about.integer(key)
        return cls(about.entropy("entropy"), about.text("purpose"), **numbers, test=test)


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
        How many shifts to draw; of the anytime test, after how many to leave a row open. Unless given, the anytime test
        ends after 50,000 draws, or fewer of a large model, but not before it could certify; the fixed test makes as
        many as the claim needs, and up to 20,000 while they are cheap. Of models that exist (`ObservedShifts`) all are
        used.
    test : {"anytime", "fixed"}, optional
        ``"anytime"`` stops at the draw that decides, and a row that it leaves open can be continued
        (`Certificates.continued`). ``"fixed"`` makes a number of draws that is fixed beforehand. Unless given, it is
        the anytime test where `n_samples` is left out and the set can be drawn from, else the fixed one. Of a list of
        models, which somebody put in order, the anytime test counts all; it may be one that grew until it sufficed.
    tolerance : float, default 0.1
        Of `max_shift` with the anytime test, which looks along more and more rays until at most so much, as a share of
        delta, is left between the delta that is certified and the one from which on the way is refuted.

    Notes
    -----
    What voids the guarantee: choosing the row or delta by looking at these very draws, and in the fixed test also their
    number. Repeating a call with new seeds until it certifies is such a choice; to continue it is not.
    """

    coverage: float = 0.995
    confidence: float = _Unasked(0.999)
    n_samples: int | None = None
    test: str | None = None
    tolerance: float = 0.1
    name: ClassVar[str] = "sampling"

    def __post_init__(self) -> None:
        object.__setattr__(self, "coverage", check_probability(self.coverage, "coverage", "Sampling"))
        if not isinstance(self.confidence, _Unasked):
            object.__setattr__(self, "confidence", check_probability(self.confidence, "confidence", "Sampling"))
        if self.n_samples is not None:
            object.__setattr__(self, "n_samples", check_integer(self.n_samples, "n_samples", "Sampling", least=1))
        object.__setattr__(self, "tolerance", check_number(self.tolerance, "tolerance", "Sampling", above=0))
        if self.test is not None and (not isinstance(self.test, str) or self.test not in ("anytime", FIXED)):
            raise InputError(f'`test` of Sampling must be "anytime", "fixed" or None, got {self.test!r}.')

    def claim(self, question: Question) -> Most:
        """What the method will speak about."""
        asked = (question.measure, question.claim_rows, question.tries, question.bits)
        return Most(self.coverage, self.confidence, *asked)

    def test_name(self, question: Question, claim: Most, *, largest: bool = False) -> str:
        """The test with all that decides when it passes; `largest` if the largest shift is asked for."""
        if not isinstance(self.confidence, _Unasked):
            told = f"`confidence` is {self.confidence}; leave it out, or pass an integer as `rng`"
            raise InputError(f'The confidence of `rng="derived"` is {claim.shown_confidence}, but {told}.')
        anytime = self.test == "anytime" if largest else self.is_anytime(question)
        return ANYTIME if anytime else f"{FIXED}/{self.samples(question, claim)}"

    def unsupported(self, question: Question) -> str | None:
        """None: sampling works on every model and shift set."""
        return None

    def run(self, question: Question, stream: Stream) -> Sequence[Certificate]:
        """Draw, count, decide: one certificate per row; of shares that are known without draws, none are made."""
        if self._leaves_open(question) and stream.purpose == "certify":
            known = closed_certificates(question, self.coverage)
            if known is not None:
                rows = np.array([answer is None for answer in known])
                drawn = iter(replace(self, test="anytime").run(question.take(rows), stream) if rows.any() else ())
                return [next(drawn) if answer is None else answer for answer in known]
        claim = self.claim(question)
        if self.is_anytime(question):
            return self._until_decided(question, stream, claim, self.cap(question, claim))
        samples, allowed, refuting = self.plan(question, claim)
        found = failing_draws.first_failures(question, stream, samples, DOUBT * refuting, refuting)
        clean = SamplingEvidence(stream.entropy, stream.purpose, samples, allowed, refuting, samples, 0, 0, None)

        def answer(i: int) -> Certificate:
            failing, sure = found.of(i)
            if not len(failing):
                return self._certificate(question, i, claim, clean)
            ended = (np.cumsum(sure) == refuting) | (np.arange(1, len(sure) + 1) == DOUBT * refuting)
            taken = int(ended.argmax()) + 1 if ended.any() else len(sure)
            draws = int(failing[taken - 1]) + 1 if ended.any() else samples
            return self._certificate(question, i, claim, _counted(clean, failing[:taken], sure[:taken], draws))

        return AnswerColumn.of(_same_rows(question, found, [clean] * len(question)), answer)

    def _leaves_open(self, question: Question) -> bool:
        """Whether nobody asked for draws: neither for a number of them, nor for a test, nor by listing models."""
        return self.n_samples is None and self.test is None and question.listed is None

    def is_anytime(self, question: Question) -> bool:
        """Whether the question is decided by the anytime test."""
        if self.test is None:
            free = question.listed is None or in_training_order(question.shifts)
            return self.n_samples is None and free
        return self.test != FIXED

    def _until_decided(
        self, question: Question, stream: Stream, claim: Most, cap: int, before: Sequence[SamplingEvidence] = ()
    ) -> Sequence[Certificate]:
        """Certificates of the anytime test, from the first draw on or from where `before`, all alike, left off."""
        test = boundary(claim.coverage, claim.row_confidence)
        none = SamplingEvidence(stream.entropy, stream.purpose, cap, None, None, 0, 0, 0, None, ANYTIME)
        past = before or [none] * len(question)
        begin, counts_before = past[0].draws, [(e.failures, e.failures - e.doubtful) for e in past]
        as_listed = question.listed is not None and not in_training_order(question.shifts)
        if as_listed:  # all of them: their order was chosen by somebody
            found = failing_draws.first_failures(question, stream, cap, cap + 1, cap + 1)
        else:
            found = failing_draws.failures_until_decided(question, stream, test, begin, cap, counts_before)

        def answer(i: int) -> Certificate:
            known, (failing, sure) = replace(past[i], samples=cap), found.of(i)
            if as_listed:  # what decides is the whole list, which has no order
                counts = len(failing), int(np.count_nonzero(sure))
                few, many = test.certify.crosses(cap, counts[0]), test.refute.crosses(cap, counts[1])
                verdict, draws, taken = "CERTIFIED" if few else "REFUTED" if many else "UNKNOWN", cap, counts[0]
            else:
                drawn = zip(failing.tolist(), sure.tolist(), strict=True)
                verdict, draws, taken = test.decide(drawn, cap, counts_before[i])
            evidence = _counted(known, failing[:taken], sure[:taken], draws)
            return self._certificate(question, i, claim, evidence, Verdict[verdict])

        return AnswerColumn.of(_same_rows(question, found, past), answer)

    def samples(self, question: Question, claim: Most) -> int:
        """How many draws a fixed test makes; whether they are enough for the claim is not asked."""
        return self._planned(question, CHEAP, lambda: _least_draws(claim.coverage, claim.row_confidence))

    def least_draws(self, claim: Most) -> int:
        """The least number of draws, if one is given, with which the claim can be certified."""
        if self.test == "anytime":
            return boundary(claim.coverage, claim.row_confidence).needed(0)
        return _least_draws(claim.coverage, claim.row_confidence)

    def cap(self, question: Question, claim: Most) -> int:
        """After how many draws the anytime test leaves a row open."""
        least = boundary(claim.coverage, claim.row_confidence).needed(0)
        if not in_training_order(question.shifts):
            return self._planned(question, CAP, lambda: least)
        most: int = question.shifts.max_models if self.n_samples is None else self.n_samples  # type: ignore[attr-defined]
        if most < least:
            wanted = f"at least {least}, which coverage {claim.coverage} with confidence {claim.confidence} takes"
            raise InputError(f"`max_models` must be {wanted}, got {most}; let it train more, or ask Sampling for less.")
        return most

    def _planned(self, question: Question, most: int, least: Callable[[], int]) -> int:
        if question.listed is not None:
            return models_used(question.shifts, self.n_samples)  # type: ignore[arg-type]
        if self.n_samples is not None:
            return self.n_samples
        return max(least(), min(most, MOST_NUMBERS // max(1, int(np.count_nonzero(question.radii)))))

    def plan(self, question: Question, claim: Most) -> tuple[int, int, int]:
        """How many draws, how many failures certify at most, how many refute at least."""
        samples = self.samples(question, claim)
        allowed, refuting = _thresholds(samples, claim)
        if allowed < 0 and question.listed is not None and samples == len(question.listed):
            raise InputError(too_few_models(claim, samples, type(question.shifts).__name__))
        if allowed < 0:
            needed = _least_draws(claim.coverage, claim.row_confidence)
            together = f" for {claim.rows} rows together" * (claim.rows > 1)
            wanted = f"{needed} for coverage {claim.coverage} with confidence {claim.shown_confidence}{together}"
            told = f"must be at least {wanted}, got {samples}; draw more, or leave it out"
            raise InputError(f"`n_samples` of Sampling {told}.")
        # below a confidence of one half both could apply; a run that may still certify must not be stopped
        return samples, allowed, max(refuting, allowed + 1)

    def largest_shift(self, question: Question, stream: Stream, *, limit: float, search: Any = None) -> list[MaxShift]:
        """The largest delta that draws certify, by one of the searches of `max_shift`."""
        from apas.certification.max_shift.api import sampled_answers  # which counts failures as this method does

        return sampled_answers(question, self, stream, limit, search)

    def shares(self, question: Question, deltas: Floats, stream: Stream) -> list[FractionCurve]:
        """Clopper-Pearson bands from the same draws at every delta."""
        measure, valid = question.measure_at(deltas), question.valid_rows() | question.doubtful_rows()
        curves = []
        if self._leaves_open(question):
            known = [computed_shares(question, np.full(len(question), delta)) for delta in deltas.tolist()]
            for i, shares in enumerate(zip(*(found or () for found in known), strict=True)):
                ends = np.array([(share.lower, share.upper) for share in shares]).T
                curves.append(FractionCurve.computed(deltas, *ends, question.target[i], measure, bool(valid[i])))
            if curves:
                return curves
        samples = self.samples(question, self.claim(question))
        failures, sure = failing_draws.count_failures(question, deltas, Stream(stream.entropy, "fraction"), samples)
        # every end of every band has the same part of the risk
        level = 1 - (1 - Fraction(repr(self.confidence))) / (2 * len(deltas))
        low, high = coverage_bounds(samples, failures, sure, confidence=level)
        for i, target in enumerate(question.target):
            drawn = (samples, self.confidence, target, measure, bool(valid[i]))
            curves.append(FractionCurve(deltas, 1 - failures[:, i] / samples, low[:, i], high[:, i], *drawn))
        return curves

    def ranges(self, question: Question, stream: Stream) -> list[OutputRange]:
        """The extreme margins of the draws, with the share of shifts that each stands for."""
        asked = self.claim(question)
        samples = self.plan(question, asked)[0]
        # what Lemma 4 attaches to the extreme of so many draws: at least the share that was asked for
        share = max(self.coverage, stats.coverage_lower(samples, 0, confidence=self.confidence))
        claim = Most(share, self.confidence, asked.measure)
        low, high = np.full(len(question), np.inf), np.full(len(question), -np.inf)
        undefined = np.zeros(len(question), dtype=np.int64)
        everyone, own = [(question, np.arange(len(question)))], Stream(stream.entropy, "range")
        with Progress(samples * len(question), "drawing shifted models") as progress:
            for _, _, rows, margins, _ in failing_draws.drawn_margins(everyone, own, 0, samples):
                # a model that gives no number is on neither side of any: then no end is known
                missing = np.isnan(margins)
                undefined[rows] += np.count_nonzero(missing, axis=0)
                low[rows] = np.minimum(low[rows], np.where(missing, -np.inf, margins).min(axis=0))
                high[rows] = np.maximum(high[rows], np.where(missing, np.inf, margins).max(axis=0))
                progress.advance(margins.size)
        if question.single:  # what the draws give in float32, whatever the order of its sums
            low, high = low - question.band, high + question.band
        ends = enumerate(zip(low.tolist(), high.tolist(), undefined.tolist(), strict=True))
        return [OutputRange.of(question, i, e, claim, (True, True), self.name, count) for i, (*e, count) in ends]

    def _certificate(
        self, question: Question, i: int, claim: Most, evidence: SamplingEvidence, verdict: Verdict | None = None
    ) -> Certificate:
        delta, witness = float(question.delta[i]), None
        if evidence.first_failure is not None:
            witness = DrawnShift(question.shifts, delta, evidence.entropy, evidence.purpose, evidence.first_failure)
        verdict, reason = _said(evidence, claim, verdict)
        return Certificate(claim, verdict, delta, question.target[i], self.name, evidence, reason, witness)


def _same_rows(
    question: Question, found: failing_draws.Failures, past: Sequence[SamplingEvidence]
) -> Iterator[Hashable]:
    """Per row what it shares with all that get the same certificate; a row with a failing draw is alone."""
    asked = zip((np.diff(found.starts) > 0).tolist(), past, question.target, question.delta.tolist(), strict=True)
    for i, (failed, known, target, delta) in enumerate(asked):
        yield i if failed else (id(known), type(target), target, delta)


def _counted(known: SamplingEvidence, failing: Integers, sure: Bools, draws: int) -> SamplingEvidence:
    """The evidence after so many draws, of which these failed besides those that are known."""
    first = int(failing[sure][0]) if known.first_failure is None and sure.any() else known.first_failure
    doubtful, failures = known.doubtful + int(np.count_nonzero(~sure)), known.failures + len(sure)
    return replace(known, draws=draws, failures=failures, doubtful=doubtful, first_failure=first)


def _said(evidence: SamplingEvidence, claim: Most, decided: Verdict | None) -> tuple[Verdict, str]:
    """The verdict, which the anytime test has decided and the counts of the fixed one lead to, and why."""
    counts = f"{evidence.failures} of {evidence.draws} draws failed"
    doubt = f"{counts}, {evidence.doubtful} of them within rounding of the boundary, where nothing can be decided"
    if decided is Verdict.UNKNOWN:
        open_still = f"{counts}, which decides neither way so far; it may be continued"
        return decided, f"{doubt if _given_up(evidence, claim) else open_still} (anytime test)"
    if decided is not None:
        so = "few certify" if decided is Verdict.CERTIFIED else "many refute"
        return decided, f"{counts}; so {so} at any time (anytime test)"
    allowed, refuting = evidence.allowed, evidence.refuting
    assert allowed is not None
    assert refuting is not None
    if evidence.failures <= allowed:
        return Verdict.CERTIFIED, f"{counts}, at most {allowed} may"
    if evidence.failures - evidence.doubtful >= refuting:
        return Verdict.REFUTED, f"{counts}, {refuting} are too many"
    between = f"{counts}: more than the {allowed} that certify, fewer than the {refuting} that refute"
    return Verdict.UNKNOWN, doubt if evidence.doubtful else between


def continue_rows(question: Question, items: Sequence[Certificate], n_samples: Any) -> list[Certificate]:
    """The certificates of rows, of which those that the anytime test left open are drawn for up to `n_samples`."""
    cap, owner = check_integer(n_samples, "n_samples", "continued", least=1), "`n_samples` of continued must be"
    begun = {i: c.evidence for i, c in enumerate(items) if isinstance(c.evidence, SamplingEvidence)}
    anytime = {i: evidence for i, evidence in begun.items() if evidence.anytime}
    if not anytime:
        raise InputError('only the anytime test can be continued; certify with Sampling(test="anytime") to begin one.')
    if question.listed is not None and not in_training_order(question.shifts):
        raise InputError("a list of models has no further ones to continue with; list more, and certify on all.")
    made = max(evidence.samples for evidence in anytime.values())
    if cap < made:
        raise InputError(f"{owner} at least {made}, as many as may have been drawn so far, got {cap}; draw more.")
    found = list(items)
    groups: dict[Any, list[int]] = {}
    for i, evidence in anytime.items():
        # what is decided stays so, however many draws might have been made
        found[i] = replace(items[i], evidence=replace(evidence, samples=cap))
        claim = items[i].claim
        assert isinstance(claim, Most)
        if items[i].verdict is Verdict.UNKNOWN and not _given_up(evidence, claim):
            groups.setdefault((claim, evidence.entropy, evidence.purpose, evidence.draws), []).append(i)
    for (claim, entropy, purpose, _), rows in groups.items():
        some = question.take(np.array(rows, dtype=np.intp)).for_claim(claim)
        method, before = Sampling(coverage=claim.coverage, confidence=claim.confidence), [anytime[i] for i in rows]
        if method.claim(some) != claim:
            told = f"the one that the certificates are about: {claim.measure!r} is not of it"
            raise InputError(f"`model` must be {told}.")
        began = time.perf_counter()
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite counts as failing
            answers = method._until_decided(some, Stream(entropy, purpose), claim, cap, before)
        seconds = (time.perf_counter() - began) / len(rows)
        for i, answer in zip(rows, answers, strict=True):
            found[i] = replace(answer, seconds=items[i].seconds + seconds)
    return found


def _given_up(evidence: SamplingEvidence, claim: Most) -> bool:
    """Whether the anytime test left a row open for good, be it at the very last draw that it might make."""
    counts = (evidence.draws, evidence.failures, evidence.failures - evidence.doubtful)
    return bool(evidence.doubtful) and boundary(claim.coverage, claim.row_confidence).gives_up(*counts)
