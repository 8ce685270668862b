"""Theorem 2, executable: one shift that fails strictly fails together with a box of shifts around it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.bounds.sensitivity import margin_ranges
from apas.certify.witness import Witness
from apas.errors import InputError
from apas.models.feedforward import FeedForward
from apas.models.margins import class_indices
from apas.shifts.box import inside_box, within_box
from apas.shifts.linf import LinfShifts

__all__ = ["Neighbourhood", "failing_neighbourhood"]

_Array = NDArray[np.float64]
#: How often the size of the box is halved before giving up.
HALVINGS = 60


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """A box of shifted models, all in the set, on each of which the row is not valid.

    Attributes
    ----------
    low, high : ndarray of shape (k,)
        Ends of each parameter.
    margin : float
        On every model of the box the margin is at most this, which is below 0.
    log10_share : float
        Decimal logarithm of the share of the set that the box takes up, rounded down; a lower bound on the share of
        shifts that fail.
    """

    low: _Array
    high: _Array
    margin: float
    log10_share: float


def failing_neighbourhood(
    model: FeedForward, x: _Array, delta: float, witness: _Array | Witness, *, target: Any
) -> Neighbourhood:
    """Grow a box of failing shifts around one, in the box of all shifts by up to `delta` (``LinfShifts()``).

    So the robust fraction is below 1 as soon as one shift fails with a margin below 0, not only at 0.

    Parameters
    ----------
    model : FeedForward
    x : ndarray of shape (1, features)
    delta : float
    witness : ndarray of shape (k,) or Witness
        Parameters of a shifted model on which the margin of the row is below 0.
    target : label
        The class that is to be kept.

    Returns
    -------
    Neighbourhood

    Examples
    --------
    >>> net = FeedForward([[[1.0]]], [[0.0]], output="identity")
    >>> around = failing_neighbourhood(net, np.array([[1.0]]), 0.5, np.array([0.5, -0.5]), target=1)
    >>> around.margin < 0, round(10**around.log10_share, 3)
    (True, 0.016)
    """
    values = np.asarray(witness if isinstance(witness, np.ndarray) else witness.parameters(model))
    base, reach = model.parameters.values, LinfShifts().radii(model.parameters)
    if values.shape != base.shape or not within_box(base, reach, delta, values).all():
        raise InputError(f"`witness` must be {len(base)} parameters within delta = {delta:g} of those of the network.")
    wanted = class_indices(model.classes, target, 1)
    moving = reach > 0
    ends = [inside_box(base, reach, delta, np.full(len(base), sign)) for sign in (-1.0, 1.0)]
    size = delta
    for _ in range(HALVINGS):
        low, high = np.maximum(values - size, ends[0]), np.minimum(values + size, ends[1])
        # an end of the set may lie a rounding error before the witness
        low, high = np.minimum(low, values), np.maximum(high, values)
        _, most, error = margin_ranges(model, x, wanted, low[None, :], high[None, :])
        worst, widths = float(most[0] + error[0]), (high - low)[moving] / (2 * delta)
        if worst < 0 and widths.all():  # a box without a width would have no volume
            return Neighbourhood(low, high, worst, math.nextafter(float(np.log10(widths).sum()) - 1e-9, -math.inf))
        size *= 0.5
    raise InputError("`witness` must be a shifted model on which the margin is below 0 by more than rounding.")
