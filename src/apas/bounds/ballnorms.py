"""Norms behind balls of parameters, rounded up: what a change of bounded L_p norm can do to a unit or a layer."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


__all__ = ["STEP", "TINY", "MatrixNorms", "conjugate", "joint_norm", "unit_reach", "up"]

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
    scale = np.maximum(sizes.max(axis=1, keepdims=True), 1.0 if bias_moves.any() else TINY)
    with np.errstate(under="ignore"):
        total = (sizes / scale) ** q @ moves + bias_moves * scale**-q
    total += (len(moves) + 1) * TINY * moves.max(initial=1.0)  # what powers may have lost to underflow
    return up(scale * total ** (1.0 / q), len(moves))


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
    """How large the L_p norm of ``d @ w`` can be for d of L_p norm 1 behind slopes, ``d = slopes * e``."""

    def __init__(self, w: _Array, p: float) -> None:
        self.size, self.p, self.terms = np.abs(w), p, max(w.shape)
        self.row_sums = self.size.sum(axis=1)
        if p == 2.0:
            self.squares = (self.size**2).sum(axis=1)
            # singular values are computed to a small multiple of the last place of the largest; this is a thousand more
            self.spectral = float(np.linalg.norm(w, 2)) * (1 + 1e-9)

    def of(self, slopes: _Array) -> _Array:
        """Bounds for each row of slopes (rows, inputs), shape (rows,)."""
        ones, infinite = (slopes * self.row_sums).max(axis=1), (slopes @ self.size).max(axis=1)
        bound = ones ** (1.0 / self.p) * infinite ** (1.0 - 1.0 / self.p)  # by interpolation between L_1 and L_inf
        if self.p == 2.0:
            bound = np.minimum(bound, np.sqrt(slopes**2 @ self.squares))
            bound = np.minimum(bound, slopes.max(axis=1) * self.spectral)
        return up(bound, self.terms) + TINY
