"""What `verify` found, line by line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from apas.certify.sequence import PerRow
from apas.display.values import plain

__all__ = ["Checked", "VerifyReport", "VerifyRow"]


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
    check : Checked
    reason : str
        What was recomputed, or what differs.
    """

    statement: str
    claimed: str
    check: Checked
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """The line as JSON values."""
        return {
            "statement": self.statement, "claimed": self.claimed, "check": self.check.value, "reason": self.reason,
        }  # fmt: skip


class VerifyReport(PerRow[VerifyRow]):
    """One line per statement of a certificate file, in its order: first the certificates, then the largest shifts.

    Attributes
    ----------
    points : ndarray or data frame
        The row that each line is about, in the user's units.
    complaint : str
        Why the model is not the one that a file without rows is about; else empty, since each row says so itself.
    """

    FORMAT = "apas-verify-report"
    COLUMNS = ("statement", "claimed", "check", "reason")

    complaint: str = ""

    @property
    def rows(self) -> tuple[VerifyRow, ...]:
        """The lines themselves."""
        return tuple(self)

    @property
    def ok(self) -> bool:
        """Whether everything was checked and holds."""
        return not self.complaint and all(row.check is Checked.HOLDS for row in self)

    @property
    def exit_code(self) -> int:
        """0 if all hold, 1 if something does not, 3 if all that was checked holds but some was not checked."""
        checks = {row.check for row in self}
        return 1 if self.complaint or Checked.FAILS in checks else 3 if Checked.NOT_CHECKED in checks else 0

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
        return {**item.to_dict()}

    def _about(self) -> dict[str, Any]:
        return {"ok": self.ok}

    def _entries(self) -> list[dict[str, Any]]:
        return [{key: plain(value) for key, value in item.to_dict().items()} for item in self]
