"""The shifts that attain the least margins, where interval arithmetic is exact."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apas.bounds.interval import Boxes, is_exact, rivals
from apas.bounds.ranges import LOWEST
from apas.models.activations import activate

__all__ = ["worst_corners"]

_Array = NDArray[np.float64]


def worst_corners(boxes: Boxes, delta: _Array) -> _Array | None:
    """Per row a direction u of the unit ball with least margin on ``theta + delta u``; None if it is not known.

    With at most one hidden layer of monotone units every term of the margin can be made least by itself.

    Examples
    --------
    >>> from apas import FeedForward
    >>> net = FeedForward([[[1.0], [1.0]]], [[0.0]])
    >>> worst_corners(Boxes(net, np.array([[2.0, -1.0]]), np.array([1]), np.ones(3)), np.array([0.1]))
    array([[-1.,  1., -1.]])
    """
    net, X, wanted = boxes.net, boxes.X, boxes.wanted
    if not is_exact(net) or (net.activations and net.activations[0] in LOWEST):
        return None
    outputs = net.weights[-1].shape[1]
    enters = np.zeros((len(X), outputs))  # how each output enters the margin: +1 the wanted score, -1 the rival's
    if outputs == 1:
        enters[:, 0] = np.where(wanted == 1, 1.0, -1.0)
    else:  # the rival whose bound is least is the one to push for
        least = np.stack([boxes.against(delta, i) for i in range(len(boxes.outputs))])
        rival = np.take_along_axis(rivals(net, wanted).T, least.argmin(axis=0)[None, :], axis=0)[0]
        enters[np.arange(len(X)), rival], enters[np.arange(len(X)), wanted] = -1.0, 1.0
    pushes = _linear(X, enters) if not net.activations else _hidden(boxes, enters, delta)
    return np.asarray(np.hstack([push.reshape(len(X), -1) for push in pushes]) * boxes.radii)


def _linear(X: _Array, enters: _Array) -> list[_Array]:
    """Signs of the pushes on weights (rows, inputs, outputs) and biases (rows, outputs)."""
    return [-np.sign(X)[:, :, None] * enters[:, None, :], -enters]


def _hidden(boxes: Boxes, enters: _Array, delta: _Array) -> list[_Array]:
    net = boxes.net
    spread = delta[:, None] * boxes.spread
    ends = [activate(net.activations[0], boxes.middle - spread), activate(net.activations[0], boxes.middle + spread)]
    weight, weight_spread = enters @ net.weights[1].T, delta[:, None] * (np.abs(enters) @ boxes.reach[2].T)
    # of each unit the least of the four products of an end of its activation and an end of its weight
    best = np.stack([a * (weight + s * weight_spread) for a in ends for s in (-1.0, 1.0)]).argmin(axis=0)
    unit_side, weight_side = np.where(best < 2, -1.0, 1.0), np.where(best % 2 == 0, -1.0, 1.0)
    first = np.sign(boxes.X)[:, :, None] * unit_side[:, None, :]
    return [first, unit_side, weight_side[:, :, None] * enters[:, None, :], -enters]
