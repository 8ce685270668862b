"""Gradients of the margins of dense networks, each row on a shifted network of its own.

One pass forward keeps what enters each layer and the slopes of its units, one pass backward multiplies them. With
`moves`, every row has weights of its own: the products are one small matrix product per row, whose result does not
depend on the other rows, and rows go through in blocks whose weights stay in memory that is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from apas.errors import InputError
from apas.models.activations import activate, derivative
from apas.models.margins import margins_from_scores

if TYPE_CHECKING:
    from apas.models.feedforward import FeedForward

__all__ = ["input_gradients", "parameter_gradients"]

_Array = NDArray[np.float64]
#: How many shifted parameters are written down at a time: they should stay in the processor's cache.
BLOCK = 1 << 17


def input_gradients(
    net: FeedForward, X: _Array, wanted: NDArray[np.intp], moves: _Array | None = None
) -> tuple[_Array, _Array]:
    """Margins (rows,) and their gradients by the input (rows, features).

    Parameters
    ----------
    net : FeedForward
    X : ndarray of shape (rows, features)
    wanted : ndarray of int, shape (rows,)
        Position of the wanted class.
    moves : ndarray of shape (rows, k), optional
        Row i is looked at on the network ``parameters + moves[i]``; on the network itself unless given.

    Examples
    --------
    >>> from apas import FeedForward
    >>> net = FeedForward([[[1.0], [-2.0]]], [[0.5]])
    >>> input_gradients(net, np.array([[1.0, 1.0]]), np.array([0]))
    (array([0.5]), array([[-1.,  2.]]))
    """
    margins, gradients = np.empty(len(X)), np.empty(X.shape)
    for rows, weights, biases in _blocks(net, X, moves):
        margins[rows], _, slopes, g = _forward(net, X[rows], wanted[rows], weights, biases)
        for i in reversed(range(len(weights))):
            g = _back(g, weights[i])
            if i:
                g *= slopes[i - 1]
        gradients[rows] = g
    return margins, gradients


def parameter_gradients(
    net: FeedForward, X: _Array, wanted: NDArray[np.intp], moves: _Array | None = None
) -> tuple[_Array, _Array]:
    """Margins (rows,) and their gradients by the parameters (rows, k); arguments as of `input_gradients`.

    Examples
    --------
    >>> from apas import FeedForward
    >>> net = FeedForward([[[1.0], [-2.0]]], [[0.5]])
    >>> parameter_gradients(net, np.array([[1.0, 3.0]]), np.array([1]), np.array([[0.0, 0.0, 1.0]]))
    (array([-3.5]), array([[1., 3., 1.]]))
    """
    margins, gradients = np.empty(len(X)), np.empty((len(X), len(net.parameters)))
    slices = net.parameters.slices
    for rows, weights, biases in _blocks(net, X, moves):
        margins[rows], enters, slopes, g = _forward(net, X[rows], wanted[rows], weights, biases)
        block = gradients[rows]
        for i in reversed(range(len(weights))):
            by_weight = block[:, slices[2 * i]].reshape(len(block), *net.weights[i].shape)  # a view
            np.multiply(enters[i][:, :, None], g[:, None, :], out=by_weight)
            block[:, slices[2 * i + 1]] = g
            if i:
                g = _back(g, weights[i])
                g *= slopes[i - 1]
    return margins, gradients


_Block = tuple[slice, list[_Array], list[_Array]]


def _blocks(net: FeedForward, X: _Array, moves: _Array | None) -> Iterator[_Block]:
    """Blocks of rows with the weights and biases of each row, or with those that all of them share."""
    widest = max(max(w.shape) for w in net.weights)
    if moves is None:
        step = max(1, BLOCK // widest)
        for start in range(0, len(X), step):
            yield slice(start, start + step), list(net.weights), list(net.biases)
        return
    theta = net.parameters
    if moves.shape != (len(X), len(theta)):
        raise InputError(
            f"`moves` must hold one change per row and parameter, shape {(len(X), len(theta))}, got {moves.shape}."
        )
    step = max(1, BLOCK // len(theta))
    for start in range(0, len(X), step):
        moved = moves[start : start + step] + theta.values
        tensors = zip(theta.slices, theta.shapes, strict=True)
        parts = [moved[:, part].reshape(len(moved), *shape) for part, shape in tensors]
        yield slice(start, start + step), parts[::2], parts[1::2]


def _forward(
    net: FeedForward, X: _Array, wanted: NDArray[np.intp], weights: list[_Array], biases: list[_Array]
) -> tuple[_Array, list[_Array], list[_Array], _Array]:
    """Margins, what enters each layer, the slopes of its units, and the gradients by the scores."""
    enters, slopes = [X], []
    for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
        z = enters[-1] @ w if w.ndim == 2 else (enters[-1][:, None, :] @ w)[:, 0]
        z += b
        if i < len(net.activations):
            slopes.append(derivative(net.activations[i], z))
            enters.append(activate(net.activations[i], z))
    return margins_from_scores(z, wanted, net.offset), enters, slopes, _score_gradients(z, wanted)


def _back(g: _Array, w: _Array) -> _Array:
    return np.asarray(g @ w.T if w.ndim == 2 else (w @ g[:, :, None])[:, :, 0])


def _score_gradients(scores: _Array, wanted: NDArray[np.intp]) -> _Array:
    """How each score enters the margin: that of the wanted class, and that of the rival that is best."""
    rows, outputs = scores.shape
    sign = np.where(wanted == 1, 1.0, -1.0)
    if outputs == 1:
        return sign[:, None]
    if outputs == 2:
        return np.stack([-sign, sign], axis=1)
    every = np.arange(rows)
    others = scores.copy()
    others[every, wanted] = -np.inf
    gradients = np.zeros((rows, outputs))
    gradients[every, others.argmax(axis=1)] = -1.0
    gradients[every, wanted] = 1.0
    return gradients
