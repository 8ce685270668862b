"""The certificates of one call, as a sequence, a table and a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apas.certify.certificate import NOT_TODAY, Certificate
from apas.certify.claims import Most, Verdict
from apas.certify.sequence import UnderShifts, cells
from apas.display.numbers import exactly
from apas.display.values import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from apas.certify.maxshifts import MaxShifts
    from apas.models.protocol import Model
    from apas.shifts.protocol import ShiftSet

__all__ = ["Certificates"]


class Certificates(UnderShifts[Certificate]):
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
    max_shifts : MaxShifts or None
        The largest shifts of the same rows, if the certificates were read from a file that holds them.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0]]], [[0.0]])
    >>> certificates = apas.certify(net, [[1.0], [-1.0], [2.0]], 0.1, target=1, rng=0)
    >>> certificates[certificates.certified].points.tolist()
    [[1.0], [2.0]]
    """

    FORMAT = "apas-certificates"
    ROWS = "certificates"
    COLUMNS = (
        "verdict", "target", "delta", "claim", "coverage", "confidence", "draws", "failures", "method", "reason",
        "valid_today",
    )  # fmt: skip
    UNSHOWN = ("claim", "coverage", "confidence")
    PER_ROW = (*UnderShifts.PER_ROW, "max_shifts")

    def __init__(
        self,
        items: Sequence[Certificate],
        *,
        points: Any,
        model_digest: str,
        shifts: ShiftSet,
        feature_names: tuple[str, ...] | None = None,
        inputs: Any = None,
        index: Any = None,
        model: Model | None = None,
        readings: tuple[Any, ...] | None = None,
        max_shifts: MaxShifts | None = None,
    ) -> None:
        super().__init__(
            items, points=points, model_digest=model_digest, shifts=shifts, feature_names=feature_names, inputs=inputs,
            index=index, model=model, readings=readings,
        )  # fmt: skip
        self.max_shifts = max_shifts

    @property
    def certified(self) -> NDArray[np.bool_]:
        """Which rows were certified, as a boolean array."""
        return np.array([c.is_certified for c in self], dtype=bool)

    @property
    def valid_today(self) -> NDArray[np.bool_]:
        """Which rows the model itself gives their class, as a boolean array; the others are refuted without draws."""
        return np.array([c.valid_today for c in self], dtype=bool)

    def summary(self) -> str:
        """How many rows got which verdict, for which reason they were refuted, and about what, in one sentence."""
        if not len(self):
            return "No rows, no certificates."
        counts = {v: sum(c.verdict is v for c in self) for v in Verdict}
        why = {Verdict.REFUTED: self._refused()}
        parts = ", ".join(f"{n} {v.name}{why.get(v, '')}" for v, n in counts.items() if n)
        deltas = sorted({c.delta for c in self})
        size = " to ".join(exactly(delta) for delta in dict.fromkeys((deltas[0], deltas[-1])))
        claims = "; or ".join(dict.fromkeys(c.claim.among(len(self)) for c in self))
        measures = "; or ".join(dict.fromkeys(c.claim.measure for c in self))
        return f"{self._counted()}: {parts} ({claims}; delta {size}; {measures})."

    def _refused(self) -> str:
        """Why rows were refuted, where some of them are not valid to begin with."""
        if self.valid_today.all():
            return ""
        others = Counter(c.claim.against for c in self if c.valid_today and c.verdict is Verdict.REFUTED)
        parts = [f"{n} {why}" for why, n in others.items()] + [f"{np.count_nonzero(~self.valid_today)} {NOT_TODAY}"]
        return f" ({', '.join(parts)})"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw, per row, the range in which the share of valid shifts lies, against the share that is asked for."""
        from apas.display.plots import coverage_plot

        return coverage_plot(self, ax)

    def _line(self, item: Certificate) -> dict[str, Any]:
        claim = item.claim
        share, odds = (claim.coverage, claim.confidence) if isinstance(claim, Most) else (1.0, 1.0)
        return {
            "verdict": item.verdict.name, "target": item.target, "delta": item.delta, "claim": str(claim),
            "coverage": share, "confidence": odds, "draws": item.evidence.draws, "failures": item.evidence.failures,
            "method": item.method, "reason": item.reason, "valid_today": item.valid_today,
        }  # fmt: skip

    def _about(self) -> dict[str, Any]:
        names = None if self.feature_names is None else list(self.feature_names)
        return {**super()._about(), "feature_names": names}

    def _entries(self) -> list[dict[str, Any]]:
        rows = zip(cells(self.points), self, strict=True)
        return [{"values": values, **c.to_dict(), "target": plain(c.target)} for values, c in rows]
