"""Where a row is moved, and what is around it: neighbours of the row, and which of them have the wanted class.

A row can be moved in the columns that the model sees, freely, as published methods do; or in coordinates of the space,
between its limits, from where there is a way back to an allowed row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from apas.counterfactuals.coded import CodedModel
from apas.counterfactuals.feature import Feature
from apas.counterfactuals.relaxed import Relaxed
from apas.counterfactuals.source import Search
from apas.counterfactuals.surrogate import Surrogate
from apas.models.margins import needs_strict, valid
from apas.models.protocol import Differentiable

__all__ = ["Columns", "InSpace", "Neighbourhood", "Neighbours"]

_Array = NDArray[np.float64]
_Hit = NDArray[np.bool_]


@dataclass(frozen=True)
class Neighbours:
    """What a line is fitted to.

    Attributes
    ----------
    points : ndarray of shape (neighbours, coordinates)
        The row itself comes first.
    hit : ndarray of bool, shape (neighbours,)
        Which of them have the wanted class.
    mean, spread : ndarray of shape (coordinates,)
        Of the known rows; the spread is 1 for what never changes.
    """

    points: _Array
    hit: _Hit
    mean: _Array
    spread: _Array


class Neighbourhood(Protocol):
    """What a descent needs to know about the row that it starts from.

    Attributes
    ----------
    search : Search
    start, weights : ndarray of shape (coordinates,)
        The row, and what a unit of each coordinate costs.
    width : int
        How many standard normal numbers a neighbour is made of.
    """

    search: Search
    start: _Array
    weights: _Array
    width: int

    def drawn(self, normals: _Array, local: bool) -> Neighbours:
        """Draw neighbours of the row, or of the mean of the known rows."""
        ...

    def tangent(self) -> Surrogate:
        """The margin of the model as it is at the row."""
        ...

    def inside(self, points: _Array) -> _Array:
        """The nearest points that may be looked at."""
        ...


class Columns:
    """A row as the model sees it, that may go anywhere.

    Examples
    --------
    >>> from apas import FeatureSpace, FeedForward
    >>> from apas.counterfactuals.source import Task
    >>> space = FeatureSpace([Feature("income", low=0, high=10)], scale="minmax")
    >>> task = Task(space.bind(FeedForward([[[2.0]]], [[-1.0]])), space, background=np.array([[2.0], [6.0]]))
    >>> columns = Columns(Search(task, 0, np.array([3.0]), 1))
    >>> found = columns.drawn(np.array([[0.0], [1.5]]), local=True)
    >>> found.points.tolist(), found.hit.tolist()
    ([[0.3], [0.6]], [False, True])
    """

    def __init__(self, search: Search) -> None:
        self.search, self.task = search, search.task
        self.start = self.task.encoded(search.input[None])[0]
        self.weights = np.ones(len(self.start))
        self.width = len(self.start)

    def drawn(self, normals: _Array, local: bool) -> Neighbours:
        """Draw points around the row, or around the mean of the known rows."""
        mean, spread = _mean_and_spread(self._known)
        points = (self.start if local else mean) + normals * spread
        points[0] = self.start
        return Neighbours(points, self.valid(points), mean, spread)

    def reversed(self, normals: _Array) -> Neighbours:
        """Draw what the published experiments fitted the last line to where features have levels: see `Roar`.

        Columns of levels are drawn as frequent as they are and replaced by whether they are the row's, and the class
        is turned round. Without such columns it is what `drawn` gives.
        """
        found, bits = self.drawn(normals, local=False), self._bits
        if not bits.any():
            return found
        points = found.points.copy()
        for j in np.flatnonzero(bits):
            points[1:, j] = _by_frequency(self._known[:, j], normals[1:, j])
        same = np.where(bits, points == self.start, points)
        mean, spread = np.where(bits, 0.0, found.mean), np.where(bits, 1.0, found.spread)
        return Neighbours(same, ~self.valid(points), mean, spread)

    @property
    def _known(self) -> _Array:
        """Known rows as the model sees them."""
        return self.task.once("columns/known", lambda: self.task.encoded(_background(self.search)))

    @property
    def _bits(self) -> _Hit:
        """Which columns stand for levels."""
        found = np.zeros(self.width, dtype=bool)
        if isinstance(self.task.model, CodedModel) and self.task.space.coding.n_columns == self.width:
            for feature, part in zip(self.task.space, self.task.space.coding.slices, strict=True):
                found[part] = feature.is_level
        return found

    def valid(self, points: _Array) -> _Hit:
        """Which points the model puts into the wanted class."""
        labels = np.empty(len(points), dtype=object)
        labels[:] = self.search.target
        strict = needs_strict(self.task.model.classes, labels)
        return valid(self.task.model.margin(points, self.search.target), strict)

    def tangent(self) -> Surrogate:
        """The margin of the model as it is at the row."""
        assert isinstance(self.task.model, Differentiable)
        margins, slopes = self.task.model.input_gradient(self.start[None], self.search.target)
        return _line(float(margins[0]), slopes[0], self.start)

    def inside(self, points: _Array) -> _Array:
        """The points themselves."""
        return points


class InSpace:
    """A row in coordinates of the space: numbers from the low end of their range in units of it, levels as 0 and 1.

    Examples
    --------
    >>> from apas import FeatureSpace, FeedForward
    >>> from apas.counterfactuals.source import Task
    >>> space = FeatureSpace([Feature("income", "integer", low=2, high=12)])
    >>> task = Task(space.bind(FeedForward([[[1.0]]], [[-6.0]])), space, background=np.array([[2.0], [6.0]]))
    >>> place = InSpace(Search(task, 0, np.array([3.0]), 1))
    >>> found = place.drawn(np.array([[0.0], [1.7]]), local=True)
    >>> found.points.round(9).tolist(), found.hit.tolist()
    ([[0.1], [0.4]], [False, True])
    >>> place.numbers(np.array([[0.42]]))
    array([[6.]])
    """

    def __init__(self, search: Search) -> None:
        self.search, task = search, search.task
        self._relaxed = Relaxed(search)
        self._at = self._relaxed.at
        self._origin = self._origins()
        self.start = self._relaxed.start - self._origin
        self.weights = self._relaxed.weights
        self.width = len(task.space)

    def drawn(self, normals: _Array, local: bool) -> Neighbours:
        """Draw rows around the row, or around the mean of the known rows.

        Numbers and ordinal levels are normal with the spread of the known rows, other levels as frequent as there; what
        a feature cannot be becomes the nearest that it can, whether or not the row may change so.
        """
        task, rows = self.search.task, np.empty(normals.shape)
        background = _background(self.search)
        for i, feature in enumerate(task.space):
            values, original = background[:, i], float(self.search.input[i])
            if feature.kind in ("categorical", "binary"):
                rows[:, i] = _by_frequency(values, normals[:, i])
                continue
            size = float(values.std()) or self._at.units[i]
            wanted = (original if local else values.mean()) + size * normals[:, i]
            rows[:, i] = _possible(feature, wanted, original)
        rows[0] = self.search.input
        mean, spread = _mean_and_spread(self._at.of(background) - self._origin)
        return Neighbours(self._at.of(rows) - self._origin, task.valid(rows, self.search.target), mean, spread)

    def tangent(self) -> Surrogate:
        """The margin of the model as it is at the row."""
        margins, slopes = self._relaxed.gradients(self._relaxed.start[None])
        return _line(float(margins[0]), slopes[0], self.start)

    def inside(self, points: _Array) -> _Array:
        """The nearest points within the limits of the space."""
        return self._relaxed.inside(points + self._origin) - self._origin

    def numbers(self, points: _Array) -> _Array:
        """The nearest allowed rows, as numbers per cell."""
        moved = points != self.start  # adding the origin again need not give the digits that were there
        return self._relaxed.numbers(np.where(moved, points + self._origin, self._relaxed.start))

    def _origins(self) -> _Array:
        """Where coordinates are 0: the low end of a range, else of what is known."""
        found = np.zeros(self._at.size)
        known = self.search.input[None] if self.search.task.background is None else _background(self.search)
        for i, (feature, part) in enumerate(zip(self.search.task.space, self._at.slices, strict=True)):
            if feature.kind != "categorical":
                low = feature.ends[0] if np.isfinite(feature.ends[0]) else float(known[:, i].min())
                found[part] = low / self._at.units[i]
        return found


def _background(search: Search) -> _Array:
    assert search.task.background is not None
    return search.task.background


def _mean_and_spread(points: _Array) -> tuple[_Array, _Array]:
    spread = points.std(axis=0)
    return points.mean(axis=0), np.where(spread > 0, spread, 1.0)


def _by_frequency(values: _Array, normals: _Array) -> _Array:
    """Values as frequent as they are, each chosen by a standard normal number."""
    from scipy.special import ndtr

    places = (ndtr(normals) * len(values)).astype(np.intp)
    return np.asarray(np.sort(values)[np.minimum(places, len(values) - 1)])


def _possible(feature: Feature, wanted: _Array, original: float) -> _Array:
    """The nearest values that a feature can have, also where this row may not change to them."""
    free = feature if feature.mutable and feature.direction is None else replace(feature, mutable=True, direction=None)
    found = free.snapped(wanted, np.full(len(wanted), np.nan))
    return np.where(np.isnan(found), original, found)  # a range without a step in it has no values


def _line(margin: float, slopes: _Array, start: _Array) -> Surrogate:
    return Surrogate(slopes, margin - float(slopes @ start))
