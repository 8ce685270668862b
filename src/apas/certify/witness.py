"""Shifts that break an explanation, kept so that anyone can replay them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apas._random import Stream
from apas.models.convert import as_model, encoded_rows
from apas.models.protocol import Dense, offers
from apas.shifts.box import inside_box
from apas.shifts.draws import coordinates, drawn_margins
from apas.shifts.linf import LinfShifts
from apas.shifts.protocol import OtherMoves, ShiftSet

__all__ = ["CornerShift", "DrawnShift", "KeptShift", "Witness"]

_Array = NDArray[np.float64]


class Witness(Protocol):
    """A shifted model on which a row is not valid."""

    @property
    def delta(self) -> float:
        """Size of the shift."""
        ...

    def parameters(self, model: Any) -> _Array:
        """Parameters of the shifted model, shape (k,)."""
        ...

    def margin(self, model: Any, X: Any, target: Any) -> float:
        """Margin on the shifted model of one row, given as the user gave it: 2-D with one row, or a data frame."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """What is needed to replay it, as JSON values."""
        ...


@dataclass(frozen=True)
class DrawnShift:
    """A shift kept as the number of the draw that found it.

    Parameters
    ----------
    shifts : ShiftSet
    delta : float
    entropy : int
    purpose : str
        Together with `entropy` the stream of random words.
    index : int
        Number of the draw.
    """

    shifts: ShiftSet
    delta: float
    entropy: int
    purpose: str
    index: int

    def direction(self, model: Any) -> _Array:
        """The direction that was drawn: one number per parameter, or per coordinate of what moves instead."""
        moving, stream = coordinates(self.shifts, as_model(model)), Stream(self.entropy, self.purpose)
        return np.asarray(self.shifts.directions(moving, stream, self.index, self.index + 1)[0])

    def parameters(self, model: Any) -> _Array:
        """Parameters of the shifted model, shape (k,)."""
        net, direction = as_model(model), self.direction(model)
        if offers(self.shifts, OtherMoves):
            return self.shifts.shifted_parameters(net, direction, self.delta)
        return net.parameters.values + self.delta * direction

    def margin(self, model: Any, X: Any, target: Any) -> float:
        """Margin on the shifted model of one row, given as the user gave it: 2-D with one row, or a data frame."""
        net = as_model(model)
        points, rows = encoded_rows(net, X)
        direction = self.direction(net)[None, :]
        return float(drawn_margins(self.shifts, net, points, rows, target, direction, self.delta)[0, 0])

    def to_dict(self) -> dict[str, Any]:
        """The number of the draw; stream and size stand in the certificate."""
        return {"kind": "draw", "index": self.index}


@dataclass(frozen=True, eq=False)
class KeptShift:
    """A shift kept as the parameters of the shifted model, which lie inside the set without any tolerance.

    Parameters
    ----------
    delta : float
    values : ndarray of shape (k,)
        Parameters of the shifted model.

    Examples
    --------
    >>> from apas import FeedForward
    >>> net = FeedForward([[[1.0]]], [[0.0]])
    >>> KeptShift(0.5, np.array([1.0, -0.5])).margin(net, [[0.25]], 1)
    -0.25
    """

    delta: float
    values: _Array

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    def parameters(self, model: Any) -> _Array:
        """Parameters of the shifted model, shape (k,)."""
        return self.values

    def margin(self, model: Any, X: Any, target: Any) -> float:
        """Margin on the shifted model of one row, given as the user gave it: 2-D with one row, or a data frame."""
        net = as_model(model)
        rows = encoded_rows(net, X)[1]
        if offers(net, Dense):  # on these very parameters, not on base + difference, which rounds
            return float(net.as_feedforward().with_parameters(self.values).margin(rows, target)[0])
        move = (self.values - net.parameters.values)[None, :]
        return float(net.shifted_margins(rows, target, move, 1.0)[0, 0])

    def to_dict(self) -> dict[str, Any]:
        """The parameters, every bit of them."""
        return {"kind": "parameters", "delta": self.delta, "values": self.values.tolist()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeptShift) and self.delta == other.delta and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash((self.delta, self.values.tobytes()))


@dataclass(frozen=True, eq=False)
class CornerShift:
    """A shift to a corner of a box, kept as one sign per parameter: an eighth of what the parameters take.

    Parameters
    ----------
    shifts : LinfShifts
    delta : float
    signs : ndarray of int8, shape (k,)
        -1, 0 or 1 per parameter: to which end of its range it moves, as far as fits inside without tolerance.

    Examples
    --------
    >>> from apas import FeedForward
    >>> net = FeedForward([[[1.0]]], [[0.0]])
    >>> CornerShift(LinfShifts(), 0.5, np.array([0, -1], dtype=np.int8)).margin(net, [[0.25]], 1)
    -0.25
    """

    shifts: LinfShifts
    delta: float
    signs: NDArray[np.int8]

    def __post_init__(self) -> None:
        signs = np.array(self.signs, dtype=np.int8)
        signs.flags.writeable = False
        object.__setattr__(self, "signs", signs)

    def parameters(self, model: Any) -> _Array:
        """Parameters of the shifted model, shape (k,)."""
        base = as_model(model).parameters
        return inside_box(base.values, self.shifts.radii(base), self.delta, self.signs.astype(np.float64))

    def margin(self, model: Any, X: Any, target: Any) -> float:
        """Margin on the shifted model of one row, given as the user gave it: 2-D with one row, or a data frame."""
        return KeptShift(self.delta, self.parameters(model)).margin(model, X, target)

    def to_dict(self) -> dict[str, Any]:
        """The signs as a text of ``-``, ``0`` and ``+``."""
        text = np.array(["-", "0", "+"])[self.signs + 1]
        return {"kind": "corner", "delta": self.delta, "signs": "".join(text.tolist())}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CornerShift) and self.to_dict() == other.to_dict() and self.shifts == other.shifts

    def __hash__(self) -> int:
        return hash((self.delta, self.signs.tobytes()))
