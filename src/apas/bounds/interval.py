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

__all__ = ["is_exact", "least_margins", "rivals"]

_Array = NDArray[np.float64]
#: Where the two activations that first fall and then rise have their least value.
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
    parts = net.parameters.slices
    low = high = X
    for i, name in enumerate(net.activations):
        shape = net.weights[i].shape
        reach = radii[parts[2 * i]].reshape(shape), radii[parts[2 * i + 1]]
        low, high = _layer(low, high, net.weights[i], net.biases[i], *reach, delta, first=i == 0)
        low, high = _activated(name, low, high)
    bound = _output(net, low, high, wanted, radii, delta)
    scale = net.margin_scale(X, radii, delta)
    # each of the at most `steps` operations behind a sum is off by 2**-53 of the magnitudes it adds up
    steps = sum(w.shape[0] + 8 for w in net.weights)
    return bound, 4 * steps * 2.0**-53 * scale


def _layer(
    low: _Array, high: _Array, w: _Array, b: _Array, w_reach: _Array, b_reach: _Array, delta: _Array, *, first: bool
) -> tuple[_Array, _Array]:
    if first:  # the input is a point, and the reach of each unit is known exactly
        middle = low @ w + b
        reach = delta[:, None] * (np.abs(low) @ w_reach + b_reach)
        return middle - reach, middle + reach
    least, most = _products(low, high, w, w_reach, delta)
    return least + b - delta[:, None] * b_reach, most + b + delta[:, None] * b_reach


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
    ends = activate(name, low.copy()), activate(name, high.copy())
    if name not in LOWEST:  # the others never fall
        return ends
    lowest = LOWEST[name]
    inside = (low < lowest) & (lowest < high)
    bottom = float(activate(name, np.array([lowest]))[0])
    return np.where(inside, bottom, np.minimum(*ends)), np.maximum(*ends)


def _output(
    net: FeedForward, low: _Array, high: _Array, wanted: NDArray[np.intp], radii: _Array, delta: _Array
) -> _Array:
    """Least margin over the rivals: of each, the difference of two scores has a weight and a bias of its own."""
    parts, last = net.parameters.slices, len(net.weights) - 1
    w, b = net.weights[last], net.biases[last]
    w_reach, b_reach = radii[parts[2 * last]].reshape(w.shape), radii[parts[2 * last + 1]]
    rows = np.arange(len(low))
    bound = np.full(len(low), np.inf)
    for rival in rivals(net, wanted).T:
        if w.shape[1] == 1:
            sign = np.where(wanted == 1, 1.0, -1.0)
            v, v_reach = sign[:, None] * w[:, 0], np.broadcast_to(w_reach[:, 0], (len(rows), len(w)))
            offset, offset_reach = sign * (b[0] - net.offset), np.full(len(rows), b_reach[0])
        else:
            v, v_reach = (w[:, wanted] - w[:, rival]).T, (w_reach[:, wanted] + w_reach[:, rival]).T
            offset, offset_reach = b[wanted] - b[rival], b_reach[wanted] + b_reach[rival]
            if w.shape[1] == 2:  # of two classes, class 1 has to reach the threshold
                offset = offset - np.where(wanted == 1, net.offset, -net.offset)
        spread = delta[:, None] * v_reach
        if last == 0:  # the input is a point
            terms = low * v - np.abs(low) * spread
        else:
            terms = np.minimum.reduce([a * u for a in (low, high) for u in (v - spread, v + spread)])
        bound = np.minimum(bound, terms.sum(axis=1) + offset - delta * offset_reach)
    return bound
