"""`Roar`: rows that survive when a straight line in place of the model moves in the worst way.

Near the row the model is replaced by a line (see `apas.counterfactuals.surrogate`). The loss of a point is the log loss
of its worst score while the line moves within a ball, plus a price times the distance from the row; it is minimised by
gradient descent (Adam). Of several prices the row of the highest that is still valid on the model is taken.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas._random import Stream
from apas._validation import check_integer, check_number
from apas.counterfactuals.levels import first_and_by_cost, usable
from apas.counterfactuals.neighbourhood import Columns, InSpace, Neighbourhood
from apas.counterfactuals.relaxed import derives
from apas.counterfactuals.source import Candidate, Search, Task
from apas.counterfactuals.surrogate import BALLS, Surrogate, fitted, fitted_by_default
from apas.errors import InputError, Unsupported
from apas.shifts.normal import standard_normals

__all__ = ["PRICES", "Roar"]

_Array = NDArray[np.float64]
SURROGATES = ("local", "gradient", "published")
#: What a unit of distance may cost, as in the published experiments.
PRICES = np.array([0.0005, 0.001, 0.005, *(0.01 + 0.05 * np.arange(22)).round(2)])
#: Adam's settings, the change of the loss that ends a descent, and how many steps it takes at most.
RATE, BETAS, EPSILON = 0.001, (0.9, 0.999), 1e-8
TOLERANCE, STEPS = 1e-4, 5000
#: How wide the weights of neighbours are: this times the root of the number of coordinates.
KERNEL = 0.75
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

    def __post_init__(self) -> None:
        for name, known in (("surrogate", SURROGATES), ("ball", BALLS)):
            if getattr(self, name) not in known:
                choices = " or ".join([", ".join(f'"{k}"' for k in known[:-1]), f'"{known[-1]}"'])
                raise InputError(f"`{name}` of Roar must be {choices}, got {getattr(self, name)!r}.")
        check_number(self.radius, "radius", "Roar", least=0.0)
        object.__setattr__(self, "samples", check_integer(self.samples, "samples", "Roar", least=2))

    @property
    def ordered(self) -> bool:
        """True: the row of the chosen price is wanted if it is certified, else the cheapest that is."""
        return True

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
        """Different rows, allowed by the space and valid on the model: the one of `radius`, then others by cost.

        The generator returns why there are no more.
        """
        place = InSpace(search)
        lines = self._lines(search, place)
        if lines is None:
            return f"all {self.samples} neighbours are of one class, so that Roar has no line between classes"
        found = yield from first_and_by_cost(search, self._rows(place, *lines))
        return "no further prices and radii" if found else "at no price and radius Roar found a row that is valid"

    def recourse(self, search: Search) -> _Array:
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
        rows = self._descended(place, choosing, self.radius, PRICES)
        chosen = _before_the_fall(place.valid(rows))
        if choosing is not last:
            rows, chosen = self._descended(place, last, self.radius, PRICES[[chosen]]), 0
        found: _Array = rows[chosen]
        return found

    def _rows(self, place: InSpace, choosing: Surrogate, last: Surrogate) -> Iterator[_Array]:
        """The row of the chosen price, if it can be offered; then those of all prices and radii."""
        search = place.search
        points = self._descended(place, choosing, self.radius, PRICES)
        chosen = _before_the_fall(search.task.valid(place.numbers(points), search.target))
        if choosing is not last:
            points = self._descended(place, last, self.radius, PRICES)
        yield usable(search, place.numbers(points[[chosen]]))
        wider = self.radius + np.array(WIDER) * max(0.0, float(np.abs(last.slopes).max()) - self.radius)
        further = self._descended(place, last, np.repeat(wider, len(PRICES)), np.tile(PRICES, len(wider)))
        yield usable(search, place.numbers(np.concatenate([points, further])))

    def _lines(self, search: Search, place: Neighbourhood) -> tuple[Surrogate, Surrogate] | None:
        """The line that the price is chosen on, and the one that the row is from."""
        if self.surrogate == "gradient":
            line = place.tangent()
            return line, line
        found = [self._fitted(search, place, number) for number in range(2 if self.surrogate == "published" else 1)]
        return None if found[0] is None or found[-1] is None else (found[0], found[-1])

    def _fitted(self, search: Search, place: Neighbourhood, number: int) -> Surrogate | None:
        """A regression on neighbours, of which the row itself is one."""
        stream = Stream(search.task.entropy, f"roar/{search.row}/{number}")
        normals, local = standard_normals(place.width, stream, 0, self.samples), self.surrogate == "local"
        near = place.reversed(normals) if number and isinstance(place, Columns) else place.drawn(normals, local)
        scaled = (near.points - near.mean) / near.spread
        far = np.square(scaled - scaled[0]).sum(axis=1) / (KERNEL**2 * len(near.mean))
        line = (fitted if local else fitted_by_default)(scaled, near.hit, np.exp(-0.5 * far))
        if line is None:
            return None
        return (line.in_units(near.mean, near.spread) if local else line).rounded()

    def _descended(self, place: Neighbourhood, line: Surrogate, radii: float | _Array, prices: _Array) -> _Array:
        """Where the loss stops falling, one point per price, shape (prices, coordinates)."""
        from scipy.special import expit

        points = np.tile(place.start, (len(prices), 1))
        radii = np.broadcast_to(np.asarray(radii, dtype=np.float64), prices.shape)
        first, second = np.zeros_like(points), np.zeros_like(points)
        going, last = np.arange(len(points)), np.full(len(points), np.inf)
        for step in range(1, STEPS + 1):
            if time.monotonic() > place.search.task.deadline:
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
            price = prices[going, None] * place.weights * np.sign(moved)
            gradient = price - expit(-scores)[:, None] * slopes
            first[going] = BETAS[0] * first[going] + (1 - BETAS[0]) * gradient
            second[going] = BETAS[1] * second[going] + (1 - BETAS[1]) * gradient**2
            size = np.sqrt(second[going] / (1 - BETAS[1] ** step)) + EPSILON
            points[going] = place.inside(at - RATE * first[going] / (1 - BETAS[0] ** step) / size)
        return points


def _before_the_fall(valid: NDArray[np.bool_]) -> int:
    """The first row that is valid while the next is not; the last if there is none.

    Examples
    --------
    >>> _before_the_fall(np.array([False, True, True, False, True])), _before_the_fall(np.array([False, True]))
    (2, 1)
    """
    falls = np.flatnonzero(valid[:-1] & ~valid[1:])
    return int(falls[0]) if len(falls) else len(valid) - 1
