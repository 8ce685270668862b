"""The largest delta at which every shift of the box is proved to keep the class.

The least margin never rises with delta, so the predicate "proved at delta" is bracketed and the bracket closed by
the Illinois variant of regula falsi, with bisection as a safeguard. What is returned is the end that was proved.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apas.bounds.interval import Boxes
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
    boxes = Boxes(net, X, wanted, radii)
    low, high = np.zeros(len(X)), np.full(len(X), float(limit))
    at_low, at_high = boxes.bound(low) - boxes.error(low), boxes.bound(high) - boxes.error(high)
    proved_all, refused = at_high > 0, ~(at_low > 0)
    open_rows = np.flatnonzero(~refused & ~proved_all)
    if len(open_rows):
        part = boxes if len(open_rows) == len(X) else boxes.take(open_rows)
        low[open_rows], high[open_rows] = _close(part, float(limit), at_low[open_rows], at_high[open_rows])
    low[proved_all] = limit
    high[proved_all] = np.inf
    high[refused & ~proved_all] = 0.0
    return low, high


def _close(boxes: Boxes, limit: float, at_low: _Array, at_high: _Array) -> tuple[_Array, _Array]:
    """Narrow the brackets [0, limit] of all rows around the largest proved delta.

    The root of the bound as computed is found first; then the allowance for rounding, whose effect is tiny, is taken
    into account by stepping down from it.
    """
    low, high = _root(boxes, limit, at_low, at_high)
    proved, step = low.copy(), 2.0**-52
    for _ in range(60):
        failing = ~(boxes.bound(proved) - boxes.error(proved) > 0)
        if not failing.any():
            break
        proved[failing] = low[failing] * (1 - step)
        step = min(2 * step, 1.0)
    proved[~(boxes.bound(proved) - boxes.error(proved) > 0)] = 0.0
    return proved, high


def _root(boxes: Boxes, limit: float, at_low: _Array, at_high: _Array) -> tuple[_Array, _Array]:
    """Bracket the root of the bound as computed; it is above 0 at the lower end and not at the upper one."""
    low, high = np.zeros(len(at_low)), np.full(len(at_low), limit)
    side = np.zeros(len(low), dtype=int)
    for step in range(STEPS):
        if (high - low <= CLOSED * high).all():
            break
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        # far from the root the fall is far from linear, where a geometric step gains more than a secant
        middle = np.where((low > 0) & (high > 4 * low), np.sqrt(low * high), middle)
        middle = np.maximum(middle, np.where(low == 0, 1e-3 * high, 0.0)) if step < 8 else middle
        # a step that would land on an end, or that follows too many others, is a bisection
        stuck = ~((middle > low) & (middle < high)) | (step % 8 == 7)
        middle = np.where(stuck, 0.5 * (low + high), middle)
        value = boxes.bound(middle)
        up = value > 0
        # Illinois: an end that stays twice counts half, so that the other one moves
        at_high, at_low = (
            np.where(up, np.where(side == 1, 0.5 * at_high, at_high), value),
            np.where(up, value, np.where(side == -1, 0.5 * at_low, at_low)),
        )
        low, high, side = np.where(up, middle, low), np.where(up, high, middle), np.where(up, 1, -1)
    return low, high
