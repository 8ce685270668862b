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

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apas.bounds.ballmargin import BallMargin
from apas.bounds.ballnorms import STEP, TINY, MatrixNorms, conjugate, joint_norm, row_reach, unit_reach, up
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
    passed: _Array
    """Norm of the weights and, behind them, the previous derivatives."""

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

    def __init__(self, margin: BallMargin, p: float, norms: list[MatrixNorms] | None = None) -> None:
        self.margin, self.net, self.p, self.q = margin, margin.net, p, conjugate(p)
        self.norms = [MatrixNorms(w, p) for w in self.net.weights] if norms is None else norms
        X, still, none = margin.X, np.zeros_like(margin.X), np.zeros(len(margin.X))
        self.inputs = _Layer((X, X), X, np.abs(X), (still, still), none, none, none)
        if self.net.activations:
            self.sums = X @ self.net.weights[0] + self.net.biases[0]
            self.reach = unit_reach(np.abs(X), *margin.moves[0], self.q)

    def at(self, radius: _Array) -> tuple[_Array, _Array]:
        """A lower bound on the margin, and an upper bound on how fast it falls, within `radius` (one per row)."""
        layers, reaches = [self.inputs], []
        for i in range(len(self.net.activations)):
            reaches.append(self._reach(layers[-1], radius, *self.margin.moves[i]) if i else self.reach)
            layers.append((self._next if i else self._first)(i, layers[-1], radius, reaches[-1]))
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

    def _first(self, i: int, before: _Layer, radius: _Array, reach: _Array) -> _Layer:
        """What enters the layer after the first, whose inputs are points."""
        direct = radius[:, None] * reach
        rounding = self._rounding(i, before.size, direct)
        ends = self.sums - direct - rounding, self.sums + direct + rounding
        none = np.zeros(len(radius))
        return self._activated(i, self.sums, *ends, reach.max(axis=1), up(rounding.sum(axis=1), len(rounding.T)), none)

    def _next(self, i: int, before: _Layer, radius: _Array, reach: _Array) -> _Layer:
        """What enters the next layer."""
        w, b, norms = self.net.weights[i], self.net.biases[i], self.norms[i]
        direct = radius[:, None] * reach
        rounding = self._rounding(i, np.maximum(before.size, before.largest), direct)
        sums = before.values @ w + b
        low, high = norms.range_of(before.box)
        low, high = low + b - direct - rounding, high + b + direct + rounding
        passed, norm = norms.of_units(before.steepest), norms.of_all(before.steepest)
        change = radius[:, None] * joint_norm(self.q, before.moved[:, None] * passed, reach)
        change = up(change + passed * before.error[:, None], 0) + rounding
        # the sums as computed must lie between the ends, too: slopes between them and any other sums are asked for
        low, high = np.minimum(np.maximum(low, sums - change), sums), np.maximum(np.minimum(high, sums + change), sums)
        moved = joint_norm(self.q, norm * before.moved, reach.max(axis=1))
        error = up(norm * before.error + rounding.sum(axis=1), len(b))
        return self._activated(i, sums, low, high, moved, error, norm)

    def _rounding(self, i: int, size: _Array, direct: _Array) -> _Array:
        """What rounding can do to the sums of a layer, activations before it included."""
        size = size.max(axis=1, keepdims=True) * self.norms[i].column_sums + np.abs(self.net.biases[i]) + direct
        return np.asarray((len(self.net.weights[i]) + 16) * STEP * size + TINY)

    def _activated(
        self, i: int, sums: _Array, low: _Array, high: _Array, moved: _Array, error: _Array, norm: _Array
    ) -> _Layer:
        name = self.net.activations[i]
        values = activate(name, sums.copy())
        size = np.maximum(np.abs(sums), 1.0) if name in ABSOLUTE else np.abs(values)
        return _Layer(_values(name, low, high), values, size, _derivatives(name, low, high), moved, error, norm)

    def _output_reach(self, layer: _Layer, radius: _Array) -> _Array:
        """The same as `_reach` for the output, (rows,)."""
        counts, bias_counts = self.margin.weight_moves, self.margin.bias_moves
        by_ends = row_reach(layer.largest, counts, bias_counts, self.q)
        by_change = row_reach(np.abs(layer.values), counts, bias_counts, self.q)
        return np.minimum(by_ends, by_change + self._most(counts) * self._change(layer, radius))

    def _most(self, counts: _Array) -> _Array:
        return np.asarray(up(counts.max(axis=1, initial=0.0) ** (1.0 / self.q), 0))

    def _least(self, layer: _Layer, radius: _Array, output: _Array) -> _Array:
        """A lower bound on the margin."""
        v, bias = self.margin.weights, self.margin.bias
        size = (np.maximum(layer.size, layer.largest) * np.abs(v)).sum(axis=1) + self.margin.bias_size + radius * output
        rounding = (v.shape[1] + 16) * STEP * size + TINY
        by_ends = (np.where(v > 0, *layer.box) * v).sum(axis=1) + bias - radius * output
        norm = up(lp_norm(layer.steepest * v, self.q), v.shape[1]) + TINY
        change = radius * joint_norm(self.q, norm * layer.moved, output) + norm * layer.error
        by_change = (layer.values * v).sum(axis=1) + bias - up(change, 0)
        return np.asarray(np.fmax(by_ends, by_change) - rounding)

    def _backward(self, radius: _Array, layers: list[_Layer], reaches: list[_Array]) -> list[_Array]:
        """Per hidden layer how fast the margin can fall through its parameters, (rows,)."""
        v, counts, steps = self.margin.weights, self.margin.weight_moves, []
        common = radius * self._most(counts) * self._conversion(v.shape[1])
        spread = 4 * STEP * np.abs(v)
        if self.p < COMMON:
            own = np.where(counts > 0, up(counts ** (1.0 / self.q), 0), 0.0)
            common, spread = np.zeros(len(v)), spread + radius[:, None] * own
        low, high = v - spread, v + spread
        for i in reversed(range(len(reaches))):
            layer = layers[i + 1]
            low, high = _interval_product((low, high), layer.slopes)
            common = up(common * layer.steepest.max(axis=1) if i == len(reaches) - 1 else common, 0)
            sizes = np.maximum(-low, high)
            total = up(lp_norm(sizes, self.q), sizes.shape[1]) + common
            direct = up(lp_norm(sizes * reaches[i], self.q), sizes.shape[1])
            steps.append(up(direct + common * reaches[i].max(axis=1), 0))
            if i == 0:
                break
            weight_moves, units = self.margin.moves[i][0].T, len(self.net.weights[i])
            rounding = (sizes.shape[1] + 16) * STEP * sizes.max(axis=1, keepdims=True) * self.norms[i].row_sums + TINY
            if self.p < COMMON:
                own = radius[:, None] * unit_reach(sizes, weight_moves, np.zeros(units), self.q)
                rounding = rounding + up(own, 0)
            else:
                own = radius * total * self._conversion(units) * weight_moves.any()
                common = up(layer.passed * common + layers[i].steepest.max(axis=1) * own, 0)
            low, high = self.norms[i].range_back((low, high))
            low, high = low - rounding, high + rounding
        return steps


def _interval_product(a: _Range, b: _Range) -> _Range:
    corners = [x * y for x in a for y in b]
    return np.minimum.reduce(corners), np.maximum.reduce(corners)


def _values(name: str, low: _Array, high: _Array) -> _Range:
    ends = activation_range(name, low, high)
    if name in PLAIN:
        return ends
    size = np.maximum(np.maximum(-low, high), 1.0) if name in ABSOLUTE else np.maximum(-ends[0], ends[1])
    return ends[0] - 8 * STEP * size, ends[1] + 8 * STEP * size


def _derivatives(name: str, low: _Array, high: _Array) -> _Range:
    least, most = derivative_range(name, low, high)
    return (least, most) if name in PLAIN else (least - 8 * STEP, most + 8 * STEP)
