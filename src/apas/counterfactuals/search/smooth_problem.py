"""The search for one row as a smooth problem: coordinates that move freely, and the margin with its derivatives.

What preprocessing mixes or bends is approximated: that may cost candidates, but each is evaluated by the model itself.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from apas._typing import Floats
from apas.counterfactuals.sources.base import Candidate, Search, Task
from apas.counterfactuals.space.encoder import one_by_one
from apas.errors import Unsupported
from apas.models.base import Differentiable, offers
from apas.models.predictor import is_coded

#: What is nowhere near any weight; it fills up the blocks of categories that have fewer levels than others.
NO_WEIGHT = -1e9


class Coordinates:
    """Coordinates of the rows of a task."""

    def __init__(self, task: Task) -> None:
        self.features = tuple(task.space)
        widths = [len(f.values or ()) if f.kind == "categorical" else 1 for f in self.features]
        ends = np.cumsum([0, *widths]).tolist()
        self.slices = tuple(slice(a, b) for a, b in pairwise(ends))
        self.size = int(ends[-1])
        self.units = np.array([_unit(task, i) for i in range(len(self.features))])

        #: Per coordinate its feature, whether that is a category, and then the level that it stands for.
        self.owner = np.repeat(np.arange(len(widths)), widths)
        self.category = np.array([f.kind == "categorical" for f in self.features])[self.owner]
        self.level = np.arange(self.size) - np.array(ends)[self.owner]

    def of(self, numbers: Floats) -> Floats:
        """Coordinates of rows of numbers per cell."""
        cells = np.take(numbers, self.owner, axis=1)
        return np.asarray(np.where(self.category, cells == self.level, cells / self.units[self.owner]))


def on_simplex(points: Floats) -> Floats:
    """The nearest points whose last axis has entries of at least 0 that add up to 1."""
    # the same number is subtracted from all entries, and what falls below 0 is cut off; `count` entries remain
    falling = -np.sort(-points, axis=-1)
    excess = np.cumsum(falling, axis=-1) - 1.0
    count = (falling - excess / np.arange(1, points.shape[-1] + 1) > 0).sum(axis=-1, keepdims=True)
    return np.asarray(np.maximum(points - np.take_along_axis(excess, count - 1, axis=-1) / count, 0.0))


def _unit(task: Task, i: int) -> float:
    feature = task.space.features[i]
    if task.background is not None and len(task.background) and not np.isfinite(np.subtract(*feature.ends)):
        return float(np.ptp(task.background[:, i])) or 1.0
    return feature.span


class PiecewiseLinear:
    """One piecewise linear function per coordinate, each with values (knots, columns) at its knots."""

    def __init__(self, places: list[int], knots: list[Floats], values: list[Floats]) -> None:
        self.places = np.array(places, dtype=np.intp)
        slopes = [np.diff(v, axis=0) / np.diff(k)[:, None] for k, v in zip(knots, values, strict=True)]
        self._each = list(zip(places, knots, values, slopes, strict=True))

    def __len__(self) -> int:
        return len(self.places)

    def sums(self, points: Floats) -> Floats:
        """What all of them add up to, shape (rows, columns)."""
        parts = []
        for place, knots, values, slopes in self._each:
            at = points[:, place]
            piece = np.clip(np.searchsorted(knots, at, side="right") - 1, 0, len(slopes) - 1)
            parts.append(values[piece] + (at - knots[piece])[:, None] * slopes[piece])
        return np.asarray(np.sum(parts, axis=0))

    def slopes(self, points: Floats) -> Floats:
        """Their slopes, shape (rows, functions, columns); at a knot the mean of those on its sides."""
        found = []
        for place, knots, _, slopes in self._each:
            sides = [np.searchsorted(knots, points[:, place], side=side) - 1 for side in ("left", "right")]
            left, right = (slopes[np.clip(piece, 0, len(slopes) - 1)] for piece in sides)
            found.append((left + right) / 2)
        return np.stack(found, axis=1)


PIECES = 64  # in how many pieces a number is encoded to see whether it reaches the model along a straight line
STRAIGHT = 1e-9  # how far from straight a line may be, in units of the largest entry of its column
WIDTH = 0.01  # how far to each side a finite difference goes, in units of the range of a number, or of a whole level
#: Margins further below 0 than this are scaled down to it when derived: there probabilities do not move any more.
FAR = 20.0


#: Costs and points of descents, given what each is asked for and how strongly; infinite costs where one failed.
Descend = Callable[[Floats, Floats], tuple[Floats, Floats]]
SPREAD = 10.0 ** np.arange(-2, 3)  # strengths that are tried together, in units of the first
APART = 1.2  # a strength that failed although a smaller one did not is taken to be smaller by this part at least


@dataclass(frozen=True)
class Level:
    """What descents found that were asked for the same.

    Attributes
    ----------
    asked : float
        A target probability, or a difference of probabilities.
    points : ndarray of shape (rows, features)
        Different rows as numbers per cell, allowed by the space and valid on the model, the cheapest first.
    """

    asked: float
    points: Floats


class SmoothProblem:
    """One search in coordinates."""

    def __init__(self, search: Search) -> None:
        self.search, task = search, search.task
        self._model: Any = task.model
        self.at: Coordinates = task.once("relaxed", lambda: Coordinates(task))
        self.start = self.at.of(search.input[None])[0]
        self._free = np.array([f.mutable for f in task.space], dtype=bool)
        self._level = np.array([f.is_level for f in task.space])
        self._category = np.array([f.kind == "categorical" for f in task.space])
        self._base = task.encoded(search.input[None])[0]
        self._lines = np.zeros((self.at.size, len(self._base)))
        self._bent = self._encode_parts()
        self.low, self.high = self._limits()
        self.differences = not derives(task.model, self._base, search.target)
        # how far to each side a finite difference goes: whole levels by one, categories by any
        wide = np.where(self.at.category, np.inf, 1.0 / self.at.units[self.at.owner])
        self._steps = np.where(self._whole & self._level[self.at.owner], wide, WIDTH)
        margins, slopes = self.gradients(self.start[None])
        self.flat = not slopes.any()
        self._heat = max(1.0, -float(margins[0]) / FAR)
        self._free[self._held(np.abs(slopes[0]))] = False
        self.low, self.high = self._limits()
        categories = [self.at.slices[i] for i in np.flatnonzero(self._free & self._category)]
        # the coordinates of all categories as one block, so that they are handled together
        self._places = np.full((len(categories), max((p.stop - p.start for p in categories), default=0)), self.at.size)
        for row, part in zip(self._places, categories, strict=True):
            row[: part.stop - part.start] = np.arange(part.start, part.stop)
        self._there = self._places < self.at.size
        even = np.flatnonzero(self._free & self._level & ~self._category)
        self._levels, self._level_units = np.flatnonzero(np.isin(self.at.owner, even)), self.at.units[even]
        # where the nearest allowed number must be asked for, since not every one between the limits is allowed
        uneven = [f.listed is not None or f.step is not None for f in task.space]
        within = [f.ends[0] <= x <= f.ends[1] for f, x in zip(task.space, search.input, strict=True)]
        self._rough = np.flatnonzero(self._free & ~self._level & (np.array(uneven) | ~np.array(within))).tolist()
        self.weights = np.where(self.at.category, 0.5, 1.0)

    def gradients(self, points: Floats) -> tuple[Floats, Floats]:
        """Margins (rows,) and their derivatives by the coordinates (rows, coordinates)."""
        if self.differences:
            return self.margins(points), self._difference_quotients(points)
        margins, by_column = self._model.input_gradient(self._columns(points), self.search.target)
        found = by_column @ self._lines.T
        if len(self._bent):
            found[:, self._bent.places] = (self._bent.slopes(points) @ by_column[:, :, None])[:, :, 0]
        return margins, found

    def slopes(self, margins: Floats) -> Floats:
        """How fast the probability of the wanted class grows with the margin."""
        # Far below 0 it does not, in floating point, and no descent would ever start. So where the input is that far
        # away, margins are taken in larger units, in which it is at -20.
        scaled = probabilities(margins / self._heat)
        return scaled * (1.0 - scaled) / self._heat

    def round_points(self, points: Floats) -> Floats:
        """The nearest allowed points, in coordinates."""
        if not (self._rough or len(self._levels) or len(self._places)):
            return points
        found = points.copy()
        found[:, self._levels] = np.rint(points[:, self._levels] * self._level_units) / self._level_units
        for i in self._rough:
            j, unit = self.at.slices[i].start, self.at.units[i]
            original = np.full(len(points), self.search.input[i])
            found[:, j] = self.search.task.space.features[i].snapped(points[:, j] * unit, original) / unit
        if len(self._places):  # the level that has the most weight
            block = self._block(found)
            most = block.argmax(axis=2)[:, :, None] == np.arange(block.shape[2])
            found[:, self._places[self._there]] = most[:, self._there]
        return found

    def inside(self, points: Floats) -> Floats:
        """The nearest points within the limits, the weights of levels adding up to 1."""
        found = np.clip(points, self.low, self.high)
        if len(self._places):
            found[:, self._places[self._there]] = on_simplex(self._block(points))[:, self._there]
        return found

    def _block(self, points: Floats) -> Floats:
        return np.concatenate([points, np.full((len(points), 1), NO_WEIGHT)], axis=1)[:, self._places]

    def costs(self, points: Floats) -> Floats:
        """Sum of the changes, each in units of its range, 1 for another category; shape (rows,)."""
        return np.asarray(np.abs(points - self.start) @ self.weights)

    def numbers(self, points: Floats) -> Floats:
        """The nearest allowed rows as numbers per cell; what did not move is what it was, digit by digit."""
        return self.search.snapped(self._cells(points))

    def _cells(self, points: Floats) -> Floats:
        """Numbers per cell of points, which the space need not allow."""
        first = [part.start for part in self.at.slices]
        own = np.take(points, first, axis=1)
        found = np.where(own == self.start[first], self.search.input, own * self.at.units)
        for i in np.flatnonzero(self._category).tolist():
            found[:, i] = points[:, self.at.slices[i]].argmax(axis=1)
        return found

    def _columns(self, points: Floats) -> Floats:
        """What the model sees of coordinates, shape (rows, columns)."""
        found = self._base + (points - self.start) @ self._lines
        return np.asarray(found + self._bent.sums(points) if len(self._bent) else found)

    def margins(self, points: Floats) -> Floats:
        """Margins towards the wanted class, shape (rows,)."""
        if self._whole:
            cells = self._cells(points)
            return self.search.task.margins(np.where(self._level, np.rint(cells), cells), self.search.target)
        return np.asarray(self._model.margin(self._columns(points), self.search.target))

    def _limits(self) -> tuple[Floats, Floats]:
        ends = np.array([f.ends for f in self.at.features])[self.at.owner] / self.at.units[self.at.owner, None]
        least, most = np.where(self.at.category[:, None], [0.0, 1.0], ends).T
        rises, falls = (np.array([f.direction != way for f in self.at.features]) for way in ("decrease", "increase"))
        down, up = (self._free & falls)[self.at.owner], (self._free & rises)[self.at.owner]
        low, high = np.minimum(least, self.start), np.maximum(most, self.start)
        return np.where(down, low, self.start), np.where(up, high, self.start)

    def _held(self, effects: Floats) -> list[int]:
        """Features to leave alone, so that what is found differs from what the row has: those that matter least."""
        size = [float(effects[part].max()) for part in self.at.slices]
        held, still = list[int](), list(self.search.avoid)
        while still and any(still):
            counts = {i: sum(i in known for known in still) for i in sorted(frozenset().union(*still))}
            held.append(max(counts, key=lambda i: (counts[i], -size[i])))
            still = [known for known in still if held[-1] not in known]
        return held

    def _encode_parts(self) -> PiecewiseLinear:
        """Find what each coordinate adds to the columns, by encoding the input with one feature changed."""
        bent: list[tuple[int, Floats, Floats]] = []
        task, tried = self.search.task, [self._tried_numbers(i) for i in range(len(self._free))]
        rows, owner = one_by_one(tried, self.search.input)
        encoded = task.encoded(rows) if len(rows) else np.empty((0, len(self._base)))
        self._whole, added = bool(is_coded(encoded).any()), encoded - self._base
        scale = STRAIGHT * np.maximum(np.abs(added + self._base).max(axis=0, initial=0.0), np.finfo(float).tiny)
        for i, (feature, part) in enumerate(zip(task.space, self.at.slices, strict=True)):
            values = added[owner == i]
            if feature.kind == "categorical":
                self._lines[part] = values if len(values) else 0.0
            elif len(values) > 1:
                knots = tried[i] / self.at.units[i]
                line = (values[-1] - values[0]) / (knots[-1] - knots[0])
                if (np.abs(values - np.outer(knots - self.start[part.start], line)) <= scale).all():
                    self._lines[part.start] = line
                else:
                    bent.append((part.start, knots, values))
        return PiecewiseLinear([b[0] for b in bent], [b[1] for b in bent], [b[2] for b in bent])

    def _tried_numbers(self, i: int) -> Floats:
        """Numbers of a feature that are encoded, in ascending order."""
        task, feature, x = self.search.task, self.search.task.space.features[i], float(self.search.input[i])
        if not self._free[i]:
            return np.empty(0)
        if feature.listed is not None:
            return feature.listed if feature.kind == "categorical" else np.unique([*feature.listed, x])
        known = np.array([x]) if task.background is None else np.append(task.background[:, i], x)
        low, high = (e if np.isfinite(e) else k for e, k in zip(feature.ends, (known.min(), known.max()), strict=True))
        low, high = min(low, x), max(high, x)
        return np.unique([*np.linspace(low, high if high > low else low + self.at.units[i], PIECES + 1), x])

    def _difference_quotients(self, points: Floats) -> Floats:
        """Derivatives by central differences, one-sided at a limit."""
        moving = np.flatnonzero(self.low < self.high)
        steps = np.zeros((len(moving), self.at.size))
        steps[np.arange(len(moving)), moving] = self._steps[moving]
        above = np.minimum(points[:, None] + steps, self.high)
        below = np.maximum(points[:, None] - steps, self.low)
        apart = (above - below).sum(axis=2)
        if len(places := np.flatnonzero(np.isinf(self._steps[moving]))):
            # whole categories: each level, which then has the most weight, instead of the one that is there
            below[:, places] = above[:, places] = points[:, None]
            above[:, places, moving[places]] = 2.0
            apart[:, places] = 1.0
        margins = self.margins(np.concatenate([above, below]).reshape(-1, self.at.size))
        ahead, behind = margins.reshape(2, len(points), len(moving))
        found = np.zeros_like(points)
        found[:, moving] = (ahead - behind) / apart
        return found

    def levels(
        self, descend: Descend, asked: Floats, first: Floats, rounds: int, finish: Any = None
    ) -> Iterator[Level]:
        """The cheapest descents for each of `asked`, over strengths around each of `first`, by what was asked for."""
        grid = first[:, None] * SPREAD
        best, points, every = np.full(len(asked), np.inf), np.empty(0), np.arange(len(asked))
        for number in range(rounds):
            costs, found = descend(np.repeat(asked, len(SPREAD)), grid.ravel())
            costs, found = costs.reshape(grid.shape), found.reshape(*grid.shape, -1)
            least, reached = costs.argmin(axis=1), np.isfinite(costs)
            if not number:
                points = found[every, least].copy()
            nearer = costs[every, least] < best
            best[nearer], points[nearer] = costs[every, least][nearer], found[every, least][nearer]
            # next come strengths between those that failed and those that did not, or beyond all of them
            enough = np.where(reached, grid, np.inf).min(axis=1, keepdims=True)
            weak = np.where(reached, 0.0, grid).max(axis=1, keepdims=True)
            weak = np.minimum(np.where(weak > 0, weak, enough * SPREAD[0] / SPREAD[-1]), enough / APART)
            part, stronger = np.arange(1, len(SPREAD) + 1) / (len(SPREAD) + 1), 10.0 ** np.arange(1, len(SPREAD) + 1)
            with np.errstate(invalid="ignore", over="ignore"):
                grid = np.where(np.isfinite(enough), weak ** (1 - part) * enough**part, weak * stronger)
        points = points if finish is None else finish(asked, points)
        for value in np.unique(asked):
            mine = np.flatnonzero((asked == value) & np.isfinite(best))
            rows = self.numbers(points[mine[np.argsort(best[mine], kind="stable")]])
            yield Level(float(value), usable(self.search, rows))

    def offer(self, levels: Iterator[Level], name: str) -> Generator[Candidate, Any, str]:
        """The rows of the first level as candidates, then those of the others; returns why there are no more."""
        note = "found by finite differences, since the model has no derivatives" if self.differences else ""
        found = yield from first_and_by_cost(self.search, (level.points for level in levels), note)
        how = ", by finite differences since the model has no derivatives," if self.differences else ""
        if not found:
            why = ": at the input all derivatives by what may change are 0" if self.flat else ""
            return f"no descent of {name}{how} reached an allowed row of class {self.search.target!r}{why}"
        return f"no further candidates after the last level of {name}{how.rstrip(',')}"


def derives(model: Any, columns: Floats, target: Any) -> bool:
    """Whether the model knows its derivatives by the columns."""
    if not offers(model, Differentiable):
        return False
    try:
        model.input_gradient(columns[None], target)
    except Unsupported:
        return False
    return True


def probabilities(margins: Floats) -> Floats:
    """Of the wanted class against the best other one: 0.5 where the margin is 0."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * margins)))


def rising_levels(first: float, step: float, last: float) -> Floats:
    """What the levels ask for: from the first in steps, and the last."""
    steps = np.round(first + step * np.arange(int((last - first) / step + 1e-9) + 1), 12)
    return np.append(steps, last) if last - steps[-1] > 1e-9 else steps


def usable(search: Search, rows: Floats) -> Floats:
    """The rows that could be offered: valid, and different from each other, the input and what the row has."""
    kept = [row for row in {row.tobytes(): row for row in rows}.values() if search.is_new(row)]
    found = np.array(kept).reshape(-1, len(search.input))
    return found[search.task.valid(found, search.target)] if kept else found  # not all models take an empty table


def first_and_by_cost(search: Search, groups: Iterator[Floats], note: str = "") -> Generator[Candidate, Any, bool]:
    """The rows of the first group, then those of all others by their costs, each once; returns if there were any."""
    seen = set[bytes]()
    for point in next(groups):
        seen.add(point.tobytes())
        yield Candidate(point, note=note)
    for point in sorted((p for group in groups for p in group), key=search.cost):
        if point.tobytes() not in seen:
            seen.add(point.tobytes())
            yield Candidate(point, note=note)
    return bool(seen)
