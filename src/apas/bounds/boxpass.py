"""One pass of intervals through a dense network whose parameters run through boxes.

Each product of an activation in ``[p, q]`` and a weight in ``[l, h]`` ranges between its four corners. Every item has a
box of its own, so that thousands of parts of one box of shifts go through in one call.

The arithmetic is ordinary float64. What rounding can do is bounded from the magnitudes behind the sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apas.bounds.interval import rivals
from apas.bounds.ranges import POSITIVE, STEEPEST, activation_range, derivative_range
from apas.models.feedforward import FeedForward

__all__ = ["TINY", "BoxPass", "Range", "outputs", "products", "rounding"]

_Array = NDArray[np.float64]
#: Least and largest values.
Range = tuple[_Array, _Array]
#: Numbers smaller than this may have lost digits to underflow.
TINY = 1e-300


def outputs(
    net: FeedForward, wanted: NDArray[np.intp], low: _Array, high: _Array
) -> Iterator[tuple[_Array, _Array, _Array, _Array]]:
    """Ends of the weights and of the bias of the margin against each rival."""
    w, b = ([t[:, part].reshape(len(t), *shape) for t in (low, high)] for part, shape in _last(net))
    sign = np.where(wanted == 1, 1.0, -1.0)
    items = np.arange(len(wanted))
    for rival in rivals(net, wanted).T:
        if net.weights[-1].shape[1] == 1:
            flip = (wanted != 1)[:, None]
            v = [np.where(flip, -other[:, :, 0], end[:, :, 0]) for end, other in (w, w[::-1])]
            c = [sign * np.where(flip, other, end)[:, 0] - sign * net.offset for end, other in (b, b[::-1])]
        else:
            shift = sign * net.offset if len(net.classes) == 2 else 0.0
            v = [end[items, :, wanted] - other[items, :, rival] for end, other in (w, w[::-1])]
            c = [end[items, wanted] - other[items, rival] - shift for end, other in (b, b[::-1])]
        yield v[0], v[1], c[0], c[1]


def _last(net: FeedForward) -> list[tuple[slice, tuple[int, ...]]]:
    return list(zip(net.parameters.slices, net.parameters.shapes, strict=True))[-2:]


@dataclass(frozen=True)
class BoxPass:
    """What a forward pass leaves for the output and for the way back."""

    net: FeedForward
    weights: list[Range]
    sums: list[Range]
    """Ends of what enters each hidden layer's activation, rounding included."""
    values: list[Range]
    """Ends of what enters each layer, as computed."""
    slack: list[_Array]
    """What these can exceed their computed ends by."""
    error: _Array

    @classmethod
    def through(cls, net: FeedForward, X: _Array, low: _Array, high: _Array) -> BoxPass:
        """Intervals of every unit, layer by layer."""
        parts = [
            tuple(t[:, part].reshape(len(t), *shape) for t in (low, high))
            for part, shape in zip(net.parameters.slices, net.parameters.shapes, strict=True)
        ]
        weights: list[Range] = parts[::2]  # type: ignore[assignment]
        values: list[Range] = [(X, X)]
        sums, slack = [], [np.zeros_like(X)]
        size, steps = np.abs(X), 0
        for i, (w, b) in enumerate(zip(weights, parts[1::2], strict=True)):
            steps += w[0].shape[1] + 8
            size = _times(size, np.maximum(-w[0], w[1])) + np.maximum(-b[0], b[1])
            if i == len(net.activations):
                break
            name = net.activations[i]
            least, most = _point(X, w) if i == 0 else _sums(values[-1], w, positive=net.activations[i - 1] in POSITIVE)
            error = rounding(steps) * size + TINY
            sums.append((least + b[0] - error, most + b[1] + error))
            values.append(activation_range(name, least + b[0], most + b[1]))
            size = STEEPEST.get(name, 1.0) * size + {"softplus": math.log(2.0), "sigmoid": 0.5}.get(name, 0.0)
            slack.append(rounding(steps) * size + TINY)
        total = size.sum(axis=1) + abs(net.offset)
        return cls(net, weights, sums, values, slack, rounding(steps) * total + TINY)

    def margin(self, v_low: _Array, v_high: _Array, c_low: _Array, c_high: _Array) -> Range:
        """Ends of the margin with these output weights and bias."""
        least, most = products(self.values[-1], (v_low, v_high))
        return least.sum(axis=1) + c_low, most.sum(axis=1) + c_high

    def backward(self, slope: Range) -> Iterator[tuple[int, Range, _Array]]:
        """From the last hidden layer to the first: number, slopes of an output by what enters its units, and slack.

        `slope` holds the ends of the output's slopes by the values of the last hidden layer. The slack is what rounding
        can have added to the slopes.
        """
        size, steps = np.maximum(-slope[0], slope[1]), 8
        for i in reversed(range(len(self.net.activations))):
            name = self.net.activations[i]
            slope = products(slope, derivative_range(name, *self.sums[i]))
            size = STEEPEST.get(name, 1.0) * size
            yield i, slope, rounding(steps) * size + TINY
            if i:
                weights = self.weights[i]
                least, most = products((slope[0][:, None, :], slope[1][:, None, :]), weights)
                slope = least.sum(axis=2), most.sum(axis=2)
                size = _times(size, np.maximum(-weights[0], weights[1]).transpose(0, 2, 1))
                steps += weights[0].shape[2] + 8

    def reach(self, i: int) -> _Array:
        """How large what enters layer i can be."""
        low, high = self.values[i]
        return np.maximum(-low, high) + self.slack[i]

    def entering(self, i: int) -> Range:
        """Ends of what enters layer i, in real arithmetic."""
        return self.values[i][0] - self.slack[i], self.values[i][1] + self.slack[i]


def rounding(steps: int) -> float:
    """What rounding adds to a sum behind which lie `steps` operations, as a share of the magnitudes in it."""
    return 4 * steps * 2.0**-53


def _times(a: _Array, w: _Array) -> _Array:
    """Each item's row vector times its matrix."""
    return np.asarray(np.matmul(a[:, None, :], w)[:, 0, :])


def _point(x: _Array, w: Range) -> Range:
    above, below = np.maximum(x, 0.0), np.minimum(x, 0.0)
    return _times(above, w[0]) + _times(below, w[1]), _times(above, w[1]) + _times(below, w[0])


def _sums(a: Range, w: Range, *, positive: bool) -> Range:
    """Ends of ``a @ w``; `positive` promises that no a is below 0."""
    if positive:  # then only the sign of the weight decides which end of the activation is worse
        least = _times(a[0], np.maximum(w[0], 0.0)) + _times(a[1], np.minimum(w[0], 0.0))
        return least, _times(a[1], np.maximum(w[1], 0.0)) + _times(a[0], np.minimum(w[1], 0.0))
    least, most = products((a[0][:, :, None], a[1][:, :, None]), w)
    return least.sum(axis=1), most.sum(axis=1)


def products(a: Range, b: Range) -> Range:
    """Ends of the product of two intervals: of the four products of ends, the least and the largest."""
    corners = [x * y for x in a for y in b]
    least, most = np.minimum(corners[0], corners[1]), np.maximum(corners[0], corners[1])
    for corner in corners[2:]:
        np.minimum(least, corner, out=least)
        np.maximum(most, corner, out=most)
    return least, most
