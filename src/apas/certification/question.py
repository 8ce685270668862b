"""A checked question: which rows, towards which class, under which shifts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from apas._random import Stream
from apas._typing import Array, Bools, Floats, Indices
from apas._validation import is_frame
from apas.certification.certificate import Certificate
from apas.certification.claims import Every, Most
from apas.models.base import Arithmetic, Dense, Model, Parameters, class_indices, needs_strict, offers, valid
from apas.models.feedforward import FeedForward
from apas.shifts.base import OnPoints, ShiftSet, coordinates, drawn_magnitudes, drawn_margins, magnitudes
from apas.shifts.observed import ObservedShifts

#: A margin smaller than this share of the magnitudes behind it could have the other sign in another batch shape.
ROUNDING = 1e-12
#: What a claim about a model that is computed in float32 says of it.
IN_FLOAT32 = "computed in float32, within its rounding"
_ALL = slice(None)


@dataclass(frozen=True)
class Question:
    """What a method gets: everything checked, nothing left to convert.

    Attributes
    ----------
    model : Model
    X : ndarray of shape (rows, features)
        In model units.
    target : ndarray of object, shape (rows,)
        A class label per row.
    delta : ndarray of shape (rows,)
    shifts : ShiftSet
    claim_rows : int
        How many rows the confidence must hold for together.
    tries : int
        By what the risk is divided because the rows stem from a search, see `Most`.
    n_jobs : int
    points : array_like, data frame or None
        The rows in the user's units; kept for shift sets that ask for them (`OnPoints`) alone.
    """

    model: Model
    X: Floats
    target: Array
    delta: Floats
    shifts: ShiftSet
    claim_rows: int = 1
    tries: int = 1
    n_jobs: int = 1
    points: Any = None

    def __post_init__(self) -> None:
        if not offers(self.shifts, OnPoints):  # to take parts of a frame costs more than many a margin
            object.__setattr__(self, "points", None)

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: Array | slice) -> Question:
        """The same question about some of the rows."""
        points = None if self.points is None else _part(self.points, rows)
        return replace(self, X=self.X[rows], target=self.target[rows], delta=self.delta[rows], points=points)

    def at(self, delta: float | Floats) -> Question:
        """The same question at another delta, one for all rows or one per row."""
        return replace(self, delta=np.broadcast_to(np.asarray(delta, dtype=np.float64), (len(self),)))

    @cached_property
    def same_target(self) -> bool:
        """Whether all rows want the same class."""
        return len(self) > 0 and all(label == self.target[0] for label in self.target)

    @property
    def one_target(self) -> Any:
        """The class of all rows if they share one, else one per row (what `Model.margin` takes)."""
        return self.target[0] if self.same_target else self.target

    @cached_property
    def one_delta(self) -> float | Floats:
        """The delta of all rows if they share one, else one per row (what `ShiftSet.margins` takes)."""
        return float(self.delta[0]) if len(self) and (self.delta == self.delta[0]).all() else self.delta

    @cached_property
    def coordinates(self) -> Parameters:
        """What moves: the parameters of the model, unless the shift set says otherwise."""
        return coordinates(self.shifts, self.model)

    @cached_property
    def radii(self) -> Floats:
        """How far each of the coordinates moves when delta is 1, shape (k,)."""
        return self.shifts.radii(self.coordinates)

    @property
    def measure(self) -> str:
        """Name of the distribution of the shifts, as printed in a claim."""
        return self.measure_at(self.delta)

    def measure_at(self, deltas: Floats) -> str:
        """The same for shifts of other sizes."""
        words = self.shifts.measure(self.coordinates)
        if isinstance(self.shifts, ObservedShifts) and (deltas != 1).any():
            words = f"delta times the change of the parameters from this model to one of the {words}"
        return self._with_arithmetic(words)

    @property
    def region(self) -> str:
        """The set of the shifts itself, as printed in a claim about every one of them."""
        return self._with_arithmetic(self.shifts.region(self.coordinates))

    @cached_property
    def single(self) -> bool:
        """Whether the model, or a listed one, is computed in float32 where it is used."""
        listed = self.shifts.models if isinstance(self.shifts, ObservedShifts) else ()
        return any(offers(m, Arithmetic) and m.dtype == "float32" for m in (self.model, *listed))

    def _with_arithmetic(self, words: str) -> str:
        return f"{words}; {IN_FLOAT32}" if self.single else words

    def directions(self, stream: Stream, start: int, stop: int) -> Floats:
        """Draws number `start` to `stop`."""
        return self.shifts.directions(self.coordinates, stream, start, stop)

    def margins(self, directions: Floats, rows: Indices | slice = _ALL) -> Floats:
        """Margins of some of the rows on the models that were drawn, shape (directions, rows)."""
        delta = self.one_delta if isinstance(self.one_delta, float) else self.one_delta[rows]
        target = self.one_target if self.same_target else self.target[rows]
        points = None if self.points is None else _part(self.points, rows)
        return drawn_margins(self.shifts, self.model, points, self.X[rows], target, directions, delta)

    @cached_property
    def reach(self) -> float | Floats:
        """The radii, as one number if all parameters share it."""
        first = float(self.radii[0])
        return first if (self.radii == first).all() else self.radii

    @cached_property
    def strict(self) -> Bools:
        """Rows whose margin must be above 0 rather than at least 0."""
        return needs_strict(self.model.classes, self.target)

    @cached_property
    def band(self) -> Floats:
        """Per row the margin below which its sign may be owed to rounding, on any shifted model."""
        return ROUNDING * drawn_magnitudes(
            self.shifts, self.model, self.points, self.X, self.one_target, self.radii, self.one_delta
        )

    @cached_property
    def network(self) -> FeedForward | None:
        """The model as a dense network, if it is one with the same parameters in the same order."""
        if not offers(self.model, Dense):
            return None
        network, parameters = self.model.as_feedforward(), self.model.parameters
        same = network.parameters.shapes == parameters.shapes
        return network if same and np.array_equal(network.parameters.values, parameters.values) else None

    @cached_property
    def wanted(self) -> Indices:
        """Position of each row's target among the classes."""
        return class_indices(self.model.classes, self.one_target, len(self))

    @np.errstate(over="ignore", invalid="ignore")  # what is not finite is neither valid nor certain
    def valid_rows(self) -> Bools:
        """Rows that the model itself puts into their target class.

        A margin within rounding of 0 is computed again for its row alone, so that the answer does not depend on
        which other rows are asked about.
        """
        margins = self.model.margin(self.X, self.one_target)
        if (margins > self.band).all():
            return np.ones(len(self), dtype=bool)
        for i in np.flatnonzero(~(np.abs(margins) > self.band)):
            margins[i] = self.model.margin(self.X[i : i + 1], self.target[i])[0]
        return valid(margins, self.strict)

    @np.errstate(over="ignore", invalid="ignore")  # what is not finite is neither valid nor certain
    def doubtful_rows(self) -> Bools:
        """Rows whose class on the model itself is owed to the rounding of float32; none if it computes in float64."""
        if not self.single or not len(self):
            return np.zeros(len(self), dtype=bool)
        still = np.zeros(len(self.model.parameters))
        scale = magnitudes(self.model, self.X, self.one_target, still, 0.0)
        # written so that a NaN is in no doubt: it is not valid
        return np.asarray(np.abs(self.model.margin(self.X, self.one_target)) <= ROUNDING * scale)


def _part(points: Any, rows: Array | slice) -> Any:
    return points.iloc[rows] if is_frame(points) else points[rows]


@runtime_checkable
class Method(Protocol):
    """A way to decide a claim."""

    def claim(self, question: Question) -> Every | Most:
        """What the method will speak about."""
        ...

    def unsupported(self, question: Question) -> str | None:
        """None if the method can answer, else the error a user reads."""
        ...

    def run(self, question: Question, stream: Stream) -> list[Certificate]:
        """One certificate per row; all rows are valid on the model itself."""
        ...


@runtime_checkable
class Draws(Protocol):
    """A method that decides a claim about most shifts on a number of draws that it plans ahead.

    Its claim takes `Question.tries` over, and a run draws from the stream that it is given alone: so a search can give
    each of its tests a part of the risk, and draws of its own.
    """

    @property
    def coverage(self) -> float:
        """The share of the shifts that must keep the class."""
        ...

    @property
    def confidence(self) -> float:
        """The confidence of the claim."""
        ...

    @property
    def n_samples(self) -> int | None:
        """How many draws a user has asked for; None for as many as the claim needs."""
        ...

    def samples(self, question: Question, claim: Most) -> int:
        """How many draws a run makes; whether they are enough for the claim is not asked."""
        ...

    def plan(self, question: Question, claim: Most) -> tuple[int, int, int]:
        """How many draws, how many failures certify at most, how many refute at least."""
        ...


@runtime_checkable
class OnlyRefutes(Protocol):
    """A method that never certifies."""

    @property
    def only_refutes(self) -> bool:
        """Whether it is one."""
        ...
