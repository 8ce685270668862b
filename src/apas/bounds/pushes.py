"""Shifted models described by how far each unit is pushed.

Whatever a shift in the box does, it does by moving the argument of each unit between ``l(a)`` and ``u(a)``. A push of
-1 puts all parameters of a unit where they make its argument least, 1 where they make it largest, numbers in between
on the way. So the worst shift is looked for among a few numbers per unit instead of among all parameters, and turned
into parameters only at the end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apas.bounds.backward import Objective
from apas.bounds.relaxation import Relaxation
from apas.models.activations import LEAKY_SLOPE, activate, derivative
from apas.models.feedforward import FeedForward

__all__ = ["Pushes", "output_push", "pushed_parameters", "pushes_towards"]

_Array = NDArray[np.float64]
#: Times that all pushes are turned against the gradient.
TURNS = 8


class Pushes:
    """Rows on networks whose units are pushed.

    Parameters
    ----------
    relaxation : Relaxation
    X : ndarray of shape (items, features)
    objective : Objective
        The margin of each item in terms of the last hidden layer.
    """

    def __init__(self, relaxation: Relaxation, X: _Array, objective: Objective) -> None:
        self.X, self.layers, self.names = X, relaxation.layers, relaxation.net.activations
        first = self.layers[0]
        self.middle, self.spread = X @ first.middle + first.bias, first.spread(np.abs(X))
        self.objective = objective

    def take(self, items: NDArray[np.intp]) -> Pushes:
        """The same for some of the items."""
        some = object.__new__(Pushes)
        some.X, some.layers, some.names = self.X[items], self.layers, self.names
        some.middle, some.spread = self.middle[items], self.spread[items]
        some.objective = self.objective.take(items)
        return some

    def margins(self, pushes: list[_Array]) -> tuple[_Array, list[_Array]]:
        """Margins, one per item, and the arguments of all units; `pushes` holds one (items, units) array per layer."""
        z = self.middle + pushes[0] * self.spread
        arguments = [z]
        for i, layer in enumerate(self.layers[1:-1], start=1):
            a = activate(self.names[i - 1], z.copy())
            z = a @ layer.middle + layer.bias + pushes[i] * layer.spread(np.abs(a))
            arguments.append(z)
        a = activate(self.names[-1], z.copy())
        goal = self.objective
        return (goal.lin * a - goal.rho * np.abs(a)).sum(axis=1) + goal.const, arguments

    def slopes(self, pushes: list[_Array], arguments: list[_Array]) -> list[_Array]:
        """Gradient of each margin by the arguments of all units."""
        found: list[_Array] = []
        c: _Array = np.empty(0)
        for i in range(len(self.names) - 1, -1, -1):
            z = arguments[i]
            side = np.sign(activate(self.names[i], z.copy()))
            if i == len(self.names) - 1:
                c = self.objective.lin - self.objective.rho * side
            else:
                layer, above = self.layers[i + 1], found[-1]
                c = above @ layer.middle.T + layer.spread_back(above * pushes[i + 1]) * side
            found.append(c * derivative(self.names[i], z))
        return found[::-1]

    def improved(self, pushes: list[_Array]) -> tuple[_Array, list[_Array]]:
        """Turn all pushes against the gradient, again and again, and keep the least margin found and its pushes."""
        least, arguments = self.margins(pushes)
        going = np.ones((len(least), 1), dtype=bool)  # an item whose margin does not fall any more stays where it is
        best = pushes
        for _ in range(TURNS):
            slopes = self.slopes(pushes, arguments)
            pushes = [np.where(going & (s != 0), -np.sign(s), p) for s, p in zip(slopes, pushes, strict=True)]
            margins, arguments = self.margins(pushes)
            going &= (margins < least)[:, None]
            if not going.any():
                break
            least = np.where(going[:, 0], margins, least)
            best = [np.where(going, new, kept) for new, kept in zip(pushes, best, strict=True)]
        return least, best


def output_push(net: FeedForward, wanted: int, rival: int) -> _Array:
    """How the outputs are pushed: the wanted score down, the rival's up."""
    push = np.zeros(net.weights[-1].shape[1])
    if len(push) == 1:
        push[0] = -1.0 if wanted == 1 else 1.0
    else:
        push[rival], push[wanted] = 1.0, -1.0
    return push


def pushed_parameters(relaxation: Relaxation, x: _Array, pushes: list[_Array], output: _Array) -> _Array:
    """Direction in the unit box, shape (k,), that pushes the units of one row so; `output` says so of the outputs.

    Examples
    --------
    >>> from apas import FeedForward
    >>> net = FeedForward([[[1.0], [1.0]]], [[0.0]])
    >>> pushed_parameters(Relaxation(net, np.ones(3), 0.1), np.array([2.0, -1.0]), [], np.array([-1.0]))
    array([-1.,  1., -1.])
    """
    parts, a = [], x
    for i, push in enumerate([*pushes, output]):
        parts += [np.outer(np.sign(a), push).ravel(), push]
        if i < len(pushes):
            layer = relaxation.layers[i]
            z = a @ layer.middle + layer.bias + push * (np.abs(a) @ layer.reach + layer.bias_reach)
            a = activate(relaxation.net.activations[i], z)
    return np.concatenate(parts)


def pushes_towards(relaxation: Relaxation, X: _Array, activations: list[_Array]) -> list[_Array]:
    """Pushes (items, units) per layer that bring the units as near as they can get to given activations.

    For piecewise linear units; where an activation does not tell its argument, the farthest one is taken.
    """
    pushes, a = [], X
    for layer, name, wish in zip(relaxation.layers, relaxation.net.activations, activations, strict=False):
        middle, spread = a @ layer.middle + layer.bias, layer.spread(np.abs(a))
        argument = np.where(wish < 0, wish / LEAKY_SLOPE, wish) if name == "leaky_relu" else wish
        push = np.clip(np.divide(argument - middle, spread, out=np.zeros_like(middle), where=spread > 0), -1.0, 1.0)
        if name == "relu":
            push = np.where(wish <= 0, -1.0, push)
        elif name == "hard_tanh":
            push = np.where(wish <= -1, -1.0, np.where(wish >= 1, 1.0, push))
        pushes.append(push)
        a = activate(name, middle + push * spread)
    return pushes
