"""`JointShifts`: the model changes, and the explanation is carried out imprecisely, both at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from apas._random import Stream
from apas._typing import Floats
from apas.errors import InputError
from apas.models.base import Model, Parameters, by_delta, offers
from apas.models.dense_chain import DenseChain, dense_chain
from apas.shifts import base as sets
from apas.shifts.base import Box, ShiftSet, ShiftWords, coordinates, magnitudes
from apas.shifts.linf import LinfShifts
from apas.shifts.noise import ENCODED, PLAIN, InputNoise
from apas.shifts.selection import SetBySettings


@dataclass(frozen=True, eq=False, kw_only=True)
class JointShifts(SetBySettings):
    """Every model of one set, asked about every row that noise can make of the explanation.

    Delta is the size of both: parameters move as `parameters` says, features as `row` says; to let one move further
    than the other, give it a `scale`. A draw moves the parameters and the row independently.

    Notes
    -----
    Claims about every shift are proved for dense networks where both are boxes (`LinfShifts`, and noise without whole
    steps). They are exact as those of a network with one more hidden layer are: in closed form for linear models, by
    branch and bound for piecewise linear units.

    Examples
    --------
    >>> import apas
    >>> net, both = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]]), JointShifts(row=InputNoise(scale=0.5))
    >>> [apas.certify(net, [[2.0, 0.5]], d, target=1, shifts=both, method="exact")[0].verdict.name for d in (0.25, 0.4)]
    ['CERTIFIED', 'REFUTED']
    """

    parameters: ShiftSet = field(default_factory=LinfShifts)
    row: InputNoise = field(default_factory=InputNoise)
    kind: ClassVar[str] = "joint"
    words: ClassVar[ShiftWords] = ShiftWords(
        changes="changes of the model together with imprecisions",
        one="one changed version of the model met by one imprecise way of carrying an explanation out, and delta the "
        "size of both",
        assumed="A later model has the same architecture, features, preprocessing, classes and decision threshold as "
        "the certified one; what moves are its parameters, and how exactly somebody carries an explanation out.",
        moves_rows=True,
    )

    def __post_init__(self) -> None:
        given, row = self.parameters, self.row
        other = offers(given, sets.OtherMoves) or offers(given, sets.Listed)
        if isinstance(given, type) or not offers(given, ShiftSet) or other:
            must = "must be a set that moves the parameters of a model, such as LinfShifts()"
            raise InputError(f"`parameters` of JointShifts {must}, got {given!r}.")
        if not isinstance(row, InputNoise):
            raise InputError(f"`row` of JointShifts must be an InputNoise(...), got {row!r}.")

    def coordinates(self, model: Model) -> Parameters:
        """What moves: the parameters of the model, and behind them the features of the row."""
        theta, x = coordinates(self.parameters, model), self.row.coordinates(model)
        parts, named = theta.split(theta.values) + x.split(x.values), theta.names + x.names
        return Parameters.from_arrays(parts, names=named, kinds=theta.kinds + x.kinds, layers=theta.layers + x.layers)

    def _apart(self, both: Parameters) -> tuple[Parameters, Parameters]:
        cut = next(i for i, layer in enumerate(both.layers) if layer in (ENCODED, PLAIN) and both.shapes[i] == ())
        return both.part(slice(cut)), both.part(slice(cut, None))

    def radii(self, parameters: Parameters) -> Floats:
        """How far each parameter and each feature moves when delta is 1."""
        theta, x = self._apart(parameters)
        return np.concatenate([self.parameters.radii(theta), self.row.radii(x)])

    def geometry(self, parameters: Parameters) -> Box | None:
        """The box of both; None where one of them is no box."""
        theta, x = self._apart(parameters)
        model = self.parameters.geometry(theta) if offers(self.parameters, sets.Bounded) else None
        row = self.row.geometry(x)
        if not isinstance(model, Box) or row is None:
            return None
        return Box(np.concatenate([model.radii, row.radii]))

    def embed(self, chain: DenseChain) -> DenseChain:
        """The model behind a row that moves with it."""
        return chain.with_moving_row(alone=False)

    def parameters_at(self, model: Model, values: Floats) -> Floats:
        """The first coordinates."""
        return np.asarray(values[: len(model.parameters)])

    def shifted_parameters(self, model: Model, direction: Floats, delta: float) -> Floats:
        """Parameters of the model that a direction stands for."""
        return np.asarray(model.parameters.values + delta * self.parameters_at(model, direction))

    def directions(self, parameters: Parameters, stream: Stream, start: int, stop: int) -> Floats:
        """Directions of the parameters, and behind them those of the row, from streams of their own."""
        theta, x = self._apart(parameters)
        parts = self.parameters.directions(theta, stream, start, stop)
        return np.hstack([parts, self.row.directions(x, stream.part("row"), start, stop)])

    def margins(self, model: Model, X: Floats, target: Any, directions: Floats, delta: float | Floats) -> Floats:
        """Margins of the moved rows on the shifted models, shape (directions, rows)."""
        margins, count = np.empty((len(directions), len(X))), len(model.parameters)
        what = self.row.coordinates(model)
        chain = None if self.row.steps(what).any() else dense_chain(model)
        if chain is not None:
            embedded, scale = self.embed(chain), np.ones(directions.shape[1])
            scale[count:] = self.row.radii(what)  # which the noise has not in its directions
            return embedded.shifted_margins(X, target, directions * scale, delta)
        for size, rows, wanted in by_delta(delta, target, len(X)):
            moved = self.row.moved(model, X[rows], directions[:, count:], size)
            for i, direction in enumerate(directions):
                margins[i, rows] = model.shifted_margins(moved[i], wanted, direction[None, :count], size)[0]
        return margins

    def magnitudes(self, model: Model, points: Any, X: Floats, target: Any, delta: float | Floats) -> Floats:
        """Per row a number of the size of those behind any margin, on any shifted model at any moved row."""
        deltas = np.broadcast_to(np.asarray(delta, dtype=np.float64), (len(X),))
        reach = deltas[:, None] * self.row.radii(self.row.coordinates(model))
        radii = self.parameters.radii(coordinates(self.parameters, model))
        if dense_chain(model) is not None:  # where the farthest of every feature is the worst
            return magnitudes(model, np.abs(X) + reach, target, radii, delta)
        sizes = [magnitudes(model, X + sign * reach, target, radii, delta) for sign in (-1.0, 0.0, 1.0)]
        return np.asarray(np.maximum.reduce(sizes))

    def contains(self, base: Parameters, other: Parameters, delta: float) -> bool:
        """Whether the model with parameters `other` is one of the set, whatever row it is asked about."""
        return self.parameters.contains(base, other, delta)

    def distance(self, base: Parameters, other: Parameters) -> float:
        """From which delta on it is; infinite if the set of models does not know."""
        known = offers(self.parameters, sets.Measurable)
        return self.parameters.distance(base, other) if known else np.inf  # type: ignore[attr-defined]

    def measure(self, parameters: Parameters) -> str:
        """Names of both distributions."""
        theta, x = self._apart(parameters)
        return f"{self.parameters.measure(theta)}, and independently {self._of_row(self.row.measure(x))}"

    def region(self, parameters: Parameters) -> str:
        """Both sets in words."""
        theta, x = self._apart(parameters)
        return f"{self.parameters.region(theta)}, together with {self._of_row(self.row.region(x))}"

    @staticmethod
    def _of_row(words: str) -> str:
        return words.removesuffix("; the model does not move")
