"""What a set of model shifts has to offer."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from apas._random import Stream
from apas.models.parameters import Parameters
from apas.models.protocol import Model

__all__ = ["ShiftSet"]


@runtime_checkable
class ShiftSet(Protocol):
    """Every model that counts as a small change of a base model, and how to draw one.

    A shifted model has parameters ``theta + delta * u`` with a direction ``u`` from the set's unit ball.
    """

    def directions(self, parameters: Parameters, stream: Stream, start: int, stop: int) -> NDArray[np.float64]:
        """Directions number `start` to `stop`, shape (stop - start, k): a pure function of (stream, index)."""
        ...

    def margins(
        self, model: Model, X: NDArray[np.float64], target: NDArray[Any], directions: NDArray[np.float64],
        delta: float | NDArray[np.float64],
    ) -> NDArray[np.float64]:  # fmt: skip
        """Margins of the rows `X` on every shifted model, shape (directions, rows)."""
        ...

    def radii(self, parameters: Parameters) -> NDArray[np.float64]:
        """How far each parameter may move when delta is 1, shape (k,)."""
        ...

    def contains(self, base: Parameters, other: Parameters, delta: float) -> bool:
        """Whether the model with parameters `other` is a shift of `base` by at most `delta`."""
        ...

    def measure(self, parameters: Parameters) -> str:
        """Name of the distribution that the directions are drawn from, as printed in a claim."""
        ...

    def region(self, parameters: Parameters) -> str:
        """The set itself in words, as printed in a claim about every shift."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to build the set again, as JSON values."""
        ...
