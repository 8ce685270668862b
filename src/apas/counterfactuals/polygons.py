"""Curves through known points, straight in between: what preprocessing makes of numbers that it bends."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Polygons"]

_Array = NDArray[np.float64]


class Polygons:
    """One polygon per coordinate, all of them evaluated together.

    Parameters
    ----------
    places : list of int
        Which coordinates they are for.
    knots : list of ndarray of shape (k,)
        Where each is known, in ascending order, at least twice.
    values : list of ndarray of shape (k, columns)
        What it is there. The outer pieces go on for ever.

    Examples
    --------
    >>> curve = Polygons([0], [np.array([0.0, 1.0, 2.0])], [np.array([[0.0], [4.0], [6.0]])])
    >>> curve.sums(np.array([[0.5], [3.0]])).ravel(), curve.slopes(np.array([[0.5], [1.0]])).ravel()
    (array([2., 8.]), array([4., 3.]))
    """

    def __init__(self, places: list[int], knots: list[_Array], values: list[_Array]) -> None:
        self.places = np.array(places, dtype=np.intp)
        longest, columns = max(map(len, knots), default=2), values[0].shape[1] if values else 0
        self._knots = np.full((len(knots), longest), np.inf)
        self._values = np.zeros((len(knots), longest, columns))
        self._pieces = np.zeros((len(knots), longest, columns))
        self._means = np.zeros((len(knots), longest, columns))
        for i, (k, v) in enumerate(zip(knots, values, strict=True)):
            slopes = np.diff(v, axis=0) / np.diff(k)[:, None]
            self._knots[i, : len(k)], self._values[i, : len(k)] = k, v
            self._pieces[i, : len(k) - 1] = slopes
            self._means[i, : len(k)] = (slopes[[0, *range(len(slopes))]] + slopes[[*range(len(slopes)), -1]]) / 2
        self._last = np.array([len(k) - 2 for k in knots], dtype=np.intp)
        self._every = np.arange(len(knots))

    def __len__(self) -> int:
        return len(self.places)

    def sums(self, points: _Array) -> _Array:
        """What all of them add up to, shape (rows, columns)."""
        at, piece, knot = self._found(points)
        apart = at - knot
        found = self._values[self._every, piece] + apart[:, :, None] * self._pieces[self._every, piece]
        return np.asarray(found.sum(axis=1))

    def slopes(self, points: _Array) -> _Array:
        """Their slopes, shape (rows, polygons, columns); at a knot the mean of those on its sides."""
        at, piece, knot = self._found(points)
        # the last knot ends a piece and begins none
        end = self._knots[self._every, piece + 1]
        slopes = np.where((at == knot)[:, :, None], self._means[self._every, piece], self._pieces[self._every, piece])
        return np.where((at == end)[:, :, None], self._means[self._every, piece + 1], slopes)

    def _found(self, points: _Array) -> tuple[_Array, NDArray[np.intp], _Array]:
        """Coordinates, the piece of its polygon that each is on, and where that begins."""
        at = points[:, self.places]
        piece = np.clip((at[:, :, None] >= self._knots).sum(axis=2) - 1, 0, self._last)
        return at, piece, self._knots[self._every, piece]
