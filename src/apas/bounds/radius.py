"""The largest delta at which every shift of the box is proved to keep the class.

The least margin never rises with delta, so the predicate "proved at delta" is bracketed and the bracket closed by
the Illinois variant of regula falsi, with bisection as a safeguard. What is returned is the end that was proved.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apas.bounds.interval import least_margins
from apas.models.feedforward import FeedForward

__all__ = ["provable_radius"]

_Array = NDArray[np.float64]
#: Relative width at which a bracket counts as closed, and how many evaluations that may take.
CLOSED, STEPS = 1e-13, 200


def provable_radius(
    net: FeedForward, X: _Array, wanted: NDArray[np.intp], radii: _Array, limit: float
) -> tuple[_Array, _Array]:
    """Bracket per row the largest delta up to `limit` that interval arithmetic proves.

    Parameters
    ----------
    net : FeedForward
    X : ndarray of shape (rows, features)
    wanted : ndarray of int, shape (rows,)
    radii : ndarray of shape (k,)
    limit : float

    Returns
    -------
    proved : ndarray of shape (rows,)
        At this delta every shift keeps the class; 0 if even the model itself is within rounding of the boundary.
    open_end : ndarray of shape (rows,)
        The least delta tried that could not be proved; infinite where `limit` was proved.

    Examples
    --------
    >>> net = FeedForward([[[1.0], [1.0]]], [[0.0]])  # margin 1 at (2, -1), falling by 3 delta
    >>> proved, _ = provable_radius(net, np.array([[2.0, -1.0]]), np.array([1]), np.array([1.0, 1.0, 0.0]), 10.0)
    >>> round(float(proved[0]), 9)
    0.333333333
    """

    def excess(rows: NDArray[np.intp], delta: _Array) -> _Array:
        bound, error = least_margins(net, X[rows], wanted[rows], radii, delta)
        return bound - error

    rows = np.arange(len(X))
    low, high = np.zeros(len(X)), np.full(len(X), float(limit))
    at_low, at_high = excess(rows, low), excess(rows, high)
    proved_all = at_high > 0
    open_rows = np.flatnonzero((at_low > 0) & ~proved_all)
    _close(excess, open_rows, low, high, at_low, at_high)
    low[proved_all] = limit
    high[proved_all] = np.inf
    high[~(at_low > 0) & ~proved_all] = 0.0
    return low, high


def _close(excess, rows, low, high, at_low, at_high) -> None:  # type: ignore[no-untyped-def]
    """Narrow the brackets of `rows` in place; `at_low` > 0 >= `at_high` throughout."""
    side = np.zeros(len(low), dtype=int)
    for step in range(STEPS):
        width = high[rows] - low[rows]
        rows = rows[width > CLOSED * high[rows]]
        if not len(rows):
            return
        a, b, fa, fb = low[rows], high[rows], at_low[rows], at_high[rows]
        # far from the root the fall is far from linear, where a geometric step gains more than a secant
        middle = (a * fb - b * fa) / (fb - fa)
        wide = (a > 0) & (b > 4 * a)
        middle = np.where(wide, np.sqrt(a * b), middle)
        middle = np.where((a == 0) & (middle < b * 1e-3), b * 1e-3, middle) if step < 8 else middle
        # a step that would land on an end, or that follows too many others, is a bisection
        stuck = ~((middle > a) & (middle < b)) | (step % 8 == 7)
        middle = np.where(stuck, 0.5 * (a + b), middle)
        value = excess(rows, middle)
        up = value > 0
        low[rows[up]], at_low[rows[up]] = middle[up], value[up]
        high[rows[~up]], at_high[rows[~up]] = middle[~up], value[~up]
        # Illinois: an end that stays twice counts half, so that the other one moves
        again_low, again_high = up & (side[rows] == 1), ~up & (side[rows] == -1)
        at_high[rows[again_low]] *= 0.5
        at_low[rows[again_high]] *= 0.5
        side[rows] = np.where(up, 1, -1)
