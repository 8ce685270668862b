"""One network at one delta: its layers with what can move, and what its units can be.

Bounds on the units of the first hidden layer are exact; those of the second come from interval arithmetic, which is
exact there too; deeper ones are made tighter by linear bounds on each unit (`apas.worst_case.linear`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from apas._typing import Floats, Indices
from apas.models.feedforward import FeedForward
from apas.worst_case.intervals import POSITIVE, MovingWeights, activation_range, magnitudes, output_terms
from apas.worst_case.linear import Lines, Objective, carried_back

#: How many bounds on single units are computed at a time.
BLOCK = 1 << 20


@dataclass(frozen=True)
class Layer:
    """A layer at one delta: middle and reach of its weights (inputs, outputs) and biases."""

    middle: Floats
    reach: Floats
    bias: Floats
    bias_reach: Floats

    @cached_property
    def moving(self) -> MovingWeights:
        """The weights as intervals."""
        return MovingWeights(self.middle, self.reach)

    @cached_property
    def uniform(self) -> float | None:
        """The reach of all weights, if they share one."""
        first = float(self.reach.flat[0])
        return first if (self.reach == first).all() else None

    def spread(self, sizes: Floats) -> Floats:
        """How far the layer's values can move for activations of such magnitudes: (items, outputs) or (items, 1)."""
        if self.uniform is not None:
            return np.asarray(self.uniform * sizes.sum(axis=-1, keepdims=True) + self.bias_reach)
        return np.asarray(sizes @ self.reach + self.bias_reach)

    def spread_back(self, sizes: Floats) -> Floats:
        """How much magnitudes at the outputs make of each input's: (items, inputs) or (items, 1)."""
        if self.uniform is not None:
            return np.asarray(self.uniform * sizes.sum(axis=-1, keepdims=True))
        return np.asarray(sizes @ self.reach.T)


@dataclass(frozen=True)
class Units:
    """What the units of a hidden layer can be, each array (rows, units).

    Given the activations before it, a unit's argument runs from some l to some u: `low_l` to `high_l` bound the one,
    `low_u` to `high_u` the other, `low` and `high` the activation.
    """

    low_l: Floats
    high_l: Floats
    low_u: Floats
    high_u: Floats
    low: Floats
    high: Floats


class Relaxation:
    """A network whose parameter i moves by at most ``delta * radii[i]``."""

    def __init__(self, net: FeedForward, radii: Floats, delta: float) -> None:
        self.net, self.radii, self.delta = net, radii, delta
        self.unit_reach = net.parameters.split(radii)
        reach = [delta * r for r in self.unit_reach]
        self.layers = [
            Layer(w, reach[2 * i], b, reach[2 * i + 1])
            for i, (w, b) in enumerate(zip(net.weights, net.biases, strict=True))
        ]

    def relaxed(self, X: Floats) -> tuple[list[Units], list[Lines], Floats]:
        """Ranges of all hidden units for the rows `X`, widened by what rounding can do to them, and their lines.

        Also what rounding can change in a computed bound on the margin of each row.
        """
        names, allowance = self.net.activations, self.allowance(X)
        first = self.layers[0]
        middle, spread = X @ first.middle + first.bias, first.spread(np.abs(X))
        low, high = middle - spread, middle + spread
        low, high = low - allowance[0][:, None], high + allowance[0][:, None]
        units = [Units(low, high, low, high, *activation_range(names[0], low, high))]
        lines = [Lines.box(names[0], units[0])]
        for i in range(1, len(names)):
            layer, before = self.layers[i], units[-1]
            ends = layer.moving.both(before.low, before.high, positive=names[i - 1] in POSITIVE)
            down, up = layer.bias - layer.bias_reach, layer.bias + layer.bias_reach
            ranges = (ends[0] + down, ends[1] + down, ends[2] + up, ends[3] + up)
            if i > 1:
                ranges = self._tightened(i, lines, ranges)
            units.append(_widened(names[i], allowance[i], *ranges))
            lines.append(Lines.open(names[i], units[-1]))
        return units, lines, allowance[-1]

    def allowance(self, X: Floats) -> list[Floats]:
        """Per layer and row what rounding can change in a computed bound, the margin's last."""
        sizes = magnitudes(self.net, self.unit_reach, X, np.full(len(X), self.delta))
        steps = np.cumsum([len(w) + 8 for w in self.net.weights])
        # a bound adds up one constant per layer, each of at most the magnitude of the whole
        slack = [8 * s * (i + 2) * 2.0**-53 * size for i, (s, size) in enumerate(zip(steps, sizes, strict=True))]
        slack[-1] += self.net.rounding(X, self.radii, self.delta)  # where the network is used
        return slack

    def objective(self, wanted: Indices, rival: Indices) -> Objective:
        """The margin against one rival per row, in terms of the last hidden layer."""
        v, v_reach, bias, bias_reach = output_terms(self.net, self.unit_reach, wanted, rival)
        return Objective(v, self.delta * v_reach, bias - self.delta * bias_reach)

    def _tightened(
        self, i: int, lines: list[Lines], ranges: tuple[Floats, Floats, Floats, Floats]
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Linear bounds on every unit of layer i where they beat interval arithmetic."""
        layer, rows = self.layers[i], len(ranges[0])
        inputs, outputs = layer.middle.shape
        least, most = np.empty((rows, outputs)), np.empty((rows, outputs))
        step = max(1, BLOCK // (outputs * inputs))
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            some = [line.take(np.repeat(np.arange(start, stop), outputs)) for line in lines]
            for sign, into in ((1.0, least), (-1.0, most)):
                times = stop - start
                each = Objective(
                    np.tile(sign * layer.middle.T, (times, 1)),
                    np.tile(layer.reach.T, (times, 1)),
                    np.tile(sign * layer.bias - layer.bias_reach, times),
                )
                bound = carried_back(self.layers, some, each, i - 1).bound
                into[start:stop] = sign * bound.reshape(stop - start, outputs)
        low_l, high_u = np.maximum(ranges[0], least), np.minimum(ranges[3], most)
        return low_l, np.minimum(ranges[1], high_u), np.maximum(ranges[2], low_l), high_u


def _widened(name: str, allowance: Floats, *ranges: Floats) -> Units:
    slack = allowance[:, None]
    low_l, high_l, low_u, high_u = ranges[0] - slack, ranges[1] + slack, ranges[2] - slack, ranges[3] + slack
    return Units(low_l, high_l, low_u, high_u, *activation_range(name, low_l, high_u))
