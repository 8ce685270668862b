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

import numpy as np
from numpy.typing import NDArray

from apas.bounds.boxpass import BoxPass, Range, outputs
from apas.bounds.interval import rivals
from apas.models.feedforward import FeedForward

__all__ = ["margin_ranges", "margin_slopes"]

_Array = NDArray[np.float64]
#: How many numbers a temporary array holds at most, unless a single item needs more.
NUMBERS = 1 << 17


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
        box = BoxPass.through(net, X[part], low[part], high[part])
        against = [box.margin(*terms) for terms in outputs(net, wanted[part], low[part], high[part])]
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
        box = BoxPass.through(net, X[part], low[part], high[part])
        against = list(outputs(net, wanted[part], low[part], high[part]))
        ends = [box.margin(*terms) for terms in against]
        least[part] = np.minimum.reduce([e[0] for e in ends])
        most[part] = np.minimum.reduce([e[1] for e in ends])
        error[part] = box.error
        # a rival whose difference is nowhere the least one has no part in the margin; a NaN may have
        highest = np.minimum(most[part], ceiling) + 2 * box.error
        matters = [~(e[0] > highest) for e in ends]
        for terms, some in zip(against, matters, strict=True):
            _raise(box, terms[:2], some[:, None], slopes[part])
        _set_output(box, _classes(net, wanted[part], matters), slopes[part])
    return least, most, slopes, error


def _blocks(net: FeedForward, items: int) -> Iterator[slice]:
    """Parts of the items that keep every temporary array small."""
    step = max(1, NUMBERS // max(w.size for w in net.weights))
    return (slice(start, min(start + step, items)) for start in range(0, items, step))


def _classes(net: FeedForward, wanted: NDArray[np.intp], matters: list[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """Which outputs of each item the margin depends on, shape (items, outputs)."""
    if net.weights[-1].shape[1] == 1:
        return matters[0][:, None]
    items = np.arange(len(wanted))
    needed = np.zeros((len(wanted), len(net.classes)), dtype=bool)
    for rival, some in zip(rivals(net, wanted).T, matters, strict=True):
        needed[items, rival] = some
        needed[items, wanted] |= some
    return needed


def _raise(box: BoxPass, slope: Range, matters: NDArray[np.bool_], slopes: _Array) -> None:
    """Raise `slopes` of the hidden layers to what one output needs, which has the slope `slope` in each unit."""
    if not matters.any():
        return
    for i, (least, most), slack in box.backward(slope):
        steepest = np.maximum(-least, most) + slack
        w, b = box.net.parameters.slices[2 * i : 2 * i + 2]
        for where, bound in ((w, box.reach(i)[:, :, None] * steepest[:, None, :]), (b, steepest)):
            np.maximum(slopes[:, where], bound.reshape(len(bound), -1), out=slopes[:, where], where=matters)


def _set_output(box: BoxPass, needed: NDArray[np.bool_], slopes: _Array) -> None:
    """Set the slopes of the output layer, which are the same for every class that matters."""
    w, b = box.net.parameters.slices[-2:]
    reach = box.reach(len(box.weights) - 1)
    slopes[:, w] = np.where(needed[:, None, :], reach[:, :, None], 0.0).reshape(len(reach), -1)
    slopes[:, b] = needed
