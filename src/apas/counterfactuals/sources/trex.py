"""`TRex`: rows around which the model is confident, by the stability score of T-Rex, and the walk of RobX for trees.

The stability of a row x is the mean of ``p(z) - |p(z) - p(x)|`` over points z drawn around it, where p is the
probability of the class. T-Rex climbs it by its gradient; RobX, where there is none, goes towards stable known rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from apas._random import Stream, standard_normals
from apas._typing import Floats
from apas.counterfactuals.search.smooth_problem import SmoothProblem, probabilities, usable
from apas.counterfactuals.sources.base import Candidate, Search
from apas.counterfactuals.sources.criteria import Criterion, PublishedSource, draw_back, nearest_row, passing_rows

STREAM = "trex"


@dataclass(frozen=True, kw_only=True)
class TRex(PublishedSource):
    """From the nearest row of the class to one whose stability is at least a threshold.

    The `threshold` is the papers' tau, which they choose per data set; `samples`, their K, are drawn around a row with
    standard deviation `sigma`, in units of the features' ranges. There are at most so many `steps` along the gradient,
    each by `rate` of the ranges; the walk of RobX goes to so many stable `neighbours`.

    References
    ----------
    Dutta, Long, Mishra, Tilli and Magazzeni (2022), "Robust counterfactual explanations for tree-based ensembles",
    ICML.
    Hamman, Noorani, Mishra, Magazzeni and Dutta (2023), "Robust counterfactual explanations for neural networks with
    probabilistic guarantees", ICML.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[8.0], [8.0]]], [[-8.0]], feature_names=("income", "savings"))
    >>> space = apas.FeatureSpace([apas.Feature(n, low=0, high=2) for n in net.feature_names])
    >>> known, source = [[1.0, 0.5], [2.0, 2.0]], TRex(threshold=0.8)
    >>> found = apas.generate(net, [[0.2, 0.3]], 0, space=space, background=known, source=source, rng=0)
    >>> bool(found.numbers.sum() > 1.1)
    True
    """

    threshold: float = 0.7
    samples: int = 1000
    sigma: float = 0.1
    rate: float = 0.02
    steps: int = 300
    neighbours: int = 5
    knob: ClassVar[tuple[str, tuple[float, ...]]] = ("threshold", (0.6, 0.7, 0.8))
    limits: ClassVar[Any] = {"threshold": {"least": 0.0, "most": 1.0}, "sigma": {"above": 0.0}, "rate": {"above": 0.0}}

    def candidates(self, search: Search) -> Iterator[Candidate]:
        """The row at the end of the way."""
        start, problem = nearest_row(search), SmoothProblem(search)
        if start is None:
            return
        count, size, stream = self.samples, problem.at.size, Stream(search.task.entropy, STREAM)
        # the same for every row of a call
        noise = self.sigma * search.task.once((STREAM, count), lambda: standard_normals(size, stream, 0, count))
        way = self._walk(search, problem, noise, start) if problem.differences else self._climb(problem, noise, start)
        yield from map(Candidate, way)

    def _climb(self, problem: SmoothProblem, noise: Floats, start: Floats) -> Iterator[Floats]:
        """T-Rex: steps along the gradient of the stability until it is high enough."""
        at = problem.at.of(start[None])[0]
        for _ in range(self.steps):
            rows = usable(problem.search, problem.numbers(at[None]))
            if len(rows) and stability(problem, problem.at.of(rows), noise)[0] >= self.threshold:
                yield rows[0]
                return
            margins, slopes = problem.gradients(np.vstack([at, problem.inside(at + noise)]))
            chances = probabilities(margins)
            rising = problem.slopes(margins)[:, None] * slopes
            # where a point has less chance than the row, p(z) - |p(z) - p(x)| is 2 p(z) - p(x); else it is p(x)
            below = (chances[1:] < chances[0])[:, None]
            slope = np.where(below, 2 * rising[1:] - rising[0], rising[0]).mean(axis=0)
            size = float(np.abs(slope).max())
            if size == 0 or problem.search.task.is_late:
                return
            at = problem.inside((at + self.rate * slope / size)[None])[0]

    def _walk(self, search: Search, problem: SmoothProblem, noise: Floats, start: Floats) -> Iterator[Floats]:
        """RobX: the nearest rows, on the way from the start to stable known ones, that are stable themselves."""
        known: dict[bytes, float] = search.task.once(f"{STREAM}/known", dict)  # rows share their neighbours

        def score(points: Floats) -> Floats:
            new = np.array([p for p in points if p.tobytes() not in known])
            scores = stability(problem, problem.at.of(new), noise).tolist() if len(new) else ()
            known.update(zip((point.tobytes() for point in new), scores, strict=True))
            return np.array([known[p.tobytes()] for p in points]) - self.threshold

        test = Criterion(score)
        if score(start[None])[0] >= 0:
            yield start
            return
        stable = list(islice(passing_rows(search, test), self.neighbours))
        yield from sorted((draw_back(search, test, row) for row in stable), key=search.cost)


def stability(problem: SmoothProblem, points: Floats, noise: Floats) -> Floats:
    """Mean of p(z) - |p(z) - p(x)| over points z around each point x, in coordinates."""
    around = problem.inside((points[:, None] + noise).reshape(-1, points.shape[1]))
    chances = probabilities(problem.margins(np.vstack([points, around])))
    here, there = chances[: len(points), None], chances[len(points) :].reshape(len(points), -1)
    return np.asarray((there - np.abs(there - here)).mean(axis=1))
