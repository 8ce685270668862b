"""Least margins while all parameters together move by at most delta in an L_p norm: the best of three bounds.

f less the integral of how fast the margin can fall (`BallSlopes`, at right ends of steps, since it never falls with the
distance; exact where only the output layer moves); a dual bound (`BallDual`); the box around the ball (`Boxes`).
"""

import math
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from apas._typing import Bools, Floats, Indices
from apas.models.feedforward import FeedForward
from apas.models.forward import LEAKY_SLOPE, activate, activation_range
from apas.shifts.fit_problem import last_layer_rows
from apas.shifts.geometry import lp_norm, steepest_point
from apas.worst_case import intervals

_Range = tuple[Floats, Floats]


@dataclass(frozen=True)
class BallMargin:
    """Rows of a network with one output each: the margin against one rival."""

    net: FeedForward
    X: Floats
    moves: list[tuple[Floats, Floats]]
    weights: Floats
    weight_moves: Floats
    bias: Floats
    bias_moves: Floats
    bias_size: Floats
    enters: Floats

    def take(self, rows: slice | Indices | Bools) -> Self:
        """The same for some of the rows."""
        return replace(self, **{k: v[rows] for k, v in vars(self).items() if k not in ("net", "moves")})

    def lower(self, by: Floats) -> Self:
        """The same rows with margins that are less by so much."""
        return replace(self, bias=self.bias - by, bias_size=self.bias_size + by) if by.any() else self

    def output_gradients(self) -> Floats:
        """Slopes of the margins by the output layer's parameters, on the network itself, (rows, k); 0 for others."""
        values, gradients = last_layer_rows(self.net, self.X), np.zeros((len(self.X), len(self.net.parameters)))
        first = self.net.parameters.slices[-2].start  # a bias is the weight of an input of 1
        gradients[:, first:] = (values[:, :, None] * self.enters[:, None, :]).reshape(gradients[:, first:].shape)
        return gradients


def margins_against(net: FeedForward, X: Floats, wanted: Indices, mask: Floats) -> list[BallMargin]:
    """One for each rival of the rows; the margin of a row is the least of them."""
    reach, sizes = net.parameters.split(mask), np.abs(net.biases[-1])
    moves = list(zip(reach[::2], reach[1::2], strict=True))
    found = []
    for rival in intervals.rivals(net, wanted).T:
        terms = intervals.output_terms(net, reach, wanted, rival)
        size = sizes[wanted] + sizes[rival] if len(sizes) > 1 else np.full(len(X), sizes[0])
        size = size + (abs(net.offset) if len(net.classes) == 2 else 0.0)
        found.append(BallMargin(net, X, moves, *terms, size, intervals.output_signs(net, wanted, rival)))
    return found


STEP = 2.0**-52  # what rounding does to one operation, twice as much as it can be
TINY = 1e-300  # numbers smaller than this may have lost digits to underflow


def conjugate(p: float) -> float:
    """The q with ``1/p + 1/q = 1``."""
    return math.inf if p == 1.0 else p / (p - 1.0)


def up(values: Floats, terms: int) -> Floats:
    """Norms of `terms` numbers, raised by more than sum, powers and the rounded exponents can be off."""
    # a sum loses at most one STEP per term; 1024 more cover ** q and ** (1 / q), whose exponents are rounded, which
    # changes the power of a number by up to its logarithm (at most 745) times a STEP
    return np.asarray(values * (1 + (terms + 1024) * STEP))


def unit_reach(sizes: Floats, moves: Floats, bias_moves: Floats, q: float) -> Floats:
    """Per unit the L_q norm of its inputs, which are at most `sizes` large, and of 1 for its bias, over what moves."""
    if (moves == moves[:, :1]).all() and (bias_moves == bias_moves[0]).all():
        moves, bias_moves = moves[:, :1], bias_moves[:1]
    if q == math.inf:
        reach = np.broadcast_to(np.minimum(bias_moves, 1.0), (len(sizes), len(bias_moves)))
        for size, move in zip(sizes.T, np.minimum(moves, 1.0), strict=True):
            reach = np.maximum(reach, size[:, None] * move)
        return reach
    sizes = sizes * moves.any(axis=1)
    scale = np.maximum(sizes.max(axis=1, keepdims=True), 1.0 if bias_moves.any() else TINY)
    with np.errstate(under="ignore"):
        total = (sizes / scale) ** q @ moves
        if bias_moves.any():
            total += bias_moves * scale**-q
    total += (len(moves) + 1) * TINY * moves.max(initial=1.0)  # what powers may have lost to underflow
    return up(scale * total ** (1.0 / q), len(moves))


def row_reach(sizes: Floats, counts: Floats, bias_counts: Floats, q: float) -> Floats:
    """The same for a unit of its own in each row: its inputs, and 1 for its bias, as often as parameters move there."""
    moving = np.where(counts > 0, sizes, 0.0)
    largest = moving.max(axis=1, initial=0.0)
    if q == math.inf:
        return np.asarray(np.maximum(largest, np.minimum(bias_counts, 1.0)))
    scale = np.maximum(largest, np.where(bias_counts > 0, 1.0, TINY))
    with np.errstate(under="ignore"):
        total = (counts * (moving / scale[:, None]) ** q).sum(axis=1) + bias_counts * np.maximum(scale, 1.0) ** -q
    total += 2 * (sizes.shape[1] + 1) * TINY
    return up(scale * total ** (1.0 / q), sizes.shape[1])


def joint_norm(q: float, *parts: Floats) -> Floats:
    """L_q norm of several numbers of at least 0, elementwise over arrays that are broadcast together."""
    largest = np.maximum.reduce(np.broadcast_arrays(*parts))
    if q == math.inf:
        return np.asarray(largest)
    # shares of the largest: powers of them cannot overflow, and those that underflow do not count
    scale = np.where((largest > 0) & (largest < np.inf), largest, 1.0)
    with np.errstate(under="ignore"):
        total = sum((part / scale) ** q for part in parts)
    return up(scale * np.asarray(total) ** (1.0 / q), len(parts))


class MatrixNorms:
    """What ``(slopes * d) @ w`` can be for d of L_p norm 1: of each unit, and in the L_p norm of all."""

    def __init__(self, w: Floats, p: float) -> None:
        self.w, self.size, self.p, self.q, self.terms = w, np.abs(w), p, conjugate(p), max(w.shape)
        self.row_sums, self.column_sums = self.size.sum(axis=1), self.size.sum(axis=0)
        self.largest = max(float(self.size.max()), TINY)
        with np.errstate(under="ignore"):  # sizes of the weights as shares of the largest, to the power q
            self.shares = (self.size / self.largest) ** (1.0 if p == 1.0 else self.q)

    @cached_property
    def spectral(self) -> float:
        """The largest singular value, rounded up."""
        # it is computed to some units in the last place of itself; this is a million of them
        return float(np.linalg.norm(self.w, 2)) * (1 + 1e-9) + TINY

    def of_units(self, slopes: Floats) -> Floats:
        """Bounds for each unit behind slopes (rows, inputs), shape (rows, units) or (rows, 1)."""
        return up(self.largest * unit_reach(slopes, self.shares, np.zeros(self.w.shape[1]), self.q), 0) + TINY

    def of_all(self, slopes: Floats) -> Floats:
        """Bounds for each row of slopes (rows, inputs), shape (rows,)."""
        steepest = slopes.max(axis=1)
        ones, infinite = (slopes * self.row_sums).max(axis=1), steepest * self.column_sums.max()
        bound = ones ** (1.0 / self.p) * infinite ** (1.0 - 1.0 / self.p)  # by interpolation between L_1 and L_inf
        if self.p == 2.0:
            bound = np.minimum(bound, steepest * self.spectral)
            bound = np.minimum(bound, np.sqrt(slopes**2 @ (self.size**2).sum(axis=1)))
        return up(bound, self.terms) + TINY

    def range_of(self, a: _Range, *, back: bool = False) -> _Range:
        """Ends of ``a @ w`` for a between ends (rows, inputs), but for rounding; `back`: of ``a @ w.T``."""
        w, size = (self.w.T, self.size.T) if back else (self.w, self.size)
        middle, half = 0.5 * (a[0] + a[1]) @ w, 0.5 * (a[1] - a[0]) @ size
        return middle - half, middle + half


#: Activations whose values and derivatives have no rounding of their own.
PLAIN = ("relu", "leaky_relu", "identity", "hard_tanh")
#: Activations whose computed values can be off by some units in the last place of 1, or of their argument.
ABSOLUTE = ("sigmoid", "gelu")
#: From here on moving weights spread slopes as a common change rather than as an interval each, which is then tighter.
COMMON = 1.5


@dataclass(frozen=True)
class _BallLayer:
    """What enters a layer, within a radius."""

    box: _Range  # ends of each number, (rows, units)
    values: Floats  # the numbers on the network itself, as computed
    size: Floats  # magnitudes behind them, for the rounding of what comes after
    slopes: _Range  # ends of the derivatives of the activations that gave them
    moved: Floats  # how far one unit of radius moves the layer's sums at most, in the L_p norm, (rows,)
    error: Floats  # what rounding adds to that at most
    passed: Floats  # norm of the weights and, behind them, the previous derivatives

    @property
    def steepest(self) -> Floats:
        """Largest size of each derivative."""
        return np.maximum(-self.slopes[0], self.slopes[1])

    @property
    def largest(self) -> Floats:
        """Largest size of each number."""
        return np.maximum(-self.box[0], self.box[1])


class BallSlopes:
    """Bounds on margins and on their slopes over balls of parameters."""

    def __init__(self, margin: BallMargin, p: float, norms: list[MatrixNorms] | None = None) -> None:
        self.margin, self.net, self.p, self.q = margin, margin.net, p, conjugate(p)
        self.norms = [MatrixNorms(w, p) for w in self.net.weights] if norms is None else norms
        X, still, none = margin.X, np.zeros_like(margin.X), np.zeros(len(margin.X))
        self.most = up(margin.weight_moves.max(axis=1, initial=0.0) ** (1.0 / self.q), 0)
        self.inputs = _BallLayer((X, X), X, np.abs(X), (still, still), none, none, none)
        if self.net.activations:
            self.sums = X @ self.net.weights[0] + self.net.biases[0]
            self.reach = unit_reach(np.abs(X), *margin.moves[0], self.q)

    def at(self, radius: Floats) -> tuple[Floats, Floats]:
        """A lower bound on the margin, and an upper bound on how fast it falls, within `radius` (one per row)."""
        layers, reaches = [self.inputs], []
        for i in range(len(self.net.activations)):
            reaches.append(self._reach(layers[-1], radius, *self.margin.moves[i]) if i else self.reach)
            layers.append((self._next if i else self._first)(i, layers[-1], radius, reaches[-1]))
        moves = self.margin.weight_moves, self.margin.bias_moves, self.q
        by_change = row_reach(np.abs(layers[-1].values), *moves)
        by_change = by_change + self.most * self._change(layers[-1], radius)
        output = np.minimum(row_reach(layers[-1].largest, *moves), by_change)
        steps = [output, *self._backward(radius, layers, reaches)]
        return self._least(layers[-1], radius, output), joint_norm(self.q, *steps) + TINY

    def _conversion(self, units: int) -> float:
        """How many times larger than its L_p norm an L_q norm of so many numbers can be."""
        return float(units ** max(0.0, 1.0 / self.q - 1.0 / self.p))

    def _change(self, layer: _BallLayer, radius: Floats) -> Floats:
        """How far what enters a layer can lie from its values, in the L_q norm, (rows,)."""
        moved = layer.steepest.max(axis=1) * (layer.moved * radius + layer.error) + 8 * STEP * layer.size.sum(axis=1)
        return up(moved * self._conversion(layer.size.shape[1]), 0)

    def _reach(self, layer: _BallLayer, radius: Floats, moves: Floats, bias_moves: Floats) -> Floats:
        """How far one unit of radius in a unit's own parameters moves its sum, (rows, units) or (rows, 1)."""
        by_ends = unit_reach(layer.largest, moves, bias_moves, self.q)
        by_change = unit_reach(np.abs(layer.values), moves, bias_moves, self.q) + self._change(layer, radius)[:, None]
        return np.minimum(by_ends, by_change)

    def _first(self, i: int, before: _BallLayer, radius: Floats, reach: Floats) -> _BallLayer:
        """What enters the layer after the first, whose inputs are points."""
        direct = radius[:, None] * reach
        rounding = self._rounding(i, before.size, direct)
        ends = self.sums - direct - rounding, self.sums + direct + rounding
        none = np.zeros(len(radius))
        return self._activate(i, self.sums, *ends, reach.max(axis=1), up(rounding.sum(axis=1), len(rounding.T)), none)

    def _next(self, i: int, before: _BallLayer, radius: Floats, reach: Floats) -> _BallLayer:
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
        return self._activate(i, sums, low, high, moved, error, norm)

    def _rounding(self, i: int, size: Floats, direct: Floats) -> Floats:
        """What rounding can do to the sums of a layer, activations before it included."""
        size = size.max(axis=1, keepdims=True) * self.norms[i].column_sums + np.abs(self.net.biases[i]) + direct
        # one per product of the sum and one for the bias; the rest of 16 is for the activation before it, and to spare
        return np.asarray((len(self.net.weights[i]) + 16) * STEP * size + TINY)

    def _activate(
        self, i: int, sums: Floats, low: Floats, high: Floats, moved: Floats, error: Floats, norm: Floats
    ) -> _BallLayer:
        name = self.net.activations[i]
        values = activate(name, sums.copy())
        size = np.maximum(np.abs(sums), 1.0) if name in ABSOLUTE else np.abs(values)
        ends, slopes = activation_range(name, low, high), intervals.derivative_range(name, low, high)
        if name not in PLAIN:  # functions of a library are off by a few units in the last place: 8 are allowed
            large = np.maximum(np.maximum(-low, high), 1.0) if name in ABSOLUTE else np.maximum(-ends[0], ends[1])
            ends, slopes = _wider(ends, large), _wider(slopes, 1.0)
        return _BallLayer(ends, values, size, slopes, moved, error, norm)

    def _least(self, layer: _BallLayer, radius: Floats, output: Floats) -> Floats:
        """A lower bound on the margin."""
        v, bias = self.margin.weights, self.margin.bias
        size = (np.maximum(layer.size, layer.largest) * np.abs(v)).sum(axis=1) + self.margin.bias_size + radius * output
        rounding = (v.shape[1] + 16) * STEP * size + TINY
        by_ends = (np.where(v > 0, *layer.box) * v).sum(axis=1) + bias - radius * output
        norm = up(lp_norm(layer.steepest * v, self.q), v.shape[1]) + TINY
        change = radius * joint_norm(self.q, norm * layer.moved, output) + norm * layer.error
        return np.asarray(np.fmax(by_ends, (layer.values * v).sum(axis=1) + bias - up(change, 0)) - rounding)

    def _backward(self, radius: Floats, layers: list[_BallLayer], reaches: list[Floats]) -> list[Floats]:
        """Per hidden layer how fast the margin can fall through its parameters, (rows,)."""
        v, counts, steps = self.margin.weights, self.margin.weight_moves, []
        common = radius * self.most * self._conversion(v.shape[1])
        spread = 4 * STEP * np.abs(v)
        if self.p < COMMON:
            own = np.where(counts > 0, up(counts ** (1.0 / self.q), 0), 0.0)
            common, spread = np.zeros(len(v)), spread + radius[:, None] * own
        low, high = v - spread, v + spread
        for i in reversed(range(len(reaches))):
            layer = layers[i + 1]
            low, high = intervals.interval_product((low, high), layer.slopes)
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
            low, high = self.norms[i].range_of((low, high), back=True)
            low, high = low - rounding, high + rounding
        return steps


def _wider(ends: _Range, size: Floats | float) -> _Range:
    return ends[0] - 8 * STEP * size, ends[1] + 8 * STEP * size


#: Linear pieces of the activations: slope, value at 0, and the ends of each.
PIECES = {
    "relu": [(0.0, 0.0, -math.inf, 0.0), (1.0, 0.0, 0.0, math.inf)],
    "leaky_relu": [(LEAKY_SLOPE, 0.0, -math.inf, 0.0), (1.0, 0.0, 0.0, math.inf)],
    "hard_tanh": [(0.0, -1.0, -math.inf, -1.0), (1.0, 0.0, -1.0, 1.0), (0.0, 1.0, 1.0, math.inf)],
    "identity": [(1.0, 0.0, -math.inf, math.inf)],
}
#: How many multipliers are tried, and over how many powers of 2 around the one of a linear margin.
TRIES, POWERS = 64, 40.0
FLAT = 2.0**-20  # curvatures below this share of their terms have lost too many digits: such multipliers are not used
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
        units = np.minimum.reduce([self._on_piece(multiplier[:, None], *piece) for piece in self.pieces])
        bias, penalty = margin.bias, margin.bias_moves / (4 * multiplier)
        size = np.abs(units).sum(axis=1) + margin.bias_size + penalty
        return np.asarray(units.sum(axis=1) + bias - penalty - (units.shape[1] + 16) * STEP * size - TINY)

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


COARSE, FINE = 16, 64  # steps of a first walk along the radius, and of a second one that looks closer
NUMBERS = 1 << 16  # how many numbers an array of a block of rows holds at most, unless a single row needs more


def is_exact_ball(net: FeedForward, mask: Floats) -> bool:
    """Whether the bounds are the least margins themselves, up to rounding: where only the output layer moves."""
    return not mask[: net.parameters.slices[-2].start].any()


class Balls:
    """Rows against growing L_p balls of the parameters for which `mask` is 1."""

    step = "ball"

    def __init__(self, net: FeedForward, X: Floats, wanted: Indices, mask: Floats, p: float) -> None:
        self.net, self.X, self.wanted, self.mask, self.p = net, X, wanted, mask, p
        self.norms, self.exact = [MatrixNorms(w, p) for w in net.weights], is_exact_ball(net, mask)

    def take(self, rows: Indices) -> Self:
        """The same for some of the rows."""
        some = copy(self)  # with what is known of the matrices
        some.X, some.wanted = self.X[rows], self.wanted[rows]
        return some

    def least(self, delta: Floats) -> tuple[Floats, Floats]:
        """A lower bound on the margin of each row while the parameters move by at most `delta`, and its rounding."""
        safe, error = np.empty(len(self.X)), np.empty(len(self.X))
        for rows, boxes, against in self._blocks():
            error[rows] = boxes.error(delta[rows])
            lowered = self.net.rounding(boxes.X, self.mask, delta[rows])
            parts = [self._least(margin.lower(lowered), delta[rows]) for margin in against]
            safe[rows] = np.fmax(np.minimum.reduce(parts), boxes.bound(delta[rows]) - error[rows])
        return np.where(np.isnan(safe), -np.inf, safe + error), error

    def radius(self, limit: float) -> tuple[Floats, Floats]:
        """Per row the largest delta up to `limit` at which every shift is proved to keep the class; none is open."""
        proved = np.empty(len(self.X))
        for rows, boxes, against in self._blocks():
            parts = [self._radius(margin, limit) for margin in against]
            if self.net.dtype != "float64":  # no more is proved than in real arithmetic, and rounding grows with delta
                lowered = self.net.rounding(boxes.X, self.mask, np.minimum.reduce(parts))
                parts = [self._radius(margin.lower(lowered), limit) for margin in against]
            least = np.minimum.reduce(parts)
            # where intervals over the box around the ball prove more, which is seldom, that counts
            beyond = np.minimum(1.001 * least, limit)
            more = np.flatnonzero((boxes.bound(beyond) - boxes.error(beyond) > 0) & (least < limit))
            if len(more):
                least[more] = np.maximum(least[more], boxes.take(more).radius(limit)[0])
            proved[rows] = least
        return np.where(proved >= limit, limit, intervals.cut_last_bits(proved)), np.full(len(proved), np.inf)

    def worst(self, delta: Floats) -> Floats | None:
        """Per row a point of the unit ball with the least margin, where the bounds are exact; else None."""
        if not self.exact:
            return None
        against = margins_against(self.net, self.X, self.wanted, self.mask)
        terms = [BallSlopes(margin, self.p, self.norms).at(np.zeros(len(self.X))) for margin in against]
        worst = np.array([start - delta * slope for start, slope in terms]).argmin(axis=0)
        gradients = np.empty((len(self.X), len(self.mask)))
        for rival, margin in enumerate(against):  # one after the other: those of all would not fit into memory
            gradients[worst == rival] = margin.take(worst == rival).output_gradients()
        return steepest_point(gradients * self.mask, self.p)

    def _blocks(self) -> Iterator[tuple[slice, intervals.Boxes, list[BallMargin]]]:
        """Parts of the rows whose layers fit into the processor's cache, with the boxes around their balls."""
        step = max(1, NUMBERS // max(max(w.shape) for w in self.net.weights))
        for rows in (slice(start, start + step) for start in range(0, len(self.X), step)):
            X, wanted = self.X[rows], self.wanted[rows]
            yield rows, intervals.Boxes(self.net, X, wanted, self.mask), margins_against(self.net, X, wanted, self.mask)

    def _least(self, margin: BallMargin, delta: Floats) -> Floats:
        slopes = BallSlopes(margin, self.p, self.norms)
        start, _ = slopes.at(np.zeros(len(delta)))
        least, _ = _walk(slopes, start, delta, 1 if self.exact else FINE)
        rows = np.flatnonzero(BallDual.fits(margin, self.p))
        if len(rows):
            least[rows] = np.fmax(least[rows], BallDual(margin.take(rows)).least(delta[rows]))
        return least

    def _radius(self, margin: BallMargin, limit: float) -> Floats:
        slopes = BallSlopes(margin, self.p, self.norms)
        start, slope = slopes.at(np.zeros(len(margin.X)))
        # G is at least its value at 0: no walk can come farther
        top = np.where(start > 0, np.minimum(limit, start / slope * (1 + 1e-9)), 0.0)
        _, proved = _walk(slopes, start, top, 1 if self.exact else COARSE)
        if not self.exact:
            _, closer = _walk(slopes, start, np.minimum(top, 1.25 * proved), FINE)
            proved = np.maximum(proved, closer)
        rows = np.flatnonzero(BallDual.fits(margin, self.p) & (start > 0))
        if len(rows):
            proved[rows] = np.maximum(proved[rows], np.minimum(BallDual(margin.take(rows)).radius(), limit))
        return proved


def _walk(slopes: BallSlopes, start: Floats, top: Floats, steps: int) -> tuple[Floats, Floats]:
    """Lower bounds on the margins at radius `top`, and how far they are proved to stay above 0, at most to `top`."""
    # the slope at the right end of each step bounds all of the step, since slopes never fall with the radius
    bound, before = start, np.zeros(len(start))
    proved, alive = np.zeros(len(start)), start > 0
    for i in range(1, steps + 1):
        radius = top * (i / steps)
        least, slope = slopes.at(radius)
        with np.errstate(over="ignore", invalid="ignore"):
            # outward: 2**-50 is more than the three roundings of the product, `nextafter` that of the difference
            fallen = bound - (radius - before) * slope * (1 + 2.0**-50)
            end = np.fmax(before, np.minimum((before + bound / slope) * (1 - 2.0**-50), radius))
        after = np.fmax(np.nextafter(fallen, -np.inf), least)
        proved = np.where(alive, np.where(after > 0, radius, end), proved)
        alive = alive & (after > 0)
        bound, before = after, radius
    return bound, proved
