"""What `verify` found, line by line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from apas._validation import check_number
from apas.certify.sequence import PerRow
from apas.display.numbers import exactly
from apas.display.values import plain

__all__ = ["Checked", "Required", "VerifyReport", "VerifyRow"]


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
        "statement", "claimed", "target", "delta", "coverage", "confidence", "rows", "tested_at", "shifts", "check",
        "reason",
    )  # fmt: skip
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
