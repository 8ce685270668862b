"""A dense network in NumPy together with the library that it came from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apas._typing import Array, Floats
from apas.models.base import Parameters
from apas.models.feedforward import FeedForward


class BackedNetwork:
    """A `FeedForward` that can ask another library for its opinion."""

    def __init__(self, network: FeedForward, opinion: Callable[[Any], Array], name: str) -> None:
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

    def margin(self, X: Floats, target: Any) -> Floats:
        """Margins of the rows `X` towards `target`, shape (rows,)."""
        return self._network.margin(X, target)

    def shifted_margins(self, X: Floats, target: Any, directions: Floats, delta: float | Floats) -> Floats:
        """Margins on the networks ``parameters + delta * direction``, shape (directions, rows)."""
        return self._network.shifted_margins(X, target, directions, delta)

    def margin_scale(self, X: Floats, radii: Floats, delta: float | Floats = 1.0) -> Floats:
        """Sum of magnitudes behind any margin of each row."""
        return self._network.margin_scale(X, radii, delta)

    def input_gradient(self, X: Floats, target: Any, moves: Floats | None = None) -> tuple[Floats, Floats]:
        """Margins (rows,) and their gradients by the input (rows, features), row i on ``parameters + moves[i]``."""
        return self._network.input_gradient(X, target, moves)

    def parameter_gradient(self, X: Floats, target: Any, moves: Floats | None = None) -> tuple[Floats, Floats]:
        """Margins (rows,) and their gradients by the parameters (rows, k), row i on ``parameters + moves[i]``."""
        return self._network.parameter_gradient(X, target, moves)

    def as_feedforward(self) -> FeedForward:
        """The network in NumPy."""
        return self._network

    def library_classes(self, X: Any) -> Array:
        """Classes of the rows according to the library itself."""
        return self._opinion(X)

    def describe(self) -> dict[str, Any]:
        """As the network describes itself: it has the same digest as the one in NumPy."""
        return self._network.describe()

    def __repr__(self) -> str:
        return f"<{self._name} as {self._network!r}>"
