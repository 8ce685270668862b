"""`NearestNeighbours`: the nearest known rows that the model puts into the wanted class."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from apas._typing import Bools, Floats, Indices
from apas.counterfactuals.sources.base import Candidate, Search, Task
from apas.counterfactuals.space.feature import Feature, is_changed
from apas.errors import InputError

FIRST = 16  # how many neighbours are asked for at first; then twice as many each time
#: Bounds and costs add differences up in different orders, so that bounds may be off by a few roundings.
ROUNDING = 1e-12


@dataclass(frozen=True)
class NearestNeighbours:
    """The nearest background rows of the wanted class, cheapest first.

    The class is the one the model gives. Values of a row that the input may not take, since the feature is immutable,
    changes in one direction only or moves in steps, are replaced by the nearest ones it may; what the model then still
    puts into the wanted class is a candidate.

    Examples
    --------
    >>> from apas import FeedForward
    >>> from apas.counterfactuals.space.space import FeatureSpace
    >>> space = FeatureSpace([Feature("income", high=9.0, low=0.0), Feature("age", "integer", mutable=False)])
    >>> net = FeedForward([[[1.0], [0.0]]], [[-4.0]], feature_names=space.names)
    >>> task = Task(net, space, background=np.array([[8.0, 30.0], [5.0, 60.0], [1.0, 40.0]]))
    >>> search = Search(task, 0, np.array([2.0, 40.0]), 1)
    >>> [c.point.tolist() for c in NearestNeighbours().candidates(search)]
    [[5.0, 40.0], [8.0, 40.0]]
    """

    ordered: ClassVar[bool] = True  # no candidate costs less than those before it
    takes_missing: ClassVar[bool] = True

    def unsupported(self, task: Task) -> str | None:
        """None if there are rows to look among, else the error a user reads."""
        if task.background is None or not len(task.background):
            return "NearestNeighbours looks among known rows; pass some, such as the training table, as `background`."
        return None

    def candidates(self, search: Search) -> Iterator[Candidate]:
        """Different rows in the order of their costs, allowed by the space and valid on the model."""
        task, label = search.task, search.target
        known = task.once(("neighbours", label), lambda: _KnownRows(task, rows_of_class(task, label)))
        if not len(known.rows):
            raise InputError(
                f"`background` must hold a row that the model puts into the wanted class {label!r}, got none; give "
                "more rows, or use another source."
            )
        return _by_cost(search, known)


def rows_of_class(task: Task, label: Any) -> Floats:
    """Different background rows that the model puts into a class, moved into the ranges of the space."""
    if task.background is None:
        return np.empty((0, len(task.space)))
    rows = task.background[np.array([c == label for c in task.background_classes], dtype=bool)]
    lows, highs = np.transpose([f.ends for f in task.space])
    return np.unique(np.clip(rows, lows, highs) + 0.0, axis=0)  # + 0.0 makes -0.0 the 0.0 it equals


class _KnownRows:
    """Known rows of a class, with lower bounds on what it costs to become what the space makes of each."""

    # Only features that change freely count: which values of the others remain is not known without an input.

    def __init__(self, task: Task, rows: Floats) -> None:
        self.task, self.rows = task, rows
        moved = np.stack([_distances_to_allowed(f, rows[:, i]) for i, f in enumerate(task.space)], axis=1)
        self.free: Bools = np.asarray(np.isfinite(moved).all(axis=0))
        #: How much nearer than the row itself what is made of it can be, at most.
        self.allowance = float(self._total(moved).max(initial=0.0))

    def bounds(self, point: Floats) -> Floats:
        """A lower bound per row on the cost of getting there from a point."""
        apart = self._total(self.task.space.differences(self.rows, np.broadcast_to(point, self.rows.shape)))
        return np.asarray(np.maximum(0.0, apart - self.allowance) * (1 - ROUNDING))

    def _total(self, apart: Floats) -> Floats:
        if self.task.distance == "l1":
            return np.asarray(apart[:, self.free].sum(axis=1) / len(self.free))
        return np.asarray(apart[:, self.free].max(axis=1, initial=0.0))


def _distances_to_allowed(feature: Feature, values: Floats) -> Floats:
    """How far values are from the nearest allowed ones, in units of the range; infinite for what is not free."""
    if not feature.mutable or feature.direction is not None:
        return np.full(len(values), np.inf)
    anywhere = np.full(len(values), np.nan)  # from nowhere: no original value that would be allowed as well
    snapped = feature.snapped(values, anywhere)
    return np.where(np.isnan(snapped), np.inf, feature.differences(snapped, values))


def _by_cost(search: Search, known: _KnownRows) -> Iterator[Candidate]:
    """Candidates in the order of their costs: one is held back while the rows still to come could cost less."""
    bounds, waiting, seen = known.bounds(search.input), list[tuple[float, int, Floats]](), set[bytes]()
    order, done, count = np.argsort(bounds, kind="stable"), 0, FIRST
    while done < len(order):
        for found in _usable(search, known.rows, order[done:count], seen):
            heapq.heappush(waiting, found)
        done, count = min(count, len(order)), 2 * count
        least = bounds[order[done]] if done < len(order) else np.inf
        while waiting and waiting[0][0] <= least:
            yield Candidate(heapq.heappop(waiting)[2])


def _usable(search: Search, known: Floats, numbers: Indices, seen: set[bytes]) -> Iterator[tuple[float, int, Floats]]:
    """What known rows become when the space allows them only in part: cost, number and point of those still of use."""
    task, rows = search.task, known[numbers]
    inputs = np.broadcast_to(search.input, rows.shape)
    points = task.space.snapped(rows, inputs)
    kept: Bools = np.asarray(is_changed(points, inputs).any(axis=1))
    if kept.any():  # preprocessing need not take an empty table
        kept[kept] = task.valid(points[kept], search.target)
    for i in np.flatnonzero(kept):
        key = points[i].tobytes()
        if key not in seen and search.is_different(points[i]):
            seen.add(key)
            yield search.cost(points[i]), int(numbers[i]), points[i]
