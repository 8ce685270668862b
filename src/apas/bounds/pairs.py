"""Rows against rivals: the bounds and the quick attack that see many rows together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apas.bounds.backward import Lines, ascend, carried_back
from apas.bounds.pushes import Pushes
from apas.bounds.relaxation import Relaxation, Units

__all__ = ["Pair"]

_Array = NDArray[np.float64]
#: Ascent steps of the linear bounds of rows that are still open.
STEPS = 6


class Pair:
    """A block of rows, each against one of its rivals: interval bound, linear bound, quick attack.

    Parameters
    ----------
    relaxation : Relaxation
    X : ndarray of shape (rows, features)
    wanted, rival : ndarray of int, shape (rows,)
    units, lines, allowance
        What `Relaxation.relaxed` gave for the rows.

    Attributes
    ----------
    interval, bound : ndarray of shape (rows,)
        Lower bounds on the margin in real arithmetic: by intervals, and the best so far.
    current : list of Lines
        With the slopes improved so far.
    """

    def __init__(
        self,
        relaxation: Relaxation,
        X: _Array,
        wanted: NDArray[np.intp],
        rival: NDArray[np.intp],
        units: list[Units],
        lines: list[Lines],
        allowance: _Array,
    ) -> None:
        self.rival, self.units, self.current, self.allowance = rival, units, lines, allowance
        self.layers = relaxation.layers
        self.objective = relaxation.objective(wanted, rival)
        self.pushes = Pushes(relaxation, X, self.objective)
        lin, rho, const = self.objective.lin, self.objective.rho, self.objective.const
        ends = (lin * end - rho * np.abs(end) for end in (units[-1].low, units[-1].high))
        self.interval = np.minimum(*ends).sum(axis=1) + const - allowance
        self.bound = self.interval
        self.least, self.shifts = np.full(len(X), np.inf), [np.empty(0)]

    def linear(self) -> _Array:
        """Linear bounds, with the slopes improved where they do not suffice."""
        top = len(self.units) - 1
        carried = carried_back(self.layers, self.current, self.objective, top)
        best = carried.bound
        if not (best > self.allowance).all():
            starts = [np.where(c >= 0, -1.0, 1.0) for c in carried.coefficients]
            self.least, self.shifts = self.pushes.improved(starts)
        for _ in range(STEPS):
            done = (best > self.allowance) | (self.least <= 0)
            if done.all():
                break
            # a row that is done stays as it is, whatever the others need
            target = np.where(done, -np.inf, np.maximum(0.1 * np.abs(carried.bound), 0.5 * self.least))
            self.current, _, _ = ascend(self.layers, self.current, carried, target)
            carried = carried_back(self.layers, self.current, self.objective, top)
            best = np.maximum(best, carried.bound)
        self.bound = np.maximum(self.interval, best - self.allowance)
        return np.asarray(self.bound)

    def attacked(self, k: int) -> list[_Array] | None:
        """Pushes of a row's units that seem to break it, if some are known."""
        return [s[k] for s in self.shifts] if self.least[k] <= 0 else None
