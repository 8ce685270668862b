"""What became of the rows on a later model: an audit, and the margins before and after."""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from apas._fields import Fields
from apas._validation import is_path
from apas.certification.claims import EVERY
from apas.contracts.audit import AuditReport, Outcome, audited
from apas.contracts.certified_model import BEYOND_PARAMETERS, NOT_IDENTIFIED, Successor, read_successor, rows_on
from apas.contracts.file import read_object, table_digest
from apas.display.numbers import plain
from apas.errors import InputError
from apas.models.base import offers
from apas.models.digest import model_digest
from apas.report.subject import Subject
from apas.shifts.base import Normed
from apas.shifts.distance import read_model

_OUTCOMES = tuple(outcome.name for outcome in Outcome)


@dataclass(frozen=True)
class Measured:
    """How far the parameters moved."""

    p: float
    delta: float
    parts: tuple[tuple[str, str, int, float], ...]
    comparable: bool


@dataclass(frozen=True)
class Later:
    """A later model beside the one that was certified."""

    measured: Measured | None
    margins: tuple[float, ...] | None
    digest: str
    notes: tuple[str, ...]
    outcomes: tuple[str, ...] | None = None
    reasons: tuple[str, ...] | None = None
    repairs: tuple[str, ...] | None = None
    claims: tuple[str, ...] | None = None
    valid: tuple[bool, ...] | None = None

    @property
    def beyond(self) -> str:
        """What differs besides parameters, or may, as a sentence; empty if nothing does."""
        return next((note for note in self.notes if note.startswith((BEYOND_PARAMETERS, NOT_IDENTIFIED))), "")

    @property
    def counts(self) -> Counter[str]:
        """How many rows had which outcome."""
        return Counter(self.outcomes or ())

    @property
    def wrong_certificates(self) -> int:
        """How many certificates about every shift the later model contradicts."""
        pairs = zip(self.outcomes or (), self.claims or (), strict=True)
        return sum(outcome == "BROKEN_INSIDE" and claim == EVERY for outcome, claim in pairs)


def read_later(subject: Subject, audit: Any, new_model: Any) -> Later | None:
    """What is known about a later model, or None."""
    if audit is None and new_model is None:
        return None
    new = None if new_model is None else read_model(new_model, "`new_model`")
    base = None if subject.matched is None else subject.matched.model
    rows: Any = subject.rows
    if audit is not None:
        told = _Told.read(audit, subject)
        if new is not None and told.digest != model_digest(new):
            raise InputError("`audit` must be about `new_model`, but it is about a model with another SHA-256.")
        margins = None if new is None else _margins(rows, read_successor(rows, new, None, validity_only=True))
        measured = _measured(told.shifts.get(rows.model_digest), rows.shifts, told.notes)
        return Later(measured, margins, told.digest, told.notes, **told.columns)
    successor = read_successor(rows, new, base, validity_only=False)
    margins, shift = _margins(rows, successor), successor.shift(rows.shifts)
    measured = None if shift is None else _measured(shift.to_dict(), rows.shifts, successor.notes)
    columns: dict[str, Any] = {}
    notes = successor.notes
    if subject.certificates is not None:
        told = _Told.of(audited(subject.certificates, new, base=base, repairs=False).to_dict(), "the audit")
        columns, notes = told.columns, told.notes
    return Later(measured, margins, model_digest(successor.given), notes, **columns)


def _margins(rows: Any, successor: Successor) -> tuple[float, ...]:
    question = rows_on(rows, successor)
    with np.errstate(over="ignore", invalid="ignore"):
        return tuple(question.model.margin(question.X, question.one_target).tolist())


@dataclass(frozen=True)
class _Told:
    """An audit as JSON has it, checked."""

    digest: str
    notes: tuple[str, ...]
    shifts: dict[str, Any]
    rows: tuple[Fields, ...]
    points: str

    @classmethod
    def of(cls, content: dict[str, Any], name: str) -> _Told:
        top = Fields(content)
        if content.get("format") != AuditReport.FORMAT:
            raise InputError(
                f'{name} must hold an object with "format": "{AuditReport.FORMAT}"; write it with `apas audit --json`.'
            )
        rows = tuple(Fields.of(row, f"rows[{i}]") for i, row in enumerate(top.items(AuditReport.ROWS)))
        for row in rows:
            row.choice("outcome", *_OUTCOMES)
            row.text("reason")
            row.text("claim")
            row.flag("valid")
        notes = tuple(str(note) for note in top.items("notes"))
        return cls(top.digest("new_digest"), notes, top.inner("shifts").content, rows, top.digest("points_digest"))

    @classmethod
    def _of_file(cls, name: str) -> _Told:
        try:
            return cls.of(read_object(name, "audit"), "it")
        except InputError as error:
            raise InputError(f"{name} is not a usable audit: {error}") from None

    @classmethod
    def read(cls, audit: Any, subject: Subject) -> _Told:
        if isinstance(audit, AuditReport):
            told = cls.of(audit.to_dict(), "`audit`")
        elif is_path(audit):
            told = cls._of_file(os.fsdecode(audit))
        else:
            raise InputError(
                f"`audit` must be what audit returns, or the name of a file that `apas audit --json` wrote, got "
                f"{type(audit).__name__}."
            )
        items: Any = subject.rows
        asked = [(label, plain(item.target), item.delta) for label, item in zip(subject.labels, items, strict=True)]
        same = [(row.any("row"), row.any("target"), row.any("delta")) for row in told.rows] == asked
        if subject.certificates is not None:
            answers = [(item.verdict.name, str(item.claim)) for item in subject.certificates]
            same = same and [(row.any("verdict"), row.any("claim")) for row in told.rows] == answers
        if not same or told.points != table_digest(subject.rows.points):
            raise InputError("`audit` must be about the rows of `certificates`, but it is about others; audit these.")
        if told.shifts and subject.rows.model_digest not in told.shifts:
            raise InputError(
                "`audit` must measure from the model that `certificates` are about, but its base is another."
            )
        return told

    @property
    def columns(self) -> dict[str, tuple[Any, ...]]:
        """What `Later` says about each row."""
        keys = {"outcomes": "outcome", "reasons": "reason", "claims": "claim", "valid": "valid"}
        found = {name: tuple(row.any(key) for row in self.rows) for name, key in keys.items()}
        return {**found, "repairs": tuple(_repair(row.content.get("repair")) for row in self.rows)}


def _repair(told: Any) -> str:
    """The words that a repair has in a table; empty if there is nothing to repair."""
    if not isinstance(told, dict):
        return ""
    return str(told.get("changes")) if told.get("values") is not None else f"none: {told.get('reason')}"


def _measured(told: Any, shifts: Any, notes: tuple[str, ...]) -> Measured | None:
    if told is None:
        return None
    report = Fields.of(told, "shifts")
    order, key = _number(report.any("p")), f"{_number(report.any('p')):.15g}"
    parts = []
    for i, part in enumerate(report.items("per_layer")):
        one = Fields.of(part, f"shifts.per_layer[{i}]")
        distance = max(map(_number, one.inner("distance").items(key)), default=0.0)
        parts.append((one.text("layer"), one.text("kind"), one.integer("size"), distance))
    comparable = offers(shifts, Normed) and shifts.is_whole and order == shifts.order
    comparable = comparable and not any(note.startswith((BEYOND_PARAMETERS, NOT_IDENTIFIED)) for note in notes)
    return Measured(order, _number(report.any("delta")), tuple(parts), comparable)


def _number(value: Any) -> float:
    try:
        return math.inf if value == "inf" else float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"`audit` must hold distances as numbers, got {value!r}.") from None
