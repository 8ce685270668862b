"""How fast a margin can fall while all parameters together move by at most a radius s in an L_p norm.

With ``1/p + 1/q = 1``, a change of L_p norm s moves the sum ``a @ w + b`` of a unit by at most s times the L_q norm of
``(a, 1)`` over the parameters that move. What a layer computes is followed in two ways, and the better one kept:

* by intervals, unit by unit, which see that a unit stays on one side of its kink;
* as what the network itself computes plus a change, whose L_p norm over the whole layer is bounded. The layers share
  the radius, and a weight matrix passes on such a change times its norm, not times a sum of its entries.

The slopes of the margin by the sums of the units go backward as intervals plus a change of bounded L_q norm. A
parameter's slope is that of its unit times its input, so that the L_q norm of all slopes, which is how fast the margin
can fall, is that of the units' slopes times the norms of ``(a, 1)``.

Everything is rounded outwards: the results hold in real arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apas.bounds.ballmargin import BallMargin
from apas.bounds.ballnorms import STEP, TINY, MatrixNorms, conjugate, joint_norm, unit_reach, up
from apas.bounds.ranges import activation_range, derivative_range
from apas.models.activations import activate
from apas.shifts.norm import lp_norm

__all__ = ["BallSlopes"]

_Array = NDArray[np.float64]
_Range = tuple[_Array, _Array]
#: Activations whose values and derivatives have no rounding of their own.
PLAIN = ("relu", "leaky_relu", "identity", "hard_tanh")
#: Activations whose computed values can be off by some units in the last place of 1, or of their argument.
ABSOLUTE = ("sigmoid", "gelu")
#: From here on moving weights spread slopes as a common change rather than as an interval each, which is then tighter.
COMMON = 1.5


@dataclass(frozen=True)
class _Layer:
    """What enters a layer, within a radius."""

    box: _Range
    """Ends of each number, (rows, units)."""
    values: _Array
    """The numbers on the network itself, as computed."""
    size: _Array
    """Magnitudes behind them, for the rounding of what comes after."""
    slopes: _Range
    """Ends of the derivatives of the activations that gave them."""
    moved: _Array
    """How far one unit of radius moves the layer's sums at most, in the L_p norm, (rows,)."""
    error: _Array
    """What rounding adds to that at most."""

    @property
    def steepest(self) -> _Array:
        """Largest size of each derivative."""
        return np.maximum(-self.slopes[0], self.slopes[1])

    @property
    def largest(self) -> _Array:
        """Largest size of each number."""
        return np.maximum(-self.box[0], self.box[1])


class BallSlopes:
    """Bounds on margins and on their slopes over balls of parameters.

    Parameters
    ----------
    margin : BallMargin
    p : float
        At least 1, finite.

    Examples
    --------
    >>> from apas import FeedForward
    >>> from apas.bounds.ballmargin import margins_against
    >>> net = FeedForward([[[1.0], [1.0]]], [[0.0]])
    >>> [margin] = margins_against(net, np.array([[2.0, -1.0]]), np.array([1]), np.ones(3))
    >>> least, slope = BallSlopes(margin, 2.0).at(np.array([0.25]))
    >>> least.round(9), slope.round(9)  # 1 - 0.25 sqrt(6), sqrt(6)
    (array([0.38762756]), array([2.44948974]))
    """

    def __init__(self, margin: BallMargin, p: float) -> None:
        self.margin, self.net, self.p, self.q = margin, margin.net, p, conjugate(p)
        self.norms = [MatrixNorms(w, p) for w in self.net.weights[:-1]]

    def at(self, radius: _Array) -> tuple[_Array, _Array]:
        """A lower bound on the margin, and an upper bound on how fast it falls, within `radius` (one per row)."""
        X = self.margin.X
        none, still = np.zeros(len(X)), (np.zeros_like(X), np.zeros_like(X))
        layers = [_Layer((X, X), X, np.abs(X), still, none, none)]
        reaches = []
        for i in range(len(self.net.activations)):
            reaches.append(self._reach(layers[-1], radius, *self.margin.moves[i]))
            layers.append(self._next(i, layers[-1], radius, reaches[-1]))
        output = self._output_reach(layers[-1], radius)
        steps = [output, *self._backward(radius, layers, reaches)]
        return self._least(layers[-1], radius, output), joint_norm(self.q, *steps) + TINY

    def _conversion(self, units: int) -> float:
        """How many times larger than its L_p norm an L_q norm of so many numbers can be."""
        return float(units ** max(0.0, 1.0 / self.q - 1.0 / self.p))

    def _change(self, layer: _Layer, radius: _Array) -> _Array:
        """How far what enters a layer can lie from its values, in the L_q norm, (rows,)."""
        moved = layer.steepest.max(axis=1) * (layer.moved * radius + layer.error) + 8 * STEP * layer.size.sum(axis=1)
        return up(moved * self._conversion(layer.size.shape[1]), 0)

    def _reach(self, layer: _Layer, radius: _Array, moves: _Array, bias_moves: _Array) -> _Array:
        """How far one unit of radius in a unit's own parameters moves its sum, (rows, units) or (rows, 1)."""
        by_ends = unit_reach(layer.largest, moves, bias_moves, self.q)
        by_change = unit_reach(np.abs(layer.values), moves, bias_moves, self.q) + self._change(layer, radius)[:, None]
        return np.minimum(by_ends, by_change)

    def _next(self, i: int, before: _Layer, radius: _Array, reach: _Array) -> _Layer:
        """What enters the next layer."""
        w, b, name = self.net.weights[i], self.net.biases[i], self.net.activations[i]
        direct = radius[:, None] * reach
        size = np.maximum(before.size, before.largest)
        rounding = (len(w) + 16) * STEP * (size @ np.abs(w) + np.abs(b) + direct) + TINY
        sums = before.values @ w + b
        ends = _product_range(before.box, w)
        low, high = ends[0] + b - direct - rounding, ends[1] + b + direct + rounding
        passed = unit_reach(before.steepest, np.abs(w) if self.q == math.inf else np.abs(w) ** self.q, np.zeros(w.shape[1]), self.q)
        change = radius[:, None] * joint_norm(self.q, before.moved[:, None] * passed, reach)
        change = up(change + passed * before.error[:, None], 0) + rounding
        # the sums as computed must lie between the ends, too: slopes between them and any other sums are asked for
        low, high = np.minimum(np.maximum(low, sums - change), sums), np.maximum(np.minimum(high, sums + change), sums)
        norm = self.norms[i].of(before.steepest)
        moved = joint_norm(self.q, norm * before.moved, reach.max(axis=1))
        error = up(norm * before.error + rounding.sum(axis=1), len(b))
        values = activate(name, sums.copy())
        size = np.maximum(np.abs(sums), 1.0) if name in ABSOLUTE else np.abs(values)
        return _Layer(_activated(name, low, high), values, size, _derivatives(name, low, high), moved, error)
