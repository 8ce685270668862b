"""`Wachter`: gradient descent on the squared distance to a target probability plus the distance from the input."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from apas._typing import Floats
from apas._validation import check_number
from apas.counterfactuals.search.smooth_problem import Level, SmoothProblem, probabilities, rising_levels
from apas.counterfactuals.sources.base import Candidate, Search, Task, check_settings
from apas.errors import InputError

#: How fast the averages of Adam forget the slopes and their squares, and what keeps it from dividing by 0.
FORGETS, FORGETS_SQUARES, TINY = 0.9, 0.999, 1e-8


@dataclass(frozen=True, kw_only=True)
class Wachter:
    """Rows that the model gives a target probability, found by gradient descent from the input.

    A descent makes ``(probability - target)**2 + penalty * distance`` small, the distance being the sum of the changes
    in units of the features' ranges. Penalties are searched for: the larger one is, the nearer the row, if there is
    one. If that row is not certified, the target probability is raised in steps up to `last`, and what all further
    descents find is offered, the cheapest first.

    Works on any model: by its own derivatives where it has some (dense networks, scikit-learn's, PyTorch modules), by
    finite differences where it has none, which the reason of each row then says.

    Parameters
    ----------
    target_probability : float, default 0.55
        What the first descents aim at. The probability is that of the wanted class against the best other one, on a
        scale that has 0.5 where the model changes its mind.
    tolerance : float, default 0.05
        How far below the target a row may be; it must be of the wanted class in any case.
    penalty : float, default 0.1
        Where the search for penalties starts.
    step, last : float, default 0.1 and 1.0
        How fast the target probability is raised, and up to what.
    penalties : sequence of float, default (0.01, 0.05, 0.1, 0.2)
        Where the searches for penalties start once the first row was not certified, at each target probability.
    rounds : int, default 2
        How often five penalties are tried.
    iterations : int, default 1000
        Steps of a descent at most.
    patience : int, default 50
        A descent ends after so many steps in a row that are all near the target, or all not.
    learning_rate : float, default 0.1
        Size of its first steps, in units of the ranges; it falls to 0 in a straight line. Steps are those of Adam.

    References
    ----------
    Wachter, Mittelstadt and Russell (2017), "Counterfactual explanations without opening the black box: automated
    decisions and the GDPR", Harvard Journal of Law & Technology 31.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[4.0], [2.0]]], [[-4.0]], feature_names=("income", "savings"))
    >>> space = apas.FeatureSpace([apas.Feature(n, low=0, high=1) for n in net.feature_names])
    >>> found = apas.generate(net, [[0.2, 0.3]], 0.1, space=space, source=Wachter(), method="interval")
    >>> found.status[0].name, bool(found.points[0, 0] > 0.9)
    ('FOUND', True)
    """

    target_probability: float = 0.55
    tolerance: float = 0.05
    penalty: float = 0.1
    step: float = 0.1
    last: float = 1.0
    penalties: Sequence[float] = (0.01, 0.05, 0.1, 0.2)
    rounds: int = 2
    iterations: int = 1000
    patience: int = 50
    learning_rate: float = 0.1
    ordered: ClassVar[bool] = True  # the row of the first descents is wanted if it is certified, else the cheapest

    def __post_init__(self) -> None:
        limits: dict[str, Any] = {name: {"above": 0.0} for name in ("penalty", "step", "learning_rate")}
        limits["target_probability"] = {"least": 0.5, "most": 1.0}
        limits |= {"last": {"least": self.target_probability, "most": 1.0}, "tolerance": {"least": 0.0, "most": 0.5}}
        check_settings(self, **limits)
        if not isinstance(self.penalties, Sequence | np.ndarray) or isinstance(self.penalties, str):
            raise InputError(f"`penalties` of Wachter must be numbers above 0, got {self.penalties!r}.")
        starts = tuple(check_number(p, "penalties", "Wachter", above=0.0) for p in self.penalties)
        object.__setattr__(self, "penalties", starts)

    def unsupported(self, task: Task) -> str | None:
        """None: any model will do."""
        return None

    def candidates(self, search: Search) -> Generator[Candidate, Any, str]:
        """Different candidates for one row, allowed and valid on the model; returns why there are no more."""
        problem = SmoothProblem(search)
        return (yield from problem.offer(self.levels(search, problem), "Wachter"))

    def levels(self, search: Search, problem: SmoothProblem | None = None) -> Iterator[Level]:
        """The row of the first descents; then, for each target probability, those of all `penalties`."""
        problem = problem or SmoothProblem(search)
        descend, least = partial(self._descend, problem), float(self.target_probability)
        yield from problem.levels(descend, np.array([least]), 1.0 / np.array([float(self.penalty)]), self.rounds)
        if self.penalties:
            # all together: descents of one row cost little more than one of them
            starts, asked = 1.0 / np.array(self.penalties), rising_levels(least, self.step, self.last)
            many = np.repeat(asked, len(starts)), np.tile(starts, len(asked))
            yield from problem.levels(descend, *many, self.rounds)

    def _descend(self, problem: SmoothProblem, targets: Floats, strengths: Floats) -> tuple[Floats, Floats]:
        """Cost and place of the nearest point that each descent came across, infinite where there is none."""
        best, points = np.full(len(targets), np.inf), np.tile(problem.start, (len(targets), 1))
        going, at = np.arange(len(targets)), points.copy()
        mean, square = np.zeros_like(at), np.zeros_like(at)
        same, before = np.zeros(len(targets), dtype=int), np.zeros(len(targets), dtype=bool)
        prices = (1.0 / strengths)[:, None] * problem.weights
        for t in range(self.iterations):
            if problem.search.task.is_late:
                break
            allowed = problem.round_points(at)
            margins, slopes = problem.gradients(allowed)
            probability, costs = probabilities(margins), problem.costs(allowed)
            good = (probability >= targets - self.tolerance) & (margins >= 0)
            nearer = good & (costs < best[going])
            best[going[nearer]], points[going[nearer]] = costs[nearer], allowed[nearer]
            same, before = np.where(good == before, same + 1, 1), good
            pull = 2.0 * (probability - targets) * problem.slopes(margins)
            slope = pull[:, None] * slopes + prices * np.sign(at - problem.start)
            mean += (1 - FORGETS) * (slope - mean)
            square += (1 - FORGETS_SQUARES) * (slope * slope - square)
            rate = self.learning_rate * (1 - t / self.iterations) / (1 - FORGETS ** (t + 1))
            at = problem.inside(at - rate * mean / (np.sqrt(square / (1 - FORGETS_SQUARES ** (t + 1))) + TINY))
            still = same < self.patience
            if not still.all():
                going, same, before, targets = going[still], same[still], before[still], targets[still]
                at, mean, square, prices = at[still], mean[still], square[still], prices[still]
                if not len(going):
                    break
        return best, points
