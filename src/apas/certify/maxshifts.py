"""The largest certified shift of each row, with what was found on the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from apas._validation import is_frame
from apas.certify.claims import Every, Most
from apas.display.numbers import at_least
from apas.display.tables import html_table
from apas.display.values import plain
from apas.shifts.protocol import ShiftSet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["MaxShift", "MaxShifts"]


@dataclass(frozen=True)
class MaxShift:
    """How far the model may shift before a row is no longer certified.

    Attributes
    ----------
    delta : float
        The largest delta at which the claim was certified; 0 if none was.
    upper : float
        `Every`: the smallest delta with a witness against it. `Most`: the claim is refuted beyond this delta, with the
        same confidence. Infinite if none is known.
    provable : float
        The largest delta proved for every shift; 0 if none is known.
    broken_at : float
        The smallest delta with a known failing shift; infinite if none is known.
    exact : bool
        Whether `delta` is the largest one at which the claim holds, up to rounding.
    reached_limit : bool
        Whether the search ended at its limit: nothing more was asked.
    claim : Every or Most
    target : object
    reason : str
    trace : mapping
        What the search did: draws, tests, forward passes, and the entropy of its streams.
    seconds : float
        Wall time of the call divided by its rows; not part of equality.
    """

    delta: float
    upper: float
    provable: float
    broken_at: float
    exact: bool
    reached_limit: bool
    claim: Every | Most
    target: Any
    reason: str
    trace: Mapping[str, Any] = field(hash=False)
    seconds: float = field(default=0.0, compare=False)

    def sentence(self) -> str:
        """Say it in words that are true as they stand."""
        who = f"class {self.target!r}"
        if not self.delta:
            return f"nothing is certified for {who}: {self.reason}."
        if isinstance(self.claim, Most):
            what = f"{self.claim}, keep {who} at delta = {self.written()} ({self.claim.measure})"
        else:
            what = f"every shift by up to delta = {self.written()} keeps {who} ({self.claim.measure})"
        return f"{what}; {self.reason}."

    def written(self) -> str:
        """The delta in six digits, rounded down, where the claim holds for smaller ones too; else in all its digits."""
        whole_way = isinstance(self.claim, Every) or self.trace.get("exact_roots", False) or self.delta <= self.provable
        return at_least(self.delta) if whole_way else repr(float(self.delta))

    def to_dict(self) -> dict[str, Any]:
        """All but the time, as JSON values; an infinite number as null."""
        finite = {n: _number(getattr(self, n)) for n in ("delta", "upper", "provable", "broken_at")}
        flags = {"exact": self.exact, "reached_limit": self.reached_limit, "reason": self.reason}
        return {
            **finite,
            **flags,
            "target": plain(self.target),
            "claim": self.claim.to_dict(),
            "trace": dict(self.trace),
        }

    def __str__(self) -> str:
        return self.sentence()


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


class MaxShifts(Sequence[MaxShift]):
    """One answer per row, in the order of the rows.

    Attributes
    ----------
    points : ndarray or data frame
        The rows that were asked about, in the user's units.
    model_digest : str
    shifts : ShiftSet
    """

    def __init__(self, items: Sequence[MaxShift], *, points: Any, model_digest: str, shifts: ShiftSet) -> None:
        self._items = tuple(items)
        self.points, self.model_digest, self.shifts = points, model_digest, shifts

    @overload
    def __getitem__(self, index: int) -> MaxShift: ...
    @overload
    def __getitem__(self, index: slice) -> MaxShifts: ...
    def __getitem__(self, index: int | slice) -> MaxShift | MaxShifts:
        if not isinstance(index, slice):
            return self._items[index]
        points = self.points.iloc[index] if is_frame(self.points) else self.points[index]
        return MaxShifts(self._items[index], points=points, model_digest=self.model_digest, shifts=self.shifts)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[MaxShift]:
        return iter(self._items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MaxShifts) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    @property
    def deltas(self) -> NDArray[np.float64]:
        """The largest certified delta of each row."""
        return np.array([item.delta for item in self], dtype=np.float64)

    def to_frame(self) -> DataFrame:
        """One line per row, with the index of the data frame that was asked about."""
        import pandas as pd

        index = self.points.index if is_frame(self.points) else pd.RangeIndex(len(self))
        lines = [{**{c: getattr(item, c) for c in COLUMNS}, "claim": str(item.claim)} for item in self]
        return pd.DataFrame(lines, index=index, columns=COLUMNS)

    def to_dict(self) -> dict[str, Any]:
        """All but the times, as JSON values."""
        frame = is_frame(self.points)
        index = [plain(i) for i in self.points.index.tolist()] if frame else list(range(len(self)))
        return {
            "format": "apas-max-shifts",
            "model_digest": self.model_digest,
            "shifts": self.shifts.to_dict(),
            "rows": [{"row": i, **item.to_dict()} for i, item in zip(index, self, strict=True)],
        }

    def summary(self) -> str:
        """The spread of the largest certified deltas, in one sentence."""
        if not len(self):
            return "No rows, no shifts."
        low, middle, high = np.percentile(self.deltas, [0, 50, 100])
        rows = f"{len(self)} row{'s' if len(self) > 1 else ''}"
        claim = self[0].claim
        spread = f"{at_least(low)} to {at_least(high)}, median {at_least(middle)}"
        per_test = " per test only, as published" if any(i.trace.get("search") == "paper" for i in self) else ""
        return f"{rows}: largest delta {spread} ({claim}{per_test}; {claim.measure})."

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the certified, the provable and the breaking delta of each row, sorted by the certified one."""
        from apas.display.plots import radius_plot

        return radius_plot(self, ax)

    def __repr__(self) -> str:
        return f"<MaxShifts: {self.summary()}>"

    def _repr_html_(self) -> str:
        return html_table(self.to_frame().drop(columns=["claim"]), caption=self.summary())


COLUMNS = ["delta", "upper", "provable", "broken_at", "exact", "reached_limit", "target", "claim", "reason"]
