"""Refitted models in two parts: some to search with, the others to certify on.

To encode a table takes a pipeline milliseconds, and a search asks hundreds of times about dozens of models. What each
feature adds to the columns of a model is found out once; a row is then a sum. Nothing that is read so certifies
anything: the test encodes rows as each model itself does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from apas._typing import Floats
from apas.certification.methods.sampling import Sampling
from apas.counterfactuals.search.source import Task
from apas.counterfactuals.space.coding import CodedModel
from apas.counterfactuals.space.pieces import Piece, pieces_of
from apas.counterfactuals.space.space import FeatureSpace
from apas.errors import ApasError, InputError
from apas.models.base import Dense, Model, Raw, offers
from apas.shifts.base import ShiftSet
from apas.shifts.observed import ObservedShifts
from apas.stats import sample_size


def bound_models(shifts: ShiftSet, space: FeatureSpace, model: Model) -> ShiftSet:
    """Models behind the coding of the space, if the model itself is."""
    if not isinstance(shifts, ObservedShifts) or not isinstance(model, CodedModel):
        return shifts
    return ObservedShifts([space.bind(other) for other in shifts.models], process=shifts.process)


def parted(shifts: ObservedShifts, method: Sampling) -> tuple[ObservedShifts, ObservedShifts]:
    """The models to search with, and the last ones, as many as the claim needs, to certify on."""
    needed = sample_size(coverage=method.coverage, confidence=method.confidence)
    certifying = needed if method.n_samples is None else method.n_samples
    if certifying < needed or len(shifts) <= certifying:
        raise InputError(
            f"`models` of ObservedShifts must number more than {max(needed, certifying)} to generate with coverage "
            f"{method.coverage} and confidence {method.confidence}, got {len(shifts)}: that many certify, and the "
            "search needs others; retrain more."
        )
    models, process = shifts.models, shifts.process
    first = ObservedShifts(models[:-certifying], process=process)
    last = ObservedShifts(models[-certifying:], process=process)
    both = len(set(first.to_dict()["models"]) & set(last.to_dict()["models"]))
    if both:
        raise InputError(
            f"`models` of ObservedShifts must differ, but {both} of those to certify on are among those to search: "
            "what a search has seen certifies nothing; retrain each with a seed of its own."
        )
    return first, last


def differences(shifts: ObservedShifts, model: Model) -> Floats | None:
    """By how much the parameters of the models differ from those of one, if all read rows alike; else None."""
    if not offers(model, Dense) or (offers(model, Raw) and not isinstance(model, CodedModel)):
        return None
    base = model.parameters
    if any(type(m) is not type(model) or not _alike(m, model) for m in shifts.models):
        return None
    return np.stack([m.parameters.values - base.values for m in shifts.models])


def _alike(one: Any, other: Any) -> bool:
    a, b = one.as_feedforward(), other.as_feedforward()
    settings = ("activations", "output", "threshold", "classes")
    same = all(getattr(a, name) == getattr(b, name) for name in settings)
    return bool(same and one.parameters.shapes == other.parameters.shapes)


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
        self._rest: dict[bytes, Floats] = {}

    def encoded(self, points: Floats) -> Floats:
        """Points in the units of the model, fast if they agree in what never changes, as all points of one row do."""
        if not self._covers(points):
            return self.task.encoded(points)
        sums, key = self._sum(points), points[0, self._fixed].tobytes()
        if key not in self._rest:
            self._rest[key] = self.task.encoded(points[:1])[0] - sums[0]
        return sums + self._rest[key]

    def _covers(self, points: Floats) -> bool:
        alike = (points[:, self._fixed] == points[:1, self._fixed]).all()
        inside = alike and ((points >= self._low) & (points <= self._high)).all()
        return bool(inside and all(np.isin(points[:, i], piece.numbers).all() for i, piece in self._levels))

    def _sum(self, points: Floats) -> Floats:
        sums = points @ self._lines
        for i, piece in self._levels:
            sums += piece.part(points[:, i])
        return sums


@dataclass(frozen=True)
class ReadModels:
    """Models of a search that can be read so."""

    shifts: ObservedShifts
    model: Model
    readers: tuple[_Reader, ...]

    @classmethod
    def of(cls, shifts: ObservedShifts, task: Task) -> ReadModels | None:
        """The models, or None if one of them bends or mixes features, or does not know a level."""
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

    def margins(self, points: Floats, target: Any) -> Floats:
        """Margins of points of one row on every model, shape (models, points)."""

        def read(number: int, _: Model) -> Floats:
            return self.readers[number].encoded(points)

        return self.shifts.margins_read(self.model, read, range(len(self.readers)), len(points), target)
