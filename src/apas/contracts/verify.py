"""`verify`: recompute every claim of certificates from what they state and the model."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any

import numpy as np

from apas._random import entropy_of
from apas._validation import check_flag, check_integer, check_number
from apas.certification.certificate import NEAR_BOUNDARY, NOT_VALID, BaseEvidence, BoundEvidence, Certificate, Rechecked
from apas.certification.claims import CLAIMS, Claim, Verdict
from apas.certification.derived_seed import LEAST_BITS, source_of_seed, wrong_seed
from apas.certification.max_shift.result import MaxShift, MaxShifts
from apas.certification.methods import METHODS
from apas.certification.methods.enumeration import EnumerationEvidence
from apas.certification.methods.sampling import SamplingEvidence
from apas.certification.question import Question
from apas.certification.results import Certificates, RowResults
from apas.contracts import certified_model, verify_evidence as again
from apas.contracts.certificate_file import as_stored
from apas.contracts.verify_evidence import Answer, Checked, Fresh
from apas.counterfactuals.result import Counterfactuals
from apas.display.numbers import exactly, plain
from apas.errors import ApasError, InputError
from apas.models.base import Model, as_model, offers
from apas.models.digest import model_digest
from apas.shifts.base import Fingerprinted, Incomplete, Listed, coordinates


@dataclass(frozen=True)
class VerifyRow:
    """What became of one statement about one row.

    Attributes
    ----------
    statement, claimed : str
        "certificate" and its verdict, or "largest shift" and its delta.
    coverage : float
        The share of the shifts that the claim speaks of; 1 for every shift.
    confidence : float or None
        That of the claim, for all its `rows` together; 1 for a proof. None where it holds for each test of a search by
        itself, not for the delta that they led to (``search="paper"``).
    tested_at : float or None
        The confidence of the row's own test, or search, which is higher where the risk is divided among `rows` and
        the tests of a search; rounded down.
    shifts : str
        The set that delta is a size in, with its scales.
    seed : str or None
        Where the draws come from: "derived", "chosen" by the issuer, or "models as given"; None if there are none.
    bits : int or None
        Of a derived seed: its risk is ``2**-bits``.
    """

    statement: str
    claimed: str
    target: Any
    delta: float
    coverage: float
    confidence: float | None
    rows: int
    tested_at: float | None
    shifts: str
    check: Checked
    reason: str
    seed: str | None = None
    bits: int | None = None

    @property
    def is_promise(self) -> bool:
        """Whether anything is claimed to be kept: a row that is refuted, or undecided, has no coverage to speak of."""
        return self.claimed == "CERTIFIED" if self.statement == "certificate" else self.delta > 0

    def sureness(self) -> str:
        """The confidence in words: for how many rows, and at what the row itself was tested."""
        if self.confidence is None:
            return "of each test alone"
        together = f" for {self.rows} rows together" if self.rows > 1 else ""
        if self.bits is not None:
            return f"1 - 2^-{self.bits}{together}"
        tested = f", tested at {self.tested_at}" if self.tested_at != self.confidence else ""
        return f"{exactly(self.confidence)}{together}{tested}"

    def to_dict(self) -> dict[str, Any]:
        """The line as JSON values."""
        return {**vars(self), "target": plain(self.target), "check": self.check.value}


def _lacking(line: VerifyRow, least: Mapping[str, float], target: str | None, derived: bool) -> str | None:
    """What a line does not claim of what it must claim at least, in words; None if it claims enough."""
    if target is not None and str(plain(line.target)) != target:
        return f"is about the target {str(plain(line.target))!r}, {target!r} is required"
    if not line.is_promise and (least or target is not None):
        what = next((f"{name} {exactly(value)}" for name, value in least.items()), f"the target {target!r}")
        return f"certifies nothing, {what} is required"
    for name, value in least.items():
        claimed = getattr(line, name)
        if claimed is None:
            return f"claims a confidence of each test of its search alone, {exactly(value)} is required"
        if claimed < value:
            together = f" for {line.rows} rows together" if name == "confidence" and line.rows > 1 else ""
            told = f"1 - 2^-{line.bits}" if name == "confidence" and line.bits else exactly(claimed)
            return f"claims {name} {told}{together}, {exactly(value)} is required"
    if derived and line.seed is not None and (line.bits or 0) < LEAST_BITS:
        return f"its draws could be chosen, a derived seed of {LEAST_BITS} bits is required"
    return None


class VerifyReport(RowResults[VerifyRow]):
    """One line per statement of a certificate file, in its order: first the certificates, then the largest shifts.

    Attributes
    ----------
    complaint : str
        Why the model is not the one that a file without rows is about; else empty, since each row says so itself.
    notes : tuple of str
        Whether seeds were derived or chosen, and what fresh draws could show.
    """

    FORMAT = "apas-verify-report"
    COLUMNS = tuple(VerifyRow.__dataclass_fields__)
    UNSHOWN = ("rows", "tested_at", "shifts")

    complaint: str = ""
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[VerifyRow, ...]:
        """The lines themselves."""
        return tuple(self)

    @property
    def ok(self) -> bool:
        """Whether there is something to check, and everything was checked and holds."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """0 if all hold, 1 if something does not, 3 if all that was checked holds but some, or nothing, was checked."""
        checks = {row.check for row in self}
        if self.complaint or Checked.FAILS in checks:
            return 1
        return 0 if checks == {Checked.HOLDS} else 3

    def summary(self) -> str:
        """How many lines hold, in one sentence."""
        if not len(self):
            return f"No rows; but {self.complaint}." if self.complaint else "No rows, nothing to check."
        counts = {check: sum(row.check is check for row in self) for check in Checked}
        parts = ", ".join(f"{n} {check}" for check, n in counts.items() if n)
        first = next((row for row in self if row.check is Checked.FAILS), None)
        total = f"{len(self)} statement{'s' if len(self) > 1 else ''}"
        return f"{total}: {parts}{f'; first failure: {first.reason}' if first else ''}."

    def _line(self, item: VerifyRow) -> dict[str, Any]:
        return item.to_dict() if item.bits is None else {**item.to_dict(), "confidence": f"1 - 2^-{item.bits}"}

    def _about(self) -> dict[str, Any]:
        return {"ok": self.ok, "notes": list(self.notes)}


_Check = Callable[[Question, Sequence[Certificate], Sequence[int]], dict[int, Answer]]
_CHECKS: dict[type[Any], _Check] = {
    SamplingEvidence: again.draw_again,
    BoundEvidence: again.prove_again,
    EnumerationEvidence: again.enumerated_again,
}


def verify(
    certificates: Certificates | Counterfactuals | MaxShifts | str | os.PathLike[str],
    model: Any,
    *,
    models: Sequence[Any] = (),
    shifts: Any = None,
    require_coverage: float | None = None,
    require_confidence: float | None = None,
    require_delta: float | None = None,
    require_target: Any = None,
    require_derived: bool = False,
    fresh: bool = False,
    samples: int | None = None,
    rng: int | np.random.Generator | None = None,
) -> VerifyReport:
    """Recompute every claim of certificates: draws are drawn again, bounds proved again, witnesses replayed.

    Parameters
    ----------
    certificates : Certificates, Counterfactuals, MaxShifts or path
        What `certify`, `generate`, `max_shift` or `load_certificates` returned, or the name of a certificate file.
    model : object
        The model that they are about: see `as_model`. If raw rows are encoded by a `FeatureSpace`, pass
        ``space.bind(model)``: without the space that you trust, such rows are not checked.
    models : sequence of object, optional
        The models of `ObservedShifts`, of which a file holds fingerprints only; without them such rows are not checked.
    shifts : DataChange, optional
        The set with its training table, of which a file holds a digest only; without it such rows are not checked.
    require_coverage, require_confidence, require_delta : float, optional
        What each row must claim at least; one that claims less fails, also if what it claims is true, and so does one
        that certifies nothing. A claim about every shift has coverage 1, a proof confidence 1; the confidence is that
        of the claim, for all its rows together. Deltas are sizes in the set that the row names, in its norm and scales.
    require_target : label, optional
        The class that each row must be about, compared as text.
    require_derived : bool, default False
        Fail rows whose draws do not come from a derived seed (`DerivedSeed`) at a risk of at most 2^-64. What was
        decided without draws has no seed to choose.
    fresh : bool, default False
        Test the claims of rows that were certified by sampling once more, on draws that are made now. A seed that was
        chosen by trying many passes `verify`, but not this.
    samples : int, optional
        How many models are drawn afresh for each row, whatever the issuer drew. Unless given as many, up to 10,000,000,
        as refute a row with probability 0.99 of which 1.5 times as large a share fails as its claim leaves out. The
        `notes` of the report say what the draws could show.
    rng : None, int or numpy.random.Generator
        Seed of the fresh draws; None takes one from the operating system.

    Returns
    -------
    VerifyReport
        One line per certificate and largest shift: what it claims, ``HOLDS``, ``FAILS`` or ``NOT CHECKED``, and why.

    Notes
    -----
    Recomputed is all that the claim rests on. Names of rows, original inputs and versions in a file describe only.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> certificates = apas.certify(net, [[2.0, 0.5], [1.0, 0.9]], 0.1, target=1, rng=0)
    >>> verify(certificates, net).ok
    True
    >>> verify(certificates, net, require_coverage=0.999).rows[0].reason
    'claims coverage 0.995, 0.999 is required'
    """
    check_flag(fresh, "fresh")
    if samples is not None:
        check_integer(samples, "samples", "verify", least=1)
        if not fresh:
            raise InputError("`samples` of verify goes with fresh=True; leave it out, or draw afresh.")
    target = None if require_target is None else str(plain(require_target))
    asked = {"coverage": (require_coverage, 1), "confidence": (require_confidence, 1), "delta": (require_delta, None)}
    least = {
        name: check_number(value, f"require_{name}", "verify", above=0, most=most)
        for name, (value, most) in asked.items()
        if value is not None
    }
    check_flag(require_derived, "require_derived")
    if isinstance(models, str) or not isinstance(models, Sequence):
        raise InputError(f"`models` must be a list of models, those of ObservedShifts, got {type(models).__name__}.")
    # as a file has it, so that a result is checked as its file would be
    net, stored = as_model(model), as_stored(certificates)
    parts = [
        certified_model.with_readings(part) for part in (stored.certificates, stored.max_shifts) if part is not None
    ]
    drawn = Fresh(entropy_of(rng), samples)  # also where nothing is drawn: what is no seed is refused
    anew = drawn if fresh else None
    lines: list[VerifyRow] = []
    for part in parts:
        if len(models) and offers(part.shifts, Fingerprinted):
            part.shifts = part.shifts.with_models(models)
        part = certified_model.completed(part, shifts)
        answers = _check_rows(part, net, anew)
        for item, answer in zip(part, answers, strict=True):
            line = _told(item, part.shifts, net, answer)
            less = None if line.check is Checked.FAILS else _lacking(line, least, target, require_derived)
            lines.append(line if less is None else replace(line, check=Checked.FAILS, reason=less))
    report = _report(lines, parts)
    counts = Counter((line.seed, line.bits) for line in lines if line.seed is not None)
    which = {key: f"{count} of {len(lines)} statements" for key, count in counts.items()}
    seeds = [f"Seed: {_SEEDS[seed].format(rows, bits)}" for (seed, bits), rows in which.items()]
    report.notes = (*seeds, *drawn.notes)
    if not lines and model_digest(net) != parts[0].model_digest:
        report.complaint = "this is not the model that the file is about"
    return report


def _told(item: Any, shifts: Any, net: Model, answer: Answer) -> VerifyRow:
    claim, own = item.claim, item.claim.row_confidence
    is_certificate, alone = isinstance(item, Certificate), isinstance(item, MaxShift) and item.per_test
    down = Context(prec=15, rounding=ROUND_FLOOR)  # what is shown must not be more than was tested
    tested = None if alone else float(down.divide(Decimal(own.numerator), Decimal(own.denominator)))
    sure = (None if alone else claim.confidence, claim.rows, tested, _set_words(claim, shifts, net))
    kind = "certificate" if is_certificate else "largest shift"
    claimed = item.verdict.name if is_certificate else f"delta {item.written()}"
    seed = source_of_seed(item) if answer[0] is not Checked.FAILS else None
    seed = "models as given" if seed and offers(shifts, Fingerprinted) else seed
    bits = getattr(claim, "bits", None)
    return VerifyRow(kind, claimed, item.target, item.delta, claim.coverage, *sure, *answer, seed, bits)


#: What a reader is told about each source of draws.
_SEEDS = {
    "derived": "derived ({}); whoever tries N variants gets a false certificate with probability at most N / 2^{}.",
    "chosen": 'chosen by the issuer ({}); who tries many finds one that passes: ask for rng="derived", or draw afresh.',
    "models as given": "models as given ({}); whether some were left out, or reordered, cannot be seen.",
}


def _set_words(claim: Claim, shifts: Any, net: Model) -> str:
    """The set of the file with its scales, as words of its own, whatever a claim says about it."""
    content = shifts.to_dict()
    scale = content.get("scale")
    try:
        moving = coordinates(shifts, net)
        words = str(shifts.region(moving) if claim.coverage == 1 else shifts.measure(moving))
    except ApasError:  # a set of another model, or models that are not at hand
        words = f"shifts of the kind {content.get('kind', type(shifts).__name__)!r}"
    if isinstance(scale, dict):
        return f"{words}; scales {', '.join(f'{name}: {exactly(factor)}' for name, factor in scale.items())}"
    parts = () if scale is None else np.atleast_1d(np.asarray(scale, dtype=object))
    flat = np.concatenate([np.empty(0), *(np.ravel(part) for part in parts)])
    if flat.size:  # a file may hold a list of none
        return f"{words}; scales from {exactly(float(flat.min()))} to {exactly(float(flat.max()))}"
    return words


def _check_rows(found: Certificates | MaxShifts, net: Model, fresh: Fresh | None) -> list[Answer]:
    if not len(found):
        return []
    matched = certified_model.match_model(found, net)
    if isinstance(matched, str):
        return [(Checked.FAILS, matched)] * len(found)
    if offers(found.shifts, Fingerprinted) and not offers(found.shifts, Listed):
        reason = "the file holds only fingerprints of the models it is about; pass them as `models`"
        return [(Checked.NOT_CHECKED, reason)] * len(found)
    if offers(found.shifts, Incomplete):
        return [(Checked.NOT_CHECKED, found.shifts.missing)] * len(found)
    complaints = certified_model.wrong_targets(list(found), matched.model.classes)
    if any(complaints):  # nothing can be asked about a class that there is not
        rest = iter(_check_rows(found[np.array([said is None for said in complaints])], net, fresh))
        return [(Checked.FAILS, said) if said else next(rest) for said in complaints]
    try:
        question, told = certified_model.ask_again(found, matched)
        with np.errstate(over="ignore", invalid="ignore"):
            wrong = certified_model.row_complaints(found, question, told)
            alone = [question.take(slice(i, i + 1)) for i in range(len(found))]
            about = (found.model_digest, matched.unidentified)
            seeds = [wrong_seed(one, found[i], *about) for i, one in enumerate(alone)]
            if any(getattr(item, "region", None) and source_of_seed(item) == "derived" for item in found):
                seeds = ["a derived seed does not bind its region"] * len(found)
            wrong = [said or seed for said, seed in zip(wrong, seeds, strict=True)]
            if isinstance(found, MaxShifts):
                own = None if found.model is None else _recheck_itself
                answers = dict(enumerate(again.searched_again(question, list(found), own)))
            else:
                answers = _answers(question, list(found), fresh, from_file=found.model is None)
    except ApasError as error:  # a set that moves nothing of this model, rows that it cannot read
        return [(Checked.FAILS, f"the question makes no sense: {error}")] * len(found)
    said = [answers[i] if complaint is None else (Checked.FAILS, complaint) for i, complaint in enumerate(wrong)]
    return [_as_far_as_known(answer, matched) for answer in said]


def _answers(question: Question, items: list[Certificate], fresh: Fresh | None, from_file: bool) -> dict[int, Answer]:
    near = question.doubtful_rows()
    valid = question.valid_rows() & ~near
    answers: dict[int, Answer] = {}
    for i, (item, ok) in enumerate(zip(items, valid.tolist(), strict=True)):
        of_base = isinstance(item.evidence, BaseEvidence)
        if item.region is not None and question.regions is None:  # the preprocessing is not at hand
            answers[i] = Checked.NOT_CHECKED, "its region is told in units that this model does not take"
        elif item.region is not None and of_base:
            answers[i] = again.region_today(question, i, item)
        elif item.region is None and (of_base or not ok):
            answers[i] = _base(question, item, ok, bool(near[i]), from_file)
        elif not (CLAIMS.know(item.claim) and isinstance(item.evidence, tuple(_CHECKS))):
            answers[i] = _recheck_itself(question.take(slice(i, i + 1)), item)
    for kind, check in _CHECKS.items():
        rows = [i for i, item in enumerate(items) if isinstance(item.evidence, kind) and i not in answers]
        answers |= check(question, items, rows) if rows else {}
    if fresh is not None:
        sampled = [i for i, item in enumerate(items) if isinstance(item.evidence, SamplingEvidence)]
        certified = [i for i in sampled if answers[i][0] is Checked.HOLDS and items[i].is_certified]
        answers |= again.confirmed_anew(question, items, certified, answers, fresh) if certified else {}
    return answers


def _recheck_itself(alone: Question, item: Certificate | MaxShift) -> Answer:
    """What a claim or evidence that is not the package's own says about itself."""
    for part in (item.claim,) if isinstance(item, MaxShift) else (item.evidence, item.claim):
        if offers(part, Rechecked):
            holds, reason = part.recheck(alone, item)
            return {True: Checked.HOLDS, False: Checked.FAILS, None: Checked.NOT_CHECKED}[holds], reason
    if isinstance(item, MaxShift):
        kind = type(item.claim).__name__
        return Checked.NOT_CHECKED, f"nothing is known that would search again: a claim of type {kind} has no recheck()"
    kinds = f"evidence of type {type(item.evidence).__name__} for a claim of type {type(item.claim).__name__}"
    return Checked.NOT_CHECKED, f"nothing is known that would check {kinds} again: neither has a recheck()"


def _base(question: Question, item: Certificate, valid: bool, near: bool, from_file: bool) -> Answer:
    """A row that the model itself decides, or leaves open by its rounding: whether it does."""
    verdict, reason = (Verdict.UNKNOWN, NEAR_BOUNDARY) if near else (Verdict.REFUTED, NOT_VALID)
    if near and not isinstance(item.evidence, BaseEvidence):
        return Checked.FAILS, f"{NEAR_BOUNDARY}, the file says otherwise"
    if valid or not isinstance(item.evidence, BaseEvidence):
        return Checked.FAILS, f"on the model itself the row is {'' if valid else 'not '}valid, the file says otherwise"
    if item.verdict is not verdict or item.reason != reason or item.witness is not None:
        what = f"a row that is {NOT_VALID}" if not near else "a row whose class is owed to rounding"
        return Checked.FAILS, f"{what} is {verdict} for that reason and no other"
    if from_file and item.method not in (*METHODS, "calibration"):  # a method of somebody's own answers in memory alone
        return Checked.FAILS, f"apas knows no method {item.method!r}"
    words = question.region if item.claim.coverage == 1 else question.measure
    if CLAIMS.know(item.claim) and item.claim.measure != words:
        return Checked.FAILS, f"the set is {words!r}, the file says {item.claim.measure!r}"
    return Checked.HOLDS, reason


def _as_far_as_known(answer: Answer, matched: certified_model.Matched) -> Answer:
    """What holds only if raw rows are encoded in a way that the model at hand does not tell is not checked."""
    if answer[0] is not Checked.HOLDS:
        return answer
    if not (matched.network_only or matched.borrowed_space):
        alike = f"of this model; {matched.unidentified} has no fingerprint, and may be another in the model of the file"
        return (Checked.HOLDS, f"{answer[1]}: {alike}") if matched.unidentified else answer
    missing = "the preprocessing is not part of this model"
    if matched.borrowed_space:
        missing = "only the file says how its space encodes rows; verify with space.bind(model), or --space"
    return Checked.NOT_CHECKED, f"in model units it holds ({answer[1]}), but {missing}"


def _report(lines: list[VerifyRow], parts: Sequence[Certificates | MaxShifts]) -> VerifyReport:
    both: Any = [part.points for part in parts]
    labels: Any = [label for part in parts for label in part._labels()]
    if len(parts) == 1 or isinstance(both[0], np.ndarray):
        return VerifyReport(lines, points=np.concatenate(both) if len(parts) > 1 else both[0], index=labels)
    import pandas as pd

    return VerifyReport(lines, points=pd.concat(both), index=pd.Index(labels))
