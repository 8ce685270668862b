"""Rows that look like the data: no outliers by the local outlier factor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.counterfactuals.source import Search, Task, Trial

__all__ = ["NEIGHBOURS", "Plausible", "outlier_factor"]

_Array = NDArray[np.float64]
#: Neighbours whose density a row is compared with.
NEIGHBOURS = 20


def outlier_factor(rows: _Array, neighbours: int = NEIGHBOURS) -> Any:
    """Scikit-learn's local outlier factor, fitted to rows as the model sees them."""
    from sklearn.neighbors import LocalOutlierFactor

    return LocalOutlierFactor(n_neighbors=neighbours, novelty=True).fit(rows)


@dataclass(frozen=True)
class Plausible:
    """Says which rows are no outliers among the background rows."""

    task: Task
    fitted: Any

    @classmethod
    def of(cls, task: Task) -> Plausible:
        """Fitted once per task."""
        rows = task.background if task.background is not None else np.empty((0, len(task.space)))
        return cls(task, task.once("plausible", lambda: outlier_factor(task.encoded(rows))))

    def inside(self, points: _Array) -> NDArray[np.bool_]:
        """Which rows are no outliers."""
        return np.asarray(self.fitted.predict(self.task.encoded(points)) > 0) if len(points) else np.ones(0, dtype=bool)

    def pulled(self, search: Search, trial: Trial, points: _Array) -> _Array:
        """The rows that are no outliers; and, towards known rows, the nearest to each that are none either."""
        fine = self.inside(points)
        if fine.all() or self.task.background is None:
            return points[fine]
        known = self.task.background[self.task.valid(self.task.background, search.target)]
        if not len(known):
            return points[fine]
        costs = self.task.space.costs(known, np.broadcast_to(search.input, known.shape), self.task.distance)
        near = known[np.argsort(costs, kind="stable")[:20]]
        ends = points[:: max(1, len(points) // 4)]
        rows = [search.snapped(e + t * (k - e)) for e in ends for k in near for t in np.linspace(0.1, 1.0, 10)]
        found = np.unique(np.vstack([points[fine], np.array(rows)]), axis=0)
        found = found[self.inside(found) & self.task.valid(found, search.target)]
        slacks = np.nan_to_num(trial.slacks(found), nan=-np.inf) if len(found) else np.empty(0)
        return found[slacks >= 0] if (slacks >= 0).any() else found
