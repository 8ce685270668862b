"""The lines of the page's table: what each explanation changes, what was shown about it, and what became of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from apas.certification.claims import is_proof
from apas.contracts.audit import Outcome
from apas.contracts.tables import table_cells
from apas.counterfactuals.result import differ, number_pair, number_text
from apas.display.numbers import at_least, at_most, exactly
from apas.report.audit_section import Later
from apas.report.headline import capital
from apas.report.subject import Subject

LISTED = 16  # so many features are listed per row, which keeps pages of wide tables small


@dataclass(frozen=True)
class Change:
    """One feature: its name, and what it is, or what it was and is to be."""

    name: str
    before: str | None
    after: str


@dataclass(frozen=True)
class Line:
    """One explanation."""

    number: int
    label: str
    changes: tuple[Change, ...]
    more: int
    target: str
    verdict: str
    valid_today: bool
    sentences: tuple[str, ...]
    worst: float | None
    sampled: float | None
    broken: float | None
    worst_text: str
    sampled_text: str
    tested: float | None
    outcome: str
    outcome_text: str

    def marks(self) -> dict[str, dict[str, Any] | None]:
        """Deltas that are marked on the row's curve, and how they are written: what is certified rounded down."""
        found = {
            "tested": (self.tested, "" if self.tested is None else exactly(self.tested)),
            "sampled": (self.sampled, self.sampled_text),
            "worst": (self.worst, self.worst_text),
            "broken": (self.broken, "" if self.broken is None else at_most(self.broken)),
        }
        return {key: None if at is None else {"at": at, "text": text} for key, (at, text) in found.items()}


def lines_of(subject: Subject, later: Later | None) -> list[Line]:
    """One line per row."""
    rows = subject.rows
    after = table_cells(rows.points)
    before: list[Any] = [None] * len(after) if rows.inputs is None else table_cells(rows.inputs)
    columns = rows.points.columns if hasattr(rows.points, "columns") else rows.feature_names
    names = [f"x{j}" for j in range(len(after[0]))] if columns is None else [str(name) for name in columns]
    return [
        _line(i, str(label), _changes(names, before[i], after[i]), subject, later)
        for i, label in enumerate(subject.labels)
    ]


def _changes(names: list[str], before: list[Any] | None, after: list[Any]) -> tuple[tuple[Change, ...], int]:
    if before is None:
        every = [Change(name, None, _text(b)) for name, b in zip(names, after, strict=True)]
    else:
        every = [Change(name, *_pair(a, b)) for name, a, b in zip(names, before, after, strict=True) if differ(a, b)]
    return tuple(every[:LISTED]), max(0, len(every) - LISTED)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _pair(before: Any, after: Any) -> tuple[str, str]:
    if _is_number(before) and _is_number(after):
        return number_pair(float(before), float(after))
    return _text(before), _text(after)


def _text(value: Any) -> str:
    if isinstance(value, dict):  # a number that JSON lacks
        value = None if value.get("number") == "nan" else value.get("number")
    if value is None:
        return "(missing)"
    return number_text(float(value)) if _is_number(value) else str(value)


def _line(i: int, label: str, changes: tuple[tuple[Change, ...], int], subject: Subject, later: Later | None) -> Line:
    certificate = None if subject.certificates is None else subject.certificates[i]
    radius = None if subject.radii is None else subject.radii[i]
    worst, sampled, worst_text, sampled_text = 0.0, 0.0, "", ""
    if radius is not None:
        worst, worst_text = radius.provable, at_least(radius.provable)
        if not is_proof(radius.claim):
            sampled, sampled_text = radius.delta, radius.written()
        else:
            worst, worst_text = max((worst, worst_text), (radius.delta, at_least(radius.delta)))
    if certificate is not None and certificate.is_certified:
        if is_proof(certificate.claim) and certificate.delta > worst:
            worst, worst_text = certificate.delta, exactly(certificate.delta)
        elif not is_proof(certificate.claim) and not (radius is not None and sampled):
            sampled, sampled_text = certificate.delta, exactly(certificate.delta)
    said = [] if certificate is None else [certificate.sentence()]
    said += [] if radius is None else [capital(f"largest shift: {radius.sentence()}")]
    outcome, outcome_text = "", ""
    if later is not None and later.audit is not None:
        row = later.audit[i]
        more = f" Nearest repair: {row.repair}." if row.repair else ""
        if row.outcome is Outcome.NOT_PROMISED:
            more = f" It is {'' if row.valid else 'not '}valid on the later model."
        outcome, outcome_text = row.outcome.name, f"{capital(row.reason)}.{more}"
    item: Any = certificate if certificate is not None else radius
    return Line(
        number=i,
        label=label,
        changes=changes[0],
        more=changes[1],
        target=str(item.target),
        verdict="" if certificate is None else certificate.verdict.name,
        valid_today=item.valid_today,
        sentences=tuple(said),
        worst=worst or None,
        sampled=sampled or None,
        broken=radius.broken_at if radius is not None and 0 < radius.broken_at < math.inf else None,
        worst_text=worst_text if worst else "",
        sampled_text=sampled_text if sampled else "",
        tested=None if certificate is None else certificate.delta,
        outcome=outcome,
        outcome_text=outcome_text,
    )
