"""The units of a piecewise linear network as rows and columns of a program.

Units whose phase is the same over all that is within reach are no variables at all: they are written in terms of those
before them. Any other has a column for its activation, and rows only on the sides from which a wrong value could help
the margin: with relu units a 0-1 column is needed where a unit should be large, none where it should be small. Every
big M is the end of a proven range; columns are scaled by powers of two to ranges within [-1, 1].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apas.bounds.ranges import activation_range
from apas.counterfactuals.cheapest.moves import Moves
from apas.counterfactuals.cheapest.sheet import Sheet, Switch, power_above
from apas.models.activations import LEAKY_SLOPE
from apas.models.feedforward import FeedForward

__all__ = ["Contrast", "count_columns", "sides", "write_units"]

_Array = NDArray[np.float64]
_Flags = NDArray[np.bool_]
#: Per layer the range of what reaches its units.
_Ranges = list[tuple[_Array, _Array]]


@dataclass(frozen=True)
class Contrast:
    """The margin: the least of ``scores @ signs + const``, one column per rival."""

    signs: _Array
    const: _Array

    @classmethod
    def of(cls, net: FeedForward, wanted: int) -> Contrast:
        """What the scores of a network are compared by.

        Examples
        --------
        >>> net = FeedForward([[[1.0, 2.0, 3.0]]], [[0.0, 0.0, 0.0]], output="softmax")
        >>> Contrast.of(net, 1).signs.T.tolist()
        [[-1.0, 1.0, 0.0], [0.0, 1.0, -1.0]]
        """
        outputs, sign = net.weights[-1].shape[1], 1.0 if wanted == 1 else -1.0
        if outputs == 1:
            return cls(np.array([[sign]]), np.array([-sign * net.offset]))
        if outputs == 2:
            return cls(np.array([[-sign], [sign]]), np.array([-sign * net.offset]))
        signs = -np.delete(np.eye(outputs), wanted, axis=1)
        signs[wanted] = 1.0
        return cls(signs + 0.0, np.zeros(outputs - 1))

    def margins(self, scores: _Array) -> _Array:
        """Margins of rows of scores."""
        return np.asarray((scores @ self.signs + self.const).min(axis=-1))

    def weights(self, net: FeedForward) -> list[_Array]:
        """Per hidden layer how much the margin can change at most if a unit is off by 1."""
        weight, found = np.abs(self.signs).max(axis=1), []
        for w in net.weights[:0:-1]:
            weight = np.abs(w) @ weight
            found.append(weight)
        return found[::-1]

    def size(self, net: FeedForward, ranges: _Ranges) -> float:
        """How large what margins are sums of can be while units stay within ranges; at least 1."""
        sizes = [1.0 + float(np.abs(self.const).max())]
        for weight, (low, high) in zip(self.weights(net), ranges, strict=False):
            sizes.append(sizes[0] + float(weight @ np.maximum(np.abs(low), np.abs(high))))
        return max(sizes)


def sides(net: FeedForward, goal: Contrast) -> list[tuple[_Flags, _Flags]]:
    """Per hidden layer whether the margin can gain from a unit that is too large, and from one that is too small.

    Examples
    --------
    >>> net = FeedForward([[[1.0, 1.0]], [[1.0], [-1.0]]], [[0.0, 0.0], [0.0]])
    >>> [(large.tolist(), small.tolist()) for large, small in sides(net, Contrast.of(net, 1))]
    [([True, False], [False, True])]
    """
    large, small = (goal.signs > 0).any(axis=1), (goal.signs < 0).any(axis=1)
    found = []
    for w in net.weights[:0:-1]:
        up, down = w > 0, w < 0
        large, small = (
            np.asarray((up & a | down & b).any(axis=1)) for a, b in ((large, small), (small, large))
        )  # fmt: skip
        found.append((large, small))
    return found[::-1]


def count_columns(net: FeedForward, ranges: _Ranges, needs: list[tuple[_Flags, _Flags]]) -> int:
    """How many columns `write_units` will add."""
    count = 0
    for name, (low, high), (large, small) in zip(net.activations, ranges, needs, strict=False):
        unsettled = np.isnan(_settled(name, low, high)[0])
        count += int(unsettled.sum())
        if name == "hard_tanh":
            count += int((unsettled & large & (low < -1)).sum() + (unsettled & small & (high > 1)).sum())
        else:
            count += int((unsettled & large).sum())
    return count


def write_units(
    sheet: Sheet, net: FeedForward, moves: Moves, ranges: _Ranges, needs: list[tuple[_Flags, _Flags]], goal: Contrast
) -> tuple[_Array, _Array]:  # fmt: skip
    """Write the hidden units; returns the scores as ``form @ v + const``, `form` of shape (outputs, columns)."""
    form, const = np.zeros((len(moves.base), sheet.total)), moves.base
    form[:, : len(moves)] = moves.gain.T
    weights = goal.weights(net)
    for i, name in enumerate(net.activations):
        form, const = _layer(sheet, i, name, form, const, ranges[i], needs[i], weights[i])
        form, const = net.weights[i + 1].T @ form, const @ net.weights[i + 1] + net.biases[i + 1]
    return form, const


def _layer(
    sheet: Sheet, i: int, name: str, form: _Array, const: _Array, ends: tuple[_Array, _Array],
    need: tuple[_Flags, _Flags], weight: _Array,
) -> tuple[_Array, _Array]:  # fmt: skip
    """Activations in terms of the columns."""
    slope, height = _settled(name, *ends)
    unsettled = np.flatnonzero(np.isnan(slope)).tolist()
    slope = np.nan_to_num(slope)
    after, after_const = slope[:, None] * form, slope * const + height
    least, most = activation_range(name, *ends)
    for k in unsettled:
        scale = power_above(max(abs(least[k]), abs(most[k])))
        a = sheet.column(least[k] / scale, most[k] / scale)
        after[k, a] = scale
        low, high = float(ends[0][k]), float(ends[1][k])
        unit = _Unit(sheet, (i, k), a, scale, form[k], float(const[k]), low, high, float(weight[k]))
        large, small = bool(need[0][k]), bool(need[1][k])
        if name == "hard_tanh":
            unit.clipped(large=large, small=small)
        else:
            unit.kinked(0.0 if name == "relu" else LEAKY_SLOPE, large=large, small=small)
    return after, after_const


@dataclass(frozen=True)
class _Unit:
    """Rows between the activation of a unit, ``scale * v[a]``, and what reaches it, ``form @ v + const``."""

    sheet: Sheet
    place: tuple[int, int]
    a: int
    scale: float
    form: _Array
    const: float
    low: float
    high: float
    weight: float

    def switch(self, kink: float, sign: float) -> int:
        """A 0-1 column that says on which side of a kink the unit is."""
        column, value = self.sheet.binary(), np.zeros(self.sheet.total)
        value[self.a] = self.scale
        width = self.high - self.low
        self.sheet.switches.append(
            Switch(column, *self.place, value, self.form, self.const, width, kink, sign, self.weight)
        )
        return column

    def at_most(
        self, slope: float, height: float, when: tuple[int, float] | None = None, sign: float = 1.0
    ) -> None:  # fmt: skip
        """Bound the activation by slope * z + height + when[1] * v[when[0]]; with sign -1 both sides are negated."""
        values = -slope * self.form
        values[self.a] += self.scale
        if when is not None:
            values[when[0]] -= sign * when[1]
        side = slope * self.const + sign * height
        self.sheet.row(values, *((-np.inf, side) if sign > 0 else (side, np.inf)))

    def kinked(self, slope: float, *, large: bool, small: bool) -> None:
        """Relu, or leaky with a slope below 0: the larger of two lines."""
        if small:
            self.at_most(1.0, 0.0, sign=-1.0)
            if slope:
                self.at_most(slope, 0.0, sign=-1.0)
        if large:
            alive, rest = self.switch(0.0, 1.0), 1 - slope
            self.at_most(1.0, -rest * self.low, (alive, rest * self.low))
            self.at_most(slope, 0.0, (alive, rest * self.high))

    def clipped(self, *, large: bool, small: bool) -> None:
        """Hard tanh: at most max(z, -1) and, mirrored, at least min(z, 1); its other ends are those of its column."""
        for needed, sign, low, high in ((large, 1.0, self.low, self.high), (small, -1.0, -self.high, -self.low)):
            if needed and low >= -1:
                self.at_most(1.0, 0.0, sign=sign)
            elif needed:
                free = self.switch(-sign, sign)  # 1: at most z, 0: at most -1
                self.at_most(1.0, -1 - low, (free, 1 + low), sign)
                self.at_most(0.0, -1.0, (free, min(high, 1.0) + 1), sign)


def _settled(name: str, low: _Array, high: _Array) -> tuple[_Array, _Array]:
    """Slope and height of an activation that is a straight line on a range; slope NaN where it is not."""
    nothing = np.zeros_like(low)
    if name == "identity":
        return nothing + 1.0, nothing
    if name == "hard_tanh":
        flat = (low >= 1) | (high <= -1)
        slope = np.where(flat, 0.0, np.where((low >= -1) & (high <= 1), 1.0, np.nan))
        return slope, np.where(flat, np.where(low >= 1, 1.0, -1.0), 0.0)
    below = 0.0 if name == "relu" else LEAKY_SLOPE
    return np.where(low >= 0, 1.0, np.where(high <= 0, below, np.nan)), nothing
