"""`Proplace`: the nearest robust row in the convex hull of robust neighbours.

The published method alternates a mixed-integer program over the hull with the worst shift of its solution. Here the
worst case of a row is known in closed form, and with it its derivatives along the edges of the hull: each step is a
linear program over the weights of the neighbours, in a trust region. Where the worst case is concave in the row, as
that of a linear model, the end is the optimum; of a network it is a local one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from apas._typing import Floats
from apas.counterfactuals.search.smooth_problem import SmoothProblem
from apas.counterfactuals.sources.base import Candidate, Search
from apas.counterfactuals.sources.criteria import PublishedSource, passing_rows, worst_margins
from apas.counterfactuals.sources.rnce import robust_in_box

STEP = 1e-5  # a derivative is a difference over this part of the way to a vertex
WIDEST, NARROWEST = 1.0, 1e-3  # of the trust region of the weights
BACK = np.linspace(0.0, 1.0, 21)  # ways from the optimum to the nearest neighbour, where rounding made it fail


@dataclass(frozen=True, kw_only=True)
class Proplace(PublishedSource):
    """The cheapest row between the nearest robust neighbours that keeps the class under every shift of the parameters.

    `delta` is how far every weight and bias may move, by default that of the authors' library; `neighbours`, the
    paper's k, are robust known rows whose convex hull is searched, by at most so many linear programs as `steps`.
    Levels and categories are mixtures on the way. The row that is offered is an allowed one, which is robust itself.

    References
    ----------
    Jiang, Lan, Leofante, Rago and Toni (2023), "Provably robust and plausible counterfactual explanations for neural
    networks via robust optimisation", ACML.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [1.0]]], [[-1.0]], feature_names=("income", "savings"))
    >>> space = apas.FeatureSpace([apas.Feature(n, low=0, high=2) for n in net.feature_names])
    >>> known, source = [[1.0, 0.5], [0.2, 1.8], [1.8, 0.3]], Proplace(delta=0.1)
    >>> found = apas.generate(net, [[0.2, 0.3]], 0, space=space, background=known, source=source)
    >>> found.numbers.round(3).tolist()
    [[1.0, 0.5]]
    """

    delta: float = 0.005
    neighbours: int = 10
    steps: int = 30
    knob: ClassVar[tuple[str, tuple[float, ...]]] = ("delta", (0.005, 0.02, 0.1))
    dense: ClassVar[bool] = True

    def candidates(self, search: Search) -> Iterator[Candidate]:
        """The row of the hull; then the robust neighbours."""
        test = robust_in_box(search, self.delta)
        vertices = np.array(list(islice(passing_rows(search, test), self.neighbours)))
        if not len(vertices):
            return
        hull = _Hull(SmoothProblem(search), vertices, search.task.encoded(vertices), self.delta)
        # the allowed row nearest to the optimum; on the way from there to the first vertex, the first that is robust
        weights = hull.optimum(self.steps)
        ways = weights + BACK[:, None] * (np.eye(len(weights))[0] - weights)
        rows = hull.problem.numbers(ways @ hull.corners)
        fine = (test.slacks(rows) >= 0) & search.task.valid(rows, search.target)
        fine &= np.array([search.is_different(row) for row in rows])
        yield from map(Candidate, [*rows[fine][:1], *vertices])


class _Hull:
    """The convex hull of robust rows: weights of its vertices, the first of which is the nearest to the input."""

    def __init__(self, problem: SmoothProblem, vertices: Floats, columns: Floats, delta: float) -> None:
        self.problem, self.columns, self.delta = problem, columns, delta
        self.corners = problem.at.of(vertices)

    def worst(self, weights: Floats) -> Floats:
        """Least margins of mixtures of the vertices."""
        search = self.problem.search
        return worst_margins(search.task, weights @ self.columns, search.target, self.delta)

    def cost(self, weights: Floats) -> float:
        """How far a mixture is from the input."""
        return float(self.problem.costs((weights @ self.corners)[None])[0])

    def optimum(self, steps: int) -> Floats:
        """Weights of the cheapest robust mixture that linear programs in a trust region lead to."""
        count, width = len(self.corners), WIDEST
        best = np.eye(count)[0]
        for _ in range(steps):
            here = self.worst(np.vstack([best, best + STEP * (np.eye(count) - best)]))
            # weights add up to 1, so that the way to others is a sum of ways to vertices: the worst case there is
            # about `here[0]` plus the weights times these
            slopes = (here[1:] - here[0]) / STEP
            step = self._program(best, slopes, float(here[0]), width)
            if step is None or self.cost(step) > self.cost(best) * (1 - 1e-6):
                break
            if self.worst(step[None])[0] >= 0:
                best, width = step, min(WIDEST, 2 * width)
            elif (width := width / 3) < NARROWEST:
                break
        return np.asarray(best)

    def _program(self, at: Floats, slopes: Floats, worst: float, width: float) -> Floats | None:
        """The cheapest weights near others for which the worst case is at least 0 if it is linear."""
        from scipy.optimize import linprog

        (count, size), start = self.corners.shape, self.problem.start
        apart = np.vstack([np.hstack([sign * self.corners.T, -np.eye(size)]) for sign in (1.0, -1.0)])
        bounds: Any = [(max(0.0, a - width), min(1.0, a + width)) for a in at] + [(0.0, None)] * size
        found = linprog(
            np.concatenate([np.zeros(count), self.problem.weights]),
            A_ub=np.vstack([apart, np.concatenate([-slopes, np.zeros(size)])]),
            b_ub=np.concatenate([start, -start, [worst]]),
            A_eq=np.concatenate([np.ones(count), np.zeros(size)])[None],
            b_eq=[1.0],
            bounds=bounds,
        )
        if found.x is None:
            return None
        weights = np.maximum(found.x[:count], 0.0)
        return np.asarray(weights / weights.sum())
