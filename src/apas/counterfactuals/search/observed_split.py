"""Listed models (checkpoints, refits) in two parts: some to search with, the others to certify on.

What has been chosen by looking at a model says nothing about how it does on others. So the last models, as many as the
claim needs, are not shown to the search; each of them certifies the candidate of a row once.

To encode a table takes a pipeline milliseconds, and a search asks hundreds of times about dozens of models. What each
feature adds to the columns of a model is found out once; a row is then a sum. Nothing that is read so certifies
anything: the test encodes rows as each model itself does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from apas._typing import Floats
from apas.certification.claims import Most
from apas.certification.question import Draws, LeastDraws
from apas.counterfactuals.sources.base import Task
from apas.counterfactuals.space.encoder import CodedModel, Piece, pieces_of
from apas.errors import ApasError, InputError, Unsupported
from apas.models.base import Dense, Model, Raw, offers
from apas.models.digest import model_digest
from apas.shifts.base import Listed, ShiftSet, in_training_order
from apas.stats import sample_size


@runtime_checkable
class Relistable(Protocol):
    """A listed set that can be made of other models: of a part of them, or of the same ones read in another way."""

    def with_models(self, models: Sequence[Any]) -> ShiftSet:
        """The same set of other models."""


@runtime_checkable
class AsTheyAre(Protocol):
    """A listed set whose draw number i is, with delta 1, model number i as it is."""

    def margins_read(
        self, model: Model, rows: Callable[[int, Model], Floats], numbers: Sequence[int], count: int, target: Any
    ) -> Floats:
        """Margins of `count` rows on models of these numbers, each given what it reads, shape (numbers, count)."""


def relisted(shifts: Listed, models: Any) -> Any:
    """The same set of other models."""
    if not offers(shifts, Relistable):
        raise Unsupported(
            f"generate searches on some of the models of {type(shifts).__name__} and certifies on others, read in the "
            "units of the space, for which the set needs a method `with_models(models)`; add it, or use ObservedShifts."
        )
    return shifts.with_models(models)


def split_models(shifts: Listed, method: Draws, together: int) -> tuple[Any, Any]:
    """The models to search with, and the last ones, as many as a claim about rows together needs, to certify on."""
    models, name = shifts.models, type(shifts).__name__
    if in_training_order(shifts):
        raise Unsupported("generate searches on some models and certifies on others, so that it needs a list: retrain.")
    claim = Most(method.coverage, method.confidence, "", together)
    needed = sample_size(coverage=claim.coverage, confidence=claim.row_confidence)
    needed = method.least_draws(claim) if offers(method, LeastDraws) else needed
    certifying = needed if method.n_samples is None else method.n_samples
    if certifying < needed or len(models) <= certifying:
        raise InputError(
            f"`models` of {name} must number more than {max(needed, certifying)} to generate with coverage "
            f"{method.coverage} and confidence {method.confidence}{f' for {together} rows together' * (together > 1)}, "
            f"got {len(models)}: that many certify, and the search needs others; retrain more."
        )
    parts = [relisted(shifts, part) for part in (models[:-certifying], models[-certifying:])]
    known = [set(part.to_dict().get("models") or map(model_digest, part.models)) for part in parts]
    if both := len(known[0] & known[1]):
        raise InputError(
            f"`models` of {name} must differ, but {both} of those to certify on are among those to search: "
            "what a search has seen certifies nothing; retrain each with a seed of its own."
        )
    return parts[0], parts[1]


def differences(shifts: ShiftSet, model: Model) -> Floats | None:
    """By how much the parameters of the models differ from those of one, if all read rows alike; else None."""
    if not offers(shifts, Listed) or not offers(shifts, AsTheyAre):
        return None
    if not offers(model, Dense) or (offers(model, Raw) and not isinstance(model, CodedModel)):
        return None
    if any(type(m) is not type(model) or not _alike(m, model) for m in shifts.models):
        return None
    return np.stack([m.parameters.values - model.parameters.values for m in shifts.models])


def _alike(one: Any, other: Any) -> bool:
    a, b = one.as_feedforward(), other.as_feedforward()
    same = all(getattr(a, name) == getattr(b, name) for name in ("activations", "output", "threshold", "classes"))
    return bool(same and one.parameters.shapes == other.parameters.shapes)


class AdditiveEncoder:
    """The encoder of one model as a sum over features; what never changes is encoded once per row of the call."""

    def __init__(self, task: Task, parts: tuple[Piece | None, ...]) -> None:
        self.task, self._fixed = task, np.array([piece is None for piece in parts])
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
        alike = (points[:, self._fixed] == points[:1, self._fixed]).all()
        inside = alike and ((points >= self._low) & (points <= self._high)).all()
        if not inside or not all(np.isin(points[:, i], piece.numbers).all() for i, piece in self._levels):
            return self.task.encoded(points)
        sums, key = points @ self._lines, points[0, self._fixed].tobytes()
        for i, piece in self._levels:
            sums += piece.part(points[:, i])
        if key not in self._rest:
            self._rest[key] = self.task.encoded(points[:1])[0] - sums[0]
        return sums + self._rest[key]


@dataclass(frozen=True)
class AdditiveModels:
    """Models of a search whose encoders are all additive."""

    shifts: AsTheyAre
    model: Model
    encoders: tuple[AdditiveEncoder, ...]

    @classmethod
    def of(cls, shifts: ShiftSet, task: Task) -> AdditiveModels | None:
        """The models, or None if one of them bends or mixes features, or does not know a level."""
        if not offers(shifts, Listed) or not offers(shifts, AsTheyAre):
            return None
        encoders = []
        for other in shifts.models:
            own = Task(other, task.space, background=task.background)
            try:
                pieces = pieces_of(own)
            except ApasError:
                return None
            if pieces.complaint is not None:
                return None
            encoders.append(AdditiveEncoder(own, pieces.parts))
        return cls(shifts, task.model, tuple(encoders))

    def margins(self, points: Floats, target: Any) -> Floats:
        """Margins of points of one row on every model, shape (models, points)."""

        def read(number: int, _: Model) -> Floats:
            return self.encoders[number].encoded(points)

        return self.shifts.margins_read(self.model, read, range(len(self.encoders)), len(points), target)
