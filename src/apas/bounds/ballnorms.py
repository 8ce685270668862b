"""Norms behind balls of parameters, rounded up: what a change of bounded L_p norm can do to a unit or a layer."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["STEP", "TINY", "MatrixNorms", "conjugate", "joint_norm", "row_reach", "unit_reach", "up"]

_Array = NDArray[np.float64]
#: What rounding does to one operation, twice as much as it can be.
STEP = 2.0**-52
#: Numbers smaller than this may have lost digits to underflow.
TINY = 1e-300


def conjugate(p: float) -> float:
    """The q with ``1/p + 1/q = 1``.

    Examples
    --------
    >>> conjugate(2.0), conjugate(1.0)
    (2.0, inf)
    """
    return math.inf if p == 1.0 else p / (p - 1.0)


def up(values: _Array, terms: int) -> _Array:
    """Norms of `terms` numbers, raised by more than sum, powers and the rounded exponents can be off."""
    return np.asarray(values * (1 + (terms + 1024) * STEP))


def unit_reach(sizes: _Array, moves: _Array, bias_moves: _Array, q: float) -> _Array:
    """Per unit the L_q norm of its inputs, which are at most `sizes` large, and of 1 for its bias, over what moves.

    Parameters
    ----------
    sizes : ndarray of shape (rows, inputs)
    moves : ndarray of shape (inputs, units)
        How many parameters move behind each weight, or any other factors of at least 0.
    bias_moves : ndarray of shape (units,)
    q : float

    Returns
    -------
    ndarray of shape (rows, units)
        Or (rows, 1) where all units are alike.

    Examples
    --------
    >>> unit_reach(np.array([[3.0, 4.0]]), np.array([[1.0, 1.0], [1.0, 0.0]]), np.array([0.0, 1.0]), 2.0).round(9)
    array([[5.        , 3.16227766]])
    """
    if (moves == moves[:, :1]).all() and (bias_moves == bias_moves[0]).all():
        moves, bias_moves = moves[:, :1], bias_moves[:1]
    if q == math.inf:
        reach = np.broadcast_to(np.minimum(bias_moves, 1.0), (len(sizes), len(bias_moves)))
        for size, move in zip(sizes.T, np.minimum(moves, 1.0), strict=True):
            reach = np.maximum(reach, size[:, None] * move)
        return reach
    sizes = sizes * moves.any(axis=1)
    scale = np.maximum(sizes.max(axis=1, keepdims=True), 1.0 if bias_moves.any() else TINY)
    with np.errstate(under="ignore"):
        total = (sizes / scale) ** q @ moves
        if bias_moves.any():
            total += bias_moves * scale**-q
    total += (len(moves) + 1) * TINY * moves.max(initial=1.0)  # what powers may have lost to underflow
    return up(scale * total ** (1.0 / q), len(moves))


def row_reach(sizes: _Array, counts: _Array, bias_counts: _Array, q: float) -> _Array:
    """The same for a unit of its own in each row: its inputs, and 1 for its bias, as often as parameters move there.

    Examples
    --------
    >>> row_reach(np.array([[2.0, 4.0]]), np.array([[2.0, 0.0]]), np.array([1.0]), 2.0)
    array([3.])
    """
    if q == math.inf:
        largest = np.where(counts > 0, sizes, 0.0).max(axis=1, initial=0.0)
        return np.asarray(np.maximum(largest, np.minimum(bias_counts, 1.0)))
    scale = np.maximum(np.where(counts > 0, sizes, 0.0).max(axis=1, initial=0.0), np.where(bias_counts > 0, 1.0, TINY))
    shares = np.where(counts > 0, sizes, 0.0) / scale[:, None]
    with np.errstate(under="ignore"):
        total = (counts * shares**q).sum(axis=1) + bias_counts * np.maximum(scale, 1.0) ** -q
    total += 2 * (sizes.shape[1] + 1) * TINY
    return up(scale * total ** (1.0 / q), sizes.shape[1])


def joint_norm(q: float, *parts: _Array) -> _Array:
    """L_q norm of several numbers of at least 0, elementwise over arrays that are broadcast together.

    Examples
    --------
    >>> joint_norm(2.0, np.array([3.0]), np.array([4.0])).round(9)
    array([5.])
    """
    largest = np.maximum.reduce(np.broadcast_arrays(*parts))
    if q == math.inf:
        return np.asarray(largest)
    scale = np.where((largest > 0) & (largest < np.inf), largest, 1.0)
    with np.errstate(under="ignore"):
        total = sum((part / scale) ** q for part in parts)
    return up(scale * np.asarray(total) ** (1.0 / q), len(parts))


class MatrixNorms:
    """What ``(slopes * d) @ w`` can be for d of L_p norm 1: of each unit, and in the L_p norm of all.

    Examples
    --------
    >>> norms = MatrixNorms(np.array([[3.0, 0.0], [4.0, 1.0]]), 2.0)
    >>> norms.of_units(np.ones((1, 2))).round(9), norms.of_all(np.array([[1.0, 0.0]])).round(9)
    (array([[5., 1.]]), array([3.]))
    """

    def __init__(self, w: _Array, p: float) -> None:
        self.w, self.size, self.p, self.q, self.terms = w, np.abs(w), p, conjugate(p), max(w.shape)
        self.row_sums, self.column_sums = self.size.sum(axis=1), self.size.sum(axis=0)
        self.largest = max(float(self.size.max()), TINY)

    @cached_property
    def shares(self) -> _Array:
        """Sizes of the weights as shares of the largest, to the power q."""
        shares = self.size / self.largest
        with np.errstate(under="ignore"):
            return shares if self.p == 1.0 else shares**self.q

    @cached_property
    def spectral(self) -> float:
        """The largest singular value, rounded up."""
        # it is computed to some units in the last place of itself; this is a million of them
        return float(np.linalg.norm(self.w, 2)) * (1 + 1e-9) + TINY

    def of_units(self, slopes: _Array) -> _Array:
        """Bounds for each unit behind slopes (rows, inputs), shape (rows, units) or (rows, 1)."""
        none = np.zeros(self.w.shape[1])
        return up(self.largest * unit_reach(slopes, self.shares, none, self.q), 0) + TINY

    def of_all(self, slopes: _Array) -> _Array:
        """Bounds for each row of slopes (rows, inputs), shape (rows,)."""
        steepest = slopes.max(axis=1)
        ones, infinite = (slopes * self.row_sums).max(axis=1), steepest * self.column_sums.max()
        bound = ones ** (1.0 / self.p) * infinite ** (1.0 - 1.0 / self.p)  # by interpolation between L_1 and L_inf
        if self.p == 2.0:
            bound = np.minimum(bound, steepest * self.spectral)
            bound = np.minimum(bound, np.sqrt(slopes**2 @ (self.size**2).sum(axis=1)))
        return up(bound, self.terms) + TINY

    def range_of(self, a: tuple[_Array, _Array]) -> tuple[_Array, _Array]:
        """Ends of ``a @ w`` for a between ends (rows, inputs), but for rounding."""
        middle, half = 0.5 * (a[0] + a[1]) @ self.w, 0.5 * (a[1] - a[0]) @ self.size
        return middle - half, middle + half

    def range_back(self, a: tuple[_Array, _Array]) -> tuple[_Array, _Array]:
        """Ends of ``a @ w.T`` for a between ends (rows, units), but for rounding."""
        middle, half = 0.5 * (a[0] + a[1]) @ self.w.T, 0.5 * (a[1] - a[0]) @ self.size.T
        return middle - half, middle + half
