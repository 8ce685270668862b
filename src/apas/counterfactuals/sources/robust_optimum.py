"""`RobustOptimum`: the cheapest row that survives, by optimising the sampled constraint itself along linear steps.

What fails just as often as allowed fails a fresh test every other time: so a path through the optimum is tested.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, Self

import numpy as np

from apas._typing import Bools, Floats
from apas._validation import check_flag
from apas.counterfactuals.search.refit_search import leaf_table, refit_path
from apas.counterfactuals.search.stacked import quick_encoder, quick_margins
from apas.counterfactuals.sources.base import Candidate, Search, SearchTest, Task, refuse_missing
from apas.counterfactuals.sources.milp.source import MilpSource
from apas.counterfactuals.sources.neighbours import NearestNeighbours, rows_of_class
from apas.models.base import Differentiable, Model, offers

NEIGHBOURS = 20  # neighbours whose density a row is compared with


class Plausible:
    """Says which rows are no outliers among the background rows: scikit-learn's local outlier factor, fitted once."""

    def __init__(self, task: Task) -> None:
        from sklearn.neighbors import LocalOutlierFactor

        rows = task.background if task.background is not None else np.empty((0, len(task.space)))
        factor = LocalOutlierFactor(n_neighbors=NEIGHBOURS, novelty=True)
        self.task, self.fitted = task, task.once("plausible", lambda: factor.fit(task.encoded(rows)))

    def inside(self, points: Floats) -> Bools:
        """Which rows are no outliers."""
        return np.asarray(self.fitted.predict(self.task.encoded(points)) > 0) if len(points) else np.ones(0, dtype=bool)

    def pull_in(self, search: Search, test: SearchTest, points: Floats) -> Floats:
        """The rows that are no outliers; and, towards known rows, the nearest to each that are none either."""
        fine = self.inside(points)
        if fine.all() or self.task.background is None:
            return points[fine]
        known = self.task.background[self.task.valid(self.task.background, search.target)]
        if not len(known):
            return points[fine]
        near, ends = known[np.argsort(search.costs(known), kind="stable")[:20]], points[:: max(1, len(points) // 4)]
        rows = [search.snapped(e + t * (k - e)) for e in ends for k in near for t in np.linspace(0.1, 1.0, 10)]
        found = np.unique(np.vstack([points[fine], np.array(rows)]), axis=0)
        found = found[self.inside(found) & self.task.valid(found, search.target)]
        passes = test.passes(found) if len(found) else np.zeros(0, dtype=bool)
        return found[passes] if passes.any() else found


#: Widths of the trust region that are tried together, in units of its present width; and how much slack is asked for,
#: in units of what the step is expected to cost.
WIDTHS = 4.0 ** np.arange(1, -4, -1)
EXTRA = np.array([0.0, 0.1])
#: Present width at the start and where it ends, in units of the ranges; and by what part a cost must fall to go on.
FIRST, LAST, GAIN = 0.02, 2e-4, 1e-3
AGAIN = 1e-3  # present width where the same is done once more with other draws
STEP = 1e-4  # a derivative is a difference over this part of the range
ROUNDS = 40  # steps of a trust region, far more than most take: three in a row without a gain end it


def cheapest_near(search: Search, test: Any, start: Floats) -> tuple[Floats | None, Any]:
    """A cheap point near `start` with slack on all draws, None if none was met, and the test of points near it."""
    region = _TrustRegion.of(search, test, start)
    best: Floats | None = None
    point, near = start, test
    for width in (FIRST, AGAIN, AGAIN):  # the draws that matter at the end need not be those that did at the start
        near = test.near(point)
        point = replace(region, test=near).descend(point, width)
        whole = float(test.slacks(point[None])[0])
        if whole >= 0 and (best is None or search.cost(point) < search.cost(best) * (1 - GAIN)):
            best = point
        elif best is not None:
            break
        if whole >= 0 and np.isclose(whole, near.slacks(point[None])[0], rtol=1e-4, atol=1e-9):
            break  # the same draws matter
    return best, near


_Step = tuple[Floats, float, float]  # a point, its slack and the width of its region


@dataclass(frozen=True)
class _TrustRegion:
    """Steps from a point to cheaper ones with slack, in units of the features' ranges where it can be."""

    search: Search
    test: SearchTest
    spans: Floats
    smooth: Bools  # features that may move by any amount
    stepped: Bools  # features that may move, but in steps or from level to level

    @classmethod
    def of(cls, search: Search, test: Any, start: Floats) -> Self:
        """All that may move from a start; of each set that must not change as a whole, what helps least may not."""
        features = search.task.space.features
        mutable, keep = np.array([f.mutable for f in features]), np.ones(len(start), dtype=bool)
        smooth = np.array([f.step is None and f.listed is None for f in features])
        region = cls(search, test, np.array([f.span for f in features]), mutable & smooth, mutable & ~smooth)
        slopes = np.abs(region._slopes(start)) if search.avoid else keep
        for known in search.avoid:
            same = [j for j in sorted(known) if start[j] == search.input[j]]
            if same and keep[same].all():
                keep[min(same, key=lambda j: float(slopes[j]))] = False
        return replace(region, smooth=region.smooth & keep, stepped=region.stepped & keep)

    @cached_property
    def limits(self) -> tuple[Floats, Floats]:
        """How far down and up each feature may go."""
        features, x = self.search.task.space.features, self.search.input
        low, high = np.array([f.ends for f in features]).T
        rises, falls = (np.array([f.direction == way for f in features]) for way in ("increase", "decrease"))
        low = np.where(rises, np.maximum(low, x), np.minimum(low, x))
        return low, np.where(falls, np.minimum(high, x), np.maximum(high, x))

    @cached_property
    def levels(self) -> dict[int, Floats]:
        """The levels that each category may have."""
        x, found = self.search.input, {}
        for j, feature in enumerate(self.search.task.space):
            if feature.kind == "categorical" and self.stepped[j]:
                every = np.arange(len(feature.values or ()), dtype=np.float64)
                found[j] = np.append(feature.snapped(every, np.full(len(every), x[j])), x[j])
        return found

    def _different(self, points: Floats) -> Bools:
        return np.array([self.search.is_different(p) for p in points], dtype=bool)

    def _slacks(self, points: Floats) -> Floats:
        return np.nan_to_num(self.test.slacks(points), nan=-np.inf)

    def descend(self, point: Floats, width: float = FIRST) -> Floats:
        """Steps from a point until none gains any more."""
        slack = float(self.test.slacks(point[None])[0])
        for _ in range(ROUNDS):
            if self.search.task.is_late:
                break
            slopes = self._slopes(point)
            found = self._linear_step(point, slack, slopes, width) or self._discrete_step(point, slack, slopes)
            if found is not None:
                point, slack, width = found[0], found[1], max(found[2] or width, 8 * LAST)
            elif (width := width * WIDTHS[-1]) < LAST:
                break
        return point

    def _slopes(self, point: Floats) -> Floats:
        """Slack per range of each smooth feature, 0 for the others."""
        places, slopes = np.flatnonzero(self.smooth), np.zeros(len(point))
        if not len(places):
            return slopes
        others = np.repeat(point[None], len(places), axis=0)
        highs = np.array([self.search.task.space.features[int(j)].ends[1] for j in places])
        steps = STEP * self.spans[places]
        steps = steps * np.where(point[places] + steps > highs, -1.0, 1.0)
        others[np.arange(len(places)), places] += steps
        slopes[places] = self.test.slopes(point, others) / steps * self.spans[places]
        return slopes

    def _linear_step(self, point: Floats, slack: float, slopes: Floats, width: float) -> _Step | None:
        """The best of several steps: cheapest with slack, or with most slack if none has; with its width."""
        if not self.smooth.any():
            return None
        widths = np.repeat(WIDTHS * width, len(EXTRA))
        extra = np.tile(EXTRA, len(WIDTHS)) * widths * np.abs(slopes).max(initial=0.0)
        starts = np.repeat(point[None], len(widths), axis=0)
        points = self.search.snapped(self._linear_optima(starts, slack - extra, slopes, widths))
        return self._better(points, self._slacks(points), widths, point, slack)

    def _better(self, points: Floats, slacks: Floats, widths: Floats, point: Floats, slack: float) -> _Step | None:
        different = self._different(points)
        costs = np.where((slacks >= 0) & different, self.search.costs(points), np.inf)
        i = int(costs.argmin())
        now = self.search.cost(point) if slack >= 0 else np.inf
        better = costs[i] < now * (1 - GAIN)
        if not better and slack < 0 and not np.isfinite(costs[i]):  # nothing passes yet: climb
            i = int(np.where(different, slacks, -np.inf).argmax())
            better = slacks[i] > slack
        return (points[i], float(slacks[i]), float(widths[i])) if better else None

    def _linear_optima(self, points: Floats, slacks: Floats, slopes: Floats, widths: Floats) -> Floats:
        """The cheapest point of the trust region around each point whose slack is 0 if the slack is linear."""
        far, fixed, x = widths[:, None] * self.spans, ~self.smooth, self.search.input
        low = np.where(fixed, points, np.minimum(np.maximum(points - far, self.limits[0]), points))
        high = np.where(fixed, points, np.maximum(np.minimum(points + far, self.limits[1]), points))
        base = np.clip(x, low, high)
        needed = -(slacks + ((base - points) / self.spans) @ slopes)
        room = np.where(slopes > 0, high - base, base - low) / self.spans  # how far each may go the way that helps
        moved = base.copy()
        if self.search.task.distance == "linf":  # all features move, none farther than it takes
            already = np.abs(base - x) / self.spans
            for i in np.flatnonzero(~(needed <= 0)):
                a, b = 0.0, float((already[i] + room[i]).max(initial=0.0))
                for _ in range(40):  # what is gained grows with the largest change: bisect
                    middle = 0.5 * (a + b)
                    gained = float((np.abs(slopes) * np.clip(middle - already[i], 0.0, room[i])).sum())
                    a, b = (a, middle) if gained >= needed[i] else (middle, b)
                moved[i] = base[i] + np.sign(slopes) * np.clip(b - already[i], 0.0, room[i]) * self.spans
            return np.clip(moved, low, high)
        # a fractional knapsack: a range of any feature costs the same, so the steepest go first
        for j in np.argsort(-np.abs(slopes)):
            if slopes[j] == 0 or not (needed > 0).any():
                break
            steps = np.where(needed > 0, np.minimum(room[:, j], needed / abs(slopes[j])), 0.0)
            moved[:, j] += np.sign(slopes[j]) * steps * self.spans[j]
            needed = needed - steps * abs(slopes[j])
        return np.clip(moved, low, high)

    def _discrete_step(self, point: Floats, slack: float, slopes: Floats) -> _Step | None:
        """The best change of one feature that moves in steps, the smooth ones making up for it."""
        points = self._discrete_neighbours(point)
        if not len(points):
            return None
        slacks = self._slacks(points)
        if self.smooth.any():
            widths = np.tile([FIRST, 4 * FIRST, 1.0], len(points))
            around, known = np.repeat(points, 3, axis=0), np.repeat(slacks, 3)
            finite = np.isfinite(known)
            around[finite] = self._linear_optima(around[finite], known[finite], slopes, widths[finite])
            around = self.search.snapped(around)
            points, slacks = np.vstack([points, around]), np.concatenate([slacks, self._slacks(around)])
        return self._better(points, slacks, np.full(len(points), FIRST), point, slack)

    def _discrete_neighbours(self, point: Floats) -> Floats:
        """Rows in which one stepped feature has another value: what it was, the next ones, or any other category."""
        found, features, x = [], self.search.task.space.features, self.search.input
        for j in np.flatnonzero(self.stepped).tolist():
            feature, value = features[j], point[j]
            if feature.kind == "categorical":
                values = self.levels[j]
            else:
                steps = value + (feature.step or 1.0) * np.array([-8, -2, -1, 1, 2, 8])
                if feature.listed is not None:
                    place = int(np.searchsorted(feature.listed, value))
                    steps = feature.listed[max(0, place - 1) : place + 2]
                values = np.append(feature.snapped(steps, np.full(len(steps), x[j])), x[j])
            others = np.unique(values[values != value])
            found.append(np.repeat(point[None], len(others), axis=0))
            found[-1][:, j] = others
        points = np.unique(np.concatenate([np.empty((0, len(point))), *found]), axis=0)
        return points[self._different(points)]


_Asking = Generator[Candidate, float | None, Floats | None]
#: How far along the way from the input through the optimum the rows of a path lie.
WAY = np.concatenate([[2.0, 1.5, 1.25, 1.12, 1.06], np.linspace(1.036, 0.976, 11)])
#: Where the rows of a path go on that bear a tolerance: the bounds of the search lose what the tests of regions do not.
NEARER = np.linspace(0.96, 0.6, 19)
#: How far along its way an offer is taken until it bears its region.
STRETCHED = np.array([1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0])
#: How much slack the rows of a path keep where few models are known, in parts of what the worst of them takes away.
SPARE = (0.25, 0.5, 1.0, 2.0)
#: Where between the last of these rows and the one with most slack further ones lie.
BETWEEN = (0.15, 0.3, 0.45, 0.6, 0.8)
CLEARLY = 0.1  # so much slack the safest row of a path should have, in parts of what the shifts take away
KNOWN = 200  # known rows that are looked at to find one that survives


@dataclass(frozen=True, kw_only=True)
class RobustOptimum:
    """The cheapest rows that survive the shifted models of the search, and rows around them.

    Starts from what `MilpSource` finds where it can be used, else from known rows that survive, else from the input,
    and goes on by linear steps; whatever model, preprocessing and set of shifts. Where delta is 0, what `MilpSource`
    finds is the nearest row itself.

    Parameters
    ----------
    plausible : bool, default False
        Offer only rows that are no outliers among the background rows (local outlier factor, 20 neighbours).
    alone : bool, default False
        Where the change is a refit (`ObservedShifts`), search on the margin of the model alone, so that all refits
        certify: for few of them. The rows cost a little more, and somewhat fewer are found.

    Notes
    -----
    Refits without gradients, such as trees, are searched on a grid: rows by falling mean - k sd of their margins, which
    ``tanh`` draws together, k from 10.4 to 1.8. Ensembles of trees of scikit-learn, XGBoost, LightGBM and CatBoost
    (without categories) are read, so that no refit is asked before the test; other models are asked about 500 rows or
    more at a time.

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
    alone: bool = False
    ordered: ClassVar[bool] = True  # the path comes first, and what is certified of it is wanted
    one_path: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = True  # on refits; else a row with a missing cell is refused

    def __post_init__(self) -> None:
        check_flag(self.plausible, "plausible")
        check_flag(self.alone, "alone")

    @property
    def on_model_alone(self) -> bool:
        """Whether no refit is kept for the search."""
        return self.alone

    def unsupported(self, task: Task) -> str | None:
        """None if the source can work on the task, else the error a user reads."""
        known = 0 if task.background is None else len(task.background)
        if self.plausible and known <= NEIGHBOURS:
            return (
                f"RobustOptimum(plausible=True) compares with known rows, more than {NEIGHBOURS}, got {known}; pass "
                "them as `background`."
            )
        return None

    def set_up(self, search: Search) -> None:
        """Read the trees of the refits."""
        refits = _refits_to_search(search, self.alone)
        if refits is not None:
            leaf_table(search, refits)

    def candidates(self, search: Search) -> Generator[Candidate, float | None, None]:
        """A path through the optimum; then rows that are safer and cost more."""
        test = search.test
        refits = _refits_to_search(search, self.alone)
        if refits is not None:
            rows = refit_path(search, refits, test is not None and test.all_accept)
            rows = rows[Plausible(search.task).inside(rows)] if self.plausible else rows
            if len(rows):
                yield Candidate(rows[0], path=rows)
            return
        refuse_missing(search.input, self)
        if search.task.unshifted and not self.plausible and MilpSource().unsupported(search.task) is None:
            yield from MilpSource().candidates(search)  # the nearest row, with its proof; if there is none, others
        start, more = yield from _first_row(search, test)
        if test is None:
            yield from more
            return
        begin = search.input if start is None else start
        best, near = cheapest_near(search, test, begin)
        way = WAY
        if test.alone is not None:
            way = np.concatenate([WAY, NEARER])
            best, near = _from_single_offer(search, test, test.alone, best, near, begin)
        anchors = [a for a in (best, start) if a is not None]
        if test.few:
            anchors += _safer(search, test, best, begin)
        elif best is not None:
            anchors += _clearly_safer(search, test, near, *anchors)
        allowed = Plausible(search.task) if self.plausible else None
        around = [search.along(anchors[0], way), *anchors] if anchors else []
        path = _path(search, near, np.vstack(around), allowed) if around else None
        if path is not None:
            yield Candidate(path[0], path=path, between=allowed is None)
        if allowed is None:
            yield from more


def _refits_to_search(search: Search, alone: bool) -> Sequence[Model] | None:
    """Refits to search on a grid: those without gradients, of rows with missing cells, or the model alone."""
    refits = search.test.refits if search.test is not None else None
    grid = alone or np.isnan(search.input).any() or not any(offers(m, Differentiable) for m in refits or ())
    return refits if grid and not search.task.unshifted else None


def _from_single_offer(
    search: Search, test: SearchTest, alone: SearchTest, best: Floats | None, near: SearchTest, start: Floats
) -> tuple[Floats | None, SearchTest]:
    """A cheaper offer that bears its region, from the cheapest one that need not: it may change other features."""
    point = cheapest_near(search, alone, start)[0]
    if point is None:
        return best, near
    ways = search.along(point, STRETCHED)
    found, around = cheapest_near(search, test, next(iter(ways[test.passes(ways)]), point))
    if found is None or (best is not None and search.cost(found) >= search.cost(best)):
        return best, near
    return found, around


def _safer(search: Search, test: SearchTest, best: Floats | None, start: Floats) -> list[Floats]:
    """The cheapest rows with some slack left, and one with most: of few models the next may be worse than all seen."""
    anchor = start if best is None else best
    lost = abs(float(quick_margins(search, anchor[None])[0] - test.slacks(anchor[None])[0]))
    found: list[Floats] = []
    for part in SPARE if best is not None else ():
        point, _ = cheapest_near(search, test.with_more_slack(part * lost), anchor if not found else found[-1])
        if point is None or search.task.is_late:
            break
        found.append(point)
    last = found[-1] if found else anchor
    top = _TrustRegion.of(search, test.with_more_slack(2 * SPARE[-1] * lost), last).descend(last)
    return [*found, *(search.snapped(last + part * (top - last)) for part in BETWEEN), top]


def _clearly_safer(search: Search, test: SearchTest, near: SearchTest, *anchors: Floats) -> list[Floats]:
    """A row that is clearly safer, where to go on along the way is not: steps and categories may have no way to go."""
    best = anchors[0]
    slacks = np.nan_to_num(near.slacks(np.vstack([search.along(best, WAY[:1]), *anchors])), nan=-np.inf)
    wanted = CLEARLY * float(quick_margins(search, best[None])[0] - near.slacks(best[None])[0])
    if slacks.max() >= wanted:
        return []
    point, _ = cheapest_near(search, test.with_more_slack(wanted), best)
    return [] if point is None else [point]


def _first_row(
    search: Search, test: SearchTest | None
) -> Generator[Candidate, float | None, tuple[Floats | None, Iterator[Candidate]]]:
    """A row that survives, if one is easily found, and the rest of the source it came from."""
    source = MilpSource()
    if search.task.once("robust/milp", lambda: source.unsupported(search.task)) is None:
        # of regions margins say little
        drawn = test is not None and not test.all_accept and not test.of_regions
        stepped = any(f.mutable and (f.listed is not None or f.step is not None) for f in search.task.space)
        if test is not None and drawn and not stepped:
            # On draws, where all moves freely, a row that nearly passes will do: one whose margin is what they take
            # away from that of the input. Steps and levels must be those of the right margin: linear steps hardly mend
            # them.
            lost = quick_margins(search, search.input[None])[0] - test.slacks(search.input[None])[0]
            source = replace(source, margin=float(np.clip(np.nan_to_num(lost), source.margin, source.max_margin)))
            asking = source.candidates(search, rough=True)
            first = next(asking, None)
            return None if first is None else first.point, asking
        asking, slack = source.candidates(search, rough=test is not None), None
        while True:
            try:
                candidate = asking.send(slack) if isinstance(asking, Generator) else next(asking)
            except StopIteration:
                return None, iter(())
            # of a row that does not pass nothing may tell how far it is from that: then a larger margin is asked for
            is_open = candidate.final and test is not None and np.isnan(test.slacks(candidate.point[None])[0])
            if candidate.final and not is_open:
                return candidate.point, asking
            slack = yield replace(candidate, final=False)
    if test is not None and len(rows_of_class(search.task, search.target)):
        return _between_known(search, test), iter(())
    return None, iter(())


def _between_known(search: Search, test: SearchTest) -> Floats | None:
    """The cheapest row that survives on the way from the input to a known row that does."""
    known = [candidate.point for candidate in islice(NearestNeighbours().candidates(search), KNOWN)]
    if not known:
        return None
    slacks = np.nan_to_num(test.slacks(np.array(known)), nan=-np.inf)
    robust = [known[i] for i in np.flatnonzero(slacks >= 0)[:5]] or [known[int(slacks.argmax())]]
    ways = [w for row in robust for w in search.along(row, np.linspace(1.0, 0.05, 20))]
    ways = [w for w in [*robust, *ways] if search.is_different(w)]
    passing = [way for way, passes in zip(ways, test.passes(np.array(ways)), strict=True) if passes]
    best: Floats = min(passing, key=search.cost, default=robust[0])
    return best


def _path(search: Search, test: SearchTest, points: Floats, allowed: Plausible | None) -> Floats | None:
    """Rows around the optimum from the safest to the cheapest, without those that cost no less than a safer one."""
    points = np.unique(points, axis=0)
    points = points[[search.is_new(p) for p in points]]
    if len(points):  # which ones the model really takes is tested later
        points = points[search.task.valid_columns(quick_encoder(search.task)(points), search.target)]
    if allowed is not None and len(points):
        points = allowed.pull_in(search, test, points)
    if not len(points):
        return None
    slacks, costs = np.nan_to_num(test.slacks(points), nan=-np.inf), search.costs(points)
    kept: list[int] = []
    for i in np.argsort(-slacks, kind="stable").tolist():
        if not kept or costs[i] < costs[kept[-1]]:
            kept.append(i)
    return points[kept]
