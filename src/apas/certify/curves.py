"""How the share of valid shifts falls as they grow: one curve with its band per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from apas._validation import is_frame
from apas.display.numbers import at_least, at_most
from apas.display.tables import html_table
from apas.display.values import plain
from apas.shifts.protocol import ShiftSet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["FractionCurve", "FractionCurves"]

#: A sentence names at most this many deltas.
NAMED = 6


@dataclass(frozen=True, eq=False)
class FractionCurve:
    """The share of shifts on which one row keeps its class, between two bounds at each delta.

    Attributes
    ----------
    deltas, estimate, lower, upper : ndarray of shape (deltas,)
        `estimate` is the share of the draws that keep the class, or the middle of the bounds if they were computed.
    draws : int
        How many shifts were drawn; 0 if the bounds were computed.
    confidence : float
        With this confidence the share lies between `lower` and `upper` at all the deltas together; 1 if the bounds
        were computed.
    target : object
        The class to keep.
    measure : str
        The distribution of the shifts, in words.
    valid : bool
        Whether the model itself gives the class. The share is about shifted models and defined either way.
    """

    deltas: NDArray[np.float64]
    estimate: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    draws: int
    confidence: float
    target: Any
    measure: str
    valid: bool

    def __post_init__(self) -> None:
        for name in ("deltas", "estimate", "lower", "upper"):
            values = np.array(getattr(self, name), dtype=np.float64)
            values.flags.writeable = False
            object.__setattr__(self, name, values)

    def sentence(self) -> str:
        """Say it in words that are true as they stand; of many deltas the first, the middle one and the last."""
        count = len(self.deltas)
        shown = range(count) if count <= NAMED else (0, count // 2, count - 1)
        shares = ", ".join(_share(self.lower[i], self.upper[i], self.deltas[i]) for i in shown)
        odds = "for certain"
        if self.draws:
            together = f" for all {count} deltas together" if count > 1 else ""
            odds = f"with confidence {self.confidence!r}{together}, by {self.draws} draws"
        more = "" if count <= NAMED else f" (of {count} deltas)"
        but = "" if self.valid else "; the model itself does not give that class"
        return f"{odds}: the share of shifts that keep class {self.target!r} is {shares}{more} ({self.measure}){but}."

    def to_dict(self) -> dict[str, Any]:
        """The curve as JSON values."""
        numbers = {name: getattr(self, name).tolist() for name in ("deltas", "estimate", "lower", "upper")}
        return {
            **numbers, "draws": self.draws, "confidence": self.confidence, "target": plain(self.target),
            "measure": self.measure, "valid": self.valid,
        }  # fmt: skip

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FractionCurve) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return self.sentence()


def _share(lower: float, upper: float, delta: float) -> str:
    ends = f"{at_least(lower)} to {at_most(upper)}" if lower < upper else at_least(lower)
    return f"{ends} at delta = {float(delta)!r}"


class FractionCurves(Sequence[FractionCurve]):
    """One curve per row, in the order of the rows.

    Attributes
    ----------
    points : ndarray or data frame
        The rows that were asked about, in the user's units.
    model_digest : str
    shifts : ShiftSet
    entropy : int or None
        Seed of the draws; None if nothing was drawn.
    """

    def __init__(
        self, items: Sequence[FractionCurve], *, points: Any, model_digest: str, shifts: ShiftSet, entropy: int | None
    ) -> None:
        self._items = tuple(items)
        self.points, self.model_digest, self.shifts, self.entropy = points, model_digest, shifts, entropy

    @overload
    def __getitem__(self, index: int) -> FractionCurve: ...
    @overload
    def __getitem__(self, index: slice) -> FractionCurves: ...
    def __getitem__(self, index: int | slice) -> FractionCurve | FractionCurves:
        if not isinstance(index, slice):
            return self._items[index]
        points = self.points.iloc[index] if is_frame(self.points) else self.points[index]
        return FractionCurves(
            self._items[index], points=points, model_digest=self.model_digest, shifts=self.shifts, entropy=self.entropy
        )

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[FractionCurve]:
        return iter(self._items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FractionCurves) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def to_frame(self) -> DataFrame:
        """One line per row and delta; the rows keep the index of the data frame that was asked about."""
        import pandas as pd

        index = self.points.index if is_frame(self.points) else pd.RangeIndex(len(self))
        places = [(i, j) for i, curve in enumerate(self) for j in range(len(curve.deltas))]
        lines = [
            {
                "delta": float(self[i].deltas[j]),
                "estimate": float(self[i].estimate[j]),
                "lower": float(self[i].lower[j]),
                "upper": float(self[i].upper[j]),
                "draws": self[i].draws,
                "confidence": self[i].confidence,
                "target": self[i].target,
            }
            for i, j in places
        ]
        return pd.DataFrame(lines, index=index[[i for i, _ in places]], columns=COLUMNS)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values; the entropy as hexadecimal text, since it exceeds what JSON readers keep."""
        frame = is_frame(self.points)
        index = [plain(i) for i in self.points.index.tolist()] if frame else list(range(len(self)))
        return {
            "format": "apas-fraction-curves",
            "model_digest": self.model_digest,
            "shifts": self.shifts.to_dict(),
            "entropy": None if self.entropy is None else hex(self.entropy),
            "rows": [{"row": i, **curve.to_dict()} for i, curve in zip(index, self, strict=True)],
        }

    def summary(self) -> str:
        """Between what the shares lie at the smallest and at the largest delta, in one sentence."""
        if not len(self):
            return "No rows, no curves."
        first = self[0]
        ends = []
        for j in dict.fromkeys((int(first.deltas.argmin()), int(first.deltas.argmax()))):
            low, high = min(c.lower[j] for c in self), max(c.upper[j] for c in self)
            ends.append(_share(low, high, first.deltas[j]))
        rows = f"{len(self)} row{'s' if len(self) > 1 else ''}"
        together = " together" if len(first.deltas) > 1 else ""
        odds = f"for each row with confidence {first.confidence!r} at all deltas{together}"
        odds = odds if first.draws else "for certain"
        return f"{rows}: share of shifts that keep the class {', '.join(ends)} ({odds}; {first.measure})."

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the share of valid shifts against delta, with its band, for each row."""
        from apas.display.plots import fraction_plot

        return fraction_plot(self, ax)

    def __repr__(self) -> str:
        return f"<FractionCurves: {self.summary()}>"

    def _repr_html_(self) -> str:
        return html_table(self.to_frame(), caption=self.summary())


COLUMNS = ["delta", "estimate", "lower", "upper", "draws", "confidence", "target"]
