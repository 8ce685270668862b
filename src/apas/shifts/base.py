"""What a shift set offers: its draws, its margins, its words, and what it can say about every one of its shifts.

A set with a worst case says which geometry it has (`Bounded`): worst-case methods ask for that, never for a class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from apas._fields import Kinds
from apas._random import Stream
from apas._typing import Array, Bools, Floats
from apas._validation import check_integer
from apas.errors import InputError, Unsupported
from apas.models.base import Capability, Model, Parameters, Scaled, offers
from apas.models.dense_chain import DenseChain
from apas.models.forward import ACTIVATIONS
from apas.shifts.geometry import inside_ball, inside_box, lp_norm, steepest_point

#: Sets that a certificate file may hold: `to_dict` writes their `kind`, and `from_dict` reads them back.
_PLACES = {"linf": "linf.LinfShifts", "lp": "balls.LpShifts", "sparse": "linf.SparseShifts"}
_PLACES |= {"gaussian": "balls.GaussianShifts", "ellipsoid": "balls.EllipsoidShifts"}
_PLACES |= {"noise": "noise.InputNoise", "joint": "noise.JointShifts", "observed": "observed.ListedModels"}
_PLACES |= dict.fromkeys(("removed", "relabelled", "added", "replaced"), "data_change.ChangedTable")
KINDS = Kinds({kind: f"apas.shifts.{place}" for kind, place in _PLACES.items()})
#: How far the functions behind a share in closed form may be off, far above what their libraries promise.
SHARE_ERROR = 1e-12


@dataclass(frozen=True, eq=False)
class Box:
    """The box in which parameter i moves by at most ``delta * radii[i]``, at least 0, independently of the others."""

    radii: Floats

    def project(self, moves: Floats, delta: ArrayLike) -> Floats:
        """Every entry cut to its range."""
        reach = np.asarray(delta)[..., None] * self.radii
        return np.clip(moves, -reach, reach)

    def steepest(self, gradients: Floats) -> Floats:
        """The corner against the gradient; a coordinate without slope stays in the middle."""
        return np.asarray(-np.sign(gradients) * self.radii)

    def pull_inside(self, base: Parameters, values: Floats, delta: ArrayLike) -> Floats:
        """Every entry cut to its range, in real arithmetic."""
        reach = np.asarray(delta)[..., None] * self.radii
        direction = (values - base.values) / np.where(reach > 0, reach, np.inf)
        return inside_box(base.values, self.radii, np.asarray(delta)[..., None], direction)


@dataclass(frozen=True, eq=False)
class Ball:
    """The ball in which parameters together move by at most `delta` in the L_p norm; `radii` are 1 for those that move.

    p is above 0 and finite; radii are 0 for parameters that stay.
    """

    p: float
    radii: Floats

    def __post_init__(self) -> None:
        if not 0 < self.p < np.inf or not np.isin(self.radii, (0.0, 1.0)).all():
            told = "`p` of Ball must be above 0 and finite, and `radii` 1 where a parameter moves and 0 elsewhere,"
            raise InputError(f"{told} got p={self.p!r} and radii {self.radii!r}; a box of any radii is a Box.")

    @property
    def hull(self) -> float:
        """The p of the convex hull: below 1 the ball shares its corners with that of L_1, and lies in it."""
        return max(self.p, 1.0)

    def project(self, moves: Floats, delta: ArrayLike) -> Floats:
        """Rows of changes (rows, k), 0 where nothing moves, in the ball: nearest for p = 1 and 2, else towards 0."""
        radius = np.broadcast_to(np.asarray(delta, dtype=np.float64), (len(moves),))
        norms = lp_norm(moves, self.p)
        outside = norms > radius
        pulled = moves.copy()
        if self.p != 1.0:
            pulled[outside] *= (radius[outside] / norms[outside])[:, None]
            return pulled
        # sizes are lowered by the one amount that leaves a sum of `radius`
        sizes = np.abs(moves[outside])
        falling = -np.sort(-sizes, axis=1)
        excess = (np.cumsum(falling, axis=1) - radius[outside][:, None]) / np.arange(1, moves.shape[1] + 1)
        last = np.count_nonzero(falling > excess, axis=1) - 1
        amount = np.take_along_axis(excess, np.maximum(last, 0)[:, None], axis=1)
        pulled[outside] = np.sign(moves[outside]) * np.maximum(sizes - amount, 0.0)
        return pulled

    def steepest(self, gradients: Floats) -> Floats:
        """Per row of gradients the point u of the unit ball with the least ``gradient @ u``."""
        return steepest_point(gradients, self.p)

    def pull_inside(self, base: Parameters, values: Floats, delta: ArrayLike) -> Floats:
        """Parameters (k,), or several as (rows, k), pulled towards `base` as far as real arithmetic asks for."""
        moves = self.radii > 0
        rows = np.array(values, dtype=np.float64, ndmin=2)
        pulled = np.broadcast_to(base.values, rows.shape).copy()
        for row, given, radius in zip(pulled, rows, np.broadcast_to(delta, (len(rows),)).tolist(), strict=True):
            row[moves] = inside_ball(base.values[moves], given[moves], self.p, radius)
        return pulled if np.ndim(values) == 2 else pulled[0]


@dataclass(frozen=True, eq=False)
class Sparse:
    """The set in which at most `count` parameters move, at least 1, parameter i by at most ``delta * radii[i]``."""

    count: int
    radii: Floats

    def __post_init__(self) -> None:
        check_integer(self.count, "count", "Sparse", least=1)

    def project(self, moves: Floats, delta: ArrayLike) -> Floats:
        """The nearest points: of rows of changes (rows, k) the largest, cut to their ranges; the others are 0."""
        cut = Box(self.radii).project(moves, delta)
        return np.where(largest_entries(moves**2 - (moves - cut) ** 2, self.count), cut, 0.0)

    def steepest(self, gradients: Floats) -> Floats:
        """Per row of gradients the steepest parameters at their ends; the others stay in the middle."""
        ends = Box(self.radii).steepest(gradients)
        return np.where(largest_entries(np.abs(gradients * ends), self.count), ends, 0.0)

    def pull_inside(self, base: Parameters, values: Floats, delta: ArrayLike) -> Floats:
        """The largest changes cut to their ranges, in real arithmetic; the others are taken back."""
        kept = largest_entries(np.abs(values - base.values), self.count)
        return Box(self.radii).pull_inside(base, np.where(kept, values, base.values), delta)


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """The set of changes ``delta * root @ s`` with a Euclidean length of s of at most 1.

    `root` has shape (k, n): a row of zeros per parameter that stays; the other n rows are an invertible matrix.
    """

    root: Floats

    @cached_property
    def radii(self) -> Floats:
        """How far each parameter moves when delta is 1, shape (k,)."""
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", self.root, self.root)))

    def _solve(self, moves: Floats) -> Floats:
        return np.asarray(np.linalg.solve(self.root[self.radii > 0], moves[..., self.radii > 0].T).T)

    def project(self, moves: Floats, delta: ArrayLike) -> Floats:
        """Rows of changes (rows, k) pulled into the ellipsoid along the line to its centre."""
        sizes, radius = np.linalg.norm(self._solve(moves), axis=-1), np.broadcast_to(delta, (len(moves),))
        return moves * np.minimum(1.0, radius / np.where(sizes > 0, sizes, np.inf) if len(sizes) else sizes)[:, None]

    def steepest(self, gradients: Floats) -> Floats:
        """Per row of gradients the point with the least ``gradient @ u``: 0 where nothing that moves has a slope."""
        slopes = gradients @ self.root
        sizes = np.linalg.norm(slopes, axis=-1, keepdims=True)
        return np.asarray(-(slopes / np.where(sizes > 0, sizes, 1.0)) @ self.root.T)

    def holds(self, base: Floats, values: Floats, delta: float) -> bool:
        """Whether parameters lie in the set: what is within rounding of its surface counts as outside."""
        moves, matrix = values - base, self.root[self.radii > 0]
        if not np.isfinite(moves).all() or moves[self.radii == 0].any():
            return False
        s, some = self._solve(moves), moves[self.radii > 0]
        # the true s is off by the inverse of the matrix times what is left over, computed or lost to rounding
        steps, sums = len(s) + 4, np.abs(matrix) @ np.abs(s)
        left = np.abs(some - matrix @ s) + steps * 2.0**-52 * (np.abs(some) + sums)
        inverse = 1.01 / np.linalg.svd(matrix, compute_uv=False)[-1]
        return bool((np.linalg.norm(s) + inverse * np.linalg.norm(left)) * (1 + steps * 2.0**-52) <= delta)

    def pull_inside(self, base: Parameters, values: Floats, delta: ArrayLike) -> Floats:
        """Parameters (k,), or several as (rows, k), pulled towards `base` until they are inside without tolerance."""
        rows = np.array(values, dtype=np.float64, ndmin=2)
        pulled = np.broadcast_to(base.values, rows.shape).copy()
        for row, given, radius in zip(pulled, rows, np.broadcast_to(delta, (len(rows),)).tolist(), strict=True):
            move = np.where(self.radii > 0, np.nan_to_num(given - base.values), 0.0)
            inner, cut = self.project(move[None, :], radius)[0], 2.0**-44
            while cut < 1 and not self.holds(base.values, base.values + inner * (1 - cut), radius):
                cut *= 4
            row[:] = base.values + inner * max(1 - cut, 0.0)
        return pulled if np.ndim(values) == 2 else pulled[0]


def largest_entries(sizes: Floats, count: int) -> Bools:
    """Which are the `count` largest numbers along the last axis; of equal ones the first."""
    first = np.argsort(-sizes, axis=-1, kind="stable")[..., :count]
    kept = np.zeros(sizes.shape, dtype=bool)
    np.put_along_axis(kept, first, True, axis=-1)
    return kept


@dataclass(frozen=True, eq=False)
class Finite:
    """A list of models, each as it is; draw number i is model number i."""

    models: Sequence[Model]


#: Sets of changes of the parameters.
Region: TypeAlias = Box | Ball | Sparse | Ellipsoid
Geometry: TypeAlias = Region | Finite
#: One delta for all rows, or one per row.
Sizes: TypeAlias = float | Floats
#: A lower and an upper bound.
Ends: TypeAlias = tuple[float, float]


@runtime_checkable
class ShiftSet(Protocol):
    """Every model that counts as a small change of a base model, and how to draw one.

    A shifted model has parameters ``theta + delta * u`` with a direction ``u`` that the set draws; a set of which that
    is not true says so by offering `OtherMoves`.
    """

    def directions(self, parameters: Parameters, stream: Stream, start: int, stop: int) -> Floats:
        """Directions number `start` to `stop`, shape (stop - start, k): a pure function of (stream, index)."""

    def margins(self, model: Model, X: Floats, target: Array, directions: Floats, delta: float | Floats) -> Floats:
        """Margins of the rows `X` on every shifted model, shape (directions, rows)."""

    def radii(self, parameters: Parameters) -> Floats:
        """How far each parameter may move when delta is 1, shape (k,); the standard deviation if there is no limit."""

    def contains(self, base: Parameters, other: Parameters, delta: float) -> bool:
        """Whether the model with parameters `other` is a shift of `base` by at most `delta`."""

    def measure(self, parameters: Parameters) -> str:
        """Name of the distribution that the directions are drawn from, as printed in a claim."""

    def region(self, parameters: Parameters) -> str:
        """The set itself in words, as printed in a claim about every shift."""

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to build the set again, as JSON values."""


class OtherMoves(Capability, Protocol):
    """A set in which something else moves than the parameters of the model: its rows, or the model as a whole."""

    def coordinates(self, model: Model) -> Parameters:
        """What moves, as a vector with names: what the members of `ShiftSet` take in place of the parameters."""

    def shifted_parameters(self, model: Model, direction: Floats, delta: float) -> Floats:
        """Parameters of the model that a direction stands for."""


class MovesInput(OtherMoves, Protocol):
    """A set in which the row moves, and perhaps the parameters of the model too."""

    def embed(self, chain: DenseChain) -> DenseChain:
        """The chain of a model with its row, whose coordinates are those of the set."""

    def parameters_at(self, model: Model, values: Floats) -> Floats:
        """Parameters of the model where the coordinates have such values."""


class OnPoints(Capability, Protocol):
    """A set whose models read the rows in the user's units, each with a preprocessing of its own."""

    def point_margins(self, model: Model, points: Any, target: Any, directions: Floats, delta: Sizes) -> Floats:
        """Margins of rows in the user's units on every shifted model, shape (directions, rows)."""


class Bounded(Capability, Protocol):
    """A set with a worst case: something can be said about every one of its shifts."""

    def geometry(self, parameters: Parameters) -> Geometry | None:
        """The set around the parameters, per unit of delta, which is bounded and searched; None if it has none."""


class Unbounded(Capability, Protocol):
    """A set that knows why it has no worst case."""

    #: Why, as the clause of a sentence that goes on: ", so nothing can be said about every one of them".
    no_worst_case: str


class Listed(Capability, Protocol):
    """A set of models that can be counted: draw number i is model number i, and none is drawn twice."""

    models: Sequence[Model]


class Elliptical(Capability, Protocol):
    """A set whose draws are as likely in all directions once its root is taken off: normal, or of an ellipsoid."""

    def root(self, parameters: Parameters) -> Floats:
        """L, with a row per parameter, of directions ``L s``, shape (k, n)."""

    def share(self, ratio: Floats) -> Floats:
        """The share of s with ``s . e >= -ratio``, for whatever e of length 1."""


class LinearShare(Capability, Protocol):
    """A set of which is known how often a margin that is linear in the shift is kept."""

    def linear_share(self, parameters: Parameters, sizes: Floats, level: float, slack: float, decides: Any) -> Ends:
        """Bounds on the share of draws of delta 1 with ``sum of sizes[i] * s_i >= -level``, 0 and 1 if none are known.

        s is a draw in units of the radii, whatever its signs. The lower bound is one for ``level - slack``, the upper
        one for ``level + slack``; they need be no closer than it takes to know on which side of `decides` the share is.
        """


def in_training_order(shifts: Any) -> bool:
    """Whether a set lists models in the order of their training, so that a test may end at any, and can `grow`."""
    return hasattr(shifts, "grow") and bool(getattr(shifts, "in_order", False))


class DefaultDelta(Capability, Protocol):
    """A set of which a size goes without saying."""

    default_delta: float


class MeasuredAt(Capability, Protocol):
    """A set whose distribution has other words at other sizes of the shifts."""

    def measure_at(self, parameters: Parameters, deltas: Floats) -> str:
        """What `ShiftSet.measure` says, of shifts of these sizes."""


class Magnitudes(Capability, Protocol):
    """A set that knows better than by its radii how large the numbers behind margins get."""

    def magnitudes(self, model: Model, points: Any, X: Floats, target: Any, delta: float | Floats) -> Floats:
        """Per row a number of the size of those behind any margin, on any shifted model."""


class Measurable(Capability, Protocol):
    """A set that grows with delta, and can say from which delta on a model lies in it."""

    def distance(self, base: Parameters, other: Parameters) -> float:
        """The least delta at which `contains` holds, but for rounding; infinite if there is none."""


class Normed(Capability, Protocol):
    """A set whose delta is an L_p norm of a change of the parameters, as `measure_shift` measures it."""

    order: float
    #: Whether delta bounds that very norm, of all parameters as they are; else some stay or count differently.
    is_whole: bool


class Refitted(Capability, Protocol):
    """A set of models whose last layer is fitted again on other data; nothing is drawn from it."""

    #: Why not, as a clause.
    no_draws: str

    def bind(self, model: Any) -> Any:
        """The training table behind a model."""


class Incomplete(Capability, Protocol):
    """A set of which a file holds only a part."""

    #: What is missing and how to pass it, as a clause.
    missing: str


class Fingerprinted(Capability, Protocol):
    """A set of models that exist, known by their fingerprints; without `Listed`, by nothing else."""

    #: SHA-256 of each model, in the order of the draws.
    digests: tuple[str, ...]

    def with_models(self, models: Any) -> ShiftSet:
        """The set with its models, which must be the very ones."""


@dataclass(frozen=True)
class ShiftWords:
    """How people are told what a shift is; the defaults are true of sets in which parameters move up to a limit."""

    changes: str = "changes of the model"
    one: str = "one changed version of the model, and delta the size of the change"
    assumed: str = (
        "A later model has the same architecture, features, preprocessing, classes and decision threshold as the "
        "certified one; what moves are its parameters, as the set of shifts says."
    )
    no_limit: str = ""
    moves_rows: bool = False


NORMAL_WORDS = ShiftWords(
    no_limit="normal shifts have no limit, so that every change of the parameters that move is one of them"
)


class Worded(Capability, Protocol):
    """A set in which a shift is something else than a change of parameters up to a limit."""

    words: ShiftWords


def words_of(shifts: ShiftSet) -> ShiftWords:
    """How people are told what a shift of a set is."""
    return shifts.words if offers(shifts, Worded) else ShiftWords()


def coordinates(shifts: ShiftSet, model: Model) -> Parameters:
    """What moves: the parameters of the model, unless the set says otherwise."""
    if offers(shifts, OtherMoves):
        return shifts.coordinates(model)
    if not offers(model, Model):
        raise Unsupported(
            f"{type(shifts).__name__} moves the parameters of a model, but {model!r} has none that could move; make "
            "refits with apas.retrain(estimator, X, y, n_models=...) and pass shifts=apas.ObservedShifts(refits), or "
            "apas.InputNoise() for rows that are carried out imprecisely."
        )
    return model.parameters


def drawn_margins(
    shifts: ShiftSet, model: Model, points: Any, X: Floats, target: Any, directions: Floats, delta: float | Floats
) -> Floats:
    """Margins of rows on every shifted model, shape (directions, rows)."""
    if points is not None and offers(shifts, OnPoints):
        return shifts.point_margins(model, points, target, directions, delta)
    return shifts.margins(model, X, target, directions, delta)


def magnitudes(model: Model, X: Floats, target: Any, radii: Floats, delta: float | Floats) -> Floats:
    """Per row the size of the numbers behind any margin while parameter i moves by at most ``delta * radii[i]``."""
    if offers(model, Scaled):
        return model.margin_scale(X, radii, delta)
    return np.asarray(np.maximum(1.0, np.abs(model.margin(X, target))))


def ball_share(ratio: Any, count: int) -> Any:
    """The share of the unit ball of so many dimensions on one side of a plane at a signed distance from its centre."""
    from scipy.special import betainc

    # one coordinate of a uniform point of the unit ball has the density (1 - t**2)**((n - 1) / 2)
    return 0.5 + 0.5 * np.sign(ratio) * betainc(0.5, 0.5 * (count + 1), np.minimum(np.square(ratio), 1.0))


def outward_share(share: Callable[[Any], Any], sizes: Floats, level: float, slack: float) -> Ends:
    """Bounds on a share that depends on a level in units of the length of `sizes` alone, and grows with it."""
    length, ends = float(np.linalg.norm(sizes)), []
    if not length:
        return float(level > slack), float(level >= -slack)
    for sign in (-1.0, 1.0):  # outward: n rounding errors of the length are covered by 1e-12 of the level
        above = level + sign * (slack + 1e-12 * abs(level))
        ends.append(min(1.0, max(0.0, float(share(above / length)) + sign * SHARE_ERROR)))
    return ends[0], ends[1]


@dataclass(frozen=True, eq=False)
class Embedded:
    """A set as worst-case methods see it: as moves of the parameters of a dense chain; its words are the set's."""

    shifts: ShiftSet
    #: The network, and where in it what moves stands.
    chain: DenseChain
    #: What moves in the set, as it is.
    base: Parameters

    def geometry(self, parameters: Parameters) -> Region | None:
        """That of the set around the parameters of the chain, of tied ones a box; None where bounds know none."""
        found = self.shifts.geometry(self.base)  # type: ignore[attr-defined]
        # bounds over balls know the activations of plain networks only
        plain = ACTIVATIONS.keys() >= set(self.chain.network.activations)
        if isinstance(found, Box) or (isinstance(found, Sparse) and not self.chain.tied):
            return replace(found, radii=self.chain.reach(found.radii))
        if self.chain.tied or not plain or not isinstance(found, Ball | Ellipsoid):
            return None
        if isinstance(found, Ellipsoid):
            return Ellipsoid(self.chain.lift(found.root.T).T)
        return replace(found, radii=self.chain.reach(found.radii))

    def radii(self, parameters: Parameters) -> Floats:
        """How far each parameter of the chain moves when delta is 1."""
        found = self.geometry(parameters)
        return self.chain.reach(self.shifts.radii(self.base)) if found is None else found.radii

    def directions(self, parameters: Parameters, stream: Stream, start: int, stop: int) -> Floats:
        """Draws of the set, as moves of the chain."""
        return self.chain.lift(self.shifts.directions(self.base, stream, start, stop))

    def margins(self, model: Model, X: Floats, target: Any, directions: Floats, delta: float | Floats) -> Floats:
        """Margins on the shifted chains; of tied parameters the mean counts, so that they stay one."""
        if self.chain.tied:
            directions = self.chain.lift(self.chain.lower(directions, np.zeros(len(self.base))))
        return model.shifted_margins(X, target, directions, delta)

    def measure(self, parameters: Parameters) -> str:
        """What the set says."""
        return self.shifts.measure(self.base)

    def region(self, parameters: Parameters) -> str:
        """What the set says."""
        return self.shifts.region(self.base)

    def __repr__(self) -> str:
        return repr(self.shifts)
