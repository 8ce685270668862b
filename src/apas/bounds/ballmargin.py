"""The margin against one rival as one output, and which parameters move behind it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from apas.bounds.interval import rivals
from apas.models.activations import activate
from apas.models.feedforward import FeedForward

__all__ = ["BallMargin", "margins_against"]

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class BallMargin:
    """Rows of a network with one output each: the margin against one rival.

    Attributes
    ----------
    net : FeedForward
    X : ndarray of shape (rows, features)
    moves : list of (ndarray, ndarray)
        Per layer which weights (inputs, units) and biases (units,) move: 1 or 0.
    weights, weight_moves : ndarray of shape (rows, units)
        Weights of the output, and behind each the number of parameters that move: up to two, of the wanted score
        and the rival's.
    bias, bias_moves, bias_size : ndarray of shape (rows,)
        The same for its bias, and the sum of magnitudes that it was computed from.
    enters : ndarray of shape (rows, outputs)
        How each output of the network enters the margin: 1 the wanted score, -1 the rival's.
    """

    net: FeedForward
    X: _Array
    moves: list[tuple[_Array, _Array]]
    weights: _Array
    weight_moves: _Array
    bias: _Array
    bias_moves: _Array
    bias_size: _Array
    enters: _Array

    @property
    def linear(self) -> bool:
        """Whether the margin is linear in what moves: nothing before the output does."""
        return not any(w.any() or b.any() for w, b in self.moves[:-1])

    def take(self, rows: slice | NDArray[np.intp] | NDArray[np.bool_]) -> BallMargin:
        """The same for some of the rows."""
        names = ("X", "weights", "weight_moves", "bias", "bias_moves", "bias_size", "enters")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def lowered(self, by: _Array) -> BallMargin:
        """The same rows with margins that are less by so much."""
        return replace(self, bias=self.bias - by, bias_size=self.bias_size + by) if by.any() else self

    def output_gradients(self) -> _Array:
        """Slopes of the margins by the output layer's parameters, on the network itself, (rows, k); 0 for others."""
        net, values = self.net, self.X
        for w, b, name in zip(net.weights[:-1], net.biases[:-1], net.activations, strict=True):
            values = activate(name, values @ w + b)
        gradients = np.zeros((len(values), len(net.parameters)))
        w_part, b_part = net.parameters.slices[-2:]
        gradients[:, w_part] = (values[:, :, None] * self.enters[:, None, :]).reshape(len(values), net.weights[-1].size)
        gradients[:, b_part] = self.enters
        return gradients


def margins_against(net: FeedForward, X: _Array, wanted: NDArray[np.intp], mask: _Array) -> list[BallMargin]:
    """One for each rival of the rows; the margin of a row is the least of them.

    Parameters
    ----------
    net : FeedForward
    X : ndarray of shape (rows, features)
    wanted : ndarray of int, shape (rows,)
        Position of the wanted class.
    mask : ndarray of shape (k,)
        1 where a parameter moves, else 0.

    Examples
    --------
    >>> net = FeedForward([[[1.0, 4.0, 2.0]]], [[0.0, 0.0, 0.5]], output="softmax")
    >>> found = margins_against(net, np.array([[1.0]]), np.array([1]), np.ones(6))
    >>> [float(m.weights[0, 0]) for m in found], [float(m.bias[0]) for m in found]
    ([3.0, 2.0], [0.0, -0.5])
    """
    parts = [mask[part].reshape(s) for part, s in zip(net.parameters.slices, net.parameters.shapes, strict=True)]
    moves = list(zip(parts[::2], parts[1::2], strict=True))
    sign = np.where(wanted == 1, 1.0, -1.0)
    if net.weights[-1].shape[1] == 1:
        return [_signed(net, X, moves, sign)]
    shift = sign * net.offset if len(net.classes) == 2 else np.zeros(len(X))
    return [_difference(net, X, moves, wanted, rival, shift) for rival in rivals(net, wanted).T]


def _signed(net: FeedForward, X: _Array, moves: list[tuple[_Array, _Array]], sign: _Array) -> BallMargin:
    w, b, (w_moves, b_moves) = net.weights[-1][:, 0], float(net.biases[-1][0]), moves[-1]
    return BallMargin(
        net, X, moves,
        sign[:, None] * w, np.broadcast_to(w_moves[:, 0], (len(X), len(w))),
        sign * (b - net.offset), np.full(len(X), b_moves[0]), np.full(len(X), abs(b) + abs(net.offset)),
        sign[:, None],
    )  # fmt: skip


def _difference(
    net: FeedForward, X: _Array, moves: list[tuple[_Array, _Array]], wanted: NDArray[np.intp], rival: NDArray[np.intp],
    shift: _Array,
) -> BallMargin:  # fmt: skip
    w, b, (w_moves, b_moves) = net.weights[-1], net.biases[-1], moves[-1]
    enters = np.zeros((len(X), len(b)))
    enters[np.arange(len(X)), rival], enters[np.arange(len(X)), wanted] = -1.0, 1.0
    return BallMargin(
        net, X, moves,
        (w[:, wanted] - w[:, rival]).T, (w_moves[:, wanted] + w_moves[:, rival]).T,
        b[wanted] - b[rival] - shift, b_moves[wanted] + b_moves[rival],
        np.abs(b[wanted]) + np.abs(b[rival]) + np.abs(shift), enters,
    )  # fmt: skip
