"""Where the margins of rows can go while the model shifts: one range per row, with what each end is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from apas.certify.claims import Every, Most
from apas.certify.sequence import UnderShifts
from apas.display.numbers import at_least, at_most, exactly
from apas.display.values import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["OutputRange", "OutputRanges"]


@dataclass(frozen=True)
class OutputRange:
    """Between which margins the shifted models put a row.

    It is valid where its margin is at least 0; for other targets than class 1 of two, where it is above 0.

    Attributes
    ----------
    low, high : float
        Drawn: the least and the largest margin of the draws. Proved: all margins lie between them. Infinite where no
        end is known.
    low_claim, high_claim : Every or Most
        What each end is worth by itself: `Most` with the share of shifts whose margin does not pass it, or `Every`.
    attained : tuple of bool
        Whether a shift is known that reaches each end, up to rounding.
    margin : float
        On the model itself.
    delta : float
    target : object
    method : str
    undefined : int
        How many drawn models gave no number; one is enough that no end is known.
    """

    low: float
    high: float
    low_claim: Every | Most
    high_claim: Every | Most
    attained: tuple[bool, bool]
    margin: float
    delta: float
    target: Any
    method: str
    undefined: int = 0

    @property
    def side(self) -> str:
        """Where the range lies: "above" or "below" the decision threshold, or "across" it (the paper's Figure 2)."""
        return "above" if self.low > 0 else "below" if self.high < 0 else "across"

    def sentence(self) -> str:
        """Say it in words that are true as they stand."""
        size = f"delta = {exactly(self.delta)} ({self.low_claim.measure})"
        what = f"margins towards class {self.target!r} under shifts by {size}"
        ends = [
            f"{write(end)} or {word}"
            for end, write, word in ((self.low, at_least, "more"), (self.high, at_most, "less"))
            if isfinite(end)
        ]
        missing = self._missing()
        if not ends:
            return f"no range is known of the {what}: {missing}."
        but = f"; no {'upper' if isfinite(self.low) else 'lower'} end is known: {missing}" if len(ends) < 2 else ""
        if isinstance(self.low_claim, Most):
            share = _shortened(self.low_claim).share
            odds = f"{'each ' if len(ends) > 1 else ''}with confidence {self.low_claim.confidence!r}"
            return f"at least {share} of the shifts have {what} of {', and as many of '.join(ends)}, {odds}{but}."
        between = f"lies between {at_least(self.low)} and {at_most(self.high)}" if not but else f"is {ends[0]}"
        return f"every one of the {what} {between}{but}."

    def _missing(self) -> str:
        """Why an end is infinite."""
        if not isinstance(self.low_claim, Most):
            return "the bound is no finite number"
        if self.undefined:
            return f"{self.undefined} of the drawn models give{'s' if self.undefined == 1 else ''} no number"
        return "a drawn model gives an infinite one"

    def to_dict(self) -> dict[str, Any]:
        """The range as JSON values; what is infinite or no number as null."""
        return {
            "low": _finite(self.low), "high": _finite(self.high), "low_claim": self.low_claim.to_dict(),
            "high_claim": self.high_claim.to_dict(), "attained": list(self.attained), "margin": _finite(self.margin),
            "delta": self.delta, "target": plain(self.target), "method": self.method, "side": self.side,
            "undefined": self.undefined,
        }  # fmt: skip

    def __str__(self) -> str:
        return self.sentence()


class OutputRanges(UnderShifts[OutputRange]):
    """One range per row, in the order of the rows.

    Attributes
    ----------
    points : ndarray or data frame
        The rows that were asked about, in the user's units.
    model_digest : str
    shifts : ShiftSet
    """

    FORMAT = "apas-output-ranges"
    COLUMNS = ("low", "high", "margin", "side", "target", "delta", "method", "claim")
    UNSHOWN = ("claim",)

    def summary(self) -> str:
        """How many ranges lie on which side of the decision threshold, in one sentence."""
        if not len(self):
            return "No rows, no ranges."
        sides = [item.side for item in self]
        counts = ", ".join(f"{sides.count(s)} {s}" for s in ("above", "across", "below") if s in sides)
        endless = sum(not (isfinite(item.low) and isfinite(item.high)) for item in self)
        but = f"; {endless} without a known end" if endless else ""
        claim = self[0].low_claim
        alone = f"{' of each row' if len(self) > 1 else ''} by itself"
        odds = f" for each end{alone}" if isinstance(claim, Most) and claim.confidence < 1 else ""
        return f"{self._counted()}: {counts} the threshold{but} ({_rounded(claim)}{odds})."

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the ranges against the decision threshold, as in Figure 2 of the paper."""
        from apas.display.plots import range_plot

        return range_plot(self, ax)

    def _shown_frame(self) -> DataFrame:
        """Ends in few digits, rounded outwards."""
        frame = super()._shown_frame()
        return frame.assign(low=[at_least(item.low) for item in self], high=[at_most(item.high) for item in self])

    def _line(self, item: OutputRange) -> dict[str, Any]:
        return {**{name: getattr(item, name) for name in self.COLUMNS[:-1]}, "claim": _rounded(item.low_claim)}


def _finite(value: float) -> float | None:
    """The number as JSON has it."""
    return value if isfinite(value) else None


def _rounded(claim: Every | Most) -> str:
    """The claim in words."""
    return str(_shortened(claim) if isinstance(claim, Most) else claim)


def _shortened(claim: Most) -> Most:
    """With a share that follows from the number of draws rounded down to six digits."""
    return replace(claim, coverage=float(at_least(claim.coverage)))
