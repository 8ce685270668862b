"""A dense network in NumPy together with the library that it came from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.models.base import Parameters
from apas.models.feedforward import FeedForward

__all__ = ["BackedNetwork"]

_Array = NDArray[np.float64]


class BackedNetwork:
    """A `FeedForward` that can ask another library for its opinion.

    Parameters
    ----------
    network : FeedForward
        What is computed with.
    opinion : callable
        Gives the library's class of each row.
    name : str
        What the library calls the model.

    Examples
    --------
    >>> net = FeedForward([[[1.0]]], [[0.0]])
    >>> BackedNetwork(net, lambda X: np.array([1] * len(X)), "Toy").library_classes([[2.0]])
    array([1])
    """

    def __init__(self, network: FeedForward, opinion: Callable[[Any], NDArray[Any]], name: str) -> None:
        self._network, self._opinion, self._name = network, opinion, name

    @property
    def classes(self) -> tuple[Any, ...]:
        """Class labels."""
        return self._network.classes

    @property
    def n_features(self) -> int:
        """Number of inputs."""
        return self._network.n_features

    @property
    def parameters(self) -> Parameters:
        """Weights (inputs, outputs) and biases, layer by layer; those that a layer does not have are absent."""
        return self._network.parameters

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the inputs, if given."""
        return self._network.feature_names

    @property
    def dtype(self) -> str:
        """In which arithmetic the library computes the model."""
        return self._network.dtype

    def margin(self, X: _Array, target: Any) -> _Array:
        """Margins of the rows `X` towards `target`, shape (rows,)."""
        return self._network.margin(X, target)

    def shifted_margins(self, X: _Array, target: Any, directions: _Array, delta: float | _Array) -> _Array:
        """Margins on the networks ``parameters + delta * direction``, shape (directions, rows)."""
        return self._network.shifted_margins(X, target, directions, delta)

    def margin_scale(self, X: _Array, radii: _Array, delta: float | _Array = 1.0) -> _Array:
        """Sum of magnitudes behind any margin of each row."""
        return self._network.margin_scale(X, radii, delta)

    def input_gradient(self, X: _Array, target: Any, moves: _Array | None = None) -> tuple[_Array, _Array]:
        """Margins (rows,) and their gradients by the input (rows, features), row i on ``parameters + moves[i]``."""
        return self._network.input_gradient(X, target, moves)

    def parameter_gradient(self, X: _Array, target: Any, moves: _Array | None = None) -> tuple[_Array, _Array]:
        """Margins (rows,) and their gradients by the parameters (rows, k), row i on ``parameters + moves[i]``."""
        return self._network.parameter_gradient(X, target, moves)

    def as_feedforward(self) -> FeedForward:
        """The network in NumPy."""
        return self._network

    def library_classes(self, X: Any) -> NDArray[Any]:
        """Classes of the rows according to the library itself."""
        return self._opinion(X)

    def describe(self) -> dict[str, Any]:
        """As the network describes itself: it has the same digest as the one in NumPy."""
        return self._network.describe()

    def __repr__(self) -> str:
        return f"<{self._name} as {self._network!r}>"
