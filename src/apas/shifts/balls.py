"""Shifts in a ball (`LpShifts`) or an ellipsoid (`EllipsoidShifts`), and normal shifts (`GaussianShifts`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from apas._random import LARGEST, Stream, standard_normals, unit_ball
from apas._typing import Bools, Floats
from apas._validation import check_number
from apas.errors import InputError, Unsupported
from apas.models.base import ABSENT, Dense, Model, Parameters, as_model, encoded_rows, offers
from apas.shifts.base import NORMAL_WORDS, Ball, Ellipsoid, Ends, ShiftWords, ball_share, magnitudes, outward_share
from apas.shifts.fit_problem import last_layer_rows, slope
from apas.shifts.geometry import lp_norm, within_ball
from apas.shifts.selection import ALL_KINDS, ParameterShifts, ScaledShifts, check_kinds, check_layers, placed

#: The smallest p of a ball: below it, the root of a sum rounded to nearest has few digits left.
LEAST = 0.001
#: How far a covariance may be from symmetric, relative to its largest entry.
SYMMETRIC = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class LpShifts(ParameterShifts):
    """Every model whose parameters, as one vector, differ from the base model's by at most `delta` in the L_p norm.

    Draws are uniform in that ball.

    Parameters
    ----------
    p : float
        At least 0.001 and finite: 1 is the sum of the changes, 2 the Euclidean distance. Below 1 it is no norm, and the
        ball is not convex; proofs about it are those about the L_1 ball of the same `delta`, in which it lies.
    kinds, layers : optional
        Which parameters move: as for `LinfShifts`.

    Notes
    -----
    In many dimensions a uniform point of a ball lies next to its surface and in no direction far from the centre: of k
    coordinates each is about ``k**(-1/p)``. A `Most` claim about an L_2 ball therefore says much less than `Every`.

    Examples
    --------
    >>> LpShifts(2, kinds=("weight",))
    LpShifts(2, kinds=('weight',))
    """

    p: float
    kinds: tuple[str, ...] = field(default=ALL_KINDS, kw_only=True)
    layers: Sequence[str | int] | None = field(default=None, kw_only=True)
    kind: ClassVar[str] = "lp"

    def __post_init__(self) -> None:
        kinds, layers = check_kinds(self.kinds, "LpShifts"), check_layers(self.layers)
        vars(self).update(p=_check_order(self.p), kinds=kinds, layers=layers)

    def moves(self, parameters: Parameters) -> Bools:
        """Which parameters move, shape (k,)."""
        moves = self._moving(parameters)
        if not moves.any():
            told = f"must move at least one parameter, but {self} moves none of this model's"
            raise InputError(f"`shifts` {told}; choose other kinds or layers.")
        return moves

    def radii(self, parameters: Parameters) -> Floats:
        """How far each parameter may move when delta is 1, shape (k,): the box around the ball."""
        return self.moves(parameters).astype(np.float64)

    def geometry(self, parameters: Parameters) -> Ball:
        """The ball itself."""
        return Ball(self.p, self.radii(parameters))

    def directions(self, parameters: Parameters, stream: Stream, start: int, stop: int) -> Floats:
        """Directions number `start` to `stop`, (stop - start, k), uniform in the unit ball but for last digits."""
        movers = np.flatnonzero(self.moves(parameters))
        points = unit_ball(len(movers), self.p, stream, start, stop)
        return placed(points, movers, len(parameters))

    def linear_share(self, parameters: Parameters, sizes: Floats, level: float, slack: float, decides: Any) -> Ends:
        """Bounds on the share of draws that keep a margin which is linear in the shift: known for p = 2 alone."""
        if self.p != 2:
            return 0.0, 1.0
        share = partial(ball_share, count=int(np.count_nonzero(self.moves(parameters))))
        return outward_share(share, sizes, level, slack)

    def contains(self, base: Parameters, other: Parameters, delta: float) -> bool:
        """Whether `other` lies in the ball around `base`, decided in real arithmetic, as `within_ball` says."""
        moves = self.moves(base)
        inside = self._others_stay(base, other)
        return inside and within_ball(base.values[moves], other.values[moves], self.p, float(delta))

    def distance(self, base: Parameters, other: Parameters) -> float:
        """The norm of the change, but for rounding; infinite if a parameter changed that does not move."""
        moves = self.moves(base)
        if not self._others_stay(base, other):
            return math.inf
        with np.errstate(over="ignore"):
            return float(lp_norm(other.values[moves] - base.values[moves], self.p))

    @property
    def order(self) -> float:
        """The p of the norm that delta bounds."""
        return self.p

    @property
    def is_whole(self) -> bool:
        """Whether all parameters move."""
        return self == LpShifts(self.p)

    def measure(self, parameters: Parameters) -> str:
        """Name of the distribution: what moves, and how far."""
        return f"uniform in {self.region(parameters)}"

    def region(self, parameters: Parameters) -> str:
        """The set itself in words."""
        movers, what = int(np.count_nonzero(self.moves(parameters))), self._selected(parameters)
        mover = f"{movers} {what} together move" if movers > 1 else f"the one parameter chosen from the {what} moves"
        norm = "norm" if self.p >= 1 else "quasi-norm"
        return f"the ball in which {mover} by at most delta in the L{self.p:.15g} {norm}{self._still(parameters)}"


def _check_order(p: Any) -> float:
    number = isinstance(p, int | float | np.integer | np.floating) and not isinstance(p, bool)
    order = math.nan if not number else math.inf if p > 1e300 else float(p)
    if order == math.inf:
        raise InputError("`p` of LpShifts must be finite, got inf; the ball of that norm is a box: use LinfShifts().")
    if order < LEAST:
        instead = "to bound the number of parameters that move, p = 0, use SparseShifts(count)"
        raise InputError(f"`p` of LpShifts must be at least {LEAST}, got {p!r}; {instead}.")
    if math.isnan(order):
        raise InputError(f"`p` of LpShifts must be a number of at least {LEAST}, such as 1 or 2, got {p!r}.")
    return order


@dataclass(frozen=True, eq=False, repr=False)
class EllipsoidShifts(ParameterShifts):
    """Every change of the parameters of a Mahalanobis length of at most `delta`: ``m' C^-1 m <= delta**2``.

    Parameters
    ----------
    covariance : array_like of shape (n, n)
        Of the parameters that move, in their order; symmetric and positive definite: see `laplace`.
    layers : sequence of str or int, optional
        Which layers move, by name or index; all unless given. ``[-1]`` is the last layer.
    distribution : {"uniform", "normal"}, default "uniform"
        Of the draws: uniform in the ellipsoid, or normal with the covariance ``delta**2 C``, which has no limit, so
        that nothing can be said about every shift.

    Notes
    -----
    Where only the output layer moves, and so in linear models, everything is known in closed form: every shift
    (`Exact`, `IntervalBounds`), the share (`Enumeration`), and `max_shift`. Of a network that moves as a whole, draws
    speak of most shifts; proofs about every one are those of the box around the ellipsoid.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> shifts = EllipsoidShifts(0.01 * np.eye(3))
    >>> apas.max_shift(net, [[2.0, 0.5]], target=1, shifts=shifts, method="exact").deltas.round(3).tolist()
    [6.547]
    """

    covariance: ArrayLike
    layers: Any = field(default=None, kw_only=True)
    distribution: str = field(default="uniform", kw_only=True)
    kind: ClassVar[str] = "ellipsoid"

    def __post_init__(self) -> None:
        try:
            given = np.array(self.covariance, dtype=np.float64)
        except (TypeError, ValueError):
            given = np.empty(0)
        square = given.ndim == 2 and given.shape[0] == given.shape[1] > 0 and bool(np.isfinite(given).all())
        root = None
        if square and np.abs(given - given.T).max() <= SYMMETRIC * np.abs(given).max():
            with suppress(np.linalg.LinAlgError):
                root = np.linalg.cholesky(0.5 * given + 0.5 * given.T)
        if root is None:
            told = f"a symmetric positive definite matrix of finite numbers, got shape {given.shape}"
            raise InputError(f"`covariance` of EllipsoidShifts must be {told}; of few samples, add to its diagonal.")
        if self.distribution not in ("uniform", "normal"):
            raise InputError(f'`distribution` must be "uniform" or "normal", got {self.distribution!r}.')
        own = vars(self)  # the dictionary, since attributes of the set are frozen
        own |= {"covariance": given, "layers": check_layers(self.layers), "_lower": root}
        if self.distribution == "uniform":  # a capability that normal shifts, which have no limit, do not have
            own["geometry"] = self._geometry
        else:
            own["no_worst_case"] = f"normal shifts ({self!r}) have no bound"

    @classmethod
    def laplace(cls, model: Any, X: Any, *, penalty: float | None = None, distribution: str = "uniform") -> Self:
        """The covariance that Laplace's approximation gives the last layer of a classifier fitted to `X`.

        It is a logistic regression, or a network with a sigmoid output. `penalty` is that of half the squared length of
        the weights in the loss; 1 / C of scikit-learn unless given.
        """
        net = as_model(model)
        if not offers(net, Dense) or len(net.classes) != 2 or net.as_feedforward().weights[-1].shape[1] != 1:
            raise Unsupported(f"EllipsoidShifts.laplace needs a dense network with one output, got {net!r}.")
        final = model.steps[-1][1] if hasattr(model, "steps") else model
        if penalty is None and not hasattr(final, "C"):
            told = f"must be given, since {type(final).__name__} has no C"
            raise InputError(f"`penalty` of EllipsoidShifts.laplace {told}; pass its ridge penalty, or 0.")
        weight = 1 / final.C if penalty is None else check_number(penalty, "penalty", "laplace", least=0)
        network, rows = net.as_feedforward(), encoded_rows(net, X)[1]
        inputs = last_layer_rows(network, rows)
        scores = inputs @ np.append(network.weights[-1][:, 0], network.biases[-1][0])
        inputs = inputs if net.parameters.kinds[-1] != ABSENT else inputs[:, :-1]
        ridge = np.full(inputs.shape[1], weight)
        ridge[len(network.weights[-1]) :] = 0.0  # the intercept is not penalised
        curvature = (inputs.T * slope(scores)) @ inputs + np.diag(ridge)
        try:
            return cls(np.linalg.inv(curvature), layers=[net.parameters.layer_names[-1]], distribution=distribution)
        except (np.linalg.LinAlgError, InputError):
            told = "leave directions of the weights open; pass more rows, or a penalty above 0"
            must = "must have as many directions as weights"
            raise InputError(f"`X` of EllipsoidShifts.laplace {must}, but they {told}.") from None

    def moves(self, parameters: Parameters) -> Bools:
        """Which parameters move, shape (k,)."""
        moves = self._moving(parameters)
        if np.count_nonzero(moves) != len(self._lower):
            told = f"one row per parameter that moves ({np.count_nonzero(moves)}), got {len(self._lower)}"
            raise InputError(f"`covariance` of EllipsoidShifts must have {told}; choose `layers`.")
        return moves

    def root(self, parameters: Parameters) -> Floats:
        """L with ``C = L L'``, with a row per parameter, 0 for those that do not move, shape (k, n)."""
        root = np.zeros((len(parameters), len(self._lower)))
        root[self.moves(parameters)] = self._lower
        return root

    def share(self, ratio: Floats) -> Floats:
        """The share of draws that keep a margin of which delta can take at most ``1 / ratio``."""
        from scipy.special import ndtr

        return np.asarray(ndtr(ratio) if self.distribution == "normal" else ball_share(ratio, len(self._lower)))

    def radii(self, parameters: Parameters) -> Floats:
        """How far each parameter moves when delta is 1, shape (k,); the standard deviation of normal shifts."""
        return self._geometry(parameters).radii

    def _geometry(self, parameters: Parameters) -> Ellipsoid:
        return Ellipsoid(self.root(parameters))

    def directions(self, parameters: Parameters, stream: Stream, start: int, stop: int) -> Floats:
        """Directions number `start` to `stop`, shape (stop - start, k)."""
        size, movers = len(self._lower), np.flatnonzero(self.moves(parameters))
        normal = self.distribution == "normal"
        points = standard_normals(size, stream, start, stop) if normal else unit_ball(size, 2.0, stream, start, stop)
        # no product of matrices, whose last bits depend on how many points are asked for
        points = np.einsum("ij,kj->ik", np.ascontiguousarray(points), self._lower)
        return placed(points, movers, len(parameters))

    def magnitudes(self, model: Model, points: Any, X: Floats, target: Any, delta: float | Floats) -> Floats:
        """How large the numbers behind any margin of each row get, on the farthest model that can be drawn."""
        farthest = LARGEST * math.sqrt(len(self._lower)) if self.distribution == "normal" else 1.0
        return magnitudes(model, X, target, farthest * self.radii(model.parameters), delta)

    def contains(self, base: Parameters, other: Parameters, delta: float) -> bool:
        """Whether `other` lies in the ellipsoid around `base` beyond rounding; normal shifts have no boundary."""
        boundless = self.distribution == "normal"
        near = self._others_stay(base, other)
        return near and (boundless or self._geometry(base).holds(base.values, other.values, delta))

    def distance(self, base: Parameters, other: Parameters) -> float:
        """The Mahalanobis length of the change, but for rounding; infinite if a parameter changed that stays."""
        if not self._others_stay(base, other):
            return math.inf
        moved = np.linalg.solve(self._lower, (other.values - base.values)[self.moves(base)])
        return 0.0 if self.distribution == "normal" else float(np.linalg.norm(moved))

    @property
    def words(self) -> ShiftWords:
        """What a shift is."""
        return NORMAL_WORDS if self.distribution == "normal" else ShiftWords()

    def _some(self, parameters: Parameters) -> str:
        what = self._selected(parameters)
        return f"{len(self._lower)} {what} together move{{}}{self._still(parameters)}"

    def measure(self, parameters: Parameters) -> str:
        """Name of the distribution: what moves, and how."""
        if self.distribution == "normal":
            return self._some(parameters).format(" by normal numbers of the given covariance times delta squared")
        return f"uniform in {self.region(parameters)}"

    def region(self, parameters: Parameters) -> str:
        """The set itself in words."""
        if self.distribution == "normal":
            raise Unsupported(f'{self} has no limit, so nothing holds for every shift; use method="sampling".')
        size = " by a Mahalanobis length of at most delta under the given covariance"
        return f"the ellipsoid in which {self._some(parameters).format(size)}"

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to build the set again, as JSON values."""
        told = super().to_dict()
        return {key: told[key] for key in ("kind", "layers", "distribution", "covariance")}

    _lower: Floats = field(init=False)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GaussianShifts(ScaledShifts):
    """Every parameter moves by an independent normal number with mean 0 and standard deviation `delta`.

    Most parameters move by less than `delta`, about one in three by more, and none has a limit. There is therefore no
    claim about every shift: `Sampling` is the only method.

    Parameters
    ----------
    relative, kinds, layers, scale, floor : optional
        Which parameters move, and in what proportion: as for `LinfShifts`.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> shifts = GaussianShifts(kinds=("weight",))
    >>> apas.certify(net, [[2.0, 0.5]], 0.1, target=1, shifts=shifts, rng=0)[0].claim.measure
    'each of 2 weights moves by an independent normal number of standard deviation delta, 1 fixed'
    """

    kind: ClassVar[str] = "gaussian"
    words: ClassVar[ShiftWords] = NORMAL_WORDS

    def directions(self, parameters: Parameters, stream: Stream, start: int, stop: int) -> Floats:
        """Directions number `start` to `stop`, shape (stop - start, k): normal numbers times the radii."""
        return self._drawn(standard_normals, parameters, stream, start, stop)

    def magnitudes(self, model: Model, points: Any, X: Floats, target: Any, delta: float | Floats) -> Floats:
        """How large the numbers behind any margin of each row get, on the farthest model that can be drawn."""
        return magnitudes(model, X, target, LARGEST * self.radii(model.parameters), delta)

    def linear_share(self, parameters: Parameters, sizes: Floats, level: float, slack: float, decides: Any) -> Ends:
        """Bounds on the share of draws that keep a margin which is linear in the shift: that of a normal number."""
        from scipy.special import ndtr

        lower, upper = outward_share(ndtr, sizes, level, slack)
        # rounding is known up to the farthest draw, and any of so many numbers is farther with less than this chance
        return lower - len(sizes) * 2.0**-50, upper

    def contains(self, base: Parameters, other: Parameters, delta: float) -> bool:
        """Whether `other` could have been drawn, at whatever distance: unless a parameter changed that stays."""
        return self._others_stay(base, other)

    def measure(self, parameters: Parameters) -> str:
        """Name of the distribution: what moves, and how far."""
        movers, size, fixed = self._words(parameters)
        return f"{movers} moves by an independent normal number of standard deviation {size}{fixed}"

    @property
    def no_worst_case(self) -> str:
        """Why nothing can be said about every shift."""
        return f"normal shifts ({self!r}) have no bound"

    def region(self, parameters: Parameters) -> str:
        """Refuse: a normal distribution has no bounded set, so that nothing can be said about every shift."""
        told = f"{self} has no limit to how far a parameter moves, so nothing holds for every one of its shifts"
        instead = 'method="sampling", which speaks of most of them, or shifts in a box (LinfShifts)'
        raise Unsupported(f"{told}; use {instead}.")
