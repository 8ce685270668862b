"""How much of a box a sum of functions of one parameter each can be below 0 on.

The parameters are independent and uniform, so the question is about a sum of independent terms. Three answers, of which
the least counts; each is a theorem, evaluated with an allowance for rounding.

- *Chernoff's bound* with the exact moment generating functions: far from 0 it falls like that of a normal distribution.
- *Gauss's inequality* [1]_ for the straight part, a symmetric sum whose density falls from its middle on: beyond t on
  one side it lies with probability at most ``2 s**2 / (9 t**2)``, and ``1/2 - t / (2 sqrt(3) s)`` for t below
  ``2 s / sqrt(3)``, where s is its standard deviation. Near 0 this is a third of Chernoff's bound.
- *Ball's theorem* [2]_: the density of that sum is nowhere above ``sqrt(2)`` divided by the length of the vector of
  the terms' widths. So the middle of a box may lie on the wrong side, and yet not all of the box does.

References
----------
.. [1] Gauss (1823), "Theoria combinationis observationum erroribus minimis obnoxiae", section 10.
.. [2] Ball (1986), "Cube slicing in R^n", Proceedings of the American Mathematical Society 97.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["share_below"]

_Array = NDArray[np.float64]
#: Where Chernoff's bound is evaluated, as multiples of where it is best for a normal distribution.
TILTS = (0.8, 1.2, 2.0)
#: What rounding can do, far more than it does: relative to the numbers that are added up, and to a probability.
ROUNDING, SAFETY = 2.0**-44, 1e-11


def share_below(middle: _Array, low: _Array, high: _Array) -> _Array:
    """An upper bound on the share of a cube where ``middle + sum_i g_i(u_i)`` is at most 0.

    Parameters
    ----------
    middle : ndarray of shape (items,)
    low, high : ndarray of shape (items, axes)
        ``g_i(u)`` is at least ``low[i] * u`` for u in [0, 1] and at least ``high[i] * u`` for u in [-1, 0], where u is
        uniform on [-1, 1]; ``low <= high``.

    Returns
    -------
    ndarray of shape (items,)
        At most 1; 1 where something is not finite.

    Examples
    --------
    >>> terms = np.full((1, 12), 0.5)  # a standard deviation of 1
    >>> [float(share_below(np.array([t]), terms, terms)[0].round(4)) for t in (-1.0, 0.0, 1.0, 2.0, 4.0)]
    [0.9082, 0.5, 0.2113, 0.0556, 0.0001]
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        # in units of the largest number, squares neither overflow nor vanish where they matter
        unit = np.maximum(np.abs(middle), np.maximum(np.abs(low).max(axis=1), np.abs(high).max(axis=1)))
        middle, low, high = middle / unit, low / unit[:, None], high / unit[:, None]
        slack = ROUNDING * (np.abs(middle) + np.abs(low).sum(axis=1) + np.abs(high).sum(axis=1))
        bound = np.minimum(_symmetric(middle - slack, low, high), _tilted(middle - slack, low, high))
        bound = (1.0 + SAFETY) * bound + SAFETY
    return np.where(bound < 1.0, bound, 1.0)  # a NaN becomes 1


def _symmetric(middle: _Array, low: _Array, high: _Array) -> _Array:
    """By Gauss and Ball, the bend of each term taken at its worst."""
    straight = 0.5 * (low + high)
    t = middle - 0.5 * (high - low).sum(axis=1)
    deviation = np.sqrt((straight * straight).sum(axis=1) / 3.0)
    ratio = t / deviation  # infinite or NaN for a sum that does not move
    beyond = np.where(ratio < 2.0 / 3.0**0.5, 0.5 - ratio / (2.0 * 3.0**0.5), 2.0 / (9.0 * ratio * ratio))
    short = 0.5 - ratio * (2.0 / 12.0) ** 0.5
    return np.where(deviation > 0, np.where(t > 0, beyond, np.minimum(short, 1.0)), np.where(t > 0, 0.0, 1.0))


def _tilted(middle: _Array, low: _Array, high: _Array) -> _Array:
    """By Chernoff, for the terms as they are."""
    bend = high - low
    mean = middle - 0.25 * bend.sum(axis=1)
    variance = ((low * low + high * high) / 6.0 - (0.25 * bend) ** 2).sum(axis=1)
    best = np.ones(len(middle))
    for tilt in TILTS:
        scale = tilt * np.maximum(mean, 0.0) / variance
        down, up = -scale[:, None] * low, scale[:, None] * high
        logarithm = np.log(0.5 * (_average(down) + _average(up))).sum(axis=1) - scale * middle
        logarithm += ROUNDING * (low.shape[1] + (np.abs(down) + np.abs(up)).sum(axis=1) + np.abs(scale * middle))
        best = np.fmin(best, np.exp(logarithm))
    return best


def _average(x: _Array) -> _Array:
    """The average of ``exp(x u)`` over u in [0, 1]."""
    return np.asarray(np.where(x == 0.0, 1.0, np.expm1(x) / x))
