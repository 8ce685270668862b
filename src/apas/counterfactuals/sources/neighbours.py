"""`NearestNeighbours`: the nearest known rows that the model puts into the wanted class."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from apas._typing import Floats
from apas.counterfactuals.sources.base import Candidate, Search, Task
from apas.counterfactuals.space.feature import is_changed
from apas.errors import InputError

FIRST = 16  # of how many rows the model is asked for the class at first; then of twice as many each time


@dataclass(frozen=True)
class NearestNeighbours:
    """The nearest background rows of the wanted class, cheapest first.

    The class is the one the model gives. Values of a row that the input may not take, since the feature is immutable,
    changes in one direction only or moves in steps, are replaced by the nearest ones it may; what the model then still
    puts into the wanted class is a candidate.

    Examples
    --------
    >>> from apas import Feature, FeatureSpace, FeedForward
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
        rows, snapped = task.once(("neighbours", label), lambda: _known_rows(task, label))
        if not len(rows):
            raise InputError(
                f"`background` must hold a row that the model puts into the wanted class {label!r}, got none; give "
                "more rows, or use another source."
            )
        return _by_cost(search, rows, snapped)


def rows_of_class(task: Task, label: Any) -> Floats:
    """Different background rows that the model puts into a class, moved into the ranges of the space."""
    if task.background is None:
        return np.empty((0, len(task.space)))
    rows = task.background[np.array([c == label for c in task.background_classes], dtype=bool)]
    lows, highs = np.transpose([f.ends for f in task.space])
    return np.unique(np.clip(rows, lows, highs) + 0.0, axis=0)  # + 0.0 makes -0.0 the 0.0 it equals


def _known_rows(task: Task, label: Any) -> tuple[Floats, list[int]]:
    """Known rows of a class, and the features whose values an input need not take as they are."""
    rows = rows_of_class(task, label)
    nowhere = np.full(len(rows), np.nan)  # no original value that would be allowed as well
    free = [f.mutable and f.direction is None for f in task.space]
    every = enumerate(zip(task.space, free, strict=True))
    return rows, [i for i, (f, any_) in every if not any_ or (f.snapped(rows[:, i], nowhere) != rows[:, i]).any()]


def _by_cost(search: Search, rows: Floats, snapped: list[int]) -> Iterator[Candidate]:
    """What rows become when the space allows them only in part, the cheapest first: those that are of use."""
    space, inputs = search.task.space, np.broadcast_to(search.input, rows.shape)
    points, seen, done, count = rows.copy(), set[bytes](), 0, FIRST
    for i in snapped:
        points[:, i] = space.features[i].snapped(rows[:, i], inputs[:, i])
    order = np.argsort(space.costs(points, inputs, search.task.distance), kind="stable")
    while done < len(order):
        some = search.settled(points[order[done:count]])
        some = some[is_changed(some, search.input).any(axis=1)]
        for point in some[search.task.valid(some, search.target)] if len(some) else ():  # no model need take no rows
            if (key := point.tobytes()) not in seen and search.is_different(point):
                seen.add(key)
                yield Candidate(point)
        done, count = count, 2 * count
