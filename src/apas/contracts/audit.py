"""`audit`: whether a new model keeps what certificates promised about the old one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import numpy as np

from apas._fields import Fields
from apas._sanitise import for_markdown, for_xml
from apas._typing import Bools
from apas._validation import check_flag, is_frame, is_path
from apas.certification.calibration import NextUpdate
from apas.certification.certificate import Certificate
from apas.certification.claims import EVERY, is_proof
from apas.certification.question import Question
from apas.certification.results import Certificates, RowResults
from apas.contracts import certified_model
from apas.contracts.certificate_file import LOADED, as_results, load_certificates
from apas.contracts.certificate_lines import table_digest
from apas.contracts.certified_model import Successor, as_python, bounds_distance, completed, own_columns
from apas.contracts.repairs import RegionOutcome, Repair, assumed_space, region_outcomes, repair_rows
from apas.counterfactuals.result import Counterfactuals
from apas.counterfactuals.space.encoder import CodedModel
from apas.counterfactuals.space.space import FeatureSpace, check_space
from apas.display.numbers import at_most, exactly, plain
from apas.display.tables import markdown_table
from apas.errors import ApasError, InputError
from apas.models.base import offers
from apas.models.digest import model_digest
from apas.shifts.base import Incomplete, Refitted
from apas.shifts.data_change import RefitReport
from apas.shifts.distance import ShiftReport, read_model

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Outcome(Enum):
    """What became of one row; the value says it in a sentence."""

    HELD = "The new model gives the promised class."
    BROKEN_INSIDE = "It does not, although it lies in the set of models that the certificate speaks of."
    BROKEN_OUTSIDE = "It does not, and it lies outside of that set."
    BROKEN = "It does not, and it is not known whether it lies in that set."
    OPEN = "No row of the promised region is known that it rejects, but that there is none is not proved."
    NOT_PROMISED = "The row was not certified, so nothing was promised."

    def __str__(self) -> str:
        return self.name

    @property
    def is_broken(self) -> bool:
        """Whether it is a promise that is not kept."""
        return self.name.startswith("BROKEN")


@dataclass(frozen=True)
class AuditRow:
    """What became of one row.

    Attributes
    ----------
    valid : bool
        Whether the new model gives the row its target class; of a region, whether no row of it is known to be rejected.
    inside : bool or None
        Whether the new model lies in the set of the row's certificate; None if that is not known.
    verdict, claim : str
        What the certificate says, and about which shifts.
    repair : Repair or None
        Of a broken promise the nearest allowed row that is valid on the new model, or why there is none, if asked for.
    was_valid : bool
        Whether the certified model itself gave the row its target class.
    """

    outcome: Outcome
    valid: bool
    inside: bool | None
    verdict: str
    claim: str
    target: Any
    delta: float
    reason: str
    repair: Repair | None = None
    was_valid: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON values."""
        repair = None if self.repair is None else self.repair.to_dict()
        return {**vars(self), "outcome": self.outcome.name, "target": plain(self.target), "repair": repair}

    @classmethod
    def from_dict(cls, about: Fields) -> Self:
        """What a file says became of a row."""
        outcome, inside = Outcome[about.choice("outcome", *Outcome.__members__)], about.content.get("inside")
        what = about.any("target"), about.any("delta"), about.text("reason")
        more = Repair.from_dict(about.content.get("repair")), bool(about.content.get("was_valid", True))
        return cls(outcome, about.flag("valid"), inside, about.any("verdict"), about.text("claim"), *what, *more)


class AuditReport(RowResults[AuditRow]):
    """One line per certificate: whether the new model keeps what it promised.

    Attributes
    ----------
    points : ndarray, data frame or None
        The promised rows, in the user's units; None if they come from several tables.
    shifts : dict of str to ShiftReport
        How far the new model lies from the model that was certified, by the SHA-256 of that; empty if nobody measured.
    comparable : bool
        Whether the measured shift says if the new model lies in the certified sets: each delta bounds that very
        distance, and it is known that nothing but parameters differs.
    expired : int or None
        How many promises of a ledger nobody asked about because their last day has passed; None without a ledger.
    strict : bool
        Whether `ok` is False, too, if promises have expired.
    """

    FORMAT = "apas-audit-report"
    COLUMNS = ("outcome", "valid", "inside", "verdict", "target", "delta", "claim", "reason", "repair", "was_valid")
    UNSHOWN = ("claim", "valid", "was_valid")

    def __init__(
        self,
        items: Sequence[AuditRow],
        *,
        new_digest: str,
        shifts: Mapping[str, ShiftReport] | None = None,
        notes: Sequence[str] = (),
        comparable: bool = False,
        expired: int | None = None,
        strict: bool = False,
        **rows: Any,
    ) -> None:
        super().__init__(items, **rows)
        self.new_digest, self.shifts, self.notes = new_digest, dict(shifts or {}), tuple(notes)
        self.comparable, self.expired, self.strict = comparable, expired, strict
        self._asked = len(items)  # of which a part of the report may have none

    @property
    def rows(self) -> tuple[AuditRow, ...]:
        """The lines themselves."""
        return tuple(self)

    @property
    def ok(self) -> bool:
        """Whether no promise is broken and, if that was asked for, none has expired."""
        return not self.broken.any() and not (self.strict and self.expired)

    @property
    def broken(self) -> Bools:
        """Which promises are broken, as a boolean array."""
        return np.array([row.outcome.is_broken for row in self], dtype=bool)

    @property
    def exit_code(self) -> int:
        """0 if the audit is `ok`, else 1."""
        return 0 if self.ok else 1

    @property
    def shift(self) -> ShiftReport | None:
        """How far the new model lies from the one that was certified, if that was one model, and measured."""
        return next(iter(self.shifts.values())) if len(self.shifts) == 1 else None

    @property
    def wrong_certificates(self) -> int:
        """How many certificates about every shift the new model contradicts."""
        # a proof of somebody's own has words of its own
        wrong = (row for row in self if row.outcome is Outcome.BROKEN_INSIDE)
        return sum(row.claim == EVERY or row.reason.startswith(_WRONG) for row in wrong)

    def heading(self) -> str:
        """Whether the promises are kept, in a few words; what has expired is not passed over."""
        broken, gone = int(self.broken.sum()), f"{self.expired} expired" if self.expired else ""
        if broken:
            return f"{broken} promise{'s are' if broken > 1 else ' is'} broken{gone and f', {gone}'}"
        if self.expired is not None and not self._asked:
            return f"No promise is owed{gone and f': {gone}'}"
        return f"All promises that are owed are kept, {gone}" if gone else "All promises are kept"

    def summary(self) -> str:
        """How many promises are kept, and how far the model moved."""
        if not len(self):
            nothing = "No rows, nothing was promised." if self.expired is None else f"{self.heading()}."
            return "No rows." if self._asked else nothing
        counts = {outcome: sum(row.outcome is outcome for row in self) for outcome in Outcome}
        never = sum(not row.was_valid for row in self)
        why = {Outcome.NOT_PROMISED: f" ({never} not valid on the certified model itself)" if never else ""}
        parts = ", ".join(f"{n} {outcome.name}{why.get(outcome, '')}" for outcome, n in counts.items() if n)
        parts += f"; {self.expired} expired" if self.expired else ""
        moved = f" {self.shift.summary()}" if self.shift is not None else ""
        wrong = self.wrong_certificates
        alarm = f" {wrong} certificate{'s' if wrong > 1 else ''} about every shift cannot be right." if wrong else ""
        return f"{self._counted()}: {parts}.{alarm}{moved}"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the certified delta of each row and what became of it, beside the measured shift if that compares."""
        from apas.display.plots import outcome_plot

        measured = self.shift.delta if self.shift is not None and self.comparable else None
        return outcome_plot(self.rows, [str(label) for label in self._labels()], measured, ax)

    def to_markdown(self) -> str:
        """The report as Markdown, for a pull request or a build page."""
        import pandas as pd

        parts = [f"## {self.heading()}", for_markdown(self.summary())]
        parts += ["\n".join(f"- {for_markdown(note)}" for note in self.notes)] if self.notes else []
        lines = [
            (label, row.outcome.name, row.target, exactly(row.delta), row.reason, row.repair or "")
            for label, row in zip(self._labels(), self, strict=True)
        ]
        if lines:
            names = ["row", "outcome", "target", "delta", "reason", "nearest repair"]
            parts.append(markdown_table(pd.DataFrame(lines, columns=names).astype(str)))
        for digest, shift in self.shifts.items():
            sizes = shift.to_frame()
            sizes = sizes[sizes["p"] == shift.p].assign(change=sizes[shift.models[0]].map(at_most))
            table = markdown_table(sizes[["layer", "kind", "size", "change"]].astype(str))
            parts.append(f"### Shift from {digest[:12]}\n\n{table}")
        return "\n\n".join(parts) + "\n"

    def to_junit(self) -> str:
        """The report as JUnit XML: a test case per row, failed if a promise is broken, skipped if none was made."""
        outcomes = [row.outcome for row in self]
        gone = int(bool(self.expired))
        skipped = sum(outcome.name == "NOT_PROMISED" for outcome in outcomes) + (0 if self.strict else gone)
        failures = int(self.broken.sum()) + (gone if self.strict else 0)
        counts = {"tests": len(self) + gone, "failures": failures, "errors": 0, "skipped": skipped}
        suites = Element("testsuites")
        suite = SubElement(suites, "testsuite", {"name": "apas audit", **{k: str(v) for k, v in counts.items()}})
        about = {"classname": "apas.audit", "name": "expired promises", "time": "0"}
        for label, row in zip(self._labels(), self, strict=True):
            case = SubElement(suite, "testcase", {**about, "name": for_xml(f"row {label}")})
            if row.outcome.is_broken:
                failure = SubElement(case, "failure", {"type": row.outcome.name, "message": for_xml(row.reason)})
                failure.text = for_xml(f"{row.reason}\nnearest repair: {row.repair or 'nobody asked'}")
            elif row.outcome.name == "NOT_PROMISED":
                SubElement(case, "skipped", {"message": for_xml(row.reason)})
        if gone:
            case = SubElement(suite, "testcase", about)
            said = f"{self.expired} expired: their last day has passed, and nobody has retired them"
            SubElement(case, "failure" if self.strict else "skipped", {"message": said})
        SubElement(suite, "system-out").text = for_xml("\n".join([self.summary(), *self.notes]))
        indent(suites, " ")
        return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(suites, encoding="unicode") + "\n"

    def _line(self, item: AuditRow) -> dict[str, Any]:
        told = {name: getattr(item, name) for name in self.COLUMNS}
        return {**told, "outcome": item.outcome.name, "repair": str(item.repair or "")}

    def _about(self) -> dict[str, Any]:
        said: dict[str, Any] = {"ok": self.ok, "summary": self.summary(), "new_digest": self.new_digest}
        said |= {"notes": list(self.notes), "shifts": {key: shift.to_dict() for key, shift in self.shifts.items()}}
        said["points_digest"] = None if self.points is None else table_digest(self.points)
        return said if self.expired is None else {**said, "expired": self.expired}


_WRONG = (
    "THE CERTIFICATE WAS WRONG: it says that every model of its set gives the class, the new model is one of the set, "
    "and does not; check the certificate with verify, and if it holds there, report this as an error of apas"
)
_NEAR = "; but its margin lies within rounding of 0, where a computed sign may be wrong"
#: Added to what a new model says of a row where its own rounding may say otherwise.
_DOUBT = ", within float32 rounding of the boundary, where the model itself may decide otherwise"
_ROUNDED = "Which class the new model itself gives to a row within float32 rounding of the boundary is not known here."
_NEVER_VALID = "since the certified model itself did not give the class"
_NO_SPACE = (
    "What the features may be was not said: repairs change {what}, and nobody knows whether that is possible; pass "
    "`space` (--space)."
)


def audit(
    certificates: Certificates | Counterfactuals | str | os.PathLike[str],
    new_model: Any,
    *,
    base: Any = None,
    validity_only: bool = False,
    space: FeatureSpace | None = None,
    repairs: bool = True,
    data: Sequence[Any] | None = None,
    shifts: Any = None,
) -> AuditReport:
    """Ask a new model whether it keeps what certificates promised; of what it breaks, find the nearest repair.

    Parameters
    ----------
    certificates : Certificates, Counterfactuals or path
        What `certify`, `generate` or `load_certificates` returned, or the name of a certificate file. Rows that are
        ``CERTIFIED`` are promises, others are not.
    new_model : object
        The model that is to be used from now on: see `as_model`. It may be of another kind or have other features, as
        long as it can read the rows; a column that they do not have is passed as missing.
    base : object, optional
        The model that was certified. With it the shift is measured, overall and per layer, and each broken promise is
        said to lie inside or outside of what was certified; without it that is not known.
    validity_only : bool, default False
        Ask only which rows are valid on the new model, and compare it with nothing.
    space : FeatureSpace, optional
        What repairs may change. Known if `generate` made the certificates with a space that encodes the rows.
    repairs : bool, default True
        Whether to look for repairs.
    data : tuple (X, y) or (X, y, sample_weight), optional
        The table that the new model was fitted on, for certificates about refits (`DataChange`): how it changed and how
        large the gradient at the new model is are measured, which tells whether they speak of it.
    shifts : DataChange, optional
        The set with its training table, if the certificates come from a file, which holds its digest only.

    Returns
    -------
    AuditReport
        One line per certificate: ``HELD``, ``BROKEN_INSIDE``, ``BROKEN_OUTSIDE``, ``BROKEN`` (without `base`, if not
        all of the models has a fingerprint, or of claims about a training process) or ``NOT_PROMISED``.

    Notes
    -----
    The certificates themselves are not checked: see `verify`. A repair is no promise: certify it before it becomes one.

    Examples
    --------
    >>> import apas
    >>> old = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]], feature_names=("income", "debt"))
    >>> certificates = apas.certify(old, [[2.0, 0.5], [1.0, 0.9]], 0.01, target=1, method="interval")
    >>> new = apas.FeedForward([[[1.0], [-1.0]]], [[-0.2]], feature_names=("income", "debt"))
    >>> report = audit(certificates, new, base=old)
    >>> [row.outcome.name for row in report], float(report.shift)
    (['HELD', 'BROKEN_OUTSIDE'], 0.2)
    """
    check_flag(validity_only, "validity_only")
    check_flag(repairs, "repairs")
    if space is None and isinstance(certificates, Counterfactuals):
        space = certificates.space
    found = completed(certificates_of(certificates), shifts)
    if space is not None:
        check_space(space)
    new_model = read_model(new_model, "`new_model`")
    new_digest = model_digest(new_model)
    if not len(found):
        return AuditReport([], points=found.points, new_digest=new_digest, index=found._index)
    certified_model.check_unchanged(found)
    base, shifts = None if base is None else read_model(base, "`base`"), found.shifts
    new = certified_model.read_successor(found, new_model, base, validity_only=validity_only, known=found.model)
    question = certified_model.rows_on(found, new)
    shift, refit = new.shift(shifts), _measure_refit(new, shifts, None if validity_only else data)
    lies = new.lies_in(shifts, [(item.delta, is_proof(item.claim)) for item in found], shift, refit)
    with np.errstate(over="ignore", invalid="ignore"):
        valid, rounded = question.valid_rows().tolist(), question.doubtful_rows()
        regions = {} if question.regions is None else region_outcomes(question)
        rows = []
        for i, item in enumerate(found):
            whole = valid[i] and (i not in regions or regions[i].kept is not False)  # a region is kept as a whole
            inside, doubt = lies[item.delta, is_proof(item.claim)], _DOUBT if rounded[i] else ""
            why = partial(new.why, inside, item, shifts, shift)
            row = _row(question, i, item, whole, inside, doubt, why)
            rows.append(_about_region(row, regions[i]) if i in regions else row)
    notes = [*new.notes, *([_ROUNDED] if rounded.any() else []), *calibration_notes(list(found), rows)]
    notes += [] if refit is None else [f"Refit: {refit.sentence()}."]
    broken = np.array([row.outcome.is_broken for row in rows])
    if repairs and broken.any():
        fixes, assumed = _repairs(found, new, broken, space)
        notes += assumed
        rows = [replace(row, repair=fixes.pop(0)) if row.outcome.is_broken else row for row in rows]
    about: dict[str, Any] = {"points": found.points, "feature_names": found.feature_names, "index": found._index}
    about |= {"new_digest": new_digest, "notes": notes, "shifts": {} if shift is None else {found.model_digest: shift}}
    comparable = bounds_distance(shifts) and not new.differs and not new.unidentified
    return AuditReport(rows, comparable=comparable, **about)


def calibration_notes(items: Sequence[Any], rows: Sequence[AuditRow]) -> list[str]:
    """What became of claims about all their rows together, each of which a new model keeps or breaks as a whole."""
    together: dict[str, list[bool]] = {}
    for item, row in zip(items, rows, strict=True):
        if isinstance(item.claim, NextUpdate) and item.is_certified:
            together.setdefault(str(item.claim), []).append(row.outcome.is_broken)
    told = []
    for said, hits in together.items():
        what = f"breaks {sum(hits)} of the {len(hits)} asked" if any(hits) else f"keeps all {len(hits)} asked"
        told.append(f"A claim about rows together ({said}): the new model {what}.")
    return told


def _measure_refit(new: Successor, shifts: Any, data: Sequence[Any] | None) -> RefitReport | None:
    """What the table of a refit shows; None if it is not known, or the certificates are about something else."""
    if data is not None and (not offers(shifts, Refitted) or not isinstance(data, Sequence) or len(data) not in (2, 3)):
        what = "the table (X, y) or (X, y, sample_weight) of a refit, and goes with certificates about DataChange"
        raise InputError(f"`data` of audit must be {what}, got {type(data).__name__} for {shifts!r}.")
    if data is not None and new.base is None:
        raise InputError("`base` of audit must be given with `data`: what is measured is a refit of that model.")
    if data is None or new.differs:
        return None
    if offers(shifts, Incomplete):
        raise InputError(f"`shifts` of audit must be given with `data`: {shifts.missing}.")
    return shifts.refit_report(new.base, new.model, *data)  # type: ignore[no-any-return]


def certificates_of(certificates: Any) -> Certificates:
    """The certificates that a user passed, or named a file of."""
    if is_path(certificates):
        return load_certificates(os.fsdecode(certificates))
    return as_results(certificates, f"certify, generate or {LOADED}", Certificates)  # type: ignore[no-any-return]


def _row(
    on: Question, i: int, item: Certificate, valid: bool, inside: bool | None, doubt: str, why: Callable[[], str]
) -> AuditRow:
    """What became of row number `i` of a question; `why` says what is known about the shift, which few rows need."""
    if not item.is_certified:
        was = item.verdict.name if item.valid_today else f"{item.verdict.name}, {_NEVER_VALID}"
        outcome, reason = Outcome.NOT_PROMISED, f"it was {was}, so nothing was promised"
    elif valid:
        outcome, reason = Outcome.HELD, f"valid on the new model{doubt}"
        if inside is not None:
            within = "; the new model lies in the certified set"
            reason += within if inside else f", though outside of the certified set: {why()}"
    elif inside is None:
        outcome, reason = Outcome.BROKEN, f"not valid on the new model{doubt}; {why()}"
    elif not inside:
        outcome = Outcome.BROKEN_OUTSIDE
        reason = f"not valid{doubt}: outside of the certified set; {why()}"
    elif is_proof(item.claim):
        outcome, reason = Outcome.BROKEN_INSIDE, _WRONG + (_NEAR if abs(on.base_margins[i]) <= on.band[i] else "")
    else:
        rest = "this is one of the rest" if item.claim.coverage < 1 else "is false with its risk: here it is"
        said = f"the certificate speaks of {item.claim}, and {rest}; {why()}"
        outcome, reason = Outcome.BROKEN_INSIDE, f"not valid{doubt}, though inside of the certified set: {said}"
    about = (item.verdict.name, str(item.claim), as_python(item.target), item.delta)
    return AuditRow(outcome, valid, inside, *about, reason, was_valid=item.valid_today)


def _about_region(row: AuditRow, outcome: RegionOutcome) -> AuditRow:
    """The line about a promise that is a region; a repair is looked for as for a row."""
    if row.outcome is Outcome.NOT_PROMISED:
        return row
    if outcome.kept is False:
        return replace(
            row, reason=f"{row.reason}; the nearest row that was found of the region and is rejected: {outcome.words}"
        )
    if outcome.kept is None and row.outcome is Outcome.HELD:
        return replace(row, outcome=Outcome.OPEN, reason=f"{row.reason}; of all of the region that is not proved")
    return replace(row, reason=f"{row.reason}; so is every row of the region")


def _repairs(
    found: Certificates, new: Successor, broken: Bools, space: FeatureSpace | None
) -> tuple[list[Repair], list[str]]:
    notes: list[str] = []
    count = int(broken.sum())
    if new.network_only:
        return [Repair(None, (), "", None, "the preprocessing is not at hand")] * count, notes
    if space is None and isinstance(new.model, CodedModel):
        space = new.model.space
    points = own_columns(found.points, found, new.model)
    if space is None:
        inputs = None if found.inputs is None else own_columns(found.inputs, found, new.model)
        try:
            space = assumed_space(points, inputs, found.feature_names)
        except ApasError as error:
            return [Repair(None, (), "", None, f"no space is known: {error}")] * count, notes
        what = "any feature" if inputs is None else "the features that promises of these certificates changed"
        notes.append(_NO_SPACE.format(what=what))
    rows = points.iloc[broken] if is_frame(points) else points[broken]
    targets = [item.target for item, hit in zip(found, broken, strict=True) if hit]
    return repair_rows(new.model, space, rows, targets), notes
