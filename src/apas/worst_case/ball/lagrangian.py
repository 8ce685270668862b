"""Least margins over L_2 balls, for one hidden layer of piecewise linear units, by Lagrangian duality.

For a multiplier m > 0 the least margin is at least that of margin + m (squares - delta**2), a sum of one quadratic in t
per unit and linear piece, where t moves its sum along its inputs; the best m by golden section.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from apas._typing import Bools, Floats
from apas.models.forward import LEAKY_SLOPE
from apas.worst_case.ball.lipschitz import STEP, TINY, BallMargin, unit_reach

#: Linear pieces of the activations: slope, value at 0, and the ends of each.
PIECES = {
    "relu": [(0.0, 0.0, -math.inf, 0.0), (1.0, 0.0, 0.0, math.inf)],
    "leaky_relu": [(LEAKY_SLOPE, 0.0, -math.inf, 0.0), (1.0, 0.0, 0.0, math.inf)],
    "hard_tanh": [(0.0, -1.0, -math.inf, -1.0), (1.0, 0.0, -1.0, 1.0), (0.0, 1.0, 1.0, math.inf)],
    "identity": [(1.0, 0.0, -math.inf, math.inf)],
}
#: How many multipliers are tried, and over how many powers of 2 around the one of a linear margin.
TRIES, POWERS = 64, 40.0
#: Curvatures below this share of their terms have lost too many digits: such multipliers are not used.
FLAT = 2.0**-20
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


class BallDual:
    """The dual problems of rows, each with one hidden layer whose units all move."""

    def __init__(self, margin: BallMargin) -> None:
        self.margin = margin
        w, b = margin.net.weights[0], margin.net.biases[0]
        self.z = margin.X @ w + b
        self.reach = unit_reach(np.abs(margin.X), *margin.moves[0], 2.0)
        self.pieces = PIECES[margin.net.activations[0]]
        # a network whose sums are the computed ones lies this far away from the network itself
        rounding = (len(w) + 16) * STEP * (np.abs(margin.X) @ np.abs(w) + np.abs(b)) + TINY
        self.away = 2 * np.sqrt(((rounding / self.reach) ** 2).sum(axis=1))

    @staticmethod
    def fits(margin: BallMargin, p: float) -> Bools:
        """Rows that can be bounded in this way."""
        names = margin.net.activations
        if p != 2.0 or len(names) != 1 or names[0] not in PIECES:
            return np.zeros(len(margin.X), dtype=bool)
        w_moves, b_moves = margin.moves[0]
        return np.asarray(((margin.X != 0) @ w_moves + b_moves > 0).all(axis=1))

    def least(self, delta: Floats) -> Floats:
        """Lower bounds on the margins over balls of radius `delta` (one per row), in real arithmetic."""
        square = (delta + self.away) ** 2 * (1 + 8 * STEP) + TINY
        start = self._steepness() / (2 * np.sqrt(square))
        return self._best(start, lambda multiplier: self._value(multiplier) - multiplier * square * (1 + 8 * STEP))

    def radius(self) -> Floats:
        """Largest delta per row that is proved; 0 if none is."""
        slope = self._steepness()
        with np.errstate(divide="ignore", over="ignore"):
            start = slope**2 / (2 * np.maximum(self._value(np.maximum(slope, 1.0) * 1e9), TINY))
        square = self._best(start, lambda multiplier: self._value(multiplier) / multiplier)
        return np.asarray(np.maximum(np.sqrt(np.maximum(square, 0.0)) * (1 - 2.0**-45) - self.away, 0.0))

    def _best(self, start: Floats, objective: Callable[[Floats], Floats]) -> Floats:
        """Largest value of a unimodal function of the multiplier; any other value that is found would do as well."""
        start = np.clip(start, 1e-100, 1e100)
        low = np.log2(np.maximum(self._least_multiplier(), start * 2.0 ** (-POWERS / 2)))
        high = np.maximum(low + POWERS / 2, np.log2(start) + POWERS / 2)
        points = [high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)]
        values = [objective(2.0**point) for point in points]
        best = np.fmax(*values)
        for _ in range(TRIES):
            left = values[0] >= values[1]  # the best lies left of the right point
            low, high = np.where(left, low, points[0]), np.where(left, points[1], high)
            point = np.where(left, high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
            value = objective(2.0**point)
            points = [np.where(left, point, points[1]), np.where(left, points[0], point)]
            values = [np.where(left, value, values[1]), np.where(left, values[0], value)]
            best = np.fmax(best, value)
        return np.asarray(best)

    def _steepness(self) -> Floats:
        """L_2 norm of the margin's slopes on the network itself; about, as it only tells where to begin."""
        margin, value, slope = self.margin, np.zeros_like(self.z), np.zeros_like(self.z)
        for steep, level, left, right in self.pieces:
            here = (self.z >= left) & (self.z <= right)
            value, slope = np.where(here, steep * self.z + level, value), np.where(here, steep, slope)
        squares = margin.weight_moves * value**2 + (self.reach * slope * margin.weights) ** 2
        return np.asarray(np.sqrt(squares.sum(axis=1) + margin.bias_moves))

    def _least_multiplier(self) -> Floats:
        """From where on the problems of all units have a least value, and enough curvature to compute it."""
        steep = max(abs(slope) for slope, _, left, right in self.pieces if left == -math.inf or right == math.inf)
        needed = 0.5 * steep * (self.reach * np.sqrt(self.margin.weight_moves)).max(axis=1)
        return np.asarray(needed * (1 + 2 * FLAT) + TINY)

    def _value(self, multiplier: Floats) -> Floats:
        """A lower bound on the least of ``margin + multiplier * squares``."""
        margin = self.margin
        units = self._units(multiplier[:, None])
        bias, penalty = margin.bias, margin.bias_moves / (4 * multiplier)
        size = np.abs(units).sum(axis=1) + margin.bias_size + penalty
        return np.asarray(units.sum(axis=1) + bias - penalty - (units.shape[1] + 16) * STEP * size - TINY)

    def _units(self, multiplier: Floats) -> Floats:
        """The same for each unit, (rows, units): the least over the pieces of its activation."""
        least = np.full(self.z.shape, np.inf)
        for piece in self.pieces:
            least = np.minimum(least, self._on_piece(multiplier, *piece))
        return least

    def _on_piece(self, multiplier: Floats, slope: float, level: float, left: float, right: float) -> Floats:
        """The least on one linear piece, where it is ``constant + tilt * shift + curve * shift**2``."""
        z, v, moves = self.z, self.margin.weights, self.margin.weight_moves / (4 * multiplier)
        a, cost = slope * z + level, multiplier / self.reach**2
        tilt, tilt_size = slope * (v - 2 * moves * a), abs(slope) * (np.abs(v) + 2 * moves * np.abs(a))
        curve = cost - moves * slope**2
        bent = curve > FLAT * cost
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            shift = np.where(bent, -tilt / (2 * curve), 0.0)
            size = np.abs(v * a) + moves * a**2 + tilt_size**2 / curve * (cost / curve)
            inside = v * a - moves * a**2 - tilt * tilt / (4 * curve) - 16 * STEP * size
            # where rounding leaves it open whether the least lies on the piece, it counts: cancellation in the curve
            # magnifies the errors of its terms by cost / curve, and 2**-44 is 512 roundings of that
            room = 2.0**-44 * (np.abs(z) + tilt_size / curve * (cost / curve))
        least = np.where(bent & (z + shift >= left - room) & (z + shift <= right + room), inside, np.inf)
        if math.isinf(left) or math.isinf(right):
            least = np.where(bent, least, -np.inf)
        weak = np.where(bent, 0.0, curve)
        for end in filter(math.isfinite, (left, right)):
            # the value at an end of the piece, less what a weak curve could dip below the straight line
            at, square = slope * end + level, (end - z) ** 2
            size = np.abs(v * at) + moves * at**2 + (cost + np.maximum(-weak, 0.0)) * square
            value = v * at - moves * at**2 + cost * square - np.maximum(weak, 0.0) * square - 16 * STEP * size
            least = np.minimum(least, value)
        return least
