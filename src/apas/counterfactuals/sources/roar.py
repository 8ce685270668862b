"""`Roar`: rows that survive when a linear surrogate of the model moves in the worst way.

The worst log loss of a line, which is known in closed form, plus a price of the distance is minimised by Adam.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from apas._random import Stream, standard_normals
from apas._typing import Bools, Floats
from apas.counterfactuals.search.smooth_problem import SmoothProblem, derives, first_and_by_cost, usable
from apas.counterfactuals.sources.base import Candidate, Search, Task, check_settings
from apas.counterfactuals.space.encoder import CodedModel
from apas.counterfactuals.space.feature import Feature
from apas.errors import InputError, Unsupported
from apas.models.base import Differentiable

BALLS = ("linf", "l1")
DECIMALS = 4  # decimals that are kept of slopes and intercept, as in the published experiments


@dataclass(frozen=True)
class Surrogate:
    """Scores along a line."""

    slopes: Floats
    intercept: float

    @classmethod
    def tangent(cls, at: Floats, margins: Floats, slopes: Floats) -> Self:
        """Margins near a row, of its margin and slopes."""
        return cls(slopes[0], float(margins[0]) - float(slopes[0] @ at))

    def worst(self, points: Floats, radii: Floats, ball: str) -> tuple[Floats, Floats]:
        """The lowest scores (rows,) of lines within the radius of each row, and their derivatives (rows, columns)."""
        scores = points @ self.slopes + self.intercept
        sizes, signs = np.abs(points), np.sign(points)
        if ball == "linf":  # every entry moves against the point, and the intercept down
            return scores - radii * (sizes.sum(axis=1) + 1.0), self.slopes - radii[:, None] * signs
        rows, largest = np.arange(len(points)), sizes.argmax(axis=1)  # all of the move goes where it does most harm
        by_point = np.tile(self.slopes, (len(points), 1))
        by_point[rows, largest] -= np.where(sizes[rows, largest] > 1.0, radii * signs[rows, largest], 0.0)
        return scores - radii * np.maximum(sizes.max(axis=1), 1.0), by_point

    def in_units(self, origin: Floats, units: Floats) -> Self:
        """The same line for points p, where it was made for ``(p - origin) / units``."""
        slopes = self.slopes / units
        return replace(self, slopes=slopes, intercept=self.intercept - float(slopes @ origin))

    def round_off(self) -> Self:
        """The line with the decimals that are kept."""
        return replace(self, slopes=self.slopes.round(DECIMALS), intercept=round(self.intercept, DECIMALS))


def fit_logistic(points: Floats, hit: Bools, weights: Floats, *, published: bool = False) -> Surrogate | None:
    """Logistic regression of hits on points, each with its weight, and half the squared slopes as a penalty."""
    from scipy.linalg import LinAlgWarning
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if hit.all() or not hit.any():
        return None
    # the published lines are where 100 iterations by default settings ended
    settings: dict[str, Any] = {} if published else {"solver": "newton-cholesky", "tol": 1e-9}
    with warnings.catch_warnings():
        for kind in (ConvergenceWarning, LinAlgWarning):  # a Hessian of weights that vanish is singular
            warnings.simplefilter("ignore", kind)
        found = LogisticRegression(**settings).fit(points, hit, sample_weight=weights)
    return Surrogate(found.coef_[0], float(found.intercept_[0]))


#: What a line is fitted to: points, whether each is of the class, and mean and spread by which columns are scaled.
_Neighbours = tuple[Floats, Bools, Floats, Floats]


class Columns:
    """A row as the model sees it, that may go anywhere."""

    def __init__(self, search: Search) -> None:
        self.search, self.task = search, search.task
        self.start = self.task.encoded(search.input[None])[0]
        self.weights, self.width = np.ones(len(self.start)), len(self.start)

    def draw(self, normals: Floats, local: bool) -> _Neighbours:
        """Draw points around the row, or around the mean of the known rows."""
        mean, spread = _mean_and_spread(self._known)
        points = (self.start if local else mean) + normals * spread
        points[0] = self.start
        return points, self.valid(points), mean, spread

    def draw_reversed(self, normals: Floats) -> _Neighbours:
        """Draw what the published experiments fitted the last line to where features have levels: see `Roar`."""
        # Columns of levels are drawn as frequent as they are and replaced by whether they are the row's, and the class
        # is turned round. Without such columns it is what `drawn` gives.
        points, hit, mean, spread = self.draw(normals, local=False)
        bits = self._bits
        if not bits.any():
            return points, hit, mean, spread
        for j in np.flatnonzero(bits):
            points[1:, j] = _by_frequency(self._known[:, j], normals[1:, j])
        same = np.where(bits, points == self.start, points)
        return same, ~self.valid(points), np.where(bits, 0.0, mean), np.where(bits, 1.0, spread)

    @property
    def _known(self) -> Floats:
        """Known rows as the model sees them."""
        return self.task.once("columns/known", lambda: self.task.encoded(np.asarray(self.task.background)))

    @property
    def _bits(self) -> Bools:
        """Which columns stand for levels."""
        found = np.zeros(self.width, dtype=bool)
        if isinstance(self.task.model, CodedModel) and self.task.space.coding.n_columns == self.width:
            for feature, part in zip(self.task.space, self.task.space.coding.slices, strict=True):
                found[part] = feature.is_level
        return found

    def valid(self, points: Floats) -> Bools:
        """Which points the model puts into the wanted class."""
        return self.task.valid_columns(points, self.search.target)

    def tangent(self) -> Surrogate:
        """The margin of the model as it is at the row."""
        assert isinstance(self.task.model, Differentiable)
        return Surrogate.tangent(self.start, *self.task.model.input_gradient(self.start[None], self.search.target))

    def inside(self, points: Floats) -> Floats:
        """The points themselves."""
        return points


class InSpace:
    """A row in coordinates of the space: numbers from the low end of their range in units of it, levels as 0 and 1."""

    def __init__(self, search: Search) -> None:
        self.search, task = search, search.task
        self._problem = SmoothProblem(search)
        self._at = self._problem.at
        self._origin = np.zeros(self._at.size)  # where coordinates are 0: the low end of a range, else of what is known
        known = search.input[None] if task.background is None else task.background
        for i, (feature, part) in enumerate(zip(task.space, self._at.slices, strict=True)):
            if feature.kind != "categorical":
                low = feature.ends[0] if np.isfinite(feature.ends[0]) else float(known[:, i].min())
                self._origin[part] = low / self._at.units[i]
        self.start, self.weights = self._problem.start - self._origin, self._problem.weights
        self.width = len(task.space)

    def draw(self, normals: Floats, local: bool) -> _Neighbours:
        """Draw rows around the row, or around the mean of the known rows."""
        # Numbers and ordinal levels are normal with the spread of the known rows, other levels as frequent as there;
        # what a feature cannot be becomes the nearest that it can, whether or not the row may change so.
        task, rows = self.search.task, np.empty(normals.shape)
        background = np.asarray(task.background)
        for i, feature in enumerate(task.space):
            values, original = background[:, i], float(self.search.input[i])
            if feature.kind in ("categorical", "binary"):
                rows[:, i] = _by_frequency(values, normals[:, i])
                continue
            size = float(values.std()) or self._at.units[i]
            rows[:, i] = _possible(feature, (original if local else values.mean()) + size * normals[:, i], original)
        rows[0] = self.search.input
        mean, spread = _mean_and_spread(self._at.of(background) - self._origin)
        return self._at.of(rows) - self._origin, task.valid(rows, self.search.target), mean, spread

    def tangent(self) -> Surrogate:
        """The margin of the model as it is at the row."""
        return Surrogate.tangent(self.start, *self._problem.gradients(self._problem.start[None]))

    def inside(self, points: Floats) -> Floats:
        """The nearest points within the limits of the space."""
        return self._problem.inside(points + self._origin) - self._origin

    def numbers(self, points: Floats) -> Floats:
        """The nearest allowed rows, as numbers per cell."""
        moved = points != self.start  # adding the origin again need not give the digits that were there
        return self._problem.numbers(np.where(moved, points + self._origin, self._problem.start))


#: The row that a descent starts from: `start` in coordinates, `weights` that a unit of each costs, and the `width` of a
#: neighbour in standard normal numbers.
_Row = Columns | InSpace


def _mean_and_spread(points: Floats) -> tuple[Floats, Floats]:
    spread = points.std(axis=0)
    return points.mean(axis=0), np.where(spread > 0, spread, 1.0)


def _by_frequency(values: Floats, normals: Floats) -> Floats:
    """Values as frequent as they are, each chosen by a standard normal number."""
    from scipy.special import ndtr

    return np.asarray(np.sort(values)[np.minimum((ndtr(normals) * len(values)).astype(np.intp), len(values) - 1)])


def _possible(feature: Feature, wanted: Floats, original: float) -> Floats:
    """The nearest values that a feature can have, also where this row may not change to them."""
    free = feature if feature.mutable and feature.direction is None else replace(feature, mutable=True, direction=None)
    found = free.snapped(wanted, np.full(len(wanted), np.nan))
    return np.where(np.isnan(found), original, found)  # a range without a step in it has no values


SURROGATES = ("local", "gradient", "published")
#: What a unit of distance may cost, as in the published experiments.
PRICES = np.array([0.0005, 0.001, 0.005, *(0.01 + 0.05 * np.arange(22)).round(2)])
#: Adam's settings, the change of the loss that ends a descent, and how many steps it takes at most.
RATE, BETAS, EPSILON = 0.001, (0.9, 0.999), 1e-8
TOLERANCE, STEPS = 1e-4, 5000
KERNEL = 0.75  # how wide the weights of neighbours are: this times the root of the number of coordinates
#: Further radii, as parts of the way from the radius to the largest slope, beyond which no slope keeps its sign.
WIDER = (0.1, 0.2, 0.4, 0.8)


@dataclass(frozen=True, kw_only=True)
class Roar:
    """Robust algorithmic recourse: rows that a line in place of the model accepts even after the worst move.

    The first candidate has the highest price of distance that is valid on the model before a higher one is not. If
    it is not certified, rows of other prices and of larger radii follow, the cheapest first.

    Parameters
    ----------
    surrogate : {"local", "gradient", "published"}, default "local"
        The line: a logistic regression on neighbours drawn around the row and weighted by how near they are, which only
        asks the model for classes; the margin's own derivative at the row; or the regression as it was used in the
        published experiments (see Notes).
    radius : float, default 0.1
        How far slopes and intercept of the line move.
    ball : {"linf", "l1"}, default "linf"
        Whether each may move so far, or all of them together.
    samples : int, default 20000
        Number of neighbours.

    Notes
    -----
    The published experiments drew neighbours around the mean of the known rows rather than around the row; they used
    slopes that belong to standardised columns as if they belonged to the model's own; they ended fits after 100
    iterations; and they chose the price on one draw of neighbours and the row on another, so that some rows are not
    valid even on the model. Where features have levels, the second line separated the *other* class, by whether columns
    equal those of the row. ``"published"`` does all this, the last in `recourse` only.

    References
    ----------
    Upadhyay, Joshi and Lakkaraju (2021), "Towards Robust and Reliable Algorithmic Recourse", NeurIPS.

    Examples
    --------
    >>> from apas import Feature, FeatureSpace, FeedForward
    >>> space = FeatureSpace([Feature(name, low=0, high=1) for name in ("income", "savings")])
    >>> net = FeedForward([[[8.0], [4.0]]], [[-6.0]], feature_names=space.names)
    >>> search = Search(Task(net, space), 0, np.array([0.2, 0.3]), 1)
    >>> first = next(Roar(surrogate="gradient").candidates(search))
    >>> first.point.round(2).tolist(), search.is_valid(first.point)
    ([0.81, 0.3], True)
    """

    surrogate: str = "local"
    radius: float = 0.1
    ball: str = "linf"
    samples: int = 20_000
    ordered: ClassVar[bool] = True  # the row of the chosen price is wanted if it is certified, else the cheapest

    def __post_init__(self) -> None:
        for name, known in (("surrogate", SURROGATES), ("ball", BALLS)):
            if getattr(self, name) not in known:
                choices = " or ".join([", ".join(f'"{k}"' for k in known[:-1]), f'"{known[-1]}"'])
                raise InputError(f"`{name}` of Roar must be {choices}, got {getattr(self, name)!r}.")
        check_settings(self, samples={"least": 2})

    def unsupported(self, task: Task) -> str | None:
        """None if there is what the line is made from, else the error a user reads."""
        if self.surrogate != "gradient":
            if task.background is None or not len(task.background):
                return (
                    f'Roar(surrogate="{self.surrogate}") draws neighbours with the spread of known rows; pass some, '
                    'such as the training table, as `background`, or use surrogate="gradient".'
                )
            return None
        if derives(task.model, np.zeros(task.model.n_features), task.model.classes[0]):
            return None
        return (
            f'Roar(surrogate="gradient") needs a model that knows its derivatives, got {task.model!r}; use '
            'surrogate="local", which only asks it for classes.'
        )

    def candidates(self, search: Search) -> Generator[Candidate, Any, str]:
        """Different rows, allowed by the space and valid on the model: the one of `radius`, then others by cost."""
        place = InSpace(search)
        lines = self._lines(search, place)
        if lines is None:
            return f"all {self.samples} neighbours are of one class, so that Roar has no line between classes"
        found = yield from first_and_by_cost(search, self._rows(place, *lines))
        return "no further prices and radii" if found else "at no price and radius Roar found a row that is valid"

    def recourse(self, search: Search) -> Floats:
        """The row of the published method in the columns of the model: no limits, valid on the model or not.

        Parameters
        ----------
        search : Search
            Made by hand: ``Search(Task(space.bind(model), space, background=...), number, numbers, target)``.

        Returns
        -------
        ndarray of shape (columns,)
            The input itself if all neighbours are of one class.
        """
        complaint = self.unsupported(search.task)
        if complaint is not None:
            raise Unsupported(complaint)
        place = Columns(search)
        lines = self._lines(search, place)
        if lines is None:
            return np.array(place.start)
        choosing, last = lines
        rows = self._descend(place, choosing, self.radius, PRICES)
        chosen = _last_valid_price(place.valid(rows))
        if choosing is not last:
            rows, chosen = self._descend(place, last, self.radius, PRICES[[chosen]]), 0
        return np.asarray(rows[chosen])

    def _rows(self, place: InSpace, choosing: Surrogate, last: Surrogate) -> Iterator[Floats]:
        """The row of the chosen price, if it can be offered; then those of all prices and radii."""
        search, points = place.search, self._descend(place, choosing, self.radius, PRICES)
        chosen = _last_valid_price(search.task.valid(place.numbers(points), search.target))
        if choosing is not last:
            points = self._descend(place, last, self.radius, PRICES)
        yield usable(search, place.numbers(points[[chosen]]))
        wider = self.radius + np.array(WIDER) * max(0.0, float(np.abs(last.slopes).max()) - self.radius)
        further = self._descend(place, last, np.repeat(wider, len(PRICES)), np.tile(PRICES, len(wider)))
        yield usable(search, place.numbers(np.concatenate([points, further])))

    def _lines(self, search: Search, place: _Row) -> tuple[Surrogate, Surrogate] | None:
        """The line that the price is chosen on, and the one that the row is from."""
        if self.surrogate == "gradient":
            line = place.tangent()
            return line, line
        found = [self._fit(search, place, number) for number in range(2 if self.surrogate == "published" else 1)]
        return None if found[0] is None or found[-1] is None else (found[0], found[-1])

    def _fit(self, search: Search, place: _Row, number: int) -> Surrogate | None:
        """A regression on neighbours, of which the row itself is one."""
        stream = Stream(search.task.entropy, f"roar/{search.row}/{number}")
        normals, local = standard_normals(place.width, stream, 0, self.samples), self.surrogate == "local"
        near = place.draw_reversed(normals) if number and isinstance(place, Columns) else place.draw(normals, local)
        points, hit, mean, spread = near
        scaled = (points - mean) / spread
        far = np.square(scaled - scaled[0]).sum(axis=1) / (KERNEL**2 * len(mean))
        line = fit_logistic(scaled, hit, np.exp(-0.5 * far), published=not local)
        return None if line is None else (line.in_units(mean, spread) if local else line).round_off()

    def _descend(self, place: _Row, line: Surrogate, radii: float | Floats, prices: Floats) -> Floats:
        """Where the loss stops falling, one point per price, shape (prices, coordinates)."""
        from scipy.special import expit

        points = np.tile(place.start, (len(prices), 1))
        radii = np.broadcast_to(np.asarray(radii, dtype=np.float64), prices.shape)
        first, second = np.zeros_like(points), np.zeros_like(points)
        going, last = np.arange(len(points)), np.full(len(points), np.inf)
        for step in range(1, STEPS + 1):
            if place.search.task.is_late:
                break
            at = points[going]
            scores, slopes = line.worst(at, radii[going], self.ball)
            moved = (at - place.start) * place.weights
            loss = np.logaddexp(0.0, -scores) + prices[going] * np.abs(moved).sum(axis=1)
            still = ~(np.abs(last[going] - loss) < TOLERANCE)
            last[going] = loss
            if not still.all():
                going, at, scores, slopes, moved = (a[still] for a in (going, at, scores, slopes, moved))
                if not going.size:
                    break
            gradient = prices[going, None] * place.weights * np.sign(moved) - expit(-scores)[:, None] * slopes
            # Adam, by the formulas of its paper: averages updated in another order round to other rows
            first[going] = BETAS[0] * first[going] + (1 - BETAS[0]) * gradient
            second[going] = BETAS[1] * second[going] + (1 - BETAS[1]) * gradient**2
            size = np.sqrt(second[going] / (1 - BETAS[1] ** step)) + EPSILON
            points[going] = place.inside(at - RATE * first[going] / (1 - BETAS[0] ** step) / size)
        return points


def _last_valid_price(valid: Bools) -> int:
    """The first row that is valid while the next is not; the last if there is none."""
    falls = np.flatnonzero(valid[:-1] & ~valid[1:])
    return int(falls[0]) if len(falls) else len(valid) - 1
