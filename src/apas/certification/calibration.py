"""`calibrate_delta`: from updates of a model, the delta above which the next update keeps every row.

S_i is the largest score among the rows that update i breaks, and q the k-th smallest of S_1, ..., S_m: an update that
is exchangeable with these keeps every row of a score above q with probability at least ``k / (m + 1)``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from apas._fields import Fields, as_json
from apas._random import Stream, entropy_of
from apas._typing import Bools, Floats
from apas._validation import check_probability
from apas.certification.certificate import NEAR_BOUNDARY, NOT_VALID, BaseEvidence, Certificate
from apas.certification.claims import Verdict, percent
from apas.certification.max_shift.api import max_shift
from apas.certification.question import Question
from apas.certification.results import Certificates
from apas.display.numbers import exactly
from apas.errors import ApasError, GuaranteeWarning, InputError
from apas.models.base import offers
from apas.models.digest import model_digest
from apas.shifts.base import KINDS, Ellipsoid, Fingerprinted, Listed, ShiftSet
from apas.shifts.distance import read_model
from apas.shifts.observed import ObservedShifts
from apas.stats import allowed_failures, anytime_refuting_draw, sample_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The probability of an alarm about a claim that is true, over all time.
ALARM = 0.05
#: How far a score that is computed again may be off, relative to its size.
SAME_SCORE = 1e-9


@dataclass(frozen=True)
class NextUpdate:
    """The next update keeps every row whose score exceeds a threshold.

    `coverage` is the share of updates that keep all these rows, `level` the confidence that it is reached; None for the
    marginal form, which reaches it on average over calibrations. `score` says how rows were scored, `worst` per update
    the largest score that it breaks (minus infinity if none), `steps` of pairs which of the listed models are base and
    successor, `made_with` the SHA-256 of the models that rows and scores were made with: no update is one of them.
    """

    coverage: float
    level: float | None
    measure: str
    rows: int
    score: Mapping[str, Any] = field(hash=False)
    worst: tuple[float, ...]
    steps: tuple[tuple[int, int], ...] | None = None
    made_with: tuple[str, ...] = ()
    kind: ClassVar[str] = "update"
    against: ClassVar[str] = "with too small a share"

    def __post_init__(self) -> None:
        _ = self.threshold  # which too few updates do not have

    @property
    def threshold(self) -> float:
        """The score that a row must exceed: a number, or plus or minus infinity."""
        return sorted(self.worst)[rank(len(self.worst), self.coverage, self.level) - 1]

    @property
    def confidence(self) -> float:
        """How surely the share is reached; 0 in the marginal form, which speaks of the average over calibrations."""
        return 0.0 if self.level is None else self.level

    @property
    def risk(self) -> Fraction:
        """In what share of all calibrations such a claim about a share may be false."""
        return 1 - Fraction(repr(self.confidence))

    @property
    def row_confidence(self) -> Fraction:
        """The same for each row: they are kept together, or not."""
        return 1 - self.risk

    @property
    def scored(self) -> str:
        """What a score is called."""
        return "delta" if self.score["kind"] == "offers" else str(self.score["kind"])

    @property
    def results(self) -> type[Certificates]:
        """What holds certificates with this claim."""
        return Calibration

    def contradicted(self, kept: Sequence[bool]) -> bool:
        """Whether later updates, which kept all rows or not, contradict it: if true, with at most `ALARM` ever."""
        # A share is refuted by the anytime test. In the marginal form later updates are balls of an urn: if j of n
        # broke, the next breaks with probability (a + j) / (a + b + n), a = m + 1 - k and b = k, or less where scores
        # tie. What is bet against it is an urn that begins with a of each kind, whose odds grow with every break.
        broken, log = 0, math.lgamma
        for n, held in enumerate(kept, 1):
            broken += not held
            if self.level is not None:
                if not held and n <= anytime_refuting_draw(broken, coverage=self.coverage, confidence=1 - ALARM):
                    return True
                continue
            b = rank(len(self.worst), self.coverage, None)
            a = len(self.worst) + 1 - b
            even = log(2 * a) - 2 * log(a) + log(a + broken) + log(a + n - broken) - log(2 * a + n)
            fair = log(a + b) - log(a) - log(b) + log(a + broken) + log(b + n - broken) - log(a + b + n)
            if a <= b and even - fair >= math.log(1 / ALARM) + 1e-9:  # what rounding adds is far less
                return True
        return False

    def _above(self) -> str:
        every = f"all {self.rows} rows" if self.rows != 1 else "the one row"
        limit = self.threshold
        if limit == -math.inf:  # no update broke any
            return f"{every} of the list"
        if self.score["kind"] == "offers":
            return f"all {self.rows} offers at the least delta of the grid above {exactly(limit)}"
        return f"{every} whose {self.scored} exceeds {exactly(limit) if limit < math.inf else 'every number'}"

    def __str__(self) -> str:
        like = f"the {len(self.worst)} listed{' steps' if self.steps else ''}"
        if self.level is None:
            odds = f"with probability {self.coverage!r}, over calibration and update, it keeps {self._above()}"
            return f"of the next update, exchangeable with {like}: {odds}"
        share = f"with confidence {self.level!r}, at least {percent(self.coverage)} keep {self._above()}"
        return f"of updates, independent draws like {like}: {share}"

    def among(self, count: int, what: str = "row") -> str:
        """The claim in words: it is about all rows together."""
        return str(self)

    def subject(self, *, refuted: bool = False) -> str:
        """Who keeps a row, with the verb."""
        return "the next update keeps" if self.level is None else f"at least {percent(self.coverage)} of updates keep"

    def sureness(self) -> str:
        """The confidence, or the probability of the marginal form, and for which rows together."""
        sure = f"probability {self.coverage!r} over calibration and update" if self.level is None else ""
        return f"with {sure or f'confidence {self.level!r}'}, for {self._above()} together"

    def meaning(self, size: str, *, per_test: bool = False) -> str:
        """What a reader is told that it means."""
        return f"{self} ({self.measure}). A later model is covered if it is an update like these, and by nothing else."

    def to_dict(self) -> dict[str, Any]:
        """The claim as JSON values."""
        return {"kind": self.kind, **as_json(vars(self)), "worst": list(map(_score_json, self.worst))}

    @classmethod
    def from_dict(cls, about: Fields) -> NextUpdate:
        """The claim that a file describes."""
        about.only("kind", *cls.__dataclass_fields__)
        level = None if about.is_null("level") else check_probability(about.number("level"), "level", "NextUpdate")
        coverage = check_probability(about.number("coverage"), "coverage", "NextUpdate")
        worst = tuple(_read_score(about, "worst", value) for value in about.items("worst"))
        steps, score = None, about.inner("score")
        if not about.is_null("steps"):
            steps = tuple(tuple(pair) if isinstance(pair, list) else () for pair in about.items("steps"))
            pairs = [pair for pair in steps if len(pair) == 2 and all(type(n) is int and n >= 0 for n in pair)]
            if not len(pairs) == len(steps) == len(worst):
                raise about.wrong("steps", "a pair of numbers of models per update, or null")
        if score.text("kind") == "offers":
            score.numbers("grid")
        rest: Any = (score.content, worst, steps, about.digests("made_with"))
        return cls(coverage, level, about.text("measure"), about.integer("rows"), *rest)


def rank(updates: int, coverage: float, confidence: float | None) -> int:
    """Which of the sorted S is the threshold, counted from 1; `InputError` if there are too few updates for any."""
    # coverage as it was typed: 20 * 0.9 is 18, but a float above it would be rounded up to 19
    marginal = math.ceil((updates + 1) * Fraction(repr(coverage)))
    place = marginal
    if confidence is not None:
        place = updates - allowed_failures(updates, coverage=coverage, confidence=confidence) if updates else 1
    if place <= updates:
        return place
    least = math.ceil(1 / (1 - Fraction(repr(coverage)))) - 1
    need, sure, instead = least, "", "make more updates (apas.retrain), or ask for less coverage"
    if confidence is not None:
        need, sure = sample_size(coverage=coverage, confidence=confidence), f" with confidence {confidence!r}"
        instead = "make more (apas.retrain), or pass confidence=None (--marginal) for the marginal form, which needs "
        instead += str(least)
    raise InputError(f"`updates` must be at least {need} for coverage {coverage!r}{sure}, got {updates}; {instead}.")


def _score_json(value: float) -> Any:
    """A score; minus infinity as null, and plus infinity, which JSON does not have, as a text."""
    return None if value == -math.inf else "inf" if value == math.inf else value


def _read_score(about: Fields, key: str, value: Any) -> float:
    return -math.inf if value is None else math.inf if value == "inf" else Fields({key: value}, about.where).number(key)


@dataclass(frozen=True)
class CalibrationEvidence:
    """The score of a row, and how many of the updates break it."""

    score: float
    draws: int
    failures: int
    kind: ClassVar[str] = "calibration"

    def to_dict(self) -> dict[str, Any]:
        """The evidence as JSON values."""
        return {"kind": self.kind, "score": _score_json(self.score), "draws": self.draws, "failures": self.failures}

    @classmethod
    def from_dict(cls, about: Fields) -> CalibrationEvidence:
        """The evidence that a file describes."""
        score = _read_score(about.only("kind", "score", "draws", "failures"), "score", about.any("score"))
        return cls(score, about.integer("draws"), about.integer("failures"))

    def recheck(self, question: Question, certificate: Certificate) -> tuple[bool | None, str]:
        """Ask the updates again: none may break the row unless the claim says that it breaks one of such a score."""
        claim = certificate.claim
        if not isinstance(claim, NextUpdate) or question.listed is None:
            return False, "evidence of a calibration is about updates, the file says otherwise"
        used = max((n for step in claim.steps or () for n in step), default=len(claim.worst) - 1)
        if used + 1 != len(question.listed) or claim.measure != question.measure:
            return False, "the claim is not about the listed models"
        if _worded(claim, self) != (certificate.verdict, certificate.reason):
            return False, "verdict and reason do not follow from the score and the claim"
        listed = set(question.shifts.digests) if offers(question.shifts, Fingerprinted) else set()
        # the model that the next step leads from may end an earlier one
        today = model_digest(question.model)
        if listed & ({*claim.made_with, today} if claim.steps is None else {*claim.made_with} - {today}):
            return False, "an update took part in making rows or scores"
        fails = broken_rows(question, claim.steps)[:, 0]
        if (self.draws, self.failures) != (len(fails), int(fails.sum())):
            return False, f"{int(fails.sum())} of {len(fails)} updates break it, the file says {self.failures}"
        again, bases = _score_again(question, claim, question.model), np.full(len(fails), self.score)
        steps = claim.steps or ()
        for i in np.flatnonzero(fails) if steps else ():
            own = _score_again(question, claim, question.listed[steps[i][0]])
            if own is None:
                return None, "how the bases of the updates that break it scored it cannot be computed again"
            bases[i] = own
        if again is not None and not abs(again - self.score) <= SAME_SCORE * abs(again):
            return False, f"its {claim.scored} is {again!r}, the file says {self.score!r}"
        surely = np.where(np.isfinite(bases), bases - SAME_SCORE * np.abs(np.nan_to_num(bases)), bases)
        hidden = np.flatnonzero(fails & (surely > np.array(claim.worst)))
        if len(hidden):
            return False, f"update number {hidden[0]} breaks it, the file says that it breaks no row of such a score"
        scored = "" if again is not None else "; the score itself is taken as stated"
        return True, f"asked again: {self.failures} of {self.draws} updates break it{scored}"


def _score_again(question: Question, claim: NextUpdate, model: Any) -> float | None:
    """The score that a model gives the one row of a question; None if nothing says how to compute it."""
    recipe = Fields(dict(claim.score), "score")
    if "method" not in claim.score or question.points is None:
        return None
    how: dict[str, Any] = {"shifts": KINDS.read(recipe.inner("shifts")), "rng": recipe.entropy("entropy")}
    method = recipe.choice("method", "sampling", "exact")
    return float(max_shift(model, question.points, target=question.target, method=method, **how).deltas[0])


def broken_rows(question: Question, steps: Sequence[tuple[int, int]] | None) -> Bools:
    """Which rows each update breaks, (updates, rows); what is within rounding of the boundary counts as broken."""
    assert question.listed is not None
    with np.errstate(over="ignore", invalid="ignore"):
        margins = question.margins(question.directions(Stream(0, "listed"), 0, len(question.listed)))
    fails = ~(margins > question.band)  # written so that a NaN fails
    return fails if steps is None else fails[[successor for _, successor in steps]]


class Calibration(Certificates):
    """What `calibrate_delta` found: a certificate per row, all with one claim about the next update.

    `offers` are the offers at `delta` of `calibrate_offers`; not part of a file.
    """

    FORMAT = "apas-calibration"
    COLUMNS: ClassVar[tuple[str, ...]] = (*Certificates.COLUMNS[:3], "score", *Certificates.COLUMNS[3:])
    offers: Any = None
    _stated: NextUpdate | None = None

    @property
    def claim(self) -> NextUpdate:
        """The claim that all rows share."""
        if self._stated is None and not len(self):
            raise InputError("a calibration of no rows, read from a file, has no claim; calibrate with some.")
        return self._stated or self[0].claim  # type: ignore[return-value]

    @property
    def scores(self) -> Floats:
        """The score of each row; 0 for one that the model itself rejects (of other scores than `max_shift`, -inf)."""
        rejected = 0.0 if self.claim.scored == "max_shift" else -math.inf
        return np.array([getattr(c.evidence, "score", rejected) for c in self], dtype=np.float64)

    @property
    def delta(self) -> float:
        """The least delta that is covered: rows of a score of at least this are kept. Infinite if none can be."""
        limit = self.claim.threshold
        if self.claim.score["kind"] == "offers":  # of which there are some at the deltas of the grid alone
            return min((d for d in self.claim.score["grid"] if d > limit), default=math.inf)
        return 0.0 if limit == -math.inf else float(np.nextafter(limit, math.inf))

    def summary(self) -> str:
        """How many rows are certified, and the claim."""
        if not len(self):
            return "No rows, no calibration."
        return f"{int(self.certified.sum())} of {self._counted()} certified: {self.claim}."

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the scores of the rows, the largest score that each update broke, and the threshold."""
        return self._drawn("calibration_plot", ax)

    def _line(self, item: Certificate) -> dict[str, Any]:
        return {**super()._line(item), "score": getattr(item.evidence, "score", math.nan)}


def calibrate_delta(
    model: Any,
    updates: Sequence[Any],
    rows: Any,
    *,
    target: Any,
    coverage: float = 0.9,
    confidence: float | None = 0.95,
    score: Any = "max_shift",
    rng: int | np.random.Generator | None = None,
) -> Calibration:
    """Find the delta such that the next update keeps every listed row whose largest certified shift exceeds it.

    Parameters
    ----------
    model : object
        The model of today: see `as_model`.
    updates : sequence of object, or of pairs
        Past or rehearsed updates of this model; or steps of the past as pairs (base, successor), of which the next is
        that from `model`. Of any architecture and preprocessing: nothing but their decisions counts.
    rows : array_like, data frame, Counterfactuals or Certificates of shape (rows, features)
        The explanations, chosen without a look at the updates.
    target : label, array_like of labels or "predicted"
    coverage : float, default 0.9
        The share of updates that are to keep all rows together.
    confidence : float or None, default 0.95
        How surely that share is reached. None for the marginal form, which needs fewer updates: the next one keeps all
        rows with probability `coverage`, over calibration and update.
    score : "max_shift", ShiftSet or callable, default "max_shift"
        What orders the rows: `max_shift` over a box or another set; of `ObservedShifts` the margin over its standard
        deviation across these models, none of which may be an update; or a function of model, rows and targets.
    rng : None, int or numpy.random.Generator

    Returns
    -------
    Calibration
        `delta`, `certified`, `scores` and `claim`; a `Certificates` that can be saved, verified, reported and audited.

    Notes
    -----
    Assumed is that the next update is exchangeable with those listed (with a confidence, that all are independent draws
    of one process). Rows or scores chosen with these updates void it, as do rows of steps that depend on any model of
    them; an update that is known to have taken part is refused. Other rows are not covered: see `calibrate_offers`.

    Examples
    --------
    >>> import apas
    >>> base, *updates = (apas.FeedForward([[[1.0], [-1.0]]], [[b / 50]]) for b in range(10))
    >>> rows = [[1.0, 0.9], [1.0, 1.1], [0.5, 1.5]]
    >>> apas.calibrate_delta(base, updates, rows, target=0, confidence=None, rng=0).certified.tolist()
    [False, False, True]
    """
    listed, steps, coverage, confidence = read_updates(updates, coverage, confidence, "calibrate_delta")
    made: Any = getattr(rows, "certificates", rows)  # counterfactuals, certificates, or a plain table
    points = getattr(made, "points", made)
    question = Question.ask(model, points, target=target, delta=1.0, shifts=listed, method="exact")
    seen = {model_digest(question.model): "the model itself"} if steps is None else {}
    if made is not points:
        seen |= {made.model_digest: "the model that the rows were made for"}
        seen |= dict.fromkeys(made.shifts.digests if offers(made.shifts, Fingerprinted) else (), "used for the rows")
    if offers(score, Fingerprinted):
        seen |= dict.fromkeys(score.digests, "used for the scores")
    refuse_seen(listed, steps, seen)
    seed, fails = entropy_of(rng), broken_rows(question, steps)
    scores, recipe = _scores(question, question.model, score, seed)
    bases = {base: _scores(question, listed.models[base], score, seed)[0] for base in {b for b, _ in steps or ()}}
    own = [scores] * len(fails) if steps is None else [bases[base] for base, _ in steps]
    worst = [float(g[broken].max(initial=-np.inf)) for g, broken in zip(own, fails, strict=True)]
    made_with = tuple(dict.fromkeys((model_digest(question.model), *seen)))
    return certified_by(question, scores, fails, coverage, confidence, recipe, worst, steps, made_with)


def certified_by(
    question: Question, scores: Floats, fails: Bools, coverage: float, level: float | None, recipe: Any, worst: Any,
    *rest: Any,
) -> Calibration:  # fmt: skip
    """The calibration of rows with these scores, by updates that break them so; the rest is that of the claim."""
    near, failures = question.doubtful_rows(), fails.sum(axis=0)
    ok, told = question.valid_rows() & ~near if len(question) else near, (recipe, tuple(map(float, worst)), *rest)
    above = scores > NextUpdate(coverage, level, question.measure, 0, *told).threshold
    claim = NextUpdate(coverage, level, question.measure, int((ok & above).sum()), *told)
    items = []
    for i, target in enumerate(question.target):
        found: Any = CalibrationEvidence(float(scores[i]), len(claim.worst), int(failures[i]))
        verdict, reason = _worded(claim, found)
        if not ok[i]:
            found = BaseEvidence()
            verdict, reason = (Verdict.UNKNOWN, NEAR_BOUNDARY) if near[i] else (Verdict.REFUTED, NOT_VALID)
        items.append(Certificate(claim, verdict, 1.0, target, "calibration", found, reason))
    made = Calibration(items, **question.context)
    made._stated = claim
    return made


def _worded(claim: NextUpdate, found: CalibrationEvidence) -> tuple[Verdict, str]:
    count = f"{found.failures} of {found.draws} updates break it"
    if found.score > claim.threshold:
        return Verdict.CERTIFIED, f"its {claim.scored} is {found.score!r}; {count}"
    return Verdict.UNKNOWN, f"its {claim.scored}, {found.score!r}, does not exceed {claim.threshold!r}; {count}"


def read_updates(
    updates: Any, coverage: Any, confidence: Any, owner: str
) -> tuple[ObservedShifts, tuple[tuple[int, int], ...] | None, float, float | None]:
    """The updates as a set of listed models, of pairs every model once and where each pair stands; and both levels."""
    level = None if confidence is None else check_probability(confidence, "confidence", owner)
    coverage = check_probability(coverage, "coverage", owner)
    if not isinstance(updates, Sequence | np.ndarray) or isinstance(updates, str) or not len(updates):
        raise InputError(f"`updates` must be a list of models, or of pairs (base, successor), got {updates!r}.")
    pairs = [isinstance(update, tuple | list) and len(update) == 2 for update in updates]
    if any(pairs) != all(pairs):
        raise InputError("`updates` must all be models, or all pairs (base, successor), got some of both.")
    rank(len(updates), coverage, level)
    if not all(pairs):
        try:
            return ObservedShifts(list(updates) if isinstance(updates, np.ndarray) else updates), None, coverage, level
        except ApasError:
            for i, update in enumerate(updates):
                read_model(update, f"`updates[{i}]`")  # which names it
            raise
    models: dict[str, Any] = {}
    steps = []
    for i, pair in enumerate(updates):
        read = [read_model(part, f"`updates[{i}]`") for part in pair]
        base, successor = (model_digest(part) for part in read)
        if base == successor:
            raise InputError(f"`updates[{i}]` must be a base and another model that followed it, got the same twice.")
        models |= {base: read[0], successor: read[1]}
        steps.append((base, successor))
    if len(set(steps)) < len(steps):
        told = f"only {len(set(steps))} of the {len(steps)} steps are different; a claim about the next"
        warnings.warn(f"{told} needs steps that are exchangeable with it.", GuaranteeWarning, stacklevel=3)
    places = {digest: place for place, digest in enumerate(models)}
    process = f"the step that follows {len(steps)} steps, each from a model to its successor"
    shifts = ObservedShifts(list(models.values()), process=process)
    return shifts, tuple((places[base], places[successor]) for base, successor in steps), coverage, level


def refuse_seen(listed: ObservedShifts, steps: Any, seen: Mapping[str, str]) -> None:
    """Refuse updates that took part in making rows or scores; of a step that is either of its models."""
    for i, parts in enumerate(zip(range(len(listed.digests))) if steps is None else steps):
        for why in filter(None, (seen.get(listed.digests[part]) for part in parts)):
            told = f"`updates[{i}]` must not have taken part in making rows or scores, but it is {why}"
            raise InputError(f"{told}; leave it out: what was chosen with an update says nothing about the next.")


def _scores(question: Question, model: Any, score: Any, seed: int) -> tuple[Floats, dict[str, Any]]:
    points, target = question.points, question.target
    there = partial(Question.ask, model, points, target=target, delta=1.0)
    if score != "max_shift" if isinstance(score, str) else not (callable(score) or offers(score, ShiftSet)):
        told = 'must be "max_shift", a set of shifts, or a function of model, rows and targets'
        raise InputError(f"`score` of calibrate_delta {told}, got {score!r}.")
    if offers(score, Listed):
        others = there(shifts=score, method="exact")
        margins = others.margins(others.directions(Stream(0, "listed"), 0, len(score.models)))
        if len(margins) < 2:
            raise InputError("`score` of calibrate_delta must list at least 2 models, to have a standard deviation.")
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = others.base_margins / margins.std(axis=0, ddof=1)
        found = np.nan_to_num(ratio, nan=0.0, posinf=np.inf, neginf=-np.inf)
        return np.where(others.valid_rows(), found, -np.inf), {"kind": "margin over its standard deviation"}
    if callable(score) and not offers(score, ShiftSet):
        found = np.asarray(score(model, points, target), dtype=np.float64)
        if found.shape != (len(question),) or np.isnan(found).any():
            told = f"one number per row ({len(question)}), got shape {found.shape} with {np.isnan(found).sum()} NaN"
            raise InputError(f"`score` of calibrate_delta must give {told}.")
        valid = there(shifts=question.shifts, method="exact").valid_rows()
        return np.where(valid, found, -np.inf), {"kind": f"score by {getattr(score, '__name__', type(score).__name__)}"}
    shifts, by = "linf" if isinstance(score, str) else score, "sampling"
    if offers(score, ShiftSet) and isinstance(there(shifts=score, method=by).geometry, Ellipsoid):
        by = "exact"
    largest = max_shift(model, points, target=target, shifts=shifts, method=by, rng=seed)
    recipe = {"kind": "max_shift", "shifts": largest.shifts.to_dict(), "method": by, "entropy": hex(seed)}
    return largest.deltas, recipe if KINDS.know(largest.shifts) else {"kind": "max_shift"}
