"""Models that exist, each with a preprocessing of its own, asked about many rows without encoding them one by one.

To encode a table takes a pipeline milliseconds, and a search asks hundreds of times about dozens of models. What each
feature adds to the columns of a model is found out once; a row is then a sum. Nothing that is read so certifies
anything: the test encodes rows as each model itself does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.counterfactuals.pieces import Piece, pieces_of
from apas.counterfactuals.source import Task
from apas.errors import ApasError
from apas.models.protocol import Model
from apas.shifts.observed import ObservedShifts

__all__ = ["ReadModels"]

_Array = NDArray[np.float64]


class _Reader:
    """One model, and what features add to its columns; what never changes is encoded once per row of the call."""

    def __init__(self, task: Task, parts: tuple[Piece | None, ...]) -> None:
        self.task = task
        self._fixed = np.array([piece is None for piece in parts])
        self._levels = [(i, piece) for i, piece in enumerate(parts) if piece is not None and piece.line is None]
        self._lines = np.zeros((len(parts), task.model.n_features))
        self._low, self._high = np.full(len(parts), -np.inf), np.full(len(parts), np.inf)
        for i, piece in enumerate(parts):
            if piece is not None and piece.line is not None:
                self._lines[i] = piece.line
                self._low[i], self._high[i] = piece.numbers[0], piece.numbers[-1]
        self._rest: dict[bytes, _Array] = {}

    def encoded(self, points: _Array) -> _Array:
        """Points in the units of the model, fast if they agree in what never changes, as all points of one row do."""
        if not self._covers(points):
            return self.task.encoded(points)
        sums, key = self._sum(points), points[0, self._fixed].tobytes()
        if key not in self._rest:
            self._rest[key] = self.task.encoded(points[:1])[0] - sums[0]
        return sums + self._rest[key]

    def _covers(self, points: _Array) -> bool:
        alike = (points[:, self._fixed] == points[:1, self._fixed]).all()
        inside = alike and ((points >= self._low) & (points <= self._high)).all()
        return bool(inside and all(np.isin(points[:, i], piece.numbers).all() for i, piece in self._levels))

    def _sum(self, points: _Array) -> _Array:
        sums = points @ self._lines
        for i, piece in self._levels:
            sums += piece.part(points[:, i])
        return sums


@dataclass(frozen=True)
class ReadModels:
    """Models of a search that can be read so.

    Attributes
    ----------
    shifts : ObservedShifts
    model : Model
        The one they are compared with.
    readers : tuple
        One per model.
    """

    shifts: ObservedShifts
    model: Model
    readers: tuple[_Reader, ...]

    @classmethod
    def of(cls, shifts: ObservedShifts, task: Task) -> ReadModels | None:
        """The models, or None if one of them bends or mixes features, or does not know a level.

        Examples
        --------
        >>> from apas import Feature, FeatureSpace, FeedForward
        >>> net = FeedForward([[[1.0], [2.0]]], [[0.0]])
        >>> space = FeatureSpace([Feature(name, low=0.0, high=4.0) for name in "ab"])
        >>> read = ReadModels.of(ObservedShifts([net]), Task(net, space))
        >>> read.margins(np.array([[1.0, 2.0], [3.0, 0.5]]), 1).tolist()
        [[5.0, 4.0]]
        """
        readers = []
        for other in shifts.models:
            own = Task(other, task.space, background=task.background)
            try:
                pieces = pieces_of(own)
            except ApasError:
                return None
            if pieces.complaint is not None:
                return None
            readers.append(_Reader(own, pieces.parts))
        return cls(shifts, task.model, tuple(readers))

    def margins(self, points: _Array, target: Any) -> _Array:
        """Margins of points of one row on every model, shape (models, points)."""

        def read(number: int, _: Model) -> _Array:
            return self.readers[number].encoded(points)

        return self.shifts.margins_read(self.model, read, range(len(self.readers)), len(points), target)
