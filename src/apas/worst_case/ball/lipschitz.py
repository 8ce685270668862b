"""How fast a margin can fall while all parameters together move within an L_p ball; rounded outwards.

A change of L_p norm s moves a sum by at most s times the L_q norm of (a, 1) over what moves. Layers are followed by
intervals, and as a change whose norm a weight matrix passes on times its own; slopes go backward likewise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from apas._typing import Bools, Floats, Indices
from apas.models.feedforward import FeedForward
from apas.models.forward import activate, activation_range
from apas.shifts.norms import lp_norm
from apas.worst_case.intervals import derivative_range, interval_product, output_signs, output_terms, rivals


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

    @property
    def linear(self) -> bool:
        """Whether the margin is linear in what moves: nothing before the output does."""
        return not any(w.any() or b.any() for w, b in self.moves[:-1])

    def take(self, rows: slice | Indices | Bools) -> BallMargin:
        """The same for some of the rows."""
        names = ("X", "weights", "weight_moves", "bias", "bias_moves", "bias_size", "enters")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def lower(self, by: Floats) -> BallMargin:
        """The same rows with margins that are less by so much."""
        return replace(self, bias=self.bias - by, bias_size=self.bias_size + by) if by.any() else self

    def output_gradients(self) -> Floats:
        """Slopes of the margins by the output layer's parameters, on the network itself, (rows, k); 0 for others."""
        net, values = self.net, self.X
        for w, b, name in zip(net.weights[:-1], net.biases[:-1], net.activations, strict=True):
            values = activate(name, values @ w + b)
        gradients = np.zeros((len(values), len(net.parameters)))
        w_part, b_part = net.parameters.slices[-2:]
        gradients[:, w_part] = (values[:, :, None] * self.enters[:, None, :]).reshape(len(values), net.weights[-1].size)
        gradients[:, b_part] = self.enters
        return gradients


def margins_against(net: FeedForward, X: Floats, wanted: Indices, mask: Floats) -> list[BallMargin]:
    """One for each rival of the rows; the margin of a row is the least of them."""
    reach, sizes = net.parameters.split(mask), np.abs(net.biases[-1])
    moves = list(zip(reach[::2], reach[1::2], strict=True))
    found = []
    for rival in rivals(net, wanted).T:
        weights, weight_moves, bias, bias_moves = output_terms(net, reach, wanted, rival)
        size = sizes[wanted] + sizes[rival] if len(sizes) > 1 else np.full(len(X), sizes[0])
        size = size + (abs(net.offset) if len(net.classes) == 2 else 0.0)
        signs = output_signs(net, wanted, rival)
        found.append(BallMargin(net, X, moves, weights, weight_moves, bias, bias_moves, size, signs))
    return found


#: What rounding does to one operation, twice as much as it can be.
STEP = 2.0**-52
#: Numbers smaller than this may have lost digits to underflow.
TINY = 1e-300


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
    if q == math.inf:
        largest = np.where(counts > 0, sizes, 0.0).max(axis=1, initial=0.0)
        return np.asarray(np.maximum(largest, np.minimum(bias_counts, 1.0)))
    scale = np.maximum(np.where(counts > 0, sizes, 0.0).max(axis=1, initial=0.0), np.where(bias_counts > 0, 1.0, TINY))
    shares = np.where(counts > 0, sizes, 0.0) / scale[:, None]
    with np.errstate(under="ignore"):
        total = (counts * shares**q).sum(axis=1) + bias_counts * np.maximum(scale, 1.0) ** -q
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

    @cached_property
    def shares(self) -> Floats:
        """Sizes of the weights as shares of the largest, to the power q."""
        shares = self.size / self.largest
        with np.errstate(under="ignore"):
            return shares if self.p == 1.0 else shares**self.q

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

    def range_of(self, a: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """Ends of ``a @ w`` for a between ends (rows, inputs), but for rounding."""
        middle, half = 0.5 * (a[0] + a[1]) @ self.w, 0.5 * (a[1] - a[0]) @ self.size
        return middle - half, middle + half

    def range_back(self, a: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """Ends of ``a @ w.T`` for a between ends (rows, units), but for rounding."""
        middle, half = 0.5 * (a[0] + a[1]) @ self.w.T, 0.5 * (a[1] - a[0]) @ self.size.T
        return middle - half, middle + half


_Range = tuple[Floats, Floats]
#: Activations whose values and derivatives have no rounding of their own.
PLAIN = ("relu", "leaky_relu", "identity", "hard_tanh")
#: Activations whose computed values can be off by some units in the last place of 1, or of their argument.
ABSOLUTE = ("sigmoid", "gelu")
#: From here on moving weights spread slopes as a common change rather than as an interval each, which is then tighter.
COMMON = 1.5


@dataclass(frozen=True)
class _BallLayer:
    """What enters a layer, within a radius."""

    box: _Range
    """Ends of each number, (rows, units)."""
    values: Floats
    """The numbers on the network itself, as computed."""
    size: Floats
    """Magnitudes behind them, for the rounding of what comes after."""
    slopes: _Range
    """Ends of the derivatives of the activations that gave them."""
    moved: Floats
    """How far one unit of radius moves the layer's sums at most, in the L_p norm, (rows,)."""
    error: Floats
    """What rounding adds to that at most."""
    passed: Floats
    """Norm of the weights and, behind them, the previous derivatives."""

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
        output = self._output_reach(layers[-1], radius)
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
        least, most = derivative_range(name, low, high)
        # functions of a library are off by a few units in the last place, of values up to about 1: 8 are allowed
        slopes = (least, most) if name in PLAIN else (least - 8 * STEP, most + 8 * STEP)
        return _BallLayer(_values(name, low, high), values, size, slopes, moved, error, norm)

    def _output_reach(self, layer: _BallLayer, radius: Floats) -> Floats:
        """The same as `_reach` for the output, (rows,)."""
        counts, bias_counts = self.margin.weight_moves, self.margin.bias_moves
        by_ends = row_reach(layer.largest, counts, bias_counts, self.q)
        by_change = row_reach(np.abs(layer.values), counts, bias_counts, self.q)
        return np.minimum(by_ends, by_change + self._most(counts) * self._change(layer, radius))

    def _most(self, counts: Floats) -> Floats:
        return np.asarray(up(counts.max(axis=1, initial=0.0) ** (1.0 / self.q), 0))

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
        common = radius * self._most(counts) * self._conversion(v.shape[1])
        spread = 4 * STEP * np.abs(v)
        if self.p < COMMON:
            own = np.where(counts > 0, up(counts ** (1.0 / self.q), 0), 0.0)
            common, spread = np.zeros(len(v)), spread + radius[:, None] * own
        low, high = v - spread, v + spread
        for i in reversed(range(len(reaches))):
            layer = layers[i + 1]
            low, high = interval_product((low, high), layer.slopes)
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


def _values(name: str, low: Floats, high: Floats) -> _Range:
    ends = activation_range(name, low, high)
    if name in PLAIN:
        return ends
    size = np.maximum(np.maximum(-low, high), 1.0) if name in ABSOLUTE else np.maximum(-ends[0], ends[1])
    return ends[0] - 8 * STEP * size, ends[1] + 8 * STEP * size
