"""`Given`: counterfactuals of other tools, tested as they are and, if they fail, moved towards a robust point."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from apas._typing import Floats
from apas._validation import check_flag
from apas.counterfactuals.sources.base import Candidate, Search, Task
from apas.counterfactuals.sources.neighbours import rows_of_class
from apas.counterfactuals.space.space import own_columns
from apas.errors import InputError

_Asking = Generator[Candidate, float | None, str | None]
#: How often the way to a robust point is halved, and the parts of it that are offered where nothing guides the search.
HALVINGS, PARTS = 12, 8
#: So many background rows are tried one by one as robust points; then the rank grows by a half each time.
ONE_BY_ONE = 16
LENGTHS = np.array([2.0, 4.0, 8.0, 16.0, 32.0, 64.0])  # of a ray from the input through the given point


@dataclass(frozen=True, eq=False)
class Given:
    """Counterfactuals that are there already, such as those of DiCE or alibi.

    Each is offered as it is. If it is not certified and `repair` is set, points on the way from it to a robust point
    follow: a background row of the wanted class, if there are any, and a point further on from the input, those that
    cost less first. What does not satisfy the constraints of the space is never offered: it is repaired first, or left
    out.

    Parameters
    ----------
    points : data frame or array_like of shape (rows, features)
        One row per input, in raw units; a frame may have its columns in any order, and others besides, such as the
        outcome. A row without any value says that there is no counterfactual for its input.
    repair : bool, default True
        Whether to look for others where a given one fails.

    Examples
    --------
    >>> from apas import Feature, FeatureSpace, FeedForward
    >>> task = Task(FeedForward([[[1.0]]], [[-4.0]]), FeatureSpace([Feature("income", "integer", low=0, high=9)]))
    >>> search = Search(task, 0, np.array([2.0]), 1)
    >>> [c.point.tolist() for c in Given([[4.0]], repair=False).candidates(search)]
    [[4.0]]
    """

    points: Any
    repair: bool = True
    ordered: ClassVar[bool] = True  # a repair is wanted where the given point fails, and the cheaper ones come first
    takes_missing: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_flag(self.repair, "repair")

    def unsupported(self, task: Task) -> str | None:
        """None; points that do not fit the space are an error."""
        self.numbers(task)
        return None

    def check_rows(self, rows: int) -> None:
        """Refuse points that cannot belong to so many inputs."""
        given = len(self.points) if hasattr(self.points, "__len__") else 0
        if given != rows:
            raise InputError(
                f"`points` of Given must have one row per input ({rows}), got {given}; leave a row empty (NaN) where "
                "there is no counterfactual."
            )

    def numbers(self, task: Task) -> Floats:
        """The points as numbers per cell, NaN where there is none."""
        own, space = ("given", id(self)), task.space
        table = own_columns(self.points, space)
        return task.once(own, lambda: space.numbers_for(task.model, table, "points", gaps=True))

    def candidates(self, search: Search) -> _Asking:
        """The given point if it is allowed and valid, then those of its repair; returns why there was nothing."""
        points = self.numbers(search.task)
        if search.row >= len(points):
            self.check_rows(search.row + 1)
        return _offer_points(search, points[search.row], self.repair)


def _offer_points(search: Search, given: Floats, repair: bool) -> _Asking:
    if np.isnan(given).all():
        return "`points` has no counterfactual for this input"
    given, space = search.settled(given), search.task.space
    allowed = space.allowed(given[None], search.input[None])[0]
    broken = [name for name, fine in zip(space.names, allowed, strict=True) if not fine]
    complaint: str | None = f"the given point breaks the constraints of {', '.join(broken)}"
    if broken and not repair:
        return complaint
    start = search.snapped(given) if broken else given
    slack: float | None = -np.inf
    if _is_usable(search, start):
        slack = yield Candidate(start)
        complaint = None
    else:
        which = f"{complaint}, and the nearest that does not" if broken else "the given point"
        complaint = f"{which} is not of class {search.target!r}, or not different from what there is already"
    if repair:
        yield from _repair_points(search, start, slack)
    return complaint


def _is_usable(search: Search, point: Floats) -> bool:
    return search.is_new(point) and search.is_valid(point)


def _repair_points(search: Search, start: Floats, slack: float | None) -> Generator[Candidate, float | None, None]:
    """Points on the ways from the start to a known and to a farther robust point by their costs, then on others."""
    offered, kinds = {start.tobytes()}, (_known_anchors(search, start), _ray_anchors(search, start))
    points = yield from _way(search, start, kinds[0], slack)
    points += yield from _way(search, start, kinds[1], slack)
    while points:
        for point in sorted(points, key=search.cost):
            if point.tobytes() not in offered and _is_usable(search, point):
                offered.add(point.tobytes())
                yield Candidate(point)
        points = yield from _way(search, start, chain(*kinds), slack)


def _way(
    search: Search, start: Floats, anchors: Iterator[Floats], slack: float | None
) -> Generator[Candidate, float | None, list[Floats]]:
    """Points that look robust on the way from the start to the next of the anchors that does; none if none does."""
    for anchor in anchors:
        reached = yield Candidate(anchor, final=False)
        if reached is not None and reached < 0:
            continue
        first = 0.0
        if reached is not None and slack is not None and slack < 0:
            first = yield from _first_robust(search, start, anchor)
        # a look that passed is no certificate: should the first one fail, there are others further along
        return [_between(search, start, anchor, float(t)) for t in np.linspace(first, 1.0, PARTS + 1)]
    return []


def _first_robust(search: Search, start: Floats, anchor: Floats) -> Generator[Candidate, float | None, float]:
    """Least part of the way from the start, which fails, to the anchor, which does not, at which a point passes."""
    known = {start.tobytes(): False, anchor.tobytes(): True}
    fails, passes = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (fails + passes) / 2
        point = _between(search, start, anchor, middle)
        key = point.tobytes()
        if key not in known and _is_usable(search, point):
            slack = yield Candidate(point, final=False)
            known[key] = slack is not None and slack >= 0
        fails, passes = (fails, middle) if known.get(key, False) else (middle, passes)
    return passes


def _between(search: Search, start: Floats, anchor: Floats, t: float) -> Floats:
    """The allowed point at a part of the way: what has an order moves along, the rest changes half-way."""
    if t in (0.0, 1.0):  # as they are, whatever interpolation would round
        return anchor if t else start
    jumps = search.task.space.jumps
    return search.snapped(np.where(jumps, anchor if t >= 0.5 else start, (1 - t) * start + t * anchor))


def _known_anchors(search: Search, start: Floats) -> Iterator[Floats]:
    """Background rows of the wanted class, as far as the input may become them: the nearest to the start first."""
    task = search.task
    rows = task.once(("rows", search.target), lambda: rows_of_class(task, search.target))
    if not len(rows):
        return
    rows = np.unique(search.snapped(rows), axis=0)
    rows = rows[task.valid(rows, search.target)]
    rows = rows[np.argsort(task.space.costs(rows, np.broadcast_to(start, rows.shape), task.distance), kind="stable")]
    rank = 0
    while rank < len(rows):
        if not np.array_equal(rows[rank], start) and _is_usable(search, rows[rank]):
            yield rows[rank]
        rank += 1 if rank < ONE_BY_ONE else rank // 2


def _ray_anchors(search: Search, start: Floats) -> Iterator[Floats]:
    """Points beyond the start as seen from the input, each twice as far, until the ranges end."""
    last = start
    for point in search.along(start, LENGTHS):
        if np.array_equal(point, last):
            return
        if _is_usable(search, point):
            yield point
        last = point
