"""What a shift set offers, and how any of them is asked: what moves, which draws, what margins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from apas._random import Stream
from apas._typing import Array, Floats
from apas.models.base import Model, Parameters, Scaled, offers


@runtime_checkable
class ShiftSet(Protocol):
    """Every model that counts as a small change of a base model, and how to draw one.

    A shifted model has parameters ``theta + delta * u`` with a direction ``u`` from the set's unit ball; a set of
    which that is not true says so by offering `OtherMoves`. Ask it through `apas.shifts.base`, which knows.
    """

    def directions(self, parameters: Parameters, stream: Stream, start: int, stop: int) -> Floats:
        """Directions number `start` to `stop`, shape (stop - start, k): a pure function of (stream, index)."""
        ...

    def margins(self, model: Model, X: Floats, target: Array, directions: Floats, delta: float | Floats) -> Floats:
        """Margins of the rows `X` on every shifted model, shape (directions, rows)."""
        ...

    def radii(self, parameters: Parameters) -> Floats:
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


@runtime_checkable
class OtherMoves(Protocol):
    """A set in which something else moves than the parameters of the model: its rows, or the model as a whole."""

    def coordinates(self, model: Model) -> Parameters:
        """What moves, as a vector with names: what the members of `ShiftSet` take in place of the parameters."""
        ...

    def shifted_parameters(self, model: Model, direction: Floats, delta: float) -> Floats:
        """Parameters of the model that a direction stands for."""
        ...


@runtime_checkable
class OnPoints(Protocol):
    """A set whose models read the rows in the user's units, each with a preprocessing of its own."""

    def point_margins(
        self, model: Model, points: Any, target: Any, directions: Floats, delta: float | Floats
    ) -> Floats:
        """Margins of rows in the user's units on every shifted model, shape (directions, rows)."""
        ...


@runtime_checkable
class Magnitudes(Protocol):
    """A set that knows better than by its radii how large the numbers behind margins get."""

    def magnitudes(self, model: Model, points: Any, X: Floats, target: Any, delta: float | Floats) -> Floats:
        """Per row a number of the size of those behind any margin, on any shifted model."""
        ...


@runtime_checkable
class Listed(Protocol):
    """A set that is a list of models: checkpoints, or refits. Draw number i is model number i."""

    @property
    def models(self) -> Sequence[Any]:
        """The models."""
        ...


def coordinates(shifts: ShiftSet, model: Model) -> Parameters:
    """What moves: the parameters of the model, unless the set says otherwise."""
    return shifts.coordinates(model) if offers(shifts, OtherMoves) else model.parameters


def drawn_margins(
    shifts: ShiftSet, model: Model, points: Any, X: Floats, target: Any, directions: Floats, delta: float | Floats
) -> Floats:
    """Margins of rows on every shifted model, shape (directions, rows)."""
    if points is not None and offers(shifts, OnPoints):
        return shifts.point_margins(model, points, target, directions, delta)
    return shifts.margins(model, X, target, directions, delta)


def drawn_magnitudes(
    shifts: ShiftSet, model: Model, points: Any, X: Floats, target: Any, radii: Floats, delta: float | Floats
) -> Floats:
    """Per row a number of the size of those behind any margin, on any shifted model."""
    if offers(shifts, Magnitudes):
        return shifts.magnitudes(model, points, X, target, delta)
    return magnitudes(model, X, target, radii, delta)


def magnitudes(model: Model, X: Floats, target: Any, radii: Floats, delta: float | Floats) -> Floats:
    """The same while parameter i moves by at most ``delta * radii[i]``; without that knowledge, the margin itself."""
    if offers(model, Scaled):
        return model.margin_scale(X, radii, delta)
    return np.asarray(np.maximum(1.0, np.abs(model.margin(X, target))))
