"""The box of shifts of one row, seen as the unit cube of the parameters that move."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from apas.bounds.sensitivity import margin_slopes
from apas.models.feedforward import FeedForward

__all__ = ["ShiftBox"]

_Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ShiftBox:
    """A row, and the box that the parameters of its dense network run through.

    Parameters
    ----------
    net : FeedForward
    x : ndarray of shape (features,)
    wanted : int
        Position of the wanted class.
    radii : ndarray of shape (k,)
        How far each parameter moves when delta is 1.
    delta : float
    """

    net: FeedForward
    x: _Array
    wanted: int
    radii: _Array
    delta: float

    @cached_property
    def moving(self) -> NDArray[np.intp]:
        """Numbers of the parameters that move: the axes of the cube."""
        return np.flatnonzero(self.radii)

    @cached_property
    def _reach(self) -> _Array:
        return self.delta * self.radii[self.moving]

    @cached_property
    def _rounding(self) -> _Array:
        """More than what rounding can do to an end of a parameter."""
        return np.asarray(2.0**-50 * (np.abs(self.net.parameters.values[self.moving]) + self._reach))

    def directions(self, points: _Array) -> _Array:
        """Points of the cube, shape (points, axes), as directions in [-1, 1], shape (points, k)."""
        moves = np.zeros((len(points), len(self.radii)))
        moves[:, self.moving] = 2.0 * points - 1.0
        return moves

    def ends(self, start: _Array, width: _Array) -> tuple[_Array, _Array]:
        """Least and largest value of every parameter in parts of the cube, shape (parts, k)."""
        base = self.net.parameters.values
        low = np.repeat(base[None, :], len(start), axis=0)
        high = low.copy()
        low[:, self.moving] += self._reach * (2.0 * start - 1.0)
        high[:, self.moving] += self._reach * (2.0 * (start + width) - 1.0)
        return low, high

    def bound(self, start: _Array, width: _Array) -> tuple[_Array, _Array, _Array, _Array]:
        """Bounds of the margin over parts of the cube, and what each axis contributes to their distance.

        Returns
        -------
        least, most : ndarray of shape (parts,)
            In real arithmetic; NaN where numbers became too large.
        effects : ndarray of shape (parts, axes)
            How much the margin can change along each axis, at most.
        error : ndarray of shape (parts,)
            How much of `least` and `most` is an allowance for rounding.
        """
        low, high = self.ends(start, width)
        low[:, self.moving] -= self._rounding
        high[:, self.moving] += self._rounding
        rows = np.broadcast_to(self.x, (len(start), len(self.x)))
        wanted = np.full(len(start), self.wanted, dtype=np.intp)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite settles nothing
            least, most, slopes, error = margin_slopes(self.net, rows, wanted, low, high, ceiling=0.0)
            effects = slopes[:, self.moving] * (2.0 * self._reach * width)
            return least - error, most + error, effects, error
