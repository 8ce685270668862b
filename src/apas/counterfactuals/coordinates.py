"""Rows of a space as points that have a Euclidean distance: a coordinate per number, one per level of a category."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from apas.counterfactuals.source import Task

__all__ = ["Coordinates", "Mixtures", "on_simplex"]

_Array = NDArray[np.float64]
#: What is nowhere near any weight; it fills up the blocks of categories that have fewer levels than others.
NEVER = -1e9


class Coordinates:
    """Coordinates of the rows of a task.

    Attributes
    ----------
    slices : tuple of slice
        The coordinates of each feature: of a category the weights of its levels, of any other one number.
    units : ndarray of shape (features,)
        What a number is divided by: its range; without one the range of the known rows, or 1.
    size : int

    Examples
    --------
    >>> from apas import Feature, FeatureSpace, FeedForward
    >>> home = Feature("home", "categorical", values=("own", "rent"))
    >>> space = FeatureSpace([Feature("income", low=0, high=10), home])
    >>> Coordinates(Task(space.bind(FeedForward([[[1.0]] * 3], [[0.0]])), space)).of(np.array([[5.0, 1.0]]))
    array([[0.5, 0. , 1. ]])
    """

    def __init__(self, task: Task) -> None:
        self.features = tuple(task.space)
        widths = [len(f.values or ()) if f.kind == "categorical" else 1 for f in self.features]
        ends = np.cumsum([0, *widths]).tolist()
        self.slices = tuple(slice(a, b) for a, b in pairwise(ends))
        self.size = int(ends[-1])
        self.units = np.array([_unit(task, i) for i in range(len(self.features))])

    def of(self, numbers: _Array) -> _Array:
        """Coordinates of rows of numbers per cell."""
        found = np.empty((len(numbers), self.size))
        for i, (feature, part) in enumerate(zip(self.features, self.slices, strict=True)):
            if feature.kind == "categorical":
                found[:, part] = numbers[:, i, None] == np.arange(part.stop - part.start)
            else:
                found[:, part.start] = numbers[:, i] / self.units[i]
        return found


class Mixtures:
    """The coordinates of several categories as one block, so that all of them are handled together."""

    def __init__(self, parts: list[slice], size: int) -> None:
        widest = max((p.stop - p.start for p in parts), default=0)
        self.places = np.full((len(parts), widest), size)
        for row, part in zip(self.places, parts, strict=True):
            row[: part.stop - part.start] = np.arange(part.start, part.stop)
        self._is_there = self.places < size

    def __len__(self) -> int:
        return len(self.places)

    def to_weights(self, points: _Array) -> None:
        """Replace what the categories have by the nearest weights, in place."""
        points[:, self.places[self._is_there]] = on_simplex(self._block(points))[:, self._is_there]

    def to_levels(self, points: _Array) -> None:
        """Replace weights by the level that has the most, in place."""
        block = self._block(points)
        most = block.argmax(axis=2)[:, :, None] == np.arange(block.shape[2])
        points[:, self.places[self._is_there]] = most[:, self._is_there]

    def _block(self, points: _Array) -> _Array:
        return np.concatenate([points, np.full((len(points), 1), NEVER)], axis=1)[:, self.places]


def on_simplex(points: _Array) -> _Array:
    """The nearest points whose last axis has entries of at least 0 that add up to 1.

    Examples
    --------
    >>> on_simplex(np.array([0.9, 0.5, -3.0]))
    array([0.7, 0.3, 0. ])
    """
    falling = -np.sort(-points, axis=-1)
    excess = np.cumsum(falling, axis=-1) - 1.0
    count = (falling - excess / np.arange(1, points.shape[-1] + 1) > 0).sum(axis=-1, keepdims=True)
    return np.asarray(np.maximum(points - np.take_along_axis(excess, count - 1, axis=-1) / count, 0.0))


def _unit(task: Task, i: int) -> float:
    feature = task.space.features[i]
    if task.background is not None and len(task.background) and not np.isfinite(np.subtract(*feature.ends)):
        return float(np.ptp(task.background[:, i])) or 1.0
    return feature.span
