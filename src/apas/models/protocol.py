"""What a model has to offer: five members, and a few capabilities on top."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from apas.models.parameters import Parameters

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from apas.models.feedforward import FeedForward

__all__ = [
    "Arithmetic", "Dense", "Described", "Differentiable", "LibraryBacked", "Model", "Named", "Raw", "Scaled", "offers",
]  # fmt: skip

_Capability = TypeVar("_Capability")


def offers(model: object, capability: type[_Capability]) -> TypeIs[_Capability]:
    """Whether `model` has the members of a protocol: what ``isinstance`` says, a hundred times faster.

    Examples
    --------
    >>> from apas import FeedForward
    >>> net = FeedForward([[[1.0]]], [[0.0]])
    >>> offers(net, Dense), offers(net, Raw)
    (True, False)
    """
    if _class_offers(type(model), capability):  # type: ignore[arg-type]
        return True
    # what a class does not have, an instance may have been given
    return all(hasattr(model, name) for name in vars(capability) if not name.startswith("_"))


@cache
def _class_offers(kind: Any, capability: Any) -> bool:
    return all(hasattr(kind, name) for name in vars(capability) if not name.startswith("_"))


@runtime_checkable
class Model(Protocol):
    """A classifier whose parameters can be shifted.

    The margin of a row is at least 0 where the model gives the target class: see `apas.models.margins`.
    """

    @property
    def classes(self) -> tuple[Any, ...]:
        """Class labels; of two, the second is "class 1"."""
        ...

    @property
    def n_features(self) -> int:
        """Number of inputs, in model units."""
        ...

    @property
    def parameters(self) -> Parameters:
        """Every parameter that may move."""
        ...

    def margin(self, X: NDArray[np.float64], target: Any) -> NDArray[np.float64]:
        """Margins of the rows `X` towards `target` (one label, or one per row), shape (rows,)."""
        ...

    def shifted_margins(
        self,
        X: NDArray[np.float64],
        target: Any,
        directions: NDArray[np.float64],
        delta: float | NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Margins on the models ``parameters + delta * direction``, shape (directions, rows)."""
        ...


@runtime_checkable
class Named(Protocol):
    """A model that knows the names of its columns."""

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns a user passes, or None."""
        ...


@runtime_checkable
class Raw(Protocol):
    """A model that takes rows in raw units and turns them into model units itself."""

    @property
    def n_raw_features(self) -> int:
        """Number of columns a user passes."""
        ...

    def encode(self, X: Any) -> NDArray[np.float64]:
        """Rows in raw units (array or data frame) as a matrix in model units."""
        ...


@runtime_checkable
class Dense(Protocol):
    """A model that is a dense feed-forward network in model units."""

    def as_feedforward(self) -> FeedForward:
        """Give the same network as a `FeedForward`."""
        ...


@runtime_checkable
class Differentiable(Protocol):
    """A model whose margins have gradients, each row on a shifted model of its own."""

    def input_gradient(
        self, X: NDArray[np.float64], target: Any, moves: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Margins (rows,) and their gradients by the input (rows, features), row i on ``parameters + moves[i]``."""
        ...

    def parameter_gradient(
        self, X: NDArray[np.float64], target: Any, moves: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Margins (rows,) and their gradients by the parameters (rows, k), row i on ``parameters + moves[i]``."""
        ...


@runtime_checkable
class Scaled(Protocol):
    """A model that knows how large the numbers get inside it."""

    def margin_scale(
        self, X: NDArray[np.float64], radii: NDArray[np.float64], delta: float | NDArray[np.float64] = 1.0
    ) -> NDArray[np.float64]:
        """A bound per row on the magnitudes behind any margin while parameter i moves by <= delta * radii[i]."""
        ...


@runtime_checkable
class Arithmetic(Protocol):
    """A model that knows in which arithmetic it is computed where it is used; all others are taken at their word."""

    @property
    def dtype(self) -> str:
        """The name of its floating point numbers: "float64" or "float32"."""
        ...


@runtime_checkable
class LibraryBacked(Protocol):
    """A model made from another library's object, which can be asked for its own opinion."""

    def library_classes(self, X: Any) -> NDArray[Any]:
        """Classes of the raw rows `X` according to the library that trained the model."""
        ...


@runtime_checkable
class Described(Protocol):
    """A model whose architecture (and preprocessing) can be written down."""

    def describe(self) -> dict[str, Any]:
        """All that decides the output besides the parameters, as JSON values."""
        ...
