"""What a report is about: certificates, the largest shifts of the same rows, the model, and what a later one does."""

import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from apas._fields import Fields
from apas._validation import is_path
from apas.certification.max_shift.result import MaxShifts
from apas.certification.results import Certificates
from apas.contracts import certificate_file as files, certified_model as behind
from apas.contracts.audit import AuditReport, AuditRow, audit as audited
from apas.contracts.certificate_lines import table_digest
from apas.counterfactuals.result import Counterfactuals
from apas.display.numbers import plain
from apas.errors import InputError
from apas.models.digest import model_digest
from apas.shifts.distance import ShiftReport, read_model


@dataclass(frozen=True, eq=False)
class Subject:
    """Rows with what is known about them, and how to tell them from others."""

    certificates: Certificates | None
    radii: MaxShifts | None
    digest: str
    versions: dict[str, str]
    matched: behind.Matched | None = None
    searches: int | None = None
    is_saved: bool = True

    @property
    def rows(self) -> Certificates | MaxShifts:
        """What knows the rows: their values, labels and readings."""
        rows = self.certificates if self.certificates is not None else self.radii
        assert rows is not None
        return rows

    @property
    def labels(self) -> list[Any]:
        """What the rows are called, as JSON values."""
        return [plain(label) for label in self.rows._labels()]


def read_subject(certificates: Any, max_shifts: Any, model: Any) -> Subject:
    """Check what `write_report` was given, and bring it into one form."""
    searches, found, digest, versions, already = None, certificates, "", files.own_versions(), "`certificates` are"
    if is_path(certificates):
        stored = files.read_stored(certificates)
        found = stored.certificates if stored.certificates is not None else stored.max_shifts
        digest, versions, already = stored.digest, stored.versions, "the file already holds"
    elif isinstance(certificates, Counterfactuals):
        searches, found = len(certificates), certificates.certificates
        if not len(found):
            raise InputError(
                "`certificates` must hold at least one certificate, but none of these counterfactuals has one; "
                "pass a delta to generate, or certify their points."
            )
    if not isinstance(found, Certificates | MaxShifts):
        raise InputError(
            "`certificates` must be what certify, generate, max_shift or load_certificates returns, or the name of "
            f"a certificate file, got {type(certificates).__name__}."
        )
    radii = _radii(max_shifts)
    if radii is not None and isinstance(found, MaxShifts):
        words = "largest shifts alone" if is_path(certificates) else "largest shifts already"
        raise InputError(f"`max_shifts` goes with certificates, but {already} {words}.")
    if not len(found):
        raise InputError("`certificates` must hold at least one row, got none; there is nothing to report.")
    found = behind.with_readings(found)
    if radii is not None:
        files.check_same_rows(found, radii)
        digest, versions = "", files.own_versions()
    elif isinstance(found, Certificates):
        radii = found.max_shifts
    is_saved = bool(digest) or not files.unsaved(found, radii)
    digest = digest or (files.stored_content(found, radii)["digest"] if is_saved else _digest(found, radii))
    matched: Any = None if found.model is None else behind.Matched(found.model)
    if model is not None and isinstance(matched := behind.match_model(found, read_model(model, "`model`")), str):
        wanted = "the model that the certificates are about"
        raise InputError(f"`model` must be {wanted}, but {matched}; pass that model.")
    certificates, radii = (found, radii) if isinstance(found, Certificates) else (None, found)
    return Subject(certificates, radii, digest, versions, matched, searches, is_saved)


def _digest(*parts: Certificates | MaxShifts | None) -> str:
    """SHA-256 of what no file can hold, as `to_dict` gives it."""
    text = json.dumps([None if part is None else part.to_dict() for part in parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _radii(max_shifts: Any) -> MaxShifts | None:
    if max_shifts is None or isinstance(max_shifts, MaxShifts):
        return max_shifts
    if not is_path(max_shifts):
        raise InputError(
            "`max_shifts` must be what max_shift returns, or the name of a file that holds it, got "
            f"{type(max_shifts).__name__}."
        )
    found = files.read_stored(max_shifts).max_shifts
    if found is None:
        raise InputError(f"{os.fsdecode(max_shifts)} holds no largest shifts; write them with `apas max-shift --save`.")
    return found


@dataclass(frozen=True)
class Later:
    """A later model beside the one that was certified: how far it moved, the margins on it, and what an audit says."""

    measured: ShiftReport | None
    comparable: bool
    margins: tuple[float, ...] | None
    digest: str
    notes: tuple[str, ...]
    audit: AuditReport | None = None

    @property
    def beyond(self) -> str:
        """What differs besides parameters, or may, in sentences; empty if nothing does."""
        beginnings = (behind.DIFFERS, behind.NOT_IDENTIFIED, behind.OF_THE_PROCESS)
        return " ".join(note for note in self.notes if note.startswith((*beginnings, behind.NOT_MEASURED)))

    @property
    def layers(self) -> list[tuple[str, str, int, float]]:
        """Layer, kind, size and measured shift of each part of the model."""
        if self.measured is None:
            return []
        distances = self.measured.distances[1:, self.measured.norms.index(self.measured.p)].max(axis=1, initial=0.0)
        return [(*part, distance) for part, distance in zip(self.measured.parts, distances.tolist(), strict=True)]

    @property
    def counts(self) -> Counter[str]:
        """How many rows had which outcome."""
        return Counter(row.outcome.name for row in self.audit or ())


def read_later(subject: Subject, audit: Any, new_model: Any) -> Later | None:
    """What is known about a later model, or None."""
    if audit is None and new_model is None:
        return None
    new = None if new_model is None else read_model(new_model, "`new_model`")
    rows: Any = subject.rows
    if audit is not None:
        told = _read_audit(audit, subject)
        if new is not None and told.new_digest != model_digest(new):
            raise InputError("`audit` must be about `new_model`, but it is about a model with another SHA-256.")
        margins = None if new is None else _margins(rows, behind.read_successor(rows, new, None, validity_only=True))
        shift, digest, notes = told.shifts.get(rows.model_digest), told.new_digest, told.notes
    else:
        base = None if subject.matched is None else subject.matched.model
        successor = behind.read_successor(rows, new, base, validity_only=False)
        margins, shift = _margins(rows, successor), successor.shift(rows.shifts)
        told, digest, notes = None, model_digest(successor.given), successor.notes
        if subject.certificates is not None:
            told = audited(subject.certificates, new, base=base, repairs=False)
            notes = told.notes
    comparable = shift is not None and behind.bounds_distance(rows.shifts) and shift.p == rows.shifts.order
    found = Later(shift, comparable, margins, digest, notes, told)
    return replace(found, comparable=comparable and not found.beyond)


def _margins(rows: Any, successor: behind.Successor) -> tuple[float, ...]:
    question = behind.rows_on(rows, successor)
    with np.errstate(over="ignore", invalid="ignore"):
        return tuple(question.model.margin(question.X, question.one_target).tolist())


def _read_audit(audit: Any, subject: Subject) -> AuditReport:
    """An audit, or what a file holds of it, if it is about the very rows."""
    if isinstance(audit, AuditReport):
        report, points = audit, None if audit.points is None else table_digest(audit.points)
    elif is_path(audit):
        report, points = _from_file(os.fsdecode(audit))
    else:
        raise InputError(
            f"`audit` must be what audit returns, or the name of a file that `apas audit --json` wrote, got "
            f"{type(audit).__name__}."
        )
    items: Any = subject.rows
    asked = [(label, plain(item.target), item.delta) for label, item in zip(subject.labels, items, strict=True)]
    labels = [plain(label) for label in report._labels()]
    same = [(label, plain(row.target), row.delta) for label, row in zip(labels, report, strict=True)] == asked
    if subject.certificates is not None:
        answers = [(item.verdict.name, str(item.claim)) for item in subject.certificates]
        same = same and [(row.verdict, row.claim) for row in report] == answers
    if not same or points != table_digest(subject.rows.points):
        raise InputError("`audit` must be about the rows of `certificates`, but it is about others; audit these.")
    if report.shifts and subject.rows.model_digest not in report.shifts:
        raise InputError("`audit` must measure from the model that `certificates` are about, but its base is another.")
    return report


def _from_file(name: str) -> tuple[AuditReport, str]:
    """The audit that a file holds, and the digest of its rows."""
    try:
        top = Fields(files.read_object(name, "audit"))
        if top.content.get("format") != AuditReport.FORMAT:
            wanted = f'an object with "format": "{AuditReport.FORMAT}"'
            raise InputError(f"it must hold {wanted}; write it with `apas audit --json`.")
        rows = [Fields.of(row, f"rows[{i}]") for i, row in enumerate(top.items(AuditReport.ROWS))]
        told = top.inner("shifts")
        report = AuditReport(
            [AuditRow.from_dict(row) for row in rows],
            points=None,
            new_digest=top.digest("new_digest"),
            shifts={key: ShiftReport.from_dict(told.inner(key)) for key in told.content},
            notes=[str(note) for note in top.items("notes")],
            index=[row.any("row") for row in rows],
        )
        return report, top.digest("points_digest")
    except InputError as error:
        raise InputError(f"{name} is not a usable audit: {error}") from None
