"""The search for one row as a smooth problem: coordinates that move freely, and the margin with its derivatives.

Whatever the space says about a feature limits its coordinates. How a coordinate reaches the model is found by encoding
the input with that feature changed: a straight line for scaled numbers, a polygon for what preprocessing bends, the
differences between levels. Where preprocessing mixes features this is an approximation. It can cost candidates but lets
none pass: what a search offers is evaluated by the model itself.

The margin is derived at the nearest allowed point, not at the coordinates. So a descent goes on until a step or a level
changes, and every point that it looks at could be offered.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.counterfactuals.coordinates import Coordinates, Mixtures
from apas.counterfactuals.feature import Feature
from apas.counterfactuals.polygons import Polygons
from apas.counterfactuals.source import Search
from apas.errors import Unsupported
from apas.models.protocol import Differentiable, offers

__all__ = ["Relaxed", "derives", "probabilities"]

_Array = NDArray[np.float64]
#: In how many pieces a number is encoded to see whether it reaches the model along a straight line.
PIECES = 64
#: How far from straight a line may be, in units of the largest entry of its column.
STRAIGHT = 1e-9
#: How far to each side a finite difference goes, in units of the range of a number, or of a whole level.
WIDTH = 0.01
#: Margins further below 0 than this are scaled down to it when derived: there probabilities do not move any more.
FAR = 20.0


class Relaxed:
    """One search in coordinates.

    Attributes
    ----------
    start, low, high : ndarray of shape (coordinates,)
        The input, and between what the coordinates may be.
    weights : ndarray of shape (coordinates,)
        What a unit of each coordinate costs; a change of category moves two coordinates by 1 and costs 1.
    differences : bool
        Whether derivatives are finite differences, since the model does not know its own.
    flat : bool
        Whether all derivatives are 0 at the input, as where every unit of a network is off or nothing may change.

    Examples
    --------
    >>> from apas import FeatureSpace, FeedForward
    >>> from apas.counterfactuals.source import Task
    >>> space = FeatureSpace([Feature("income", low=0, high=10), Feature("cars", "integer", low=0, high=4)])
    >>> task = Task(space.bind(FeedForward([[[1.0], [2.0]]], [[-8.0]])), space)
    >>> relaxed = Relaxed(Search(task, 0, np.array([3.0, 1.0]), 1))
    >>> relaxed.gradients(relaxed.start[None])
    (array([-3.]), array([[10.,  8.]]))
    >>> relaxed.numbers(np.array([[0.55, 0.4]]))
    array([[5.5, 2. ]])
    """

    def __init__(self, search: Search) -> None:
        self.search, task = search, search.task
        self._model: Any = task.model
        self.at: Coordinates = task.once("relaxed", lambda: Coordinates(task))
        self.start = self.at.of(search.input[None])[0]
        self._free = np.array([f.mutable for f in task.space], dtype=bool)
        self._base = task.encoded(search.input[None])[0]
        self._lines = np.zeros((self.at.size, len(self._base)))
        self._bent = self._encode_parts()
        self.low, self.high = self._limits()
        self.differences = not derives(task.model, self._base, search.target)
        margins, slopes = self.gradients(self.start[None])
        self.flat = not slopes.any()
        self._heat = max(1.0, -float(margins[0]) / FAR)
        self._free[self._held(np.abs(slopes[0]))] = False
        self.low, self.high = self._limits()
        parts = list(zip(task.space, self.at.slices, self._free, strict=True))
        self._mixtures = Mixtures([p for f, p, free in parts if free and f.kind == "categorical"], self.at.size)
        even = [i for i, (f, _, free) in enumerate(parts) if free and f.is_level and f.kind != "categorical"]
        self._levels = np.array([self.at.slices[i].start for i in even], dtype=np.intp)
        self._level_units = self.at.units[even]
        self._rough = [i for i, (f, _, free) in enumerate(parts) if free and self._is_rough(i, f)]
        self.weights = np.concatenate(
            [np.full(p.stop - p.start, 0.5 if f.kind == "categorical" else 1.0) for f, p, _ in parts]
        )

    def gradients(self, points: _Array) -> tuple[_Array, _Array]:
        """Margins (rows,) and their derivatives by the coordinates (rows, coordinates)."""
        if self.differences:
            return self.margins(points), self._difference_quotients(points)
        margins, by_column = self._model.input_gradient(self._columns(points), self.search.target)
        found = by_column @ self._lines.T
        if len(self._bent):
            found[:, self._bent.places] = (self._bent.slopes(points) @ by_column[:, :, None])[:, :, 0]
        return margins, found

    def slopes(self, margins: _Array) -> _Array:
        """How fast the probability of the wanted class grows with the margin.

        Far below 0 it does not, in floating point, and no descent would ever start. So where the input is that far
        away, margins are taken in larger units, in which it is at -20.
        """
        scaled = probabilities(margins / self._heat)
        return scaled * (1.0 - scaled) / self._heat

    def rounded(self, points: _Array) -> _Array:
        """The nearest allowed points, in coordinates."""
        if not (self._rough or len(self._levels) or len(self._mixtures)):
            return points
        found = points.copy()
        found[:, self._levels] = np.rint(points[:, self._levels] * self._level_units) / self._level_units
        for i in self._rough:
            j, unit = self.at.slices[i].start, self.at.units[i]
            original = np.full(len(points), self.search.input[i])
            found[:, j] = self.search.task.space.features[i].snapped(points[:, j] * unit, original) / unit
        if len(self._mixtures):
            self._mixtures.to_levels(found)
        return found

    def inside(self, points: _Array) -> _Array:
        """The nearest points within the limits, the weights of levels adding up to 1."""
        found = np.clip(points, self.low, self.high)
        if len(self._mixtures):
            mixed = points.copy()
            self._mixtures.to_weights(mixed)
            moved = self._mixtures.places[self._mixtures.places < self.at.size]
            found[:, moved] = mixed[:, moved]
        return found

    def costs(self, points: _Array) -> _Array:
        """Sum of the changes, each in units of its range, 1 for another category; shape (rows,)."""
        return np.asarray(np.abs(points - self.start) @ self.weights)

    def numbers(self, points: _Array) -> _Array:
        """The nearest allowed rows as numbers per cell; what did not move is what it was, digit by digit."""
        found, x = np.empty((len(points), len(self.at.slices))), self.search.input
        for i, (feature, part) in enumerate(zip(self.search.task.space, self.at.slices, strict=True)):
            block = points[:, part]
            if feature.kind == "categorical":
                found[:, i] = block.argmax(axis=1)
            else:
                found[:, i] = np.where(block[:, 0] == self.start[part.start], x[i], block[:, 0] * self.at.units[i])
        return self.search.task.space.snapped(found, np.tile(x, (len(points), 1)))

    def _columns(self, points: _Array) -> _Array:
        """What the model sees of coordinates, shape (rows, columns)."""
        found = self._base + (points - self.start) @ self._lines
        return np.asarray(found + self._bent.sums(points) if len(self._bent) else found)

    def margins(self, points: _Array) -> _Array:
        """Margins towards the wanted class, shape (rows,)."""
        return np.asarray(self._model.margin(self._columns(points), self.search.target))

    def _limits(self) -> tuple[_Array, _Array]:
        low, high = self.start.copy(), self.start.copy()
        for i, (feature, part) in enumerate(zip(self.search.task.space, self.at.slices, strict=True)):
            if self._free[i]:
                ends = (0.0, 1.0) if feature.kind == "categorical" else np.array(feature.ends) / self.at.units[i]
                if feature.direction != "increase":
                    low[part] = np.minimum(ends[0], self.start[part])
                if feature.direction != "decrease":
                    high[part] = np.maximum(ends[1], self.start[part])
        return low, high

    def _is_rough(self, i: int, feature: Feature) -> bool:
        """Whether the nearest allowed number must be asked for: not every one between the limits is allowed."""
        low, high = feature.ends
        uneven = feature.listed is not None or feature.step is not None or not low <= self.search.input[i] <= high
        return not feature.is_level and uneven

    def _held(self, effects: _Array) -> list[int]:
        """Features to leave alone, so that what is found differs from what the row has: those that matter least."""
        size = [float(effects[part].max()) for part in self.at.slices]
        held, still = list[int](), list(self.search.avoid)
        while still and any(still):
            counts = {i: sum(i in known for known in still) for i in sorted(frozenset().union(*still))}
            held.append(max(counts, key=lambda i: (counts[i], -size[i])))
            still = [known for known in still if held[-1] not in known]
        return held

    def _encode_parts(self) -> Polygons:
        """Find what each coordinate adds to the columns, by encoding the input with one feature changed."""
        bent: list[tuple[int, _Array, _Array]] = []
        task, tried = self.search.task, [self._tried(i) for i in range(len(self._free))]
        owner = np.repeat(np.arange(len(tried)), [len(t) for t in tried])
        rows = np.repeat(self.search.input[None], len(owner), axis=0)
        rows[np.arange(len(rows)), owner] = np.concatenate(tried)
        added = task.encoded(rows) - self._base if len(rows) else np.empty((0, len(self._base)))
        scale = STRAIGHT * np.maximum(np.abs(added + self._base).max(axis=0, initial=0.0), np.finfo(float).tiny)
        for i, (feature, part) in enumerate(zip(task.space, self.at.slices, strict=True)):
            values = added[owner == i]
            if feature.kind == "categorical":
                self._lines[part] = values if len(values) else 0.0
            elif len(values) > 1:
                knots = tried[i] / self.at.units[i]
                line = (values[-1] - values[0]) / (knots[-1] - knots[0])
                if (np.abs(values - np.outer(knots - self.start[part.start], line)) <= scale).all():
                    self._lines[part.start] = line
                else:
                    bent.append((part.start, knots, values))
        return Polygons([b[0] for b in bent], [b[1] for b in bent], [b[2] for b in bent])

    def _tried(self, i: int) -> _Array:
        """Numbers of a feature that are encoded, in ascending order."""
        task, feature, x = self.search.task, self.search.task.space.features[i], float(self.search.input[i])
        if not self._free[i]:
            return np.empty(0)
        if feature.listed is not None:
            return feature.listed if feature.kind == "categorical" else np.unique([*feature.listed, x])
        known = np.array([x]) if task.background is None else np.append(task.background[:, i], x)
        low, high = (e if np.isfinite(e) else k for e, k in zip(feature.ends, (known.min(), known.max()), strict=True))
        low, high = min(low, x), max(high, x)
        return np.unique([*np.linspace(low, high if high > low else low + self.at.units[i], PIECES + 1), x])

    def _difference_quotients(self, points: _Array) -> _Array:
        """Derivatives by central differences, one-sided at a limit."""
        moving = np.flatnonzero(self.low < self.high)
        steps = np.zeros((len(moving), self.at.size))
        steps[np.arange(len(moving)), moving] = WIDTH
        above = np.minimum(points[:, None] + steps, self.high)
        below = np.maximum(points[:, None] - steps, self.low)
        margins = self.margins(np.concatenate([above, below]).reshape(-1, self.at.size))
        ahead, behind = margins.reshape(2, len(points), len(moving))
        found = np.zeros_like(points)
        found[:, moving] = (ahead - behind) / (above - below).sum(axis=2)
        return found


def derives(model: Any, columns: _Array, target: Any) -> bool:
    """Whether the model knows its derivatives by the columns."""
    if not offers(model, Differentiable):
        return False
    try:
        model.input_gradient(columns[None], target)
    except Unsupported:
        return False
    return True


def probabilities(margins: _Array) -> _Array:
    """Of the wanted class against the best other one: 0.5 where the margin is 0."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * margins)))
