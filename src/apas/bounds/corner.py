"""The shift that attains the least margin, where interval arithmetic is exact."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apas.bounds.interval import LOWEST, is_exact, rivals
from apas.models.activations import activate
from apas.models.feedforward import FeedForward

__all__ = ["worst_corner"]

_Array = NDArray[np.float64]


def worst_corner(net: FeedForward, x: _Array, wanted: int, radii: _Array, delta: float) -> _Array | None:
    """A direction u, in the unit ball, with least margin on ``theta + delta u`` for the row `x`; None if not known.

    With at most one hidden layer of monotone units every term of the margin can be made least by itself.

    Examples
    --------
    >>> net = FeedForward([[[1.0], [1.0]]], [[0.0]])
    >>> worst_corner(net, np.array([2.0, -1.0]), 1, np.ones(3), 0.1)
    array([-1.,  1., -1.])
    """
    if not is_exact(net) or (net.activations and net.activations[0] in LOWEST):
        return None
    corners = [_against(net, x, wanted, int(rival), radii, delta) for rival in rivals(net, np.array([wanted]))[0]]
    label = net.classes[wanted]
    margins = net.shifted_margins(x[None, :], label, np.array(corners), delta)[:, 0]
    return corners[int(margins.argmin())]


def _against(net: FeedForward, x: _Array, wanted: int, rival: int, radii: _Array, delta: float) -> _Array:
    parts, last = net.parameters.slices, len(net.weights) - 1
    reach = [radii[part].reshape(shape) for part, shape in zip(parts, net.parameters.shapes, strict=True)]
    push = [np.zeros(shape) for shape in net.parameters.shapes]
    # how each output enters the margin: +1 for the wanted score, -1 for the rival's
    enters = np.zeros(net.weights[last].shape[1])
    if len(enters) == 1:
        enters[0] = 1.0 if wanted == 1 else -1.0
    else:
        enters[wanted], enters[rival] = 1.0, -1.0
    push[-1] = -enters * reach[-1]
    if last == 0:
        push[0] = -np.sign(x)[:, None] * enters * reach[0]
        return np.concatenate([p.ravel() for p in push])
    middle = x @ net.weights[0] + net.biases[0]
    spread = delta * (np.abs(x) @ reach[0] + reach[1])
    ends = activate(net.activations[0], np.stack([middle - spread, middle + spread]))
    weight, weight_spread = net.weights[1] @ enters, delta * (reach[2] @ np.abs(enters))
    # of each unit the least of the four products of an end of its activation and an end of its weight
    products = np.stack([a * (weight + s * weight_spread) for a in ends for s in (-1.0, 1.0)])
    best = products.argmin(axis=0)
    unit_side, weight_side = np.where(best < 2, -1.0, 1.0), np.where(best % 2 == 0, -1.0, 1.0)
    push[0] = np.sign(x)[:, None] * unit_side * reach[0]
    push[1] = unit_side * reach[1]
    push[2] = weight_side[:, None] * enters * reach[2]
    return np.concatenate([p.ravel() for p in push])
