"""The margin of any model with gradients as a function of how its parameters move."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.models.feedforward import FeedForward
from apas.models.protocol import Differentiable

__all__ = ["ParameterMoves"]

_Array = NDArray[np.float64]


class ParameterMoves:
    """Margins of rows while the parameters move by ``delta * point``.

    Parameters
    ----------
    model : Differentiable
    X : ndarray of shape (rows, features)
    target : ndarray of object, shape (rows,)
    moving : ndarray of bool, shape (k,)
        The parameters that may move; the others have no gradient.
    delta : ndarray of shape (rows,)

    Examples
    --------
    >>> net = FeedForward([[[1.0]]], [[0.0]])
    >>> moves = ParameterMoves(net, np.array([[3.0]]), np.array([1]), np.array([True, False]), np.array([0.5]))
    >>> moves.gradients(np.array([[[-1.0, 0.0]]]))
    (array([[1.5]]), array([[[3., 0.]]]))
    """

    def __init__(
        self, model: Differentiable, X: _Array, target: NDArray[Any], moving: NDArray[np.bool_], delta: _Array
    ) -> None:
        self.model, self.X, self.target, self.moving, self.delta = model, X, target, moving, delta

    @property
    def size(self) -> int:
        """How many parameters there are."""
        return len(self.moving)

    def take(self, rows: NDArray[np.intp]) -> ParameterMoves:
        """The same for some of the rows."""
        return ParameterMoves(self.model, self.X[rows], self.target[rows], self.moving, self.delta[rows])

    def at(self, delta: _Array) -> ParameterMoves:
        """The same with moves of other sizes."""
        return ParameterMoves(self.model, self.X, self.target, self.moving, delta)

    def margins(self, points: _Array) -> _Array:
        """Margins (rows, points) at the points (rows, points, k)."""
        return self.gradients(points)[0]

    def gradients(self, points: _Array, softness: _Array | float = 0.0) -> tuple[_Array, _Array]:
        """Margins (rows, points) and their gradients (rows, points, k), up to the factor delta.

        What happens inside the model is unknown, so that `softness` changes nothing.
        """
        if isinstance(self.model, FeedForward):  # whose answers do not depend on the batch
            return self._asked(points)
        alone = [self.take(np.array([i]))._asked(points[i : i + 1]) for i in range(len(points))]
        margins, gradients = zip(*alone, strict=True)
        return np.concatenate(margins), np.concatenate(gradients)

    def _asked(self, points: _Array) -> tuple[_Array, _Array]:
        rows, count, size = points.shape
        moves = (points * self.delta[:, None, None]).reshape(-1, size)
        same = all(label == self.target[0] for label in self.target)
        target = self.target[0] if same else np.repeat(self.target, count)
        margins, gradients = self.model.parameter_gradient(np.repeat(self.X, count, axis=0), target, moves)
        gradients = np.where(self.moving, gradients, 0.0)
        return np.asarray(margins).reshape(rows, count), gradients.reshape(rows, count, size)
