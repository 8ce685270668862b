"""Rows move: an explanation is carried out imprecisely (`InputNoise`), and the model changes too (`JointShifts`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from apas._random import Stream, unit_cube
from apas._typing import Floats
from apas._validation import read_only
from apas.errors import InputError
from apas.models.base import Dense, Model, Named, Parameters, Raw, ReadsCells, Scaled, by_delta, offers
from apas.models.dense_chain import DenseChain, dense_chain
from apas.models.predictor import is_coded
from apas.shifts import base as sets
from apas.shifts.base import Box, ShiftSet, ShiftWords, coordinates, magnitudes
from apas.shifts.linf import LinfShifts
from apas.shifts.selection import SetBySettings, placed, position_of, scalar

#: How many numbers of moved rows are held at a time.
NUMBERS = 1 << 18
#: What the features are called behind a preprocessing, where a step of 1 is not one in the user's units.
ENCODED = "encoded input"
#: What they are called where there is none.
PLAIN = "input"
#: What is said of noise alone, behind its words.
STILL = "; the model does not move"
#: A reach that is a whole number of steps but for rounding counts as one: 0.3 is three steps of 0.1.
NEARLY = 1 + 1e-12


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class InputNoise(SetBySettings):
    """Every row moves by noise that is uniform on a box; the model does not move.

    It answers whether an explanation still works if it is carried out imprecisely. Feature j of a row moves by at most
    ``delta * scale[j]``, in model units, that is, behind the preprocessing of a pipeline; of a model that can only
    predict, in raw units. All rows of a call see the same noise.

    Parameters
    ----------
    scale : float, mapping or array_like, optional
        A factor for all features, per feature (``{name or index: factor}``, others keep 1), or one array of all.
        0 means that the feature does not move.
    features : sequence of str or int, optional
        Which features move, by name or index; all unless given.
    integers : sequence of str or int, or mapping, optional
        Features that move in whole steps, each number of steps within reach being equally likely: steps of 1, or as
        large as a mapping says (``{name or index: step}``), such as 1 / 50 for years that were divided by 50.

    Notes
    -----
    Claims say nothing about changes of the model; `JointShifts` moves both. All methods know it for dense networks;
    where features move in whole steps, and for other models, `Sampling` does. A feature in whole steps of which none is
    within reach stays where it is.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]], feature_names=["income", "children"])
    >>> InputNoise(integers=["children"]).moved(net, [[5.0, 2.0]], [[-0.5, 0.9]], 1.4).tolist()
    [[[4.3, 3.0]]]
    """

    scale: float | Mapping[str | int, float] | ArrayLike | None = None
    features: Sequence[str | int] | None = None
    integers: Sequence[str | int] | Mapping[str | int, float] | None = None
    kind: ClassVar[str] = "noise"
    words: ClassVar[ShiftWords] = ShiftWords(
        changes="imprecisions",
        one="one imprecise way of carrying an explanation out, and delta the size of the imprecision",
        assumed="The model stays as it is; what varies is how exactly somebody carries an explanation out.",
        moves_rows=True,
    )

    def __post_init__(self) -> None:
        own, given = vars(self), self.integers  # the dictionary, since attributes of the set are frozen
        own["scale"] = _check_scale(self.scale)
        if self.features is not None:
            own["features"] = tuple(map(scalar, _listed(self.features, "features")))
        if given is not None:
            steps = given.items() if isinstance(given, Mapping) else [(f, 1.0) for f in _listed(given, "integers")]
            own["integers"] = {scalar(feature): _step(step) for feature, step in steps}

    def coordinates(self, model: Model) -> Parameters:
        """What moves: the features, in model units."""
        count, names = model.n_features, None
        encodes = offers(model, Raw) and not (offers(model, ReadsCells) and model.reads_cells)
        if offers(model, Dense):
            names = model.as_feedforward().feature_names
        elif offers(model, Named) and not encodes:
            names = model.feature_names
        named = [f"feature {j}" for j in range(count)] if names is None else list(names)
        kinds, layers = ["weight"] * count, [ENCODED if encodes else PLAIN] * count
        return Parameters.from_arrays([0.0] * count, names=named, kinds=kinds, layers=layers)

    def radii(self, parameters: Parameters) -> Floats:
        """How far each feature moves when delta is 1, shape (features,)."""
        radii = np.ones(len(parameters))
        if self.features is not None:
            radii[:] = 0.0
            radii[[_place(parameters, f, "features") for f in self.features]] = 1.0
        if isinstance(self.scale, Mapping):
            for feature, factor in self.scale.items():
                radii[_place(parameters, feature, "scale")] *= factor
        elif self.scale is not None:
            if np.ndim(self.scale) and np.shape(self.scale) != radii.shape:
                wanted, got = f"one factor or one per feature ({len(radii)})", np.size(self.scale)
                raise InputError(f"`scale` of InputNoise must be {wanted}, got {got}.")
            radii = radii * np.asarray(self.scale)
        if not radii.any():
            raise InputError("`shifts` must move at least one feature, but InputNoise moves none; choose other ones.")
        return radii

    def geometry(self, parameters: Parameters) -> Box | None:
        """The box of the features; None where some move in whole steps, which fill no box."""
        return None if self.steps(parameters).any() else Box(self.radii(parameters))

    def embed(self, chain: DenseChain) -> DenseChain:
        """The model behind a row that moves, and nothing else does."""
        return chain.with_moving_row(alone=True)

    def parameters_at(self, model: Model, values: Floats) -> Floats:
        """Those of the model, which does not move."""
        return np.asarray(model.parameters.values)

    def steps(self, parameters: Parameters) -> Floats:
        """How large a step of each feature is, 0 where it moves freely, shape (features,)."""
        steps = np.zeros(len(parameters))
        for feature, step in (self.integers or {}).items():  # type: ignore[union-attr]
            steps[_place(parameters, feature, "integers")] = step
        return steps

    def directions(self, parameters: Parameters, stream: Stream, start: int, stop: int) -> Floats:
        """Uniform numbers of [-1, 1), 0 for features that do not move, shape (stop - start, features)."""
        movers = np.flatnonzero(self.radii(parameters))
        return placed(unit_cube(len(movers), stream, start, stop), movers, len(parameters))

    def moved(self, model: Model, X: ArrayLike, directions: ArrayLike, delta: float) -> Floats:
        """Rows in model units after the noise of each direction, shape (directions, rows, features)."""
        return np.asarray(X, dtype=np.float64)[None] + self._noise(model, np.asarray(directions), delta)[:, None]

    def _noise(self, model: Model, directions: Floats, delta: float) -> Floats:
        """What each direction adds to a row, shape (directions, features)."""
        what = self.coordinates(model)
        reach, steps = delta * self.radii(what), self.steps(what)
        noise = directions * reach
        if steps.any():
            whole = np.flatnonzero(steps)
            most = np.floor(reach[whole] / steps[whole] * NEARLY)
            choices = 2 * most + 1
            number = np.minimum(np.floor((directions[:, whole] + 1) / 2 * choices), choices - 1) - most
            noise[:, whole] = number * steps[whole]
        return np.asarray(noise)

    def margins(self, model: Model, X: Floats, target: Any, directions: Floats, delta: float | Floats) -> Floats:
        """Margins of the moved rows on the model itself, shape (directions, rows)."""
        margins, what = np.empty((len(directions), len(X))), self.coordinates(model)
        fixed = is_coded(X).any(axis=0) & (self.radii(what) > 0)
        if fixed.any():
            name = what.names[int(fixed.argmax())]
            told = f"`features` of InputNoise must name columns of numbers, but {name!r} holds categories or missing"
            raise InputError(f"{told} cells, which cannot move by a little; name the others.")
        for size, rows, wanted in by_delta(delta, target, len(X)):
            count = max(1, NUMBERS // max(1, X[rows].size))
            noise = self._noise(model, directions, size)  # once: to name what moves takes longer than a few margins
            for first in range(0, len(noise), count):
                some = noise[first : first + count]
                moved = (X[rows] + some[:, None]).reshape(-1, X.shape[1])
                each = np.tile(wanted, len(some)) if np.ndim(wanted) else wanted
                margins[first : first + count, rows] = model.margin(moved, each).reshape(len(some), -1)
        return margins

    def magnitudes(self, model: Model, points: Any, X: Floats, target: Any, delta: float | Floats) -> Floats:
        """How large the numbers behind any margin of each row get, wherever it moves."""
        still, deltas = np.zeros(len(model.parameters)), np.broadcast_to(np.asarray(delta, dtype=np.float64), (len(X),))
        if offers(model, Dense):  # sums of magnitudes, which grow with those of the row
            farthest = np.abs(X) + deltas[:, None] * self.radii(self.coordinates(model))
            return magnitudes(model, farthest, target, still, 0.0)
        sizes = magnitudes(model, X, target, still, 0.0)
        if offers(model, Scaled):  # measured, so only at rows that the noise can lead to
            for size, rows, wanted in by_delta(deltas, target, len(X)):
                for end in self.moved(model, X[rows], np.outer([-1.0, 1.0], np.ones(X.shape[1])), size):
                    sizes[rows] = np.maximum(sizes[rows], magnitudes(model, end, wanted, still, 0.0))
        return sizes

    def shifted_parameters(self, model: Model, direction: Floats, delta: float) -> Floats:
        """Those of the model, which does not move."""
        return self.parameters_at(model, direction)

    def contains(self, base: Parameters, other: Parameters, delta: float) -> bool:
        """Whether `other` has the parameters of `base`: no change of the model is spoken of."""
        return base.shapes == other.shapes and np.array_equal(base.values, other.values)

    def measure(self, parameters: Parameters) -> str:
        """Name of the distribution: which features move, and how far."""
        return f"uniform on {self.region(parameters)}"

    def region(self, parameters: Parameters) -> str:
        """The box of the features in words."""
        movers, steps = np.flatnonzero(self.radii(parameters)), self.steps(parameters)
        chosen = self.features is not None or len(movers) < len(parameters)
        names = f" ({_some(parameters.names[j] for j in movers)})" if chosen else ""
        what = f"each of {len(movers)} features{names}" if len(movers) > 1 else f"one feature{names}"
        size = "delta" if self.scale is None else "delta times its scale"
        size += " in model units" if ENCODED in parameters.layers else ""
        whole = [parameters.names[j] for j in movers if steps[j]]
        stepping = f", {_some(whole)} in whole steps" if whole else ""
        return f"the box in which {what} of the row moves by at most {size}{stepping}{STILL}"


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
        return f"{self.parameters.measure(theta)}, and independently {self.row.measure(x).removesuffix(STILL)}"

    def region(self, parameters: Parameters) -> str:
        """Both sets in words."""
        theta, x = self._apart(parameters)
        return f"{self.parameters.region(theta)}, together with {self.row.region(x).removesuffix(STILL)}"


def _place(parameters: Parameters, feature: Any, argument: str) -> int:
    return position_of(parameters.names, feature, f"`{argument}` of InputNoise", "features", _some(parameters.names, 8))


def _check_scale(scale: Any) -> Any:
    if scale is None:
        return None
    message = f"`scale` of InputNoise must hold finite numbers of at least 0, one or one per feature, got {scale!r}."
    try:
        copied = {scalar(k): float(v) for k, v in scale.items()} if isinstance(scale, Mapping) else None
        numbers = np.array(list(copied.values()) if copied is not None else scale, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(message) from None
    if numbers.ndim > 1 or isinstance(scale, bool) or not (np.isfinite(numbers).all() and (numbers >= 0).all()):
        raise InputError(message)
    return copied if copied is not None else float(numbers) if numbers.ndim == 0 else read_only(numbers)


def _step(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < np.inf:
        raise InputError(f"`integers` of InputNoise must give steps that are positive and finite, got {value!r}.")
    return float(value)


def _listed(value: Any, argument: str) -> Iterable[Any]:
    if not isinstance(value, list | tuple | np.ndarray | range) or not len(value):
        raise InputError(f"`{argument}` of InputNoise must list features by name or index, got {value!r}.")
    return value


def _some(names: Iterable[str], most: int = 3) -> str:
    listed = list(names)
    return ", ".join(listed[:most]) + (", ..." if len(listed) > most else "")
