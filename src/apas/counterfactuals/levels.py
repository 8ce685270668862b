"""What sources that descend have in common: a weight to be searched for, and levels that ask for more and more.

How strongly validity counts against distance is not known in advance: too weak, and no descent reaches the class; too
strong, and it goes further than it must. Five strengths are tried together, over four orders of magnitude; then five
between the largest that failed and the least that did not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.counterfactuals.relaxed import Relaxed
from apas.counterfactuals.source import Candidate, Search

__all__ = ["Level", "first_and_by_cost", "levels_of", "offered", "rising", "strengths_tried", "usable"]

_Array = NDArray[np.float64]
#: Costs and points of descents, given what each is asked for and how strongly; infinite costs where one failed.
Descend = Callable[[_Array, _Array], tuple[_Array, _Array]]
#: Strengths that are tried together, in units of the first.
SPREAD = 10.0 ** np.arange(-2, 3)
#: A strength that failed although a smaller one did not is taken to be smaller by this part at least.
APART = 1.2


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
    points: _Array


def rising(first: float, step: float, last: float) -> _Array:
    """What the levels ask for: from the first in steps, and the last.

    Examples
    --------
    >>> rising(0.55, 0.2, 1.0)
    array([0.55, 0.75, 0.95, 1.  ])
    >>> rising(0.0, 0.5, 1.0), rising(0.9, 0.1, 0.9)
    (array([0. , 0.5, 1. ]), array([0.9]))
    """
    steps = np.round(first + step * np.arange(int((last - first) / step + 1e-9) + 1), 12)
    return np.append(steps, last) if last - steps[-1] > 1e-9 else steps


def strengths_tried(descend: Descend, asked: _Array, first: _Array, rounds: int) -> tuple[_Array, _Array]:
    """Costs and points of the cheapest descent for each of `asked`, over strengths around each of `first`."""
    grid = first[:, None] * SPREAD
    best, points, every = np.full(len(asked), np.inf), np.empty(0), np.arange(len(asked))
    for number in range(rounds):
        costs, found = descend(np.repeat(asked, len(SPREAD)), grid.ravel())
        costs, found = costs.reshape(grid.shape), found.reshape(*grid.shape, -1)
        least = costs.argmin(axis=1)
        if not number:
            points = found[every, least].copy()
        nearer = costs[every, least] < best
        best[nearer], points[nearer] = costs[every, least][nearer], found[every, least][nearer]
        grid = _narrowed(grid, np.isfinite(costs))
    return best, points


def _narrowed(grid: _Array, reached: NDArray[np.bool_]) -> _Array:
    """The strengths to try next: between those that failed and those that did not, or beyond all of them."""
    enough = np.where(reached, grid, np.inf).min(axis=1, keepdims=True)
    weak = np.where(reached, 0.0, grid).max(axis=1, keepdims=True)
    weak = np.minimum(np.where(weak > 0, weak, enough * SPREAD[0] / SPREAD[-1]), enough / APART)
    part = np.arange(1, len(SPREAD) + 1) / (len(SPREAD) + 1)
    stronger = weak * 10.0 ** np.arange(1, len(SPREAD) + 1)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.where(np.isfinite(enough), weak ** (1 - part) * enough**part, stronger))


def levels_of(relaxed: Relaxed, asked: _Array, costs: _Array, points: _Array) -> Iterator[Level]:
    """Descents gathered by what they were asked for, in that order."""
    for value in np.unique(asked):
        mine = np.flatnonzero((asked == value) & np.isfinite(costs))
        rows = relaxed.numbers(points[mine[np.argsort(costs[mine], kind="stable")]])
        yield Level(float(value), usable(relaxed.search, rows))


def usable(search: Search, rows: _Array) -> _Array:
    """The rows that could be offered: valid, and different from each other, the input and what the row has."""
    seen = {r.tobytes(): r for r in rows}
    kept = [r for r in seen.values() if (r != search.input).any() and search.is_different(r)]
    found = np.array(kept).reshape(-1, len(search.input))
    return found[search.task.valid(found, search.target)] if kept else found  # not all models take an empty table


def offered(relaxed: Relaxed, levels: Iterator[Level], name: str) -> Generator[Candidate, Any, str]:
    """The rows of the first level as candidates, then those of the others; returns why there are no more."""
    note = "found by finite differences, since the model has no derivatives" if relaxed.differences else ""
    found = yield from first_and_by_cost(relaxed.search, (level.points for level in levels), note)
    how = ", by finite differences since the model has no derivatives," if relaxed.differences else ""
    if not found:
        why = ": at the input all derivatives by what may change are 0" if relaxed.flat else ""
        return f"no descent of {name}{how} reached an allowed row of class {relaxed.search.target!r}{why}"
    return f"no further candidates after the last level of {name}{how.rstrip(',')}"


def first_and_by_cost(
    search: Search, groups: Iterator[_Array], note: str = ""
) -> Generator[Candidate, Any, bool]:  # fmt: skip
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
