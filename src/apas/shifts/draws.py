"""Asking any shift set: what moves, which draws, what margins, and how exact they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.models.parameters import Parameters
from apas.models.protocol import Model, Scaled, offers
from apas.shifts.protocol import Magnitudes, OnPoints, OtherMoves, ShiftSet

__all__ = ["coordinates", "drawn_magnitudes", "drawn_margins", "magnitudes"]

_Array = NDArray[np.float64]


def coordinates(shifts: ShiftSet, model: Model) -> Parameters:
    """What moves: the parameters of the model, unless the set says otherwise.

    Examples
    --------
    >>> from apas import FeedForward, LinfShifts
    >>> net = FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> len(coordinates(LinfShifts(), net))
    3
    """
    return shifts.coordinates(model) if offers(shifts, OtherMoves) else model.parameters


def drawn_margins(
    shifts: ShiftSet, model: Model, points: Any, X: _Array, target: Any, directions: _Array, delta: float | _Array
) -> _Array:
    """Margins of rows on every shifted model, shape (directions, rows).

    Parameters
    ----------
    shifts : ShiftSet
    model : Model
    points : array_like, data frame or None
        The rows in the user's units, for sets that offer `OnPoints`; None if they are not known.
    X : ndarray of shape (rows, features)
        The same rows in model units.
    target, directions, delta
        As in `ShiftSet.margins`.
    """
    if points is not None and offers(shifts, OnPoints):
        return shifts.point_margins(model, points, target, directions, delta)
    return shifts.margins(model, X, target, directions, delta)


def drawn_magnitudes(
    shifts: ShiftSet, model: Model, points: Any, X: _Array, target: Any, radii: _Array, delta: float | _Array
) -> _Array:
    """Per row a number of the size of those behind any margin, on any shifted model."""
    if offers(shifts, Magnitudes):
        return shifts.magnitudes(model, points, X, target, delta)
    return magnitudes(model, X, target, radii, delta)


def magnitudes(model: Model, X: _Array, target: Any, radii: _Array, delta: float | _Array) -> _Array:
    """The same while parameter i moves by at most ``delta * radii[i]``; without that knowledge, the margin itself."""
    if offers(model, Scaled):
        return model.margin_scale(X, radii, delta)
    return np.asarray(np.maximum(1.0, np.abs(model.margin(X, target))))
