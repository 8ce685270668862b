"""Linear bounds on margins with weights and biases as what moves (in the manner of CROWN).

The margin is carried backwards through the network as ``lin . a - rho . abs(a) + const``, a lower bound on it in terms
of the activations a of one layer: ``rho`` collects how far the weights above can move against a. Each activation is
replaced by a line below it (`apas.bounds.lines`), each ``-abs(a)`` by its chord, until the first hidden layer is
reached, whose activations fill a box exactly; there the least value is a closed form.

Any slopes within their pencils give a sound bound. The bound is concave in the slopes of one layer, and its gradient
is known from where the least value is attained, so that slopes are improved by a few ascent steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from apas.bounds.lines import Pencil, pencil
from apas.bounds.ranges import LOWEST, POSITIVE

if TYPE_CHECKING:
    from apas.bounds.relaxation import Layer, Units

__all__ = ["Carried", "Lines", "Objective", "ascend", "carried_back", "gradients"]

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class Objective:
    """A lower bound ``lin . a - rho . abs(a) + const`` in terms of a layer's activations, one per item."""

    lin: _Array
    rho: _Array
    const: _Array

    def take(self, items: NDArray[np.intp]) -> Objective:
        """The same for some of the items."""
        return Objective(self.lin[items], self.rho[items], self.const[items])


@dataclass(frozen=True)
class Lines:
    """What a layer is replaced by: per unit a line for either side, and ``tilt * a + lift`` for the magnitude of a.

    `down` holds the lines below the activation, used where the unit should be small, `up` those below its mirror
    image; `down_slope` and `up_slope` are the ones chosen from them. `low` and `high` are the range of a.
    """

    down: Pencil
    up: Pencil
    down_slope: _Array
    up_slope: _Array
    tilt: _Array
    lift: _Array
    low: _Array
    high: _Array
    positive: bool
    """Whether no activation is below 0, so that each is its own magnitude."""

    @classmethod
    def box(cls, name: str, units: Units) -> Lines:
        """Of the first layer, whose activations fill a box: it needs no lines but for magnitudes."""
        none = np.zeros((1, 1))
        nothing, positive = Pencil(none, none, none, none), name in POSITIVE
        magnitude = (none, none) if positive else chord_of_magnitude(units.low, units.high)
        return cls(nothing, nothing, none, none, *magnitude, units.low, units.high, positive)

    @classmethod
    def open(cls, name: str, units: Units) -> Lines:
        """Lines for the whole range of each unit."""
        # the one activation that is not monotone: its argument can be anywhere, not only at l or u
        low_u, high_l = (units.low_l, units.high_u) if name in LOWEST else (units.low_u, units.high_l)
        down = pencil(name, units.low_l, high_l, mirrored=False)
        up = pencil(name, -units.high_u, -low_u, mirrored=True)
        slopes = _leaning(down, units.low_l, high_l), _leaning(up, -units.high_u, -low_u)
        none = np.zeros((1, 1))
        magnitude = (none, none) if name in POSITIVE else chord_of_magnitude(units.low, units.high)
        return cls(down, up, *slopes, *magnitude, units.low, units.high, name in POSITIVE)

    def take(self, items: NDArray[np.intp]) -> Lines:
        """The same for some of the items."""

        def some(array: _Array) -> _Array:
            return array if len(array) == 1 else array[items]

        down, up = (Pencil(some(p.flat), some(p.steep), some(p.at), some(p.value)) for p in (self.down, self.up))
        slopes, magnitude = (some(self.down_slope), some(self.up_slope)), (some(self.tilt), some(self.lift))
        return Lines(down, up, *slopes, *magnitude, some(self.low), some(self.high), self.positive)


def chord_of_magnitude(low: _Array, high: _Array) -> tuple[_Array, _Array]:
    """Slope and height of a line that is nowhere below abs(a) on [low, high]."""
    crossing = (low < 0) & (high > 0)
    width = np.where(crossing, high - low, 1.0)
    tilt = np.where(crossing, (high + low) / width, np.where(low >= 0, 1.0, -1.0))
    # whatever rounding did to the slope, the line is above the magnitude at both ends
    lift = np.where(crossing, np.maximum(-low * (1 + tilt), high * (1 - tilt)), 0.0)
    return tilt, lift


def _leaning(lines: Pencil, low: _Array, high: _Array) -> _Array:
    """The slope that loses least: steep where more of the range lies beyond the pivot than before it."""
    return np.where(high - lines.at > lines.at - low, lines.steep, lines.flat)


@dataclass(frozen=True)
class Carried:
    """A bound, and what it went through: per layer, the first one first, the coefficients on its activations.

    `moved` holds the coefficients rho on their magnitudes.
    """

    bound: _Array
    coefficients: list[_Array]
    moved: list[_Array]


def carried_back(layers: Sequence[Layer], lines: Sequence[Lines], objective: Objective, top: int) -> Carried:
    """Bound an objective on the activations of hidden layer `top` from below; ordinary rounding."""
    lin, rho, const = objective.lin, objective.rho, objective.const
    coefficients, moved = [], []
    for i in range(top, -1, -1):
        line = lines[i]
        if line.positive:
            c = lin - rho
        else:
            c = lin - rho * line.tilt
            const = const - (rho * line.lift).sum(axis=1)
        coefficients.append(c)
        moved.append(rho)
        if i:
            layer, small, size = layers[i], c >= 0, np.abs(c)
            slope = np.where(small, line.down_slope, line.up_slope)
            height = np.where(small, line.down.height(line.down_slope), line.up.height(line.up_slope))
            g, size_g = c * slope, size * slope
            const = const + np.einsum("nu,nu->n", size, height) + g @ layer.bias - size_g @ layer.bias_reach
            lin, rho = g @ layer.middle.T, layer.spread_back(size_g)
    least = np.einsum("nu,nu->n", np.maximum(c, 0.0), line.low) + np.einsum("nu,nu->n", np.minimum(c, 0.0), line.high)
    return Carried(const + least, coefficients[::-1], moved[::-1])


def gradients(
    layers: Sequence[Layer], lines: Sequence[Lines], carried: Carried
) -> tuple[list[_Array], list[_Array], list[_Array]]:
    """Where the bound is least: activations of all layers, and of all but the first the arguments of its lines.

    Also the gradient of the bound by the slopes that it used. The activations of the first layer are at ends of their
    box; from there the values are carried forward along the lines.
    """
    a = np.where(carried.coefficients[0] >= 0, lines[0].low, lines[0].high)
    by_slope, arguments, points = [], [], [a]
    for i in range(1, len(carried.coefficients)):
        layer, line, c, before = layers[i], lines[i], carried.coefficients[i], lines[i - 1]
        spread = layer.spread(a if before.positive else before.tilt * a + before.lift)
        z, small = a @ layer.middle + layer.bias, c >= 0
        sign = np.where(small, 1.0, -1.0)
        y = sign * z - spread
        slope = np.where(small, line.down_slope, line.up_slope)
        height = np.where(small, line.down.height(line.down_slope), line.up.height(line.up_slope))
        by_slope.append(np.abs(c) * (y - np.where(small, line.down.at, line.up.at)))
        arguments.append(y)
        a = sign * (slope * y + height)
        points.append(a)
    return by_slope, arguments, points


def ascend(
    layers: Sequence[Layer], lines: list[Lines], carried: Carried, target: _Array
) -> tuple[list[Lines], list[_Array], list[_Array]]:
    """One step of the slopes that would bring each item's bound to its target, were the bound linear in them.

    Returns the new lines, and the arguments and points of `gradients`.
    """
    by_slope, arguments, points = gradients(layers, lines, carried)
    length = np.zeros(len(carried.bound))
    for i, gradient in enumerate(by_slope, start=1):
        line, small = lines[i], carried.coefficients[i] >= 0
        gradient[np.where(small, line.down.steep <= line.down.flat, line.up.steep <= line.up.flat)] = 0.0
        length += np.einsum("nu,nu->n", gradient, gradient)
    step = (np.maximum(target - carried.bound, 0.0) / np.maximum(length, 1e-300))[:, None]
    new = [lines[0]]
    for i, gradient in enumerate(by_slope, start=1):
        line, small, change = lines[i], carried.coefficients[i] >= 0, step * gradient
        down = np.clip(line.down_slope + np.where(small, change, 0.0), line.down.flat, line.down.steep)
        up = np.clip(line.up_slope + np.where(small, 0.0, change), line.up.flat, line.up.steep)
        new.append(replace(line, down_slope=down, up_slope=up))
    return new, arguments, points
