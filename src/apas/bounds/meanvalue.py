"""The margin between two sums of functions of one parameter each, by the mean value theorem.

Let c be the middle of a box. Going from c to another point layer by layer, the output layer first, the margin changes
by ``sum_i s_i (theta_i - c_i)``, where ``s_i`` is the slope in parameter i at some point between: the layers above may
be anywhere in the box, the layers below are still at c. Intervals of these slopes come from one pass forward and one
backward, with the values at c in place of what enters each layer. That keeps the lines close to the margin: with one
hidden layer the slopes by the output weights are known exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apas.bounds.boxpass import BoxPass, Range, outputs, products
from apas.bounds.interval import rivals
from apas.models.feedforward import FeedForward

__all__ = ["Lines", "margin_lines"]

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class Lines:
    """What is known about the margin against one rival; everything holds in real arithmetic.

    Attributes
    ----------
    least, most : ndarray of shape (items,)
        Bounds over the whole box.
    middle : tuple of ndarray of shape (items,)
        Ends of the margin at the middle of the box.
    slopes : tuple of ndarray of shape (items, k)
        The margin differs from that at the middle by a sum of ``s_i * (theta_i - middle_i)`` with slopes s_i between
        these.
    error : ndarray of shape (items,)
        How much of `least` and `most` is an allowance for rounding.
    """

    least: _Array
    most: _Array
    middle: Range
    slopes: Range
    error: _Array


def margin_lines(net: FeedForward, X: _Array, wanted: NDArray[np.intp], box: Range, middle: Range) -> list[Lines]:
    """Bound the margin against each rival over boxes, by numbers and by lines through their middles.

    Parameters
    ----------
    net : FeedForward
        Only its architecture and offset matter.
    X : ndarray of shape (items, features)
    wanted : ndarray of int, shape (items,)
    box : tuple of ndarray of shape (items, k)
        Least and largest value of every parameter.
    middle : tuple of ndarray of shape (items, k)
        The same for the middle of each box, whose ends differ where it is no float64 number.

    Examples
    --------
    >>> net = FeedForward([[[1.0], [1.0]]], [[0.0]])
    >>> theta = net.parameters.values[None, :]
    >>> lines = margin_lines(net, np.array([[2.0, -1.0]]), np.array([1]), (theta - 0.5, theta + 0.5), (theta, theta))
    >>> lines[0].slopes[0].round(9)
    array([[ 2., -1.,  1.]])
    """
    around, at = BoxPass.through(net, X, *box), BoxPass.through(net, X, *middle)
    found = []
    for wide, narrow in zip(outputs(net, wanted, *box), outputs(net, wanted, *middle), strict=True):
        least, most = around.margin(*wide)
        low, high = at.margin(*narrow)
        bounds = least - around.error, most + around.error, (low - at.error, high + at.error)
        found.append(Lines(*bounds, (np.zeros_like(box[0]), np.zeros_like(box[0])), around.error))
        for i, slope, slack in around.backward(wide[:2]):
            slope = slope[0] - slack, slope[1] + slack
            _fill(found[-1].slopes, net.parameters.slices[2 * i : 2 * i + 2], at.entering(i), slope)
    _fill_output(net, wanted, at.entering(len(net.activations)), found)
    return found


def _fill(slopes: Range, where: tuple[slice, ...], entering: Range, slope: Range) -> None:
    """Slopes by the weights and biases of a layer, whose units have the slope `slope`."""
    w, b = where
    a = entering[0][:, :, None], entering[1][:, :, None]
    by_weight = products(a, (slope[0][:, None, :], slope[1][:, None, :]))
    for ends, weight, unit in zip(slopes, by_weight, slope, strict=True):
        ends[:, w], ends[:, b] = weight.reshape(len(unit), -1), unit


def _fill_output(net: FeedForward, wanted: NDArray[np.intp], entering: Range, found: list[Lines]) -> None:
    """Slopes by the output layer: 1 for the wanted class, -1 for the rival, 0 for the others."""
    items, several = np.arange(len(wanted)), net.weights[-1].shape[1] > 1
    for lines, rival in zip(found, rivals(net, wanted).T, strict=True):
        enters = np.zeros((len(wanted), net.weights[-1].shape[1]))
        if several:
            enters[items, rival], enters[items, wanted] = -1.0, 1.0
        else:
            enters[:, 0] = np.where(wanted == 1, 1.0, -1.0)
        _fill(lines.slopes, net.parameters.slices[-2:], entering, (enters, enters))
