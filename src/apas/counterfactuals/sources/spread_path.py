"""`SpreadPath`: rows whose margins over refits lie many standard deviations above 0, the safest first."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from apas._typing import Floats
from apas.counterfactuals.search.refit_search import refit_path
from apas.counterfactuals.sources.base import Candidate, Search
from apas.counterfactuals.sources.criteria import Criterion, PublishedSource, RefitMargins, cheapest_passing
from apas.counterfactuals.sources.robust_optimum import cheapest_near
from apas.errors import Unsupported
from apas.models.base import Differentiable, offers

#: How many standard deviations of the refits' margins their mean must lie above 0, rung by rung.
RUNGS = (1.8, 2.0, 2.2, 2.4, 2.6, 2.8, 3.0, 3.3, 3.6, 4.0, 4.5, 5.0, 6.0)
HALVINGS = 3  # how often the way from the last rung that was reached to the next one is halved


@dataclass(frozen=True)
class SpreadPath(PublishedSource):
    """The cheapest rows with ``mean - k sd >= 0`` over the refits of the search, as one path of falling k.

    How far the mean of the margins lies above 0, in standard deviations, ranks rows by how many further refits accept
    them better than the least margin does. Models without derivatives are searched on a grid, as by `RobustOptimum`.

    Examples
    --------
    >>> import apas
    >>> biases = np.random.default_rng(0).normal(-1.0, 0.1, 100)
    >>> nets = [apas.FeedForward([[[1.0], [1.0]]], [[b]], feature_names=("a", "b")) for b in biases]
    >>> space = apas.FeatureSpace([apas.Feature(n, low=0, high=2) for n in ("a", "b")])
    >>> claim = apas.Sampling(coverage=0.95, confidence=0.95)
    >>> told = {"space": space, "background": [[1.0, 1.0]], "shifts": apas.ObservedShifts(nets), "method": claim}
    >>> found = apas.generate(nets[0], [[0.2, 0.3]], 1.0, source=SpreadPath(), rng=0, **told)
    >>> bool(found.found[0]), bool(1.1 < found.numbers.sum() < 1.5)
    (True, True)
    """

    one_path: ClassVar[bool] = True

    def candidates(self, search: Search) -> Iterator[Candidate]:
        """The path."""
        refits = search.test.refits if search.test is not None else None
        if refits is None:
            raise Unsupported("SpreadPath searches on refits; pass shifts=apas.ObservedShifts(refits).")
        if offers(search.task.model, Differentiable):
            margins = search.task.once("spread path", lambda: RefitMargins(search.task, refits))
            rows = _path(search, margins)
        else:
            rows = refit_path(search, refits)
        if len(rows):
            yield Candidate(rows[0], path=rows)


def _path(search: Search, margins: RefitMargins) -> Floats:
    """Rows of falling k and cost; each is looked for from known rows, and from the one of the rung before."""

    def beyond(k: float) -> Criterion:
        def score(points: Floats) -> Floats:
            found = margins(points, search.target)
            return np.asarray(found.mean(axis=0) - k * found.std(axis=0))

        return Criterion(score)

    kept, low, rungs, halvings = list[Floats](), 0.0, list(RUNGS), HALVINGS
    while rungs and not search.task.is_late:
        test = beyond(k := rungs.pop(0))
        starts = [cheapest_passing(search, test), *(cheapest_near(search, test, row)[0] for row in kept[-1:])]
        found = [row for row in starts if row is not None and search.is_valid(row) and search.is_different(row)]
        if found:
            low = k
            kept.append(min(found, key=search.cost))
        elif halvings:  # no row is so safe: the safest that can be had is what the path begins with
            rungs, halvings = [(low + k) / 2], halvings - 1
        else:
            break
    rows: list[Floats] = []
    for row in reversed(kept):
        if not rows or search.cost(row) < search.cost(rows[-1]) * (1 - 1e-9):
            rows.append(row)
    return np.array(rows).reshape(-1, len(search.input))
