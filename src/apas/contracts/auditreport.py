"""What `audit` found: which promises a new model keeps, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apas.certify.claims import EVERY
from apas.certify.sequence import PerRow
from apas.contracts.auditformats import as_junit, as_markdown
from apas.contracts.repairs import Repair
from apas.contracts.tables import table_digest
from apas.display.values import plain
from apas.shifts.measure import ShiftReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["AuditReport", "AuditRow", "Outcome"]


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
            "outcome": self.outcome.name, "valid": self.valid, "inside": self.inside, "verdict": self.verdict,
            "claim": self.claim, "target": plain(self.target), "delta": self.delta, "reason": self.reason,
            "repair": None if self.repair is None else self.repair.to_dict(), "was_valid": self.was_valid,
        }  # fmt: skip


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
    def broken(self) -> NDArray[np.bool_]:
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
        from apas.display.outcomes import outcome_plot

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
            "ok": self.ok, "summary": self.summary(), "new_digest": self.new_digest, "notes": list(self.notes),
            "shifts": {digest: shift.to_dict() for digest, shift in self.shifts.items()},
            "points_digest": None if self.points is None else table_digest(self.points),
            **({} if self.expired is None else {"expired": self.expired}),
        }  # fmt: skip
