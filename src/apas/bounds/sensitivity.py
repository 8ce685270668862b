"""How far the margin, and its slope in every parameter, can go while the parameters run through boxes.

Intervals go forward through the network, each product of an activation in ``[p, q]`` and a weight in ``[l, h]`` by its
four corners, and then backward: the derivative of the margin by each unit is again an interval. Every item has a box of
its own, so that thousands of parts of one box of shifts are bounded in one call.

With several classes the margin is the least of its differences to the rivals; each difference is one output with the
weights ``v_wanted - v_rival``. Bounds on the margin are then the least of the bounds, on the slopes the largest.

The arithmetic is ordinary float64. What rounding can do is bounded from the magnitudes behind the sums: it is returned
for the margins, and already contained in the slopes.
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

__all__ = ["margin_ranges", "margin_slopes"]

_Array = NDArray[np.float64]
_Range = tuple[_Array, _Array]
#: How many numbers a temporary array holds at most, unless a single item needs more.
NUMBERS = 1 << 17
#: Numbers smaller than this may have lost digits to underflow.
TINY = 1e-300


def margin_ranges(
    net: FeedForward, X: _Array, wanted: NDArray[np.intp], low: _Array, high: _Array
) -> tuple[_Array, _Array, _Array]:
    """Bound the margin of each item while its parameters run through its box.

    Parameters
    ----------
    net : FeedForward
        Only its architecture and offset matter; the parameters come from the boxes.
    X : ndarray of shape (items, features)
    wanted : ndarray of int, shape (items,)
        Position of the wanted class.
    low, high : ndarray of shape (items, k)
        Ends of each parameter.

    Returns
    -------
    least, most : ndarray of shape (items,)
        As computed; with at most one hidden layer and one output the range itself.
    error : ndarray of shape (items,)
        ``least - error`` and ``most + error`` are bounds in real arithmetic.

    Examples
    --------
    >>> net = FeedForward([[[1.0], [1.0]]], [[0.0]])
    >>> low, high = np.array([[0.5, 1.0, 0.0]]), np.array([[1.0, 2.0, 0.25]])
    >>> margin_ranges(net, np.array([[2.0, -1.0]]), np.array([1]), low, high)[:2]
    (array([-1.]), array([1.25]))
    """
    least, most, error = (np.empty(len(X)) for _ in range(3))
    for part in _blocks(net, len(X)):
        box = _Forward.through(net, X[part], low[part], high[part])
        against = [box.margin(*terms) for terms in _outputs(net, wanted[part], low[part], high[part])]
        least[part] = np.minimum.reduce([a[0] for a in against])
        most[part] = np.minimum.reduce([a[1] for a in against])
        error[part] = box.error
    return least, most, error


def margin_slopes(
    net: FeedForward, X: _Array, wanted: NDArray[np.intp], low: _Array, high: _Array, *, ceiling: float = math.inf
) -> tuple[_Array, _Array, _Array, _Array]:
    """Bound the margin of each item, and how steep it is in each parameter, while these run through its box.

    Takes what `margin_ranges` takes, and a `ceiling` above which the margin need not be told apart.

    Returns
    -------
    least, most : ndarray of shape (items,)
        As from `margin_ranges`.
    slopes : ndarray of shape (items, k)
        The lesser of margin and `ceiling` changes by at most ``slopes[i] * t`` when parameter i alone moves by t inside
        the box: a bound on the derivative's magnitude wherever there is one, in real arithmetic.
    error : ndarray of shape (items,)
        As from `margin_ranges`.

    Examples
    --------
    >>> net = FeedForward([[[1.0], [1.0]]], [[0.0]])
    >>> low, high = np.array([[0.5, 1.0, 0.0]]), np.array([[1.0, 2.0, 0.25]])
    >>> margin_slopes(net, np.array([[2.0, -1.0]]), np.array([1]), low, high)[2].round(9)
    array([[2., 1., 1.]])
    """
    least, most, error = (np.empty(len(X)) for _ in range(3))
    slopes = np.zeros((len(X), len(net.parameters)))
    for part in _blocks(net, len(X)):
        box = _Forward.through(net, X[part], low[part], high[part])
        against = list(_outputs(net, wanted[part], low[part], high[part]))
        ends = [box.margin(*terms) for terms in against]
        least[part] = np.minimum.reduce([e[0] for e in ends])
        most[part] = np.minimum.reduce([e[1] for e in ends])
        error[part] = box.error
        # a rival whose difference is nowhere the least one has no part in the margin; a NaN may have
        highest = np.minimum(most[part], ceiling) + 2 * box.error
        matters = [~(e[0] > highest) for e in ends]
        for terms, some in zip(against, matters, strict=True):
            box.backward(terms[:2], some[:, None], slopes[part])
        box.output_slopes(_classes(net, wanted[part], matters), slopes[part])
    return least, most, slopes, error


def _blocks(net: FeedForward, items: int) -> Iterator[slice]:
    """Parts of the items that keep every temporary array small."""
    step = max(1, NUMBERS // max(w.size for w in net.weights))
    return (slice(start, min(start + step, items)) for start in range(0, items, step))


def _outputs(
    net: FeedForward, wanted: NDArray[np.intp], low: _Array, high: _Array
) -> Iterator[tuple[_Array, _Array, _Array, _Array]]:
    """Ends of the weights and of the bias of the margin against each rival."""
    w, b = ([t[:, part].reshape(len(t), *shape) for t in (low, high)] for part, shape in _last(net))
    sign = np.where(wanted == 1, 1.0, -1.0)
    items = np.arange(len(wanted))
    for rival in _rivals(net, wanted).T:
        if net.weights[-1].shape[1] == 1:
            flip = (wanted != 1)[:, None]
            v = [np.where(flip, -other[:, :, 0], end[:, :, 0]) for end, other in (w, w[::-1])]
            c = [sign * np.where(flip, other, end)[:, 0] - sign * net.offset for end, other in (b, b[::-1])]
        else:
            shift = sign * net.offset if len(net.classes) == 2 else 0.0
            v = [end[items, :, wanted] - other[items, :, rival] for end, other in (w, w[::-1])]
            c = [end[items, wanted] - other[items, rival] - shift for end, other in (b, b[::-1])]
        yield v[0], v[1], c[0], c[1]


def _rivals(net: FeedForward, wanted: NDArray[np.intp]) -> NDArray[np.intp]:
    kinds, which = np.unique(wanted, return_inverse=True)
    return rivals(net, kinds)[which]


def _classes(net: FeedForward, wanted: NDArray[np.intp], matters: list[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """Which outputs of each item the margin depends on, shape (items, outputs)."""
    if net.weights[-1].shape[1] == 1:
        return matters[0][:, None]
    items = np.arange(len(wanted))
    needed = np.zeros((len(wanted), len(net.classes)), dtype=bool)
    for rival, some in zip(_rivals(net, wanted).T, matters, strict=True):
        needed[items, rival] = some
        needed[items, wanted] |= some
    return needed


def _last(net: FeedForward) -> list[tuple[slice, tuple[int, ...]]]:
    return list(zip(net.parameters.slices, net.parameters.shapes, strict=True))[-2:]


@dataclass(frozen=True)
class _Forward:
    """What a forward pass leaves for the output and for the way back."""

    net: FeedForward
    weights: list[_Range]
    sums: list[_Range]
    """Ends of what enters each hidden layer's activation, rounding included."""
    values: list[_Range]
    """Ends of what enters each layer, as computed."""
    slack: list[_Array]
    """What these can exceed their computed ends by."""
    error: _Array

    @classmethod
    def through(cls, net: FeedForward, X: _Array, low: _Array, high: _Array) -> _Forward:
        """Intervals of every unit, layer by layer."""
        parts = [
            tuple(t[:, part].reshape(len(t), *shape) for t in (low, high))
            for part, shape in zip(net.parameters.slices, net.parameters.shapes, strict=True)
        ]
        weights: list[_Range] = parts[::2]  # type: ignore[assignment]
        values: list[_Range] = [(X, X)]
        sums, slack = [], [np.zeros_like(X)]
        size, steps = np.abs(X), 0
        for i, (w, b) in enumerate(zip(weights, parts[1::2], strict=True)):
            steps += w[0].shape[1] + 8
            size = _times(size, np.maximum(-w[0], w[1])) + np.maximum(-b[0], b[1])
            if i == len(net.activations):
                break
            name = net.activations[i]
            least, most = _point(X, w) if i == 0 else _sums(values[-1], w, positive=net.activations[i - 1] in POSITIVE)
            error = _rounding(steps) * size + TINY
            sums.append((least + b[0] - error, most + b[1] + error))
            values.append(activation_range(name, least + b[0], most + b[1]))
            size = STEEPEST.get(name, 1.0) * size + {"softplus": math.log(2.0), "sigmoid": 0.5}.get(name, 0.0)
            slack.append(_rounding(steps) * size + TINY)
        total = size.sum(axis=1) + abs(net.offset)
        return cls(net, weights, sums, values, slack, _rounding(steps) * total + TINY)

    def margin(self, v_low: _Array, v_high: _Array, c_low: _Array, c_high: _Array) -> _Range:
        """Ends of the margin with these output weights and bias."""
        least, most = _products(self.values[-1], (v_low, v_high))
        return least.sum(axis=1) + c_low, most.sum(axis=1) + c_high

    def backward(self, slope: _Range, matters: NDArray[np.bool_], slopes: _Array) -> None:
        """Raise `slopes` of the hidden layers to what one output needs, which has the slope `slope` in each unit."""
        if not matters.any():
            return
        size, steps = np.maximum(-slope[0], slope[1]), 8
        for i in reversed(range(len(self.net.activations))):
            name = self.net.activations[i]
            slope = _products(slope, derivative_range(name, *self.sums[i]))
            size = STEEPEST.get(name, 1.0) * size
            steepest = np.maximum(-slope[0], slope[1]) + _rounding(steps) * size + TINY
            w, b = self.net.parameters.slices[2 * i : 2 * i + 2]
            for where, bound in ((w, self._reach(i)[:, :, None] * steepest[:, None, :]), (b, steepest)):
                np.maximum(slopes[:, where], bound.reshape(len(bound), -1), out=slopes[:, where], where=matters)
            if i:
                weights = self.weights[i]
                least, most = _products((slope[0][:, None, :], slope[1][:, None, :]), weights)
                slope = least.sum(axis=2), most.sum(axis=2)
                size = _times(size, np.maximum(-weights[0], weights[1]).transpose(0, 2, 1))
                steps += weights[0].shape[2] + 8

    def output_slopes(self, needed: NDArray[np.bool_], slopes: _Array) -> None:
        """Set the slopes of the output layer, which are the same for every class that matters."""
        w, b = self.net.parameters.slices[-2:]
        reach = self._reach(len(self.weights) - 1)
        slopes[:, w] = np.where(needed[:, None, :], reach[:, :, None], 0.0).reshape(len(reach), -1)
        slopes[:, b] = needed

    def _reach(self, i: int) -> _Array:
        """How large what enters layer i can be."""
        low, high = self.values[i]
        return np.maximum(-low, high) + self.slack[i]


def _rounding(steps: int) -> float:
    """What rounding adds to a sum behind which lie `steps` operations, as a share of the magnitudes in it."""
    return 4 * steps * 2.0**-53


def _times(a: _Array, w: _Array) -> _Array:
    """Each item's row vector times its matrix."""
    return np.asarray(np.matmul(a[:, None, :], w)[:, 0, :])


def _point(x: _Array, w: _Range) -> _Range:
    above, below = np.maximum(x, 0.0), np.minimum(x, 0.0)
    return _times(above, w[0]) + _times(below, w[1]), _times(above, w[1]) + _times(below, w[0])


def _sums(a: _Range, w: _Range, *, positive: bool) -> _Range:
    """Ends of ``a @ w``; `positive` promises that no a is below 0."""
    if positive:  # then only the sign of the weight decides which end of the activation is worse
        least = _times(a[0], np.maximum(w[0], 0.0)) + _times(a[1], np.minimum(w[0], 0.0))
        return least, _times(a[1], np.maximum(w[1], 0.0)) + _times(a[0], np.minimum(w[1], 0.0))
    least, most = _products((a[0][:, :, None], a[1][:, :, None]), w)
    return least.sum(axis=1), most.sum(axis=1)


def _products(a: _Range, b: _Range) -> _Range:
    """Ends of the product of two intervals: of the four products of ends, the least and the largest."""
    corners = [x * y for x in a for y in b]
    least, most = np.minimum(corners[0], corners[1]), np.maximum(corners[0], corners[1])
    for corner in corners[2:]:
        np.minimum(least, corner, out=least)
        np.maximum(most, corner, out=most)
    return least, most
