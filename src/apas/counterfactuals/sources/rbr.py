"""`Rbr`: robust Bayesian recourse, away from refused points and towards accepted ones, whatever both turn out to be.

Points around the boundary are labelled by the model. The loss of a row is the log odds of refusal over acceptance under
kernel densities whose every Gaussian may move by a Wasserstein distance: the refused ones to where they are likeliest
(optimistic), the accepted ones to where they are least likely (pessimistic). Both of these inner problems depend on
nothing but the distance c of the row from the point, so that they are solved once, on a grid of distances.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from apas._random import Stream, unit_ball
from apas._typing import Floats
from apas.counterfactuals.search.smooth_problem import SmoothProblem, on_simplex, usable
from apas.counterfactuals.sources.base import Candidate, Search
from apas.counterfactuals.sources.criteria import Criterion, PublishedSource, draw_back, passing_rows

FINE, ANGLES = 400, 61  # distances of the grid, and angles and radii of the quarter disc in which Gaussians move
TINY = 1e-6  # keeps the root of what is left of the Wasserstein distance away from 0, as published


@dataclass(frozen=True, kw_only=True)
class Rbr(PublishedSource):
    """Rows whose posterior odds of refusal are least, within an l1 ball around the input.

    `epsilon` is how far each Gaussian, of width `sigma`, may move in Wasserstein distance; the authors' program varies
    it from 0 to 1. `extra`, the paper's delta_plus, is how much larger the ball is than the l1 distance of the
    boundary. So many `samples` within a `radius` of the boundary, in units of the ranges, are labelled by the model.
    There are at most so many `steps`, each by 1 / sqrt(1000) of the gradient, as published.

    References
    ----------
    Nguyen, Bui, Nguyen, Yue and Nguyen (2022), "Robust Bayesian recourse", UAI.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [1.0]]], [[-1.0]], feature_names=("income", "savings"))
    >>> space = apas.FeatureSpace([apas.Feature(n, low=0, high=2) for n in net.feature_names])
    >>> found = apas.generate(net, [[0.2, 0.3]], 0, space=space, background=[[2.0, 2.0]], source=Rbr(), rng=0)
    >>> bool(1 < found.numbers.sum() < 1.5)
    True
    """

    epsilon: float = 1.0
    extra: float = 0.2
    samples: int = 200
    radius: float = 0.2
    sigma: float = 1.0
    steps: int = 500
    knob: ClassVar[tuple[str, tuple[float, ...]]] = ("epsilon", (0.0, 0.5, 1.0))
    limits: ClassVar[Any] = {"radius": {"above": 0.0}, "sigma": {"above": 0.0}}

    def candidates(self, search: Search) -> Iterator[Candidate]:
        """The end of the descent; the boundary, where it starts, if that is not of the class."""
        problem, task = SmoothProblem(search), search.task
        always = Criterion(lambda points: task.margins(points, search.target))
        known = next(passing_rows(search, always), None)
        if known is None:
            return
        start = problem.at.of(draw_back(search, always, known)[None])[0]
        drawn = unit_ball(problem.at.size, 2.0, Stream(task.entropy, f"rbr/{search.row}"), 0, self.samples)
        around = start + self.radius * drawn
        hit = problem.margins(problem.inside(around)) >= 0
        ends = [start]
        if hit.any() and not hit.all():
            ends = [self._descend(problem, start, around[hit], around[~hit]), start]
        yield from map(Candidate, usable(search, problem.numbers(np.array(ends))))

    def _descend(self, problem: SmoothProblem, start: Floats, hit: Floats, missed: Floats) -> Floats:
        size = problem.at.size
        far = float(np.sqrt(size)) * 2 + self.radius
        likely = _grid_of_distances(far, size, self.sigma, self.epsilon, pessimistic=False)
        least = _grid_of_distances(far, size, self.sigma, self.epsilon, pessimistic=True)
        limit, at = float(np.abs(start - problem.start).sum()) + self.extra, start
        best, idle = np.inf, 0
        for _ in range(self.steps):
            pull, refused = _log_sum(at, missed, likely)
            push, accepted = _log_sum(at, hit, least)
            loss = refused - accepted
            idle = idle + 1 if best - loss <= 1e-10 else 0
            if idle >= 10 or np.abs(at - problem.start).sum() >= limit * (1 - 1e-12) > 0:
                break
            best = min(best, loss)
            moved = at - (pull - push) / np.sqrt(1000.0) - problem.start
            total = float(np.abs(moved).sum())
            if total > limit:  # the nearest point of the l1 ball
                moved = np.sign(moved) * limit * on_simplex(np.abs(moved)[None] / limit)[0]
            at = problem.inside((problem.start + moved)[None])[0]
        return at


def _log_sum(at: Floats, points: Floats, grid: tuple[Floats, Floats, Floats]) -> tuple[Floats, float]:
    """Derivative and value of the log of a sum of densities around points."""
    ways = at - points
    apart = np.linalg.norm(ways, axis=1)
    values, slopes = np.interp(apart, grid[0], grid[1]), np.interp(apart, grid[0], grid[2])
    top = values.max()
    shares = np.exp(values - top)
    weights = shares / shares.sum() * slopes / np.maximum(apart, 1e-12)
    return weights @ ways, float(top + np.log(shares.sum()))


def _grid_of_distances(
    far: float, size: int, sigma: float, epsilon: float, *, pessimistic: bool
) -> tuple[Floats, Floats, Floats]:
    """Distances, log densities of the Gaussian moved in the best or the worst way, and their derivatives."""
    apart = np.linspace(0.0, far, FINE)[:, None]
    turn, length = (a.ravel() for a in np.meshgrid(np.linspace(0, np.pi / 2, ANGLES), np.linspace(0, 1, ANGLES)))
    root = np.sqrt(size) if pessimistic else 1.0
    moved, wider = epsilon / root * length * np.cos(turn), epsilon / root * length * np.sin(turn)
    width = sigma + wider
    if pessimistic:  # the mean moves away, and what is left of the distance widens all other directions
        left = np.sqrt((TINY + epsilon**2 - size * moved**2 - wider**2) / max(size - 1, 1))
        reach = apart + root * moved
        logs = -np.log(width) - reach**2 / (2 * width**2) - (size - 1) * np.log(left + sigma)
        pick = logs.argmin(axis=1)
    else:  # the mean moves closer
        reach = apart - moved
        logs = -np.log(width) - reach**2 / (2 * width**2) - (size - 1) * np.log(sigma)
        pick = logs.argmax(axis=1)
    lines = np.arange(FINE)
    return apart[:, 0], logs[lines, pick], -reach[lines, pick] / width[pick] ** 2  # envelope theorem
