"""The margin of a dense network in a box of parameters as a function of how far each hidden unit is pushed.

Given what enters it, a unit can reach everything between the least and the largest argument that its own weights and
bias allow, whatever the other units do. So a shift is described by one push in [-1, 1] per unit of all hidden layers
but the last; for the last one and the outputs the worst pushes are known in closed form. With at most one hidden layer
nothing is left to search, and with two the search has some hundred coordinates instead of thousands of parameters.

Every row is a batch of its own, of a shape that does not depend on the other rows, and so are its last bits.
"""

from __future__ import annotations

from copy import copy
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from apas.bounds.interval import output_terms, rivals
from apas.bounds.ranges import LOWEST
from apas.models.activations import activate, derivative
from apas.models.feedforward import FeedForward

__all__ = ["UnitPushes"]

_Array = NDArray[np.float64]


class UnitPushes:
    """Least margins of rows, each in a box of its own, while all but the last hidden layer are pushed as told.

    Parameters
    ----------
    net : FeedForward
    X : ndarray of shape (rows, features)
    wanted : ndarray of int, shape (rows,)
        Position of the wanted class.
    radii : ndarray of shape (k,)
    delta : ndarray of shape (rows,)
        Parameter i of row j moves by at most ``delta[j] * radii[i]``.

    Examples
    --------
    >>> net = FeedForward([[[1.0], [1.0]]], [[0.0]])
    >>> units = UnitPushes(net, np.array([[2.0, -1.0]]), np.array([1]), np.ones(3), np.array([0.1]))
    >>> units.size, units.margins(np.empty((1, 1, 0))), units.direction(0, np.empty(0))
    (0, array([[0.6]]), array([-1.,  1., -1.]))
    """

    def __init__(
        self, net: FeedForward, X: _Array, wanted: NDArray[np.intp], radii: _Array, delta: _Array
    ) -> None:  # fmt: skip
        self.net, self.X, self.wanted, self.radii, self.delta = net, X, wanted, radii, delta
        tensors = zip(net.parameters.slices, net.parameters.shapes, strict=True)
        self.reach = [radii[part].reshape(shape) for part, shape in tensors]
        # as a rule all weights of a layer move alike, which saves a matrix product
        self.alike = [float(r[0, 0]) if (r == r[0, 0]).all() else None for r in self.reach[::2]]
        ends = np.cumsum([0, *(len(b) for b in net.biases[: max(0, len(net.activations) - 1)])]).tolist()
        self.parts = [slice(*ends_of) for ends_of in pairwise(ends)]
        self.outputs = [output_terms(net, self.reach, wanted, rival) for rival in rivals(net, wanted).T]
        self.first = self._ranges(0, X[:, None, :])  # which does not depend on pushes

    @property
    def size(self) -> int:
        """How many units are pushed."""
        return self.parts[-1].stop if self.parts else 0

    def take(self, rows: NDArray[np.intp]) -> UnitPushes:
        """The same for some of the rows."""
        some = copy(self)
        some.X, some.wanted, some.delta = self.X[rows], self.wanted[rows], self.delta[rows]
        some.outputs = [(v[rows], v_reach[rows], b[rows], b_reach[rows]) for v, v_reach, b, b_reach in self.outputs]
        some.first = self.first[0][rows], self.first[1][rows]
        return some

    def at(self, delta: _Array) -> UnitPushes:
        """The same in boxes of other sizes."""
        other = copy(self)
        other.delta = delta
        return other

    def margins(self, points: _Array) -> _Array:
        """Margins (rows, points) on the pushes (rows, points, units)."""
        a = self.X[:, None, :]
        for i, part in enumerate(self.parts):
            middle, spread = self._reached(i, a)
            a = activate(self.net.activations[i], middle + points[..., part] * spread)
        return np.broadcast_to(self._worst(a)[0], points.shape[:2])

    def gradients(self, points: _Array, softness: _Array | float = 0.0) -> tuple[_Array, _Array]:
        """Margins (rows, points) and their gradients (rows, points, units).

        A unit that is switched off has no slope, and nothing would ever push it on: `softness`, one number or one per
        point, is taken for slopes that are smaller.
        """
        a, kept = self.X[:, None, :], []
        soft = np.asarray(softness)[..., None]
        for i, part in enumerate(self.parts):
            name, push = self.net.activations[i], points[..., part]
            middle, spread = self._reached(i, a)
            z = middle + push * spread
            kept.append((a, push, spread, _softened(derivative(name, z), soft)))
            a = activate(name, z)
        margins, pushes, weights = self._worst(a)
        gradients = np.empty(points.shape)
        if not self.parts:
            return np.broadcast_to(margins, points.shape[:2]), gradients
        last = len(self.parts)
        middle, spread = self._reached(last, a)
        slope = _softened(derivative(self.net.activations[last], middle + pushes * spread), soft)
        g = self._back(last, a, weights * slope, pushes)
        for i in reversed(range(last)):
            before, push, spread, slope = kept[i]
            g *= slope
            gradients[..., self.parts[i]] = g * spread
            if i:
                g = self._back(i, before, g, push)
        return margins, gradients

    def direction(self, row: int, point: _Array) -> _Array:
        """The shift of one row, in [-1, 1] per parameter, that pushes its units so and the last ones worst."""
        alone = self.take(np.array([row]))
        a, found = alone.X[:, None, :], []
        for i, part in enumerate(alone.parts):
            middle, spread = alone._reached(i, a)
            found += [(np.sign(a[0, 0]), point[part])]
            a = activate(alone.net.activations[i], middle + point[part] * spread)
        margins = [alone._against(a, rival)[0][0, 0] for rival in range(len(alone.outputs))]
        worst = int(np.argmin(margins))
        if alone.net.activations:
            last = len(alone.parts)
            middle, spread = alone._reached(last, a)
            push = alone._against(a, worst)[1][0, 0]
            found += [(np.sign(a[0, 0]), push)]
            a = activate(alone.net.activations[last], middle + push * spread)
        found += [(np.sign(a[0, 0]), -self._enters(row, worst))]
        return np.concatenate([part for side, push in found for part in (np.outer(side, push).ravel(), push)])

    def _enters(self, row: int, rival: int) -> _Array:
        """How each output enters the margin against a rival."""
        enters, wanted = np.zeros(self.net.weights[-1].shape[1]), self.wanted[row]
        if len(enters) == 1:
            return np.where(wanted == 1, 1.0, -1.0)[None]
        enters[wanted], enters[rivals(self.net, self.wanted[row : row + 1])[0, rival]] = 1.0, -1.0
        return enters

    def _reached(self, layer: int, a: _Array) -> tuple[_Array, _Array]:
        """Middle and half width of what the units of a layer reach from `a`."""
        middle, spread = self.first if layer == 0 else self._ranges(layer, a)
        return middle, self.delta[:, None, None] * spread

    def _ranges(self, layer: int, a: _Array) -> tuple[_Array, _Array]:
        """The same for a delta of 1."""
        size, alike = np.abs(a), self.alike[layer]
        spread = size @ self.reach[2 * layer] if alike is None else alike * size.sum(axis=-1, keepdims=True)
        return a @ self.net.weights[layer] + self.net.biases[layer], spread + self.reach[2 * layer + 1]

    def _back(self, layer: int, a: _Array, g: _Array, pushes: _Array) -> _Array:
        """Gradient by what enters a layer, from that by the arguments of its units."""
        alike, pushed = self.alike[layer], g * pushes
        spread = pushed @ self.reach[2 * layer].T if alike is None else alike * pushed.sum(axis=-1, keepdims=True)
        g = g @ self.net.weights[layer].T
        g += self.delta[:, None, None] * np.sign(a) * spread
        return g

    def _worst(self, a: _Array) -> tuple[_Array, _Array, _Array]:
        """Least margins, from what enters the last hidden layer; its pushes, and the output weights then at work."""
        margins, pushes, weights = self._against(a, 0)
        for rival in range(1, len(self.outputs)):
            other = self._against(a, rival)
            closer = other[0] < margins
            margins = np.where(closer, other[0], margins)
            pushes, weights = (
                np.where(closer[..., None], new, old)
                for new, old in zip(other[1:], (pushes, weights), strict=True)
            )  # fmt: skip
        return margins, pushes, weights

    def _against(self, a: _Array, rival: int) -> tuple[_Array, _Array, _Array]:
        """The same against one of the rivals of each row."""
        v, v_reach, bias, bias_reach = self.outputs[rival]
        v, v_reach = v[:, None, :], self.delta[:, None, None] * v_reach[:, None, :]
        bias = (bias - self.delta * bias_reach)[:, None]
        if not self.net.activations:
            return (a * v - np.abs(a) * v_reach).sum(axis=-1) + bias, a, v
        last = len(self.parts)
        name = self.net.activations[last]
        middle, spread = self._reached(last, a)
        pushes: list[_Array | float] = [-1.0, 1.0]
        if name in LOWEST:  # between its ends the activation can be lower than at either
            room = np.where(spread > 0, spread, np.inf)
            pushes.append(np.clip((LOWEST[name] - middle) / room, -1.0, 1.0))
        reached = [activate(name, middle + push * spread) for push in pushes]
        terms = [h * v - np.abs(h) * v_reach for h in reached]
        least, push, h = terms[0], np.full_like(middle, -1.0), reached[0]
        for i in range(1, len(terms)):
            better = terms[i] < least
            least, push, h = (
                np.where(better, new, old)
                for new, old in zip((terms[i], pushes[i], reached[i]), (least, push, h), strict=True)
            )  # fmt: skip
        return least.sum(axis=-1) + bias, push, v - np.sign(h) * v_reach


def _softened(slopes: _Array, soft: _Array) -> _Array:
    return np.where(np.abs(slopes) < soft, soft, slopes) if soft.any() else slopes
