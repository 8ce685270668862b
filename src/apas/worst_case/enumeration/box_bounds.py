"""Bounds on margins and their slopes over boxes of parameters, one box per item, for enumeration.

Intervals go forward, and backward for derivatives. From the middle c of a box, layer by layer, the output first, the
margin changes by sum_i s_i (theta_i - c_i): s_i with the layers above anywhere in the box and those below at c.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from apas._typing import Floats, Indices
from apas.models.feedforward import FeedForward
from apas.models.forward import activation_range, excess, is_positive, steepest
from apas.worst_case.intervals import derivative_range, interval_product, output_signs, rivals

Range = tuple[Floats, Floats]  # least and largest values
TINY = 1e-300  # numbers smaller than this may have lost digits to underflow


def outputs(net: FeedForward, wanted: Indices, low: Floats, high: Floats) -> Iterator[tuple[Floats, ...]]:
    """Ends of the weights and of the bias of the margin against each rival, four arrays."""
    w, b = zip(*(net.parameters.split(end)[-2:] for end in (low, high)), strict=True)
    shift = np.where(wanted == 1, net.offset, -net.offset) if len(net.classes) == 2 else 0.0
    for rival in rivals(net, wanted).T:
        signs = output_signs(net, wanted, rival)
        up, down = np.maximum(signs, 0.0), np.maximum(-signs, 0.0)  # what enters as it is, and what turned round
        v = [_times(up, end.mT) - _times(down, other.mT) for end, other in (w, w[::-1])]
        c = [(up * end - down * other).sum(axis=1) - shift for end, other in (b, b[::-1])]
        yield v[0], v[1], c[0], c[1]


@dataclass(frozen=True)
class BoxPass:
    """What a forward pass leaves for the output and for the way back."""

    net: FeedForward
    weights: list[Range]
    sums: list[Range]  # ends of what enters each hidden layer's activation, rounding included
    values: list[Range]  # ends of what enters each layer, as computed
    slack: list[Floats]  # what these can exceed their computed ends by
    error: Floats

    @classmethod
    def through(cls, net: FeedForward, X: Floats, low: Floats, high: Floats) -> Self:
        """Intervals of every unit, layer by layer."""
        parts = list(zip(net.parameters.split(low), net.parameters.split(high), strict=True))
        weights = parts[::2]
        values: list[Range] = [(X, X)]
        sums, slack = [], [np.zeros_like(X)]
        size, steps = np.abs(X), 0
        for i, (w, b) in enumerate(zip(weights, parts[1::2], strict=True)):
            steps += w[0].shape[1] + 8  # 8: bias and activation, whose last few bits may be off, and to spare
            size = _times(size, np.maximum(-w[0], w[1])) + np.maximum(-b[0], b[1])
            if i == len(net.activations):
                break
            name = net.activations[i]
            if i == 0:  # the input is a point
                above, below = np.maximum(X, 0.0), np.minimum(X, 0.0)
                least, most = _times(above, w[0]) + _times(below, w[1]), _times(above, w[1]) + _times(below, w[0])
            else:
                least, most = _sums(values[-1], w, positive=is_positive(net.activations[i - 1]))
            error = rounding(steps) * size + TINY
            sums.append((least + b[0] - error, most + b[1] + error))
            values.append(activation_range(name, least + b[0], most + b[1]))
            # no activation exceeds its value at 0 by more than its steepest slope times the argument
            size = steepest(name) * size + excess(name)
            slack.append(rounding(steps) * size + TINY)
        total = size.sum(axis=1) + abs(net.offset)
        return cls(net, weights, sums, values, slack, rounding(steps) * total + TINY)

    def margin(self, v_low: Floats, v_high: Floats, c_low: Floats, c_high: Floats) -> Range:
        """Ends of the margin with these output weights and bias."""
        least, most = interval_product(self.values[-1], (v_low, v_high))
        return least.sum(axis=1) + c_low, most.sum(axis=1) + c_high

    def backward(self, slope: Range) -> Iterator[tuple[int, Range, Floats]]:
        """From the last hidden layer to the first: number, slopes by what enters its units, and their rounding."""
        size, steps = np.maximum(-slope[0], slope[1]), 8
        for i in reversed(range(len(self.net.activations))):
            name = self.net.activations[i]
            slope = interval_product(slope, derivative_range(name, *self.sums[i]))
            size = steepest(name) * size
            yield i, slope, rounding(steps) * size + TINY
            if i:
                weights = self.weights[i]
                least, most = interval_product((slope[0][:, None, :], slope[1][:, None, :]), weights)
                slope = least.sum(axis=2), most.sum(axis=2)
                size = _times(size, np.maximum(-weights[0], weights[1]).transpose(0, 2, 1))
                steps += weights[0].shape[2] + 8

    def reach(self, i: int) -> Floats:
        """How large what enters layer i can be."""
        low, high = self.values[i]
        return np.maximum(-low, high) + self.slack[i]

    def entering(self, i: int) -> Range:
        """Ends of what enters layer i, in real arithmetic."""
        return self.values[i][0] - self.slack[i], self.values[i][1] + self.slack[i]


def rounding(steps: int) -> float:
    """What rounding adds to a sum behind `steps` operations, as a share of its magnitudes: 2**-53 each, times 4."""
    return 4 * steps * 2.0**-53


def _times(a: Floats, w: Floats) -> Floats:
    """Each item's row vector times its matrix."""
    return np.asarray(np.matmul(a[:, None, :], w)[:, 0, :])


def _sums(a: Range, w: Range, *, positive: bool) -> Range:
    """Ends of ``a @ w``; `positive` promises that no a is below 0."""
    if positive:  # then only the sign of the weight decides which end of the activation is worse
        least = _times(a[0], np.maximum(w[0], 0.0)) + _times(a[1], np.minimum(w[0], 0.0))
        return least, _times(a[1], np.maximum(w[1], 0.0)) + _times(a[0], np.minimum(w[1], 0.0))
    least, most = interval_product((a[0][:, :, None], a[1][:, :, None]), w)
    return least.sum(axis=1), most.sum(axis=1)


NUMBERS = 1 << 17  # how many numbers a temporary array holds at most, unless a single item needs more


def margin_ranges(net: FeedForward, X: Floats, wanted: Indices, low: Floats, high: Floats) -> tuple[Floats, ...]:
    """Bound the margin of each item while its parameters run through its box: least, most, and their rounding."""
    least, most, error = (np.empty(len(X)) for _ in range(3))
    for part in _blocks(net, len(X)):
        box = BoxPass.through(net, X[part], low[part], high[part])
        against = [box.margin(*terms) for terms in outputs(net, wanted[part], low[part], high[part])]
        least[part], most[part] = (np.minimum.reduce(ends) for ends in zip(*against, strict=True))
        error[part] = box.error
    return least, most, error


def margin_slopes(
    net: FeedForward, X: Floats, wanted: Indices, low: Floats, high: Floats, *, ceiling: float = math.inf
) -> tuple[Floats, Floats, Floats, Floats]:
    """Bound each margin, up to a `ceiling`, and how steep it is in each parameter, like `margin_ranges`."""
    least, most, error = (np.empty(len(X)) for _ in range(3))
    slopes = np.zeros((len(X), len(net.parameters)))
    for part in _blocks(net, len(X)):
        box = BoxPass.through(net, X[part], low[part], high[part])
        against = list(outputs(net, wanted[part], low[part], high[part]))
        ends = [box.margin(*terms) for terms in against]
        least[part], most[part] = (np.minimum.reduce(some) for some in zip(*ends, strict=True))
        error[part] = box.error
        # a rival whose difference is nowhere the least one has no part in the margin; a NaN may have
        highest = np.minimum(most[part], ceiling) + 2 * box.error
        matters = [~(e[0] > highest) for e in ends]
        for terms, some in zip(against, matters, strict=True):
            for i, (low_end, high_end), slack in box.backward((terms[0], terms[1])) if some.any() else ():
                steep = np.maximum(-low_end, high_end) + slack
                w, b = net.parameters.slices[2 * i : 2 * i + 2]
                for where, bound in ((w, box.reach(i)[:, :, None] * steep[:, None, :]), (b, steep)):
                    now = slopes[part, where]  # a view
                    np.maximum(now, bound.reshape(len(bound), -1), out=now, where=some[:, None])
        # the slopes of the output layer are the same for every class that matters
        enters = (output_signs(net, wanted[part], rival) != 0 for rival in rivals(net, wanted[part]).T)
        needed = np.logical_or.reduce([s & some[:, None] for s, some in zip(enters, matters, strict=True)])
        reach = box.reach(len(box.weights) - 1)
        w, b = net.parameters.slices[-2:]
        slopes[part, w] = np.where(needed[:, None, :], reach[:, :, None], 0.0).reshape(len(reach), -1)
        slopes[part, b] = needed
    return least, most, slopes, error


def _blocks(net: FeedForward, items: int) -> Iterator[slice]:
    """Parts of the items that keep every temporary array small."""
    step = max(1, NUMBERS // max(w.size for w in net.weights))
    return (slice(start, min(start + step, items)) for start in range(0, items, step))


class MarginLines(NamedTuple):
    """What is known about the margin against one rival; everything holds in real arithmetic."""

    least: Floats
    most: Floats
    middle: Range
    slopes: Range
    error: Floats


def margin_lines(
    net: FeedForward, X: Floats, wanted: Indices, box: Range, middle: Range, off: float = 0.0
) -> list[MarginLines]:
    """Bound margins, `off` by so much more, against each rival, by numbers and lines through middles of boxes."""
    around, at = BoxPass.through(net, X, *box), BoxPass.through(net, X, *middle)
    found = []
    for wide, narrow in zip(outputs(net, wanted, *box), outputs(net, wanted, *middle), strict=True):
        least, most = around.margin(*wide)
        low, high = at.margin(*narrow)
        bounds = least - around.error - off, most + around.error + off, (low - at.error - off, high + at.error + off)
        found.append(MarginLines(*bounds, (np.zeros_like(box[0]), np.zeros_like(box[0])), around.error + off))
        for i, slope, slack in around.backward((wide[0], wide[1])):
            slope = slope[0] - slack, slope[1] + slack
            _fill(found[-1].slopes, net.parameters.slices[2 * i : 2 * i + 2], at.entering(i), slope)
    for lines, rival in zip(found, rivals(net, wanted).T, strict=True):
        # slopes by the output layer: 1 for the wanted class, -1 for the rival, 0 for the others
        enters = output_signs(net, wanted, rival)
        _fill(lines.slopes, net.parameters.slices[-2:], at.entering(len(net.activations)), (enters, enters))
    return found


def _fill(slopes: Range, where: tuple[slice, ...], entering: Range, slope: Range) -> None:
    """Slopes by the weights and biases of a layer, whose units have the slope `slope`."""
    w, b = where
    a = entering[0][:, :, None], entering[1][:, :, None]
    by_weight = interval_product(a, (slope[0][:, None, :], slope[1][:, None, :]))
    for ends, weight, unit in zip(slopes, by_weight, slope, strict=True):
        ends[:, w], ends[:, b] = weight.reshape(len(unit), -1), unit


#: Where Chernoff's bound is evaluated, as multiples of where it is best for a normal distribution.
TILTS = (0.8, 1.2, 2.0)
#: What rounding can do, far more than it does: relative to the numbers that are added up, and to a probability.
ROUNDING, SAFETY = 2.0**-44, 1e-11


def share_below(middle: Floats, low: Floats, high: Floats) -> Floats:
    """An upper bound on the share of a cube where ``middle + sum_i g_i(u_i)`` is at most 0."""
    # the least of three theorems: Chernoff's bound; Gauss's inequality (1823) for the straight part, a symmetric sum
    # whose density falls from its middle on: beyond t on one side lie at most 2 s**2 / (9 t**2), s its deviation,
    # or 1/2 - t / (2 sqrt(3) s) for t below 2 s / sqrt(3); Ball's theorem ("Cube slicing in R^n", 1986): that density
    # is nowhere above sqrt(2) over the length of the vector of the terms' widths
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        # in units of the largest number, squares neither overflow nor vanish where they matter
        unit = np.maximum(np.abs(middle), np.maximum(np.abs(low).max(axis=1), np.abs(high).max(axis=1)))
        middle, low, high = middle / unit, low / unit[:, None], high / unit[:, None]
        slack = ROUNDING * (np.abs(middle) + np.abs(low).sum(axis=1) + np.abs(high).sum(axis=1))
        bound = np.minimum(_symmetric(middle - slack, low, high), _tilted(middle - slack, low, high))
        bound = (1.0 + SAFETY) * bound + SAFETY
    return np.where(bound < 1.0, bound, 1.0)  # a NaN becomes 1


def _symmetric(middle: Floats, low: Floats, high: Floats) -> Floats:
    """By Gauss and Ball, the bend of each term taken at its worst."""
    straight = 0.5 * (low + high)
    t = middle - 0.5 * (high - low).sum(axis=1)
    deviation = np.sqrt((straight * straight).sum(axis=1) / 3.0)
    ratio = t / deviation  # infinite or NaN for a sum that does not move
    beyond = np.where(ratio < 2.0 / 3.0**0.5, 0.5 - ratio / (2.0 * 3.0**0.5), 2.0 / (9.0 * ratio * ratio))
    short = 0.5 - ratio * (2.0 / 12.0) ** 0.5
    return np.where(deviation > 0, np.where(t > 0, beyond, np.minimum(short, 1.0)), np.where(t > 0, 0.0, 1.0))


def _tilted(middle: Floats, low: Floats, high: Floats) -> Floats:
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


def _average(x: Floats) -> Floats:
    """The average of ``exp(x u)`` over u in [0, 1]."""
    return np.asarray(np.where(x == 0.0, 1.0, np.expm1(x) / x))
