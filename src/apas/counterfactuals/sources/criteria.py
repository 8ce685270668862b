"""Rows for which a score is at least 0: the nearest known ones, and the cheapest; published methods differ in it.

A score takes the place of the shifted models of a search, so that every method has the same optimiser.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from apas._typing import Floats
from apas.counterfactuals.search.refit_search import refit_path
from apas.counterfactuals.search.stacked import models_together
from apas.counterfactuals.sources.base import Search, SearchTest, Task, check_settings
from apas.counterfactuals.sources.neighbours import NearestNeighbours, rows_of_class
from apas.counterfactuals.sources.robust_optimum import cheapest_near
from apas.models.base import Dense, Differentiable, class_indices, offers
from apas.shifts.observed import ObservedShifts
from apas.worst_case.intervals import Boxes

AT_ONCE, MOST = 64, 4096  # known rows whose scores are asked for together, and how many of them at most
WAY = np.linspace(0.05, 1.0, 20)  # how far from the input to a known row others are looked at


@dataclass(frozen=True, kw_only=True)
class PublishedSource:
    """What published methods that start from known rows have in common."""

    ordered: ClassVar[bool] = True
    limits: ClassVar[Mapping[str, Mapping[str, float]]] = {}  # of numbers that may not be all from 0 on
    dense: ClassVar[bool] = False  # whether it moves the parameters of a dense network

    def __post_init__(self) -> None:
        check_settings(self, **self.limits)

    def unsupported(self, task: Task) -> str | None:
        """None if there are known rows, and layers to move if need be, else the error a user reads."""
        name = type(self).__name__
        if task.background is None or not len(task.background):
            return f"{name} starts from known rows; pass some, such as the training table, as `background`."
        if self.dense and not offers(task.model, Dense):
            which = f"a dense network, which {task.model!r} does not have; use another source."
            return f"{name} moves the parameters of {which}"
        return None


@dataclass(frozen=True)
class Criterion(SearchTest):
    """A score of rows as the test of a search."""

    score: Callable[[Floats], Floats]

    def scores(self, points: Floats) -> Floats:
        """By how much the score of each row exceeds what is asked for."""
        return self.score(points)


def passing_rows(search: Search, test: Criterion) -> Iterator[Floats]:
    """Known rows that the space allows and that pass, the cheapest first."""
    if not len(rows_of_class(search.task, search.target)):
        return
    known = islice((c.point for c in NearestNeighbours().candidates(search)), MOST)
    while len(some := np.array(list(islice(known, AT_ONCE)))):
        yield from some[test.passes(some)]


def draw_back(search: Search, test: Criterion, row: Floats) -> Floats:
    """The cheapest row that passes on the way from the input to one that does; categories are those of its end."""
    ways = search.along(row, WAY)
    fine = search.task.valid(ways, search.target) & test.passes(ways)
    return next((way for way in ways[fine] if search.is_new(way)), row)


def cheapest_passing(search: Search, test: Criterion) -> Floats | None:
    """A cheap row that passes and is valid on the model, by linear steps from the nearest known one; None if none."""
    start = next(passing_rows(search, test), None)
    start = None if start is None else draw_back(search, test, start)
    best, _ = cheapest_near(search, test, search.input if start is None else start)
    found = [p for p in (best, start) if p is not None and search.is_valid(p) and search.is_different(p)]
    return min(found, key=search.cost, default=None)


class RefitMargins:
    """Margins of rows on models that a source was given, each behind the space of the task."""

    def __init__(self, task: Task, refits: Sequence[Any]) -> None:
        self.models = [task.space.bind(model) for model in refits]
        self.tasks = [replace(task, model=model) for model in self.models]
        self._together = models_together(ObservedShifts(self.models), task)

    def __call__(self, points: Floats, target: Any) -> Floats:
        """Shape (models, rows)."""
        if self._together is not None:
            return self._together.margins(points, target)
        return np.stack([task.margins(points, target) for task in self.tasks])


def cheapest_accepted(search: Search, margins: RefitMargins) -> Floats | None:
    """A cheap row that every one of some models accepts, None if none was found."""
    if offers(search.task.model, Differentiable):
        return cheapest_passing(search, Criterion(lambda points: margins(points, search.target).min(axis=0)))
    rows = refit_path(search, margins.models, unanimous=True)
    rows = rows[[search.is_different(row) for row in rows]] if len(rows) else rows
    if len(rows):  # read one by one: at a threshold of a tree the last bit of a quick encoder decides
        rows = rows[np.all([task.margins(rows, search.target) >= 0 for task in margins.tasks], axis=0)]
    return min(rows, key=search.cost, default=None)


def nearest_row(search: Search) -> Floats | None:
    """A cheap row of the class on the model itself, where methods that improve a row begin."""
    margins = search.task.once("base row", lambda: RefitMargins(search.task, [search.task.model]))
    return cheapest_accepted(search, margins)


def worst_margins(task: Task, columns: Floats, target: Any, delta: float) -> Floats:
    """Lower bounds on margins while all parameters of a dense network move by `delta`: exact with one hidden layer."""
    net: Any = task.once("dense network", lambda: task.model.as_feedforward())  # type: ignore[attr-defined]
    wanted, radii = class_indices(net.classes, target, len(columns)), np.ones(len(net.parameters))
    bounds, errors = Boxes(net, columns, wanted, radii).least(np.full(len(columns), float(delta)))
    return np.asarray(bounds - errors)
