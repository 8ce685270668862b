"""`RobustOptimum`: the cheapest row that survives, by optimising what is required itself.

A mixed-integer program makes the margin on the model itself as large as it must be, and takes the cheapest row of that
margin; but rows of one margin differ in how much of it the shifts can take. Here the constraint is the one that is
certified in the end: that at most so many of the sampled shifted models fail, or that a bound is proved.

What is optimised to fail just as often as allowed fails a fresh test every other time. So the optimum is not what is
tested, but a path through it: from rows that fail less often and cost more to rows that cost less. Its order is fixed
before the fresh draws are made, all of it is tested on the same ones at full confidence, and the cheapest row before
the first that fails is returned.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from apas._validation import check_flag
from apas.counterfactuals.descent import climbed, descended
from apas.counterfactuals.milp import MilpSource
from apas.counterfactuals.neighbours import NearestNeighbours, rows_of_class
from apas.counterfactuals.plausible import NEIGHBOURS, Plausible
from apas.counterfactuals.source import Candidate, Search, Task, Trial
from apas.counterfactuals.trial import Demanding

__all__ = ["RobustOptimum"]

_Array = NDArray[np.float64]
_Asking = Generator[Candidate, float | None, _Array | None]
#: How far along the way from the input through the optimum the rows of a path lie.
WAY = np.concatenate([[2.0, 1.5, 1.25, 1.12, 1.06], np.linspace(1.036, 0.976, 21)])
#: How much slack the rows of a path keep where few models are known, in parts of what the worst of them takes away.
SPARE = (0.25, 0.5, 1.0, 2.0)
#: Where between the last of these rows and the one with most slack further ones lie.
BETWEEN = (0.15, 0.3, 0.45, 0.6, 0.8)
#: So much slack the safest row of a path should have, in parts of what the shifts take away.
CLEARLY = 0.1
#: Known rows that are looked at to find one that survives.
KNOWN = 200


@dataclass(frozen=True, kw_only=True)
class RobustOptimum:
    """The cheapest rows that survive the shifted models of the search, and rows around them.

    Starts from what `MilpSource` finds where it can be used, else from known rows that survive, else from the input,
    and goes on by linear steps; whatever model, preprocessing and set of shifts.

    Parameters
    ----------
    plausible : bool, default False
        Offer only rows that are no outliers among the background rows (local outlier factor, 20 neighbours).

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [1.0]]], [[-1.0]], feature_names=("income", "savings"))
    >>> space = apas.FeatureSpace([apas.Feature(n, low=0, high=2) for n in net.feature_names])
    >>> found = apas.generate(net, [[0.2, 0.3]], 0.05, space=space, source=RobustOptimum(), rng=0)
    >>> found.certificates.certified.tolist()
    [True]
    """

    plausible: bool = False

    def __post_init__(self) -> None:
        check_flag(self.plausible, "plausible")

    @property
    def ordered(self) -> bool:
        """Whether the first certified candidate is the one to return."""
        return True

    def unsupported(self, task: Task) -> str | None:
        """None if the source can work on the task, else the error a user reads."""
        known = 0 if task.background is None else len(task.background)
        if self.plausible and known <= NEIGHBOURS:
            return (
                f"RobustOptimum(plausible=True) compares with known rows, more than {NEIGHBOURS}, got {known}; pass "
                "them as `background`."
            )
        return None

    def candidates(self, search: Search) -> Iterator[Candidate]:
        """A path through the optimum; then rows that are safer and cost more."""
        return self._found(search)

    def _found(self, search: Search) -> Generator[Candidate, float | None, None]:
        trial = search.trial
        start, more = yield from _started(search, trial)
        if trial is None:
            yield from more
            return
        best, near = descended(search, trial, search.input if start is None else start)
        anchors = [a for a in (best, start) if a is not None]
        if trial.few:
            anchors += _safer(search, trial, best, search.input if start is None else start)
        elif best is not None:
            anchors += _stretched(search, trial, near, best, anchors)
        allowed = Plausible.of(search.task) if self.plausible else None
        path = _path(search, near, anchors, allowed)
        if path is not None:
            yield Candidate(path[0], path=path, between=allowed is None)
        if allowed is None:
            yield from more


def _safer(search: Search, trial: Trial, best: _Array | None, start: _Array) -> list[_Array]:
    """The cheapest rows with some slack left, and one with most: of few models the next may be worse than all seen."""
    anchor = start if best is None else best
    lost = abs(float(search.task.margins(anchor[None], search.target)[0] - trial.slacks(anchor[None])[0]))
    found: list[_Array] = []
    for part in SPARE if best is not None else ():
        point, _ = descended(search, Demanding(trial, part * lost), anchor if not found else found[-1])
        if point is None or time.monotonic() > search.task.deadline:
            break
        found.append(point)
    last = found[-1] if found else anchor
    top = climbed(search, Demanding(trial, 2 * SPARE[-1] * lost), last)
    between = [search.snapped(last + part * (top - last)) for part in BETWEEN]
    return [*found, *between, top]


def _stretched(search: Search, trial: Trial, near: Trial, best: _Array, anchors: list[_Array]) -> list[_Array]:
    """A row that is clearly safer, where to go on along the way is not: steps and categories may have no way to go."""
    known = np.vstack([_along(search, best, WAY[:1]), *anchors])
    slacks = np.nan_to_num(near.slacks(known), nan=-np.inf)
    wanted = CLEARLY * float(search.task.margins(best[None], search.target)[0] - near.slacks(best[None])[0])
    if slacks.max() >= wanted:
        return []
    point, _ = descended(search, Demanding(trial, wanted), best)
    return [] if point is None else [point]


def _started(
    search: Search, trial: Trial | None
) -> Generator[Candidate, float | None, tuple[_Array | None, Iterator[Candidate]]]:
    """A row that survives, if one is easily found, and the rest of the source it came from."""
    source = MilpSource()
    if source.unsupported(search.task) is None:
        asking = source.candidates(search)
        slack: float | None = None
        begun = False
        while True:
            try:
                candidate = asking.send(slack) if begun and isinstance(asking, Generator) else next(asking)
            except StopIteration:
                return None, iter(())
            if candidate.final and not _is_open(trial, candidate.point):
                return candidate.point, asking
            begun, slack = True, (yield replace(candidate, final=False))
    if trial is not None and len(rows_of_class(search.task, search.target)):
        return _between_known(search, trial), iter(())
    return None, iter(())


def _is_open(trial: Trial | None, point: _Array) -> bool:
    """Whether a row does not pass and nothing tells how far it is from that; then a larger margin is asked for."""
    return trial is not None and bool(np.isnan(trial.slacks(point[None])[0]))


def _between_known(search: Search, trial: Trial) -> _Array | None:
    """The cheapest row that survives on the way from the input to a known row that does."""
    known = []
    for candidate, _ in zip(NearestNeighbours().candidates(search), range(KNOWN), strict=False):
        known.append(candidate.point)
    if not known:
        return None
    slacks = np.nan_to_num(trial.slacks(np.array(known)), nan=-np.inf)
    robust = [known[i] for i in np.flatnonzero(slacks >= 0)[:5]] or [known[int(slacks.argmax())]]
    ways = [w for row in robust for w in _along(search, row, np.linspace(1.0, 0.05, 20))]
    ways = [w for w in [*robust, *ways] if search.is_different(w)]
    good = np.nan_to_num(trial.slacks(np.array(ways)), nan=-np.inf)
    costs = [search.cost(w) if s >= 0 else np.inf for w, s in zip(ways, good, strict=True)]
    best: _Array = ways[int(np.argmin(costs))] if np.isfinite(min(costs)) else robust[0]
    return best


def _path(search: Search, trial: Trial, anchors: list[_Array], allowed: Plausible | None) -> _Array | None:
    """Rows around the optimum from the safest to the cheapest."""
    if not anchors:
        return None
    points = np.unique(np.vstack([_along(search, anchors[0], WAY), *anchors]), axis=0)
    points = points[[search.is_different(p) and bool((p != search.input).any()) for p in points]]
    points = points[search.task.valid(points, search.target)] if len(points) else points
    if allowed is not None and len(points):
        points = allowed.pulled(search, trial, points)
    if not len(points):
        return None
    slacks = np.nan_to_num(trial.slacks(points), nan=-np.inf)
    return _falling(points, slacks, np.array([search.cost(p) for p in points]))


def _along(search: Search, anchor: _Array, ways: _Array) -> _Array:
    """Rows on the way from the input through the anchor; categories have no way, they are the anchor's."""
    points = search.input + ways[:, None] * (anchor - search.input)
    fixed = np.array([f.kind in ("categorical", "binary") for f in search.task.space])
    inputs = np.repeat(search.input[None], len(ways), axis=0)
    return search.task.space.snapped(np.where(fixed, anchor, points), inputs)


def _falling(points: _Array, slacks: _Array, costs: _Array) -> _Array:
    """Rows by falling slack, those that cost no less than a safer one left out."""
    kept: list[int] = []
    for i in np.argsort(-slacks, kind="stable"):
        if not kept or costs[i] < costs[kept[-1]]:
            kept.append(int(i))
    return points[kept]
