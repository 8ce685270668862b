"""Least margins over a box of parameters, by sign-aware interval arithmetic.

For a fixed row the intervals of the first hidden layer are exact, since each unit has its own weights; with at most one
hidden layer so is the least margin, because then no parameter is used twice. Deeper networks get a sound lower bound.

The arithmetic is ordinary float64; its rounding errors are bounded from the magnitudes behind the sums
(`FeedForward.margin_scale`) and subtracted at the end, so that the bound holds in real arithmetic.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apas.models.activations import activate
from apas.models.feedforward import FeedForward

__all__ = ["Boxes", "is_exact", "least_margins", "rivals"]

_Array = NDArray[np.float64]
#: Where the activation that first falls and then rises has its least value.
LOWEST = {"gelu": -0.7517915246935645}


def is_exact(net: FeedForward) -> bool:
    """Whether interval arithmetic gives the least margin itself: with at most one hidden layer."""
    return len(net.activations) <= 1


def rivals(net: FeedForward, wanted: NDArray[np.intp]) -> NDArray[np.intp]:
    """The classes that each row competes with, shape (rows, classes - 1); one dummy column for one output.

    Examples
    --------
    >>> net = FeedForward([[[1.0, 2.0, 3.0]]], [[0.0, 0.0, 0.0]], output="softmax")
    >>> rivals(net, np.array([1, 0]))
    array([[0, 2],
           [1, 2]])
    """
    if net.weights[-1].shape[1] == 1:
        return np.zeros((len(wanted), 1), dtype=np.intp)
    classes = np.arange(len(net.classes))
    return np.array([np.delete(classes, w) for w in wanted], dtype=np.intp).reshape(len(wanted), -1)


def least_margins(
    net: FeedForward, X: _Array, wanted: NDArray[np.intp], radii: _Array, delta: _Array
) -> tuple[_Array, _Array]:
    """A lower bound on the margin of each row while parameter i moves by at most ``delta * radii[i]``.

    Parameters
    ----------
    net : FeedForward
    X : ndarray of shape (rows, features)
    wanted : ndarray of int, shape (rows,)
        Position of the wanted class.
    radii : ndarray of shape (k,)
    delta : ndarray of shape (rows,)

    Returns
    -------
    bound : ndarray of shape (rows,)
        As computed.
    error : ndarray of shape (rows,)
        ``bound - error`` is a lower bound in real arithmetic.

    Examples
    --------
    >>> net = FeedForward([[[1.0], [1.0]]], [[0.0]])
    >>> least_margins(net, np.array([[2.0, -1.0]]), np.array([1]), np.array([1.0, 1.0, 0.0]), np.array([0.4]))[0]
    array([-0.2])
    """
    boxes = Boxes(net, X, wanted, radii)
    return boxes.bound(delta), boxes.error(delta)


class Boxes:
    """Rows against growing boxes of parameters; what does not depend on delta is computed once."""

    def __init__(self, net: FeedForward, X: _Array, wanted: NDArray[np.intp], radii: _Array) -> None:
        self.net, self.X, self.wanted, self.radii = net, X, wanted, radii
        shapes = net.parameters.shapes
        self.reach = [radii[part].reshape(shape) for part, shape in zip(net.parameters.slices, shapes, strict=True)]
        if net.activations:
            self.middle = X @ net.weights[0] + net.biases[0]
            self.spread = np.abs(X) @ self.reach[0] + self.reach[1]
        self.outputs = [self._against(rival) for rival in rivals(net, wanted).T]

    def take(self, rows: NDArray[np.intp]) -> Boxes:
        """The same for some of the rows."""
        return Boxes(self.net, self.X[rows], self.wanted[rows], self.radii)

    def bound(self, delta: _Array) -> _Array:
        """Least margins as computed, with one delta per row."""
        ends = self._last_layer(delta)
        least = [self._output(*ends, delta, *terms) for terms in self.outputs]
        return least[0] if len(least) == 1 else np.asarray(np.minimum.reduce(least))

    def against(self, delta: _Array, rival: int) -> _Array:
        """Least margins against one of the rivals of each row."""
        return self._output(*self._last_layer(delta), delta, *self.outputs[rival])

    def _last_layer(self, delta: _Array) -> tuple[_Array, _Array]:
        """Range of what enters the output layer."""
        low = high = self.X
        for i, name in enumerate(self.net.activations):
            if i == 0:  # the input is a point, and the reach of each unit is known exactly
                spread = delta[:, None] * self.spread
                low, high = self.middle - spread, self.middle + spread
            else:
                b, b_spread = self.net.biases[i], delta[:, None] * self.reach[2 * i + 1]
                low, high = _products(low, high, self.net.weights[i], self.reach[2 * i], delta)
                low, high = low + b - b_spread, high + b + b_spread
            low, high = _activated(name, low, high)
        return low, high

    def error(self, delta: _Array) -> _Array:
        """What rounding can add to `bound` at most."""
        # each of the at most `steps` operations behind a sum is off by 2**-53 of the magnitudes it adds up
        steps = sum(w.shape[0] + 8 for w in self.net.weights)
        return np.asarray(4 * steps * 2.0**-53 * self.net.margin_scale(self.X, self.radii, delta))

    def _against(self, rival: NDArray[np.intp]) -> tuple[_Array, _Array, _Array, _Array]:
        """Weights and bias of the margin against one rival per row, and how far each can move."""
        w, b, w_reach, b_reach = self.net.weights[-1], self.net.biases[-1], *self.reach[-2:]
        wanted, offset = self.wanted, self.net.offset
        sign = np.where(wanted == 1, 1.0, -1.0)
        if w.shape[1] == 1:
            rows = (len(wanted), len(w))
            bias = sign * (b[0] - offset), np.full(len(wanted), b_reach[0])
            return sign[:, None] * w[:, 0], np.broadcast_to(w_reach[:, 0], rows), *bias
        difference = b[wanted] - b[rival] - (sign * offset if w.shape[1] == 2 else 0.0)
        weights = (w[:, wanted] - w[:, rival]).T, (w_reach[:, wanted] + w_reach[:, rival]).T
        return *weights, difference, b_reach[wanted] + b_reach[rival]

    def _output(
        self, low: _Array, high: _Array, delta: _Array, v: _Array, v_reach: _Array, bias: _Array, bias_reach: _Array
    ) -> _Array:
        spread = delta[:, None] * v_reach
        if not self.net.activations:  # the input is a point
            terms = low * v - np.abs(low) * spread
        else:
            down, up = v - spread, v + spread
            terms = np.minimum(np.minimum(low * down, low * up), np.minimum(high * down, high * up))
        return np.asarray(terms.sum(axis=1) + bias - delta * bias_reach)


def _products(low: _Array, high: _Array, w: _Array, reach: _Array, delta: _Array) -> tuple[_Array, _Array]:
    """Range of ``a @ v`` with a in [low, high] and v within delta * reach of w: of each term the four corners."""
    rows, outputs = len(low), w.shape[1]
    least, most = np.empty((rows, outputs)), np.empty((rows, outputs))
    step = max(1, (1 << 18) // max(1, w.size))
    for start in range(0, rows, step):
        part = slice(start, start + step)
        spread = delta[part, None, None] * reach
        ends = [w - spread, w + spread]
        corners = [a[part, :, None] * v for a in (low, high) for v in ends]
        least[part] = np.minimum.reduce(corners).sum(axis=1)
        most[part] = np.maximum.reduce(corners).sum(axis=1)
    return least, most


def _activated(name: str, low: _Array, high: _Array) -> tuple[_Array, _Array]:
    lowest_of = (low.copy(), high.copy()) if name in LOWEST else (low, high)
    ends = activate(name, lowest_of[0]), activate(name, lowest_of[1])
    if name not in LOWEST:  # the others never fall
        return ends
    lowest = LOWEST[name]
    inside = (low < lowest) & (lowest < high)
    bottom = float(activate(name, np.array([lowest]))[0])
    return np.where(inside, bottom, np.minimum(*ends)), np.maximum(*ends)
