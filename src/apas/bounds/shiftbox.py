"""The box of shifts of one row, seen as the unit cube of the parameters that move."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from apas.bounds.meanvalue import Lines, margin_lines
from apas.bounds.sensitivity import margin_slopes
from apas.bounds.tails import share_below
from apas.models.feedforward import FeedForward

__all__ = ["PartBounds", "ShiftBox"]

_Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PartBounds:
    """What is known about parts of a box; everything holds in real arithmetic.

    Attributes
    ----------
    least, most : ndarray of shape (parts,)
        Bounds of the margin; NaN where numbers became too large.
    failing, valid : ndarray of shape (parts,)
        At most this share of the part fails, or is valid.
    effects : ndarray of shape (parts, axes)
        How much the margin can change along each axis, about.
    error : ndarray of shape (parts,)
        How much of `least` and `most` is an allowance for rounding.
    """

    least: _Array
    most: _Array
    failing: _Array
    valid: _Array
    effects: _Array
    error: _Array


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

    @cached_property
    def _in_use(self) -> float:
        """More than what coarser arithmetic does to a margin where the network is used."""
        return float(self.net.rounding(self.x[None], self.radii, self.delta)[0])

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

    def bound(self, start: _Array, width: _Array) -> PartBounds:
        """What is known about parts of the cube, given by their lower corners and widths."""
        rows, wanted = self._items(len(start))
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite settles nothing
            least, most, slopes, error = margin_slopes(self.net, rows, wanted, *self._around(start, width), ceiling=0.0)
            effects = slopes[:, self.moving] * (2.0 * self._reach * width)
            error = error + self._in_use
            least, most = least - error, most + error
        return PartBounds(least, most, _not(least > 0), _not(most < 0), effects, error)

    def measure(self, start: _Array, width: _Array) -> PartBounds:
        """What `bound` says, and bounds on the share of each part that fails or is valid.

        A part fails where the margin against any rival is below 0: at most the sum of these shares. It is valid only
        where all margins are above 0: at most the least of these.
        """
        rows, wanted = self._items(len(start))
        middle = self._around(start + 0.5 * width, np.zeros_like(width))
        half = self._reach * width * (1.0 + 2.0**-50)
        effects, failing, valid = np.zeros_like(width), np.zeros(len(width)), np.ones(len(width))
        with np.errstate(over="ignore", invalid="ignore"):
            against = margin_lines(self.net, rows, wanted, self._around(start, width), middle)
            against = [_widened(lines, self._in_use) for lines in against]
            for lines in against:
                low, high = (slope[:, self.moving] * half for slope in lines.slopes)
                settled = lines.least > 0
                failing += np.where(settled, 0.0, share_below(lines.middle[0], low, high))
                valid = np.minimum(valid, share_below(-lines.middle[1], -high, -low))
                np.maximum(effects, 2.0 * np.maximum(-low, high), out=effects, where=~settled[:, None])
        least = np.minimum.reduce([lines.least for lines in against])
        most = np.minimum.reduce([lines.most for lines in against])
        failing, valid = np.minimum(failing, _not(least > 0)), np.minimum(valid, _not(most < 0))
        return PartBounds(least, most, failing, valid, effects, against[0].error)

    def _items(self, count: int) -> tuple[_Array, NDArray[np.intp]]:
        rows = np.broadcast_to(self.x, (count, len(self.x)))
        return rows, np.full(count, self.wanted, dtype=np.intp)

    def _around(self, start: _Array, width: _Array) -> tuple[_Array, _Array]:
        """The ends of parts, rounded outward."""
        low, high = self.ends(start, width)
        low[:, self.moving] -= self._rounding
        high[:, self.moving] += self._rounding
        return low, high


def _widened(lines: Lines, by: float) -> Lines:
    """The same lines where the margin may be off by so much."""
    if not by:
        return lines
    middle = lines.middle[0] - by, lines.middle[1] + by
    return replace(lines, least=lines.least - by, most=lines.most + by, middle=middle, error=lines.error + by)


def _not(settled: NDArray[np.bool_]) -> _Array:
    return (~settled).astype(np.float64)
