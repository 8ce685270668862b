"""`BetaRce`: a row moved away from the boundary until enough of some refits accept it, by a Beta distribution."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from apas._random import Stream, standard_normals
from apas.counterfactuals.search.smooth_problem import SmoothProblem, usable
from apas.counterfactuals.sources.base import Candidate, Search
from apas.counterfactuals.sources.criteria import PublishedSource, RefitMargins, nearest_row
from apas.errors import InputError

WITHIN = 1.0  # the largest sphere, in units of the ranges of all coordinates


@dataclass(frozen=True, kw_only=True)
class BetaRce(PublishedSource):
    """From the nearest row of the class, growing spheres until a row is accepted by nearly all of some refits.

    A row passes if its share of accepting models is at least `robustness` (the paper's delta) with posterior
    probability `confidence` (its alpha); the posterior is ``Beta(0.5 + accepted, 0.5 + refused)`` over the first
    `models` of the `refits` (its k). Rows are drawn in so many spherical `shells` around the nearest one, `samples` in
    each; of the first in which some pass the nearest to the centre is offered. All are tested on the same refits, so
    that the posterior is not that of a row which was chosen for it.

    References
    ----------
    Stepka, Lango and Stefanowski (2025), "Counterfactual explanations with probabilistic guarantees on their robustness
    to model change", KDD.

    Examples
    --------
    >>> import apas
    >>> names, biases = ("a", "b"), [-1.0, *np.linspace(-1.2, -0.8, 32)]
    >>> base, *nets = (apas.FeedForward([[[1.0], [1.0]]], [[b]], feature_names=names) for b in biases)
    >>> space = apas.FeatureSpace([apas.Feature(n, low=0, high=2) for n in names])
    >>> told = {"space": space, "background": [[1.0, 1.0]], "source": BetaRce(refits=nets), "rng": 0}
    >>> bool(apas.generate(base, [[0.2, 0.3]], 0, **told).numbers.sum() >= 1.1)
    True
    """

    refits: Sequence[Any]
    robustness: float = 0.9
    confidence: float = 0.9
    models: int = 32
    samples: int = 100
    shells: int = 100
    knob: ClassVar[tuple[str, tuple[float, ...]]] = ("robustness", (0.7, 0.8, 0.9))
    limits: ClassVar[Any] = {name: {"above": 0.0, "most": 1.0} for name in ("robustness", "confidence")}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.least_accepted() is None:
            raise InputError(
                f"`models` of BetaRce must be enough for robustness {self.robustness} at confidence {self.confidence}, "
                f"got {min(self.models, len(self.refits))}: that all accept a row does not show it; give more refits."
            )

    def least_accepted(self) -> int | None:
        """How many of the models must accept a row; None if all are not enough."""
        from scipy.stats import beta

        count = min(self.models, len(self.refits))
        accepted = np.arange(count + 1)
        enough = beta.ppf(1 - self.confidence, 0.5 + accepted, 0.5 + count - accepted) >= self.robustness
        return int(np.flatnonzero(enough)[0]) if enough.any() else None

    def candidates(self, search: Search) -> Iterator[Candidate]:
        """The nearest row itself if it passes, else that of the first shell in which one does."""
        task, least = search.task, self.least_accepted() or 0
        margins = task.once("betarce", lambda: RefitMargins(task, self.refits[: self.models]))
        start = nearest_row(search)
        if start is None:
            return
        problem, rows = SmoothProblem(search), start[None]
        middle, stream = problem.at.of(start[None])[0], Stream(task.entropy, f"betarce/{search.row}")
        for shell in range(self.shells + 1):
            accepted = (margins(rows, search.target) >= 0).sum(axis=0) if len(rows) else np.empty(0)
            good = rows[accepted >= least]
            if len(good):
                apart = np.linalg.norm(problem.at.of(good) - middle, axis=1)
                yield Candidate(good[int(apart.argmin())])
                return
            if task.is_late:
                return
            size, first = problem.at.size, shell * self.samples
            ways = standard_normals(size, stream, first, first + self.samples)
            part = (shell + np.arange(1, self.samples + 1) / self.samples) / self.shells
            length = WITHIN * np.sqrt(size) * part[:, None] / np.linalg.norm(ways, axis=1)[:, None]
            rows = usable(search, problem.numbers(problem.inside(middle + length * ways)))
