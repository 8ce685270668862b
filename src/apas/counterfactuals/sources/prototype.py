"""`Prototype`: sparse changes towards a typical row of the wanted class."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from apas._typing import Floats
from apas.counterfactuals.search.smooth_problem import Level, SmoothProblem, rising_levels
from apas.counterfactuals.sources.base import Candidate, Search, Task, check_settings
from apas.counterfactuals.sources.neighbours import rows_of_class

HALVINGS = 12  # how often the way from the input to what a descent found is halved


@dataclass(frozen=True, kw_only=True)
class Prototype:
    """Rows near the input and near a typical row of the wanted class that change few features.

    A descent makes ``weight * loss + sparsity * l1 + l2**2 + attraction * apart**2`` small. The loss is how much the
    probability of the wanted class falls short of exceeding that of the best other one by `confidence`; l1 and l2 are
    the distances from the input, and ``apart`` is the Euclidean one from the prototype: the mean of the `neighbours`
    nearest background rows of the wanted class. Weights are searched for. If that row is not certified, `confidence` is
    raised in steps up to `last`, and what all further descents find is offered, the cheapest first.

    Derivatives are the model's own, or finite differences where it has none, as in `Wachter`. On the way categories
    are mixtures of their levels; where the model is asked they are levels.

    Parameters
    ----------
    confidence : float, default 0.05
        The paper's kappa at first: by how much the probability of the wanted class must exceed the other one.
    step, last : float, default 0.2 and 0.99
        How fast it is raised, and up to what.
    attraction : float, default 10.0
        The paper's theta: how strongly the prototype attracts. With 0 there is none, and no `background` is needed.
    neighbours : int, default 20
        The paper's k.
    sparsity : float, default 0.1
        The paper's beta. After each step of a descent, changes are made smaller by it (divided by 1 + `attraction`,
        as steps are), and those that are smaller already undone.
    weight : float, default 10.0
        The paper's c: where the search for weights starts.
    rounds : int, default 2
        How often five weights are tried.
    iterations : int, default 500
        Steps of a descent.
    learning_rate : float, default 0.1
        Size of its steps, divided by 1 + `attraction`; it falls to 0 as the square root of the steps that are left.

    Notes
    -----
    Descents are those of FISTA. What they find is drawn back towards the input as far as the confidence allows. The
    paper's term for an autoencoder is left out, and so is its choice of the class: that is the target.

    References
    ----------
    Van Looveren and Klaise (2021), "Interpretable counterfactual explanations guided by prototypes", ECML PKDD.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[4.0], [2.0]]], [[-4.0]], feature_names=("income", "savings"))
    >>> space = apas.FeatureSpace([apas.Feature(n, low=0, high=1) for n in net.feature_names])
    >>> known = [[0.8, 0.6], [0.9, 0.7], [0.1, 0.2]]
    >>> source = Prototype(neighbours=2)
    >>> found = apas.generate(net, [[0.2, 0.3]], 0.05, space=space, background=known, source=source, method="interval")
    >>> found.status[0].name
    'FOUND'
    """

    confidence: float = 0.05
    step: float = 0.2
    last: float = 0.99
    attraction: float = 10.0
    neighbours: int = 20
    sparsity: float = 0.1
    weight: float = 10.0
    rounds: int = 2
    iterations: int = 500
    learning_rate: float = 0.1
    ordered: ClassVar[bool] = True  # the row of the first descents is wanted if it is certified, else the cheapest

    def __post_init__(self) -> None:
        limits: dict[str, Any] = {name: {"above": 0.0} for name in ("step", "weight", "learning_rate")}
        limits |= {"confidence": {"least": 0.0, "most": 1.0}, "last": {"least": self.confidence, "most": 1.0}}
        check_settings(self, **limits)

    def unsupported(self, task: Task) -> str | None:
        """None if there are rows to make prototypes of, else the error a user reads."""
        if self.attraction and (task.background is None or not len(task.background)):
            return (
                "Prototype makes its prototypes of known rows; pass some, such as the training table, as `background`, "
                "or set `attraction` to 0."
            )
        return None

    def candidates(self, search: Search) -> Generator[Candidate, Any, str]:
        """Different candidates for one row, allowed and valid on the model; returns why there are no more."""
        if self.attraction and not len(rows_of_class(search.task, search.target)):
            return (
                f"`background` holds no row that the model puts into class {search.target!r}, of which Prototype could "
                "make a prototype; give more rows, or use another source"
            )
        problem = SmoothProblem(search)
        return (yield from problem.offer(self.levels(search, problem), "Prototype"))

    def levels(self, search: Search, problem: SmoothProblem | None = None) -> Iterator[Level]:
        """The row of the first descents; then, for each higher confidence, that of its own."""
        problem = problem or SmoothProblem(search)
        prototype = _prototype(problem, self.neighbours) if self.attraction else problem.start
        descend = partial(self._descend, problem, prototype)
        asked = rising_levels(float(self.confidence), self.step, self.last)
        for part in filter(len, (asked[:1], asked[1:])):
            first = np.full(len(part), float(self.weight))
            yield from problem.levels(descend, part, first, self.rounds, partial(_draw_back, problem))

    def _descend(
        self, problem: SmoothProblem, prototype: Floats, asked: Floats, weights: Floats
    ) -> tuple[Floats, Floats]:
        """Cost (that of the elastic net) and place of the best point of each descent, infinite where there is none."""
        start, count = problem.start, len(asked)
        best, points = np.full(count, np.inf), np.tile(start, (count, 1))
        at, ahead = points.copy(), points.copy()
        threshold = self.sparsity / (1.0 + self.attraction) * problem.weights
        for t in range(self.iterations):
            if problem.search.task.is_late:
                break
            allowed = problem.round_points(np.concatenate([at, ahead]))
            margins, slopes = problem.gradients(allowed)
            excess, moved = np.tanh(0.5 * margins), allowed[:count] - start
            costs = self.sparsity * problem.costs(allowed[:count]) + (moved * moved).sum(axis=1)
            good = (excess[:count] >= asked) & (margins[:count] >= 0) & (costs < best)
            best[good], points[good] = costs[good], allowed[:count][good]
            pull = np.where(excess[count:] < asked, -2.0 * weights * problem.slopes(margins[count:]), 0.0)
            slope = pull[:, None] * slopes[count:] + 2.0 * (ahead - start) + 2.0 * self.attraction * (ahead - prototype)
            rate = self.learning_rate / (1.0 + self.attraction) * np.sqrt(1.0 - t / self.iterations)
            change = ahead - rate * slope - start
            change = np.sign(change) * np.maximum(np.abs(change) - threshold, 0.0)
            after = problem.inside(start + change)  # soft thresholding, then Nesterov's step ahead: FISTA
            at, ahead = after, problem.inside(after + t / (t + 3.0) * (after - at))
        return best, points


def _draw_back(problem: SmoothProblem, asked: Floats, points: Floats) -> Floats:
    """The first points on the way from the input to others at which these are confident enough, if it is a first."""
    far, near = np.ones(len(points)), np.zeros(len(points))
    found = points.copy()
    for _ in range(HALVINGS):
        middle = (near + far) / 2
        between = problem.round_points(problem.start + middle[:, None] * (points - problem.start))
        margins = problem.margins(between)
        good = (np.tanh(0.5 * margins) >= asked) & (margins >= 0)
        found[good] = between[good]
        far, near = np.where(good, middle, far), np.where(good, near, middle)
    return found


def _prototype(problem: SmoothProblem, neighbours: int) -> Floats:
    """Mean of the nearest known rows of the wanted class, in coordinates."""
    task, label = problem.search.task, problem.search.target
    from scipy.spatial import cKDTree

    tree = task.once(("prototype", label), lambda: cKDTree(problem.at.of(rows_of_class(task, label))))
    _, nearest = tree.query(problem.start, k=np.arange(1, min(neighbours, tree.n) + 1))
    return np.asarray(tree.data[nearest].mean(axis=0))
