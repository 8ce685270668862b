"""Products of intervals: activations that lie in a box, weights that may move."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["MovingWeights", "moving_products"]

_Array = NDArray[np.float64]
#: How many products are held at a time.
BLOCK = 1 << 18


class MovingWeights:
    """A matrix whose entries each lie within a reach of their middle, (inputs, outputs).

    For given activations a the sum of products ranges from ``l(a) = a @ middle - abs(a) @ reach`` to
    ``u(a) = a @ middle + abs(a) @ reach``. While a runs through a box, each term of l is least, and each of u largest,
    at an end; so both come from products of matrices split by sign, without looking at the terms one by one.

    Examples
    --------
    >>> weights = MovingWeights(np.array([[1.0], [-2.0]]), np.array([[0.5], [0.5]]))
    >>> least, most = weights.outer(np.array([[1.0, -1.0]]), np.array([[2.0, 1.0]]))
    >>> float(least[0, 0]), float(most[0, 0])
    (-2.0, 5.5)
    """

    def __init__(self, middle: _Array, reach: _Array) -> None:
        self.middle, self.reach = middle, reach
        self.low, self.high = middle - reach, middle + reach

    @cached_property
    def _low(self) -> tuple[_Array, _Array]:
        """Lower ends split by sign, stacked for one product with [lower ends, upper ends] of the activations."""
        up, down = np.maximum(self.low, 0.0), np.minimum(self.low, 0.0)
        return np.vstack([up, down]), np.vstack([down, up])

    @cached_property
    def _high(self) -> tuple[_Array, _Array]:
        up, down = np.maximum(self.high, 0.0), np.minimum(self.high, 0.0)
        return np.vstack([up, down]), np.vstack([down, up])

    def outer(self, low: _Array, high: _Array, *, positive: bool = False) -> tuple[_Array, _Array]:
        """Least l and largest u over the box of each row; `positive` promises that no end is below 0."""
        if positive:
            ends = np.hstack([low, high])
            return ends @ self._low[0], ends @ self._high[1]
        above, below = np.hstack([np.maximum(low, 0.0), np.maximum(high, 0.0)]), np.hstack([low, high])
        below -= above
        least = above @ self._low[0] + below @ self._high[0]
        most = above @ self._high[1] + below @ self._low[1]
        self._separate(np.maximum(high, 0.0), np.maximum(-low, 0.0), least, most)
        return least, most

    def both(self, low: _Array, high: _Array, *, positive: bool = False) -> tuple[_Array, _Array, _Array, _Array]:
        """Least and largest l, least and largest u over the box of each row."""
        if not positive:
            least, most = self.outer(low, high)
            inner_most, inner_least = self.inner(low, high)
            return least, inner_most, inner_least, most
        middle, spread = 0.5 * (low + high), 0.5 * (high - low)
        down, down_spread = middle @ self.low, spread @ np.abs(self.low)
        up, up_spread = middle @ self.high, spread @ np.abs(self.high)
        return down - down_spread, down + down_spread, up - up_spread, up + up_spread

    def outer_side(self, low: _Array, high: _Array, upper: NDArray[np.bool_], *, positive: bool = False) -> _Array:
        """Per output the largest u where `upper` says so, else the least l."""
        if not positive:
            least, most = self.outer(low, high)
            return np.where(upper, most, least)
        return np.hstack([low, high]) @ np.where(upper, self._high[1], self._low[0])

    def inner(self, low: _Array, high: _Array, *, positive: bool = False) -> tuple[_Array, _Array]:
        """Largest l and least u over the box of each row."""
        if positive:
            ends = np.hstack([low, high])
            return ends @ self._low[1], ends @ self._high[0]
        above, below = np.hstack([np.maximum(low, 0.0), np.maximum(high, 0.0)]), np.hstack([low, high])
        below -= above
        return above @ self._low[1] + below @ self._high[1], above @ self._high[0] + below @ self._low[0]

    def _separate(self, above: _Array, below: _Array, least: _Array, most: _Array) -> None:
        """Where both the weight and the activation can have either sign, two ends were added up: keep the worse one."""
        loose = (self.low < 0) & (self.high > 0)
        for i in np.flatnonzero(loose.any(axis=1) & (above.any(axis=0) & below.any(axis=0))):
            units = np.flatnonzero(loose[i])
            down, up = -self.low[i, units], self.high[i, units]
            least[:, units] += np.minimum(above[:, i, None] * down, below[:, i, None] * up)
            most[:, units] -= np.minimum(above[:, i, None] * up, below[:, i, None] * down)


def moving_products(low: _Array, high: _Array, w: _Array, reach: _Array, delta: _Array) -> tuple[_Array, _Array]:
    """What `MovingWeights.outer` gives, for rows that each have a delta of their own: term by term.

    Examples
    --------
    >>> box, w = (np.array([[1.0, -1.0]]), np.array([[2.0, 1.0]])), np.array([[1.0], [-2.0]])
    >>> least, most = moving_products(*box, w, np.ones((2, 1)), np.array([0.5]))
    >>> float(least[0, 0]), float(most[0, 0])
    (-2.0, 5.5)
    """
    rows, outputs = len(low), w.shape[1]
    least, most = np.empty((rows, outputs)), np.empty((rows, outputs))
    step = max(1, BLOCK // max(1, w.size))
    for start in range(0, rows, step):
        part = slice(start, start + step)
        spread = delta[part, None, None] * reach
        # for given activations the worst weights are known, and the worst activations are at an end
        ends = [(a[part, :, None] * w, np.abs(a[part, :, None]) * spread) for a in (low, high)]
        least[part] = np.minimum(ends[0][0] - ends[0][1], ends[1][0] - ends[1][1]).sum(axis=1)
        most[part] = np.maximum(ends[0][0] + ends[0][1], ends[1][0] + ends[1][1]).sum(axis=1)
    return least, most
