"""The certificates of one call, as a sequence, a table and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from apas._validation import is_frame
from apas.certify.certificate import Certificate
from apas.certify.claims import Most, Verdict
from apas.display.tables import html_table
from apas.display.values import plain
from apas.shifts.protocol import ShiftSet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["Certificates"]


class Certificates(Sequence[Certificate]):
    """One certificate per row, in the order of the rows.

    Attributes
    ----------
    points : ndarray or data frame
        The rows that were asked about, in the user's units.
    inputs : ndarray, data frame or None
        The rows they were made from, if known.
    model_digest : str
        SHA-256 of the model's parameters, architecture and preprocessing.
    shifts : ShiftSet
    feature_names : tuple of str or None
    """

    def __init__(
        self,
        items: Sequence[Certificate],
        *,
        points: Any,
        model_digest: str,
        shifts: ShiftSet,
        feature_names: tuple[str, ...] | None = None,
        inputs: Any = None,
    ) -> None:
        self._items = tuple(items)
        self.points = points
        self.inputs = inputs
        self.model_digest = model_digest
        self.shifts = shifts
        self.feature_names = feature_names

    @overload
    def __getitem__(self, index: int) -> Certificate: ...
    @overload
    def __getitem__(self, index: slice) -> Certificates: ...
    def __getitem__(self, index: int | slice) -> Certificate | Certificates:
        if not isinstance(index, slice):
            return self._items[index]
        points, inputs = (
            v.iloc[index] if is_frame(v) else None if v is None else v[index] for v in (self.points, self.inputs)
        )
        return Certificates(
            self._items[index], points=points, inputs=inputs, model_digest=self.model_digest, shifts=self.shifts,
            feature_names=self.feature_names,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Certificate]:
        return iter(self._items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Certificates) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    @property
    def certified(self) -> NDArray[np.bool_]:
        """Which rows were certified, as a boolean array."""
        return np.array([c.is_certified for c in self], dtype=bool)

    def to_frame(self) -> DataFrame:
        """One line per row, with the index of the data frame that was asked about."""
        import pandas as pd

        index = self.points.index if is_frame(self.points) else pd.RangeIndex(len(self))
        lines = [
            {
                "verdict": c.verdict.name,
                "target": c.target,
                "delta": c.delta,
                "claim": str(c.claim),
                "coverage": c.claim.coverage if isinstance(c.claim, Most) else 1.0,
                "confidence": c.claim.confidence if isinstance(c.claim, Most) else 1.0,
                "draws": c.evidence.draws,
                "failures": c.evidence.failures,
                "method": c.method,
                "reason": c.reason,
            }
            for c in self
        ]
        return pd.DataFrame(lines, index=index, columns=COLUMNS)

    def to_dict(self) -> dict[str, Any]:
        """All but the times, as JSON values."""
        frame = is_frame(self.points)
        index = [plain(i) for i in self.points.index.tolist()] if frame else list(range(len(self)))
        values = self.points.to_numpy(dtype=object).tolist() if frame else np.asarray(self.points).tolist()
        return {
            "format": "apas-certificates",
            "model_digest": self.model_digest,
            "shifts": self.shifts.to_dict(),
            "feature_names": None if self.feature_names is None else list(self.feature_names),
            "certificates": [
                {"row": i, "values": [plain(v) for v in line], **c.to_dict(), "target": plain(c.target)}
                for i, line, c in zip(index, values, self, strict=True)
            ],
        }

    def summary(self) -> str:
        """How many rows got which verdict, and about what, in one sentence."""
        if not len(self):
            return "No rows, no certificates."
        counts = {v: sum(c.verdict is v for c in self) for v in Verdict}
        parts = ", ".join(f"{n} {v.name}" for v, n in counts.items() if n)
        deltas = sorted({c.delta for c in self})
        size = f"delta {deltas[0]:g}" if len(deltas) == 1 else f"delta {deltas[0]:g} to {deltas[-1]:g}"
        claim = self[0].claim
        return f"{len(self)} row{'s' if len(self) > 1 else ''}: {parts} ({claim}; {size}; {claim.measure})."

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw, per row, the range in which the share of valid shifts lies, against the share that is asked for."""
        from apas.display.plots import coverage_plot

        return coverage_plot(self, ax)

    def __repr__(self) -> str:
        return f"<Certificates: {self.summary()}>"

    def _repr_html_(self) -> str:
        frame = self.to_frame().drop(columns=["claim", "coverage", "confidence"])
        return html_table(frame, caption=self.summary())


COLUMNS = [
    "verdict",
    "target",
    "delta",
    "claim",
    "coverage",
    "confidence",
    "draws",
    "failures",
    "method",
    "reason",
]
