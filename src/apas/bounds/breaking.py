"""The smallest delta at which pushing the units of a deep network against the margin breaks a row.

An upper bound on the largest robust delta: below it failing shifts may exist that were not found.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apas.bounds.unitpushes import UnitPushes
from apas.models.feedforward import FeedForward

__all__ = ["broken_radius"]

_Array = NDArray[np.float64]
#: Relative width at which a bracket counts as closed, and how often it may be halved.
CLOSED, HALVINGS = 1e-6, 60
#: Times that all pushes are turned against the gradient.
TURNS = 6


def broken_radius(
    net: FeedForward, X: _Array, wanted: NDArray[np.intp], radii: _Array, proved: _Array, limit: float
) -> tuple[_Array, _Array]:
    """Per row a delta above `proved` with a failing shift, as small as found, and its direction of the unit box.

    Parameters
    ----------
    net : FeedForward
    X : ndarray of shape (rows, features)
    wanted : ndarray of int, shape (rows,)
    radii : ndarray of shape (k,)
    proved : ndarray of shape (rows,)
        Where to begin: every shift up to here is known to keep the row.
    limit : float

    Returns
    -------
    delta : ndarray of shape (rows,)
        Infinite where nothing failed up to `limit`.
    directions : ndarray of shape (rows, k)
        Without meaning where nothing failed.

    Examples
    --------
    >>> net = FeedForward([[[1.0]], [[1.0]], [[1.0]]], [[0.0], [0.0], [-0.5]])
    >>> delta, direction = broken_radius(net, np.array([[1.0]]), np.array([1]), np.ones(6), np.zeros(1), 10.0)
    >>> round(float(delta[0]), 3), direction
    (0.091, array([[-1., -1., -1., -1., -1., -1.]]))
    """
    units = UnitPushes(net, X, wanted, radii, np.ones(len(X)))
    points = np.zeros((len(X), units.size))
    low, high = proved.copy(), np.minimum(np.maximum(2 * proved, 1e-3 * limit), limit)
    fails, points = _pushed(units, points, high)
    while (~fails & (high < limit)).any():  # larger and larger until it breaks
        low, high = np.where(fails, low, high), np.where(fails, high, np.minimum(4 * high, limit))
        fails, points = _pushed(units, points, high)
    broken, kept = np.where(fails, high, np.inf), points.copy()
    for _ in range(HALVINGS):
        wide = fails & (broken - low > CLOSED * broken)
        if not wide.any():
            break
        middle = np.where(wide, 0.5 * (low + np.where(fails, broken, low)), high)
        now, points = _pushed(units, points, middle)
        broken, low = np.where(wide & now, middle, broken), np.where(wide & ~now, middle, low)
        kept[wide & now] = points[wide & now]
    at = units.at(np.where(fails, broken, limit))
    directions = np.zeros((len(X), len(radii)))
    for row in np.flatnonzero(fails).tolist():
        directions[row] = at.direction(row, kept[row])
    return broken, directions


def _pushed(units: UnitPushes, points: _Array, delta: _Array) -> tuple[NDArray[np.bool_], _Array]:
    """Turn the pushes against the gradient again and again: whether each row breaks, and the worst pushes found.

    From the pushes given and, in case these lead into a corner, from none.
    """
    at = units.at(delta)
    current = np.stack([points, np.zeros_like(points)], axis=1)
    least, best = np.full(len(points), np.inf), points
    for _ in range(TURNS):
        margins, gradients = at.gradients(current)
        worst = margins.argmin(axis=1)
        now = np.take_along_axis(margins, worst[:, None], axis=1)[:, 0]
        better = now < least
        best = np.where(better[:, None], current[np.arange(len(points)), worst], best)
        least = np.where(better, now, least)
        if not better.any() or not units.size:
            break
        current = np.where(gradients != 0, -np.sign(gradients), current)
    return least < 0, best
