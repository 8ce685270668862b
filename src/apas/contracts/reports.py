"""What `verify` and `audit` found, row by row; audits as Markdown and JUnit XML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import numpy as np

from apas._sanitise import for_markdown, for_xml
from apas._typing import Bools
from apas._validation import check_number
from apas.certification.claims import EVERY
from apas.certification.results import PerRow
from apas.contracts.file import table_digest
from apas.contracts.repairs import Repair
from apas.display.numbers import at_most, exactly, plain
from apas.display.tables import markdown_table
from apas.shifts.distance import ShiftReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Checked(Enum):
    """What became of one line; the value is how it is printed."""

    HOLDS = "HOLDS"
    FAILS = "FAILS"
    NOT_CHECKED = "NOT CHECKED"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class VerifyRow:
    """What became of one statement about one row.

    Attributes
    ----------
    statement : str
        "certificate" or "largest shift".
    claimed : str
        The verdict of a certificate; of a largest shift its delta.
    target : object
        The class that the row must keep.
    delta : float
    coverage : float
        The share of the shifts that the claim speaks of; 1 for every shift.
    confidence : float or None
        That of the claim, for all its `rows` together; 1 for a proof. None where it holds for each test of a search by
        itself, not for the delta that they led to (``search="paper"``).
    rows : int
        How many rows the confidence holds for together.
    tested_at : float or None
        The confidence of the row's own test, or search, which is higher where the risk is divided among `rows` and
        the tests of a search; rounded down.
    shifts : str
        The set that delta is a size in, with its scales.
    check : Checked
    reason : str
        What was recomputed, or what differs.
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

    @property
    def is_promise(self) -> bool:
        """Whether anything is claimed to be kept: a row that is refuted, or undecided, has no coverage to speak of."""
        return self.claimed == "CERTIFIED" if self.statement == "certificate" else self.delta > 0

    def sureness(self) -> str:
        """The confidence in words: for how many rows, and at what the row itself was tested."""
        if self.confidence is None:
            return "of each test alone"
        together = f" for {self.rows} rows together" if self.rows > 1 else ""
        tested = f", tested at {self.tested_at}" if self.tested_at != self.confidence else ""
        return f"{exactly(self.confidence)}{together}{tested}"

    def to_dict(self) -> dict[str, Any]:
        """The line as JSON values."""
        return {**vars(self), "target": plain(self.target), "check": self.check.value}


@dataclass(frozen=True)
class Required:
    """What each row must claim at least; None for whatever it does."""

    coverage: float | None
    confidence: float | None
    delta: float | None
    target: str | None

    @classmethod
    def of(cls, coverage: Any, confidence: Any, delta: Any, target: Any) -> Required:
        """What was asked for, checked."""
        shares = {"coverage": coverage, "confidence": confidence}
        checked = {
            name: None if value is None else check_number(value, f"require_{name}", "verify", above=0, most=1)
            for name, value in shares.items()
        }
        size = None if delta is None else check_number(delta, "require_delta", "verify", above=0)
        return cls(**checked, delta=size, target=None if target is None else str(plain(target)))

    def applied(self, line: VerifyRow) -> VerifyRow:
        """The line, which fails if it claims less."""
        said = self._missing(line) if line.check is not Checked.FAILS else None
        return line if said is None else replace(line, check=Checked.FAILS, reason=said)

    def _missing(self, line: VerifyRow) -> str | None:
        least = [(name, getattr(self, name)) for name in ("coverage", "confidence", "delta")]
        asked = [(name, exactly(value), value) for name, value in least if value is not None]
        if self.target is not None and str(plain(line.target)) != self.target:
            return f"is about the target {str(plain(line.target))!r}, {self.target!r} is required"
        if not line.is_promise and (asked or self.target is not None):
            what = f"{asked[0][0]} {asked[0][1]}" if asked else f"the target {self.target!r}"
            return f"certifies nothing, {what} is required"
        for name, shown, value in asked:
            claimed = getattr(line, name)
            if claimed is None:
                return f"claims a confidence of each test of its search alone, {shown} is required"
            if claimed < value:
                together = f" for {line.rows} rows together" if name == "confidence" and line.rows > 1 else ""
                return f"claims {name} {exactly(claimed)}{together}, {shown} is required"
        return None


class VerifyReport(PerRow[VerifyRow]):
    """One line per statement of a certificate file, in its order: first the certificates, then the largest shifts.

    Attributes
    ----------
    points : ndarray or data frame
        The row that each line is about, in the user's units.
    complaint : str
        Why the model is not the one that a file without rows is about; else empty, since each row says so itself.
    notes : tuple of str
        What fresh draws could show.
    """

    FORMAT = "apas-verify-report"
    COLUMNS = (
        "statement",
        "claimed",
        "target",
        "delta",
        "coverage",
        "confidence",
        "rows",
        "tested_at",
        "shifts",
        "check",
        "reason",
    )
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
        return item.to_dict()

    def _about(self) -> dict[str, Any]:
        return {"ok": self.ok, "notes": list(self.notes)}


def as_markdown(report: AuditReport) -> str:
    """A heading, what was found, a table of the rows, and one of the distances."""
    import pandas as pd

    parts = [f"## {report.heading()}", for_markdown(report.summary())]
    parts += ["\n".join(f"- {for_markdown(note)}" for note in report.notes)] if report.notes else []
    lines = [
        (label, row.outcome.name, row.target, exactly(row.delta), row.reason, "" if row.repair is None else row.repair)
        for label, row in zip(report._labels(), report, strict=True)
    ]
    if lines:
        names = ["row", "outcome", "target", "delta", "reason", "nearest repair"]
        parts.append(markdown_table(pd.DataFrame(lines, columns=names).astype(str)))
    for digest, shift in report.shifts.items():
        sizes = shift.to_frame()
        sizes = sizes[sizes["p"] == shift.p].assign(change=sizes[shift.models[0]].map(at_most))
        parts.append(
            f"### Shift from {digest[:12]}\n\n{markdown_table(sizes[['layer', 'kind', 'size', 'change']].astype(str))}"
        )
    return "\n\n".join(parts) + "\n"


def as_junit(report: AuditReport) -> str:
    """One test suite; a row without a promise is skipped, and a case for those that have expired if there are any."""
    outcomes = [row.outcome for row in report]
    gone = int(bool(report.expired))
    skipped = sum(outcome.name == "NOT_PROMISED" for outcome in outcomes) + (0 if report.strict else gone)
    failures = int(report.broken.sum()) + (gone if report.strict else 0)
    counts = {"tests": len(report) + gone, "failures": failures, "errors": 0, "skipped": skipped}
    suites = Element("testsuites")
    suite = SubElement(suites, "testsuite", {"name": "apas audit", **{k: str(v) for k, v in counts.items()}})
    for label, row in zip(report._labels(), report, strict=True):
        case = SubElement(suite, "testcase", {"classname": "apas.audit", "name": for_xml(f"row {label}"), "time": "0"})
        if row.outcome.is_broken:
            failure = SubElement(case, "failure", {"type": row.outcome.name, "message": for_xml(row.reason)})
            failure.text = for_xml(f"{row.reason}\nnearest repair: {row.repair or 'nobody asked'}")
        elif row.outcome.name == "NOT_PROMISED":
            SubElement(case, "skipped", {"message": for_xml(row.reason)})
    if gone:
        case = SubElement(suite, "testcase", {"classname": "apas.audit", "name": "expired promises", "time": "0"})
        said = f"{report.expired} expired: their last day has passed, and nobody has retired them"
        SubElement(case, "failure" if report.strict else "skipped", {"message": said})
    out = SubElement(suite, "system-out")
    out.text = for_xml("\n".join([report.summary(), *report.notes]))
    indent(suites, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(suites, encoding="unicode") + "\n"


class Outcome(Enum):
    """What became of one row; the value says it in a sentence."""

    HELD = "The new model gives the promised class."
    BROKEN_INSIDE = "It does not, although it lies in the set of models that the certificate speaks of."
    BROKEN_OUTSIDE = "It does not, and it lies outside of that set."
    BROKEN = "It does not, and it is not known whether it lies in that set."
    NOT_PROMISED = "The row was not certified, so nothing was promised."

    def __str__(self) -> str:
        return self.name

    @property
    def is_broken(self) -> bool:
        """Whether it is a promise that is not kept."""
        return self in (Outcome.BROKEN_INSIDE, Outcome.BROKEN_OUTSIDE, Outcome.BROKEN)


@dataclass(frozen=True)
class AuditRow:
    """What became of one row.

    Attributes
    ----------
    outcome : Outcome
    valid : bool
        Whether the new model gives the row its target class.
    inside : bool or None
        Whether the new model lies in the set of the row's certificate; None if that is not known.
    verdict : str
        What the certificate says.
    claim : str
        About which shifts it says so.
    target : object
    delta : float
    reason : str
    repair : Repair or None
        Of a broken promise the nearest allowed row that is valid on the new model, or why there is none; None if the
        promise is not broken, or nobody asked.
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
        return {
            "outcome": self.outcome.name,
            "valid": self.valid,
            "inside": self.inside,
            "verdict": self.verdict,
            "claim": self.claim,
            "target": plain(self.target),
            "delta": self.delta,
            "reason": self.reason,
            "repair": None if self.repair is None else self.repair.to_dict(),
            "was_valid": self.was_valid,
        }


class AuditReport(PerRow[AuditRow]):
    """One line per certificate: whether the new model keeps what it promised.

    Attributes
    ----------
    points : ndarray, data frame or None
        The promised rows, in the user's units; None if they come from several tables.
    shifts : dict of str to ShiftReport
        How far the new model lies from the model that was certified, by the SHA-256 of that; empty if nobody measured.
    new_digest : str
        SHA-256 of the new model.
    notes : tuple of str
        What a reader has to know about all rows.
    comparable : bool
        Whether the measured shift says if the new model lies in the certified sets: each delta bounds that very
        distance, and it is known that nothing but parameters differs.
    expired : int or None
        How many promises of a ledger nobody asked about because their last day has passed; None without a ledger.
    strict : bool
        Whether `ok` is False, too, if promises have expired.

    Examples
    --------
    >>> import apas
    >>> old = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> certificates = apas.certify(old, [[2.0, 0.5], [1.0, 0.9]], 0.01, target=1, method="interval")
    >>> new = apas.FeedForward([[[1.0], [-1.0]]], [[-0.2]])
    >>> report = apas.audit(certificates, new, base=old)
    >>> report.ok, [row.outcome.name for row in report]
    (False, ['HELD', 'BROKEN_OUTSIDE'])
    """

    FORMAT = "apas-audit-report"
    COLUMNS = ("outcome", "valid", "inside", "verdict", "target", "delta", "claim", "reason", "repair", "was_valid")
    UNSHOWN = ("claim", "valid", "was_valid")

    def __init__(
        self,
        items: Sequence[AuditRow],
        *,
        points: Any,
        new_digest: str,
        shifts: Mapping[str, ShiftReport] | None = None,
        notes: Sequence[str] = (),
        feature_names: tuple[str, ...] | None = None,
        index: Any = None,
        comparable: bool = False,
        expired: int | None = None,
        strict: bool = False,
    ) -> None:
        super().__init__(items, points=points, feature_names=feature_names, index=index)
        self.new_digest = new_digest
        self.shifts = dict(shifts or {})
        self.notes = tuple(notes)
        self.comparable = comparable
        self.expired, self.strict = expired, strict
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
        return sum(row.outcome is Outcome.BROKEN_INSIDE and row.claim == EVERY for row in self)

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
        return as_markdown(self)

    def to_junit(self) -> str:
        """The report as JUnit XML: a test case per row, failed if a promise is broken, skipped if none was made."""
        return as_junit(self)

    def _line(self, item: AuditRow) -> dict[str, Any]:
        told = {name: getattr(item, name) for name in self.COLUMNS}
        return {**told, "outcome": item.outcome.name, "repair": "" if item.repair is None else str(item.repair)}

    def _about(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "summary": self.summary(),
            "new_digest": self.new_digest,
            "notes": list(self.notes),
            "shifts": {digest: shift.to_dict() for digest, shift in self.shifts.items()},
            "points_digest": None if self.points is None else table_digest(self.points),
            **({} if self.expired is None else {"expired": self.expired}),
        }
