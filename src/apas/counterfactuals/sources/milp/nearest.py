"""The nearest valid row of the model as it is (delta 0): on the boundary to the last bit, with a proof of how near it is.

The optimum lies on the boundary itself, where a solver's point is as likely to fail as to pass. So the row is moved
inwards until it is valid in floating point and in exact arithmetic. That no row is much nearer follows from dual bounds
of the program of all rows that cost no more and miss the class by no more than rounding can hide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from apas._typing import Bools, Floats
from apas.counterfactuals.sources.base import Candidate, Search
from apas.counterfactuals.sources.milp.changes import ChangeBudget, unit_ranges
from apas.counterfactuals.sources.milp.program import ALLOWANCE, NOTHING, cheapest_program
from apas.counterfactuals.space.encoder import pieces_of
from apas.counterfactuals.space.feature import ON_GRID, Feature
from apas.models.base import LibraryBacked, offers
from apas.optimize.highs import proved_minimum

if TYPE_CHECKING:
    from apas.counterfactuals.sources.milp.source import Nearest

PARTS, ROUNDS = 16, 14  # what is left of the way to the boundary is divided by so much, so often: 56 bits


def nearest_row(nearest: Nearest) -> Candidate | None:
    """The nearest row that is valid on the model itself, with a lower bound on the cost of all such rows."""
    found = nearest.at(0.0) or nearest.widest()
    if found is None:
        return None
    point = _at_boundary(nearest.search, found.point)
    return Candidate(point, lower_bound=_lower_bound(nearest, point))


def passes(search: Search, points: Floats) -> Bools:
    """Which rows are valid for sure, where the search has a test that says so."""
    if search.trial is None:
        return search.task.valid(points, search.target)
    return np.asarray(search.trial.slacks(points) >= 0)


def _at_boundary(search: Search, point: Floats) -> Floats:
    """The first valid row, to the last bit, on the way to a valid one along which the free features change."""
    task, space = search.task, search.task.space
    free = np.array([not f.is_level and f.step is None and f.listed is None for f in space])
    start = np.where(free, np.clip(search.input, *np.array([f.ends for f in space]).T), point)

    def rows(parts: Floats) -> Floats:
        return search.settled(start + parts[:, None] * (point - start))

    def fine(points: Floats) -> Bools:
        allowed = space.allowed(points, np.broadcast_to(search.input, points.shape)).all(axis=1)
        return np.asarray(passes(search, points) & allowed & [search.is_different(p) for p in points])

    ends = np.array([0.0, 1.0])
    for _ in range(ROUNDS):
        ways = np.linspace(*ends, PARTS + 1)
        failed = np.flatnonzero(~fine(rows(ways[1:-1])))
        last = int(failed[-1]) + 1 if len(failed) else 0
        ends = ways[last : last + 2]
    if not offers(task.model, LibraryBacked):
        return np.asarray(rows(ends)[1])
    # the library behind the model may round otherwise; where a step inwards makes it agree, that is made as well
    inwards = np.minimum(ends[1] * (1 + np.append(0.0, np.exp2(np.arange(-52.0, 1.0)))), 1.0)
    tried = rows(inwards)
    agrees = fine(tried) & (np.asarray(task.model.library_classes(space.table(tried))) == search.target)
    return np.asarray(tried[int(agrees.argmax())])  # the first that agrees; if none does, the first


def _lower_bound(nearest: Nearest, point: Floats) -> float:
    """No allowed row of the class, different from those found, costs less than this; 0 where nothing was proved."""
    search, net, goal, task = nearest.search, nearest.net, nearest.goal, nearest.search.task
    features = len(task.space) if task.distance == "l1" else 1  # the program adds up what "l1" is the mean of
    cost = features * search.cost(point)
    budget = ChangeBudget(nearest.changes, cost * (1 + NOTHING) + NOTHING, task.distance)
    ranges, pieces = unit_ranges(net, budget), task.once("milp/pieces", lambda: pieces_of(task))
    # A valid row has a margin of at least 0 as the model computes it, and in the program one that is less by no more
    # than: the digits of the program itself, of the parts of which columns are sums, and of numbers beside their step.
    weights = [*goal.weights(net), np.abs(goal.signs).max(axis=1)][0]
    beside = [_beside(f, x) if f.mutable else 0.0 for f, x in zip(task.space, search.input.tolist(), strict=True)]
    lines = [0.0 if p is None or p.line is None else float(np.abs(p.line) @ weights) for p in nearest.parts]
    moving = sum(part is not None for part in nearest.parts)
    missed = ALLOWANCE * goal.size(net, ranges) + float(np.dot(lines, beside))
    missed += 2 * moving * float(pieces.accuracy @ np.abs(net.weights[0]) @ weights)
    program = cheapest_program(net, budget, goal, -missed, search.avoid, ranges, tie=0.0)
    bound = proved_minimum(program, program.phases, enough=cost * (1 - NOTHING), deadline=nearest.deadline())
    # costs of columns are rounded to far more digits than 12, and those of steps are counted from step to step
    return max(0.0, (bound * (1 - 1e-12) - float(np.dot(beside, [1 / f.span for f in task.space]))) / features)


def _beside(feature: Feature, x: float) -> float:
    """How far the program may misplace a feature: it takes the input, and what it changes to, to lie on a step."""
    rounding = 8 * float(np.spacing(max(abs(x), feature.size)))
    if feature.step is None:
        return rounding
    off = abs(x - float(feature.on_grid(np.rint((x - feature.anchor) / feature.step))))
    return rounding + ON_GRID * feature.step + (off if off <= ON_GRID * max(feature.step, abs(x)) else 0.0)
