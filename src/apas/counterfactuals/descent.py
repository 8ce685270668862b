"""The cheapest point whose slack is not negative: linear steps in a trust region, and steps of what moves in steps.

Near a point the slack is taken to be linear. With one linear constraint the cheapest point of a box is found greedily:
go back to the input as far as the box allows, then move the features that give most slack for what they cost. What
comes out is looked at as it is; the box shrinks where the slack was not linear, and grows where it was.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from apas.counterfactuals.source import Search, Trial

__all__ = ["climbed", "descended"]

_Array = NDArray[np.float64]
#: Widths of the trust region that are tried together, in units of its present width; and how much slack is asked for,
#: in units of what the step is expected to cost.
WIDTHS = np.array([4.0, 2.0, 1.0, 0.5, 0.25])
EXTRA = np.array([0.0, 0.1])
#: Present width at the start and where it ends, in units of the ranges; and by what part a cost must fall to go on.
FIRST, LAST, GAIN = 0.02, 2e-4, 3e-4
#: A derivative is a difference over this part of the range.
STEP = 1e-4
ROUNDS = 40


@dataclass(frozen=True)
class _Ground:
    """The row, in units of the features' ranges where it can be."""

    search: Search
    spans: _Array
    smooth: NDArray[np.bool_]
    """Features that may move by any amount."""
    stepped: NDArray[np.bool_]
    """Features that may move, but in steps or from level to level."""

    @classmethod
    def of(cls, search: Search) -> _Ground:
        features = search.task.space.features
        mutable = np.array([f.mutable for f in features])
        smooth = np.array([not f.is_level and f.step is None and f.listed is None for f in features])
        return cls(search, np.array([f.span for f in features]), mutable & smooth, mutable & ~smooth)

    def held(self, trial: Trial, start: _Array) -> _Ground:
        """One feature of each set that must not change as a whole is left alone: what would help least."""
        if not self.search.avoid:
            return self
        slopes, keep = np.abs(_slopes(self, trial, start)), np.ones(len(start), dtype=bool)
        for known in self.search.avoid:
            same = [j for j in sorted(known) if start[j] == self.search.input[j]]
            if same and keep[same].all():
                keep[min(same, key=lambda j: float(slopes[j]))] = False
        return replace(self, smooth=self.smooth & keep, stepped=self.stepped & keep)

    def costs(self, points: _Array) -> _Array:
        space, x = self.search.task.space, self.search.input
        return space.costs(points, np.broadcast_to(x, points.shape), self.search.task.distance)

    def snapped(self, points: _Array) -> _Array:
        return self.search.task.space.snapped(points, np.broadcast_to(self.search.input, points.shape).copy())

    def usable(self, points: _Array) -> _Array:
        """Snapped, different from each other and from what the row already has."""
        points = np.unique(self.snapped(points), axis=0)
        return points[[self.search.is_different(p) for p in points]]


def descended(search: Search, trial: Trial, start: _Array) -> tuple[_Array | None, Trial]:
    """A cheap point near `start` with slack at least 0 on all draws of the trial, and the trial of points near it.

    The point is None if none was met.

    Parameters
    ----------
    search : Search
    trial : Trial
    start : ndarray of shape (features,)
        Allowed by the space; need not have slack.
    """
    ground = _Ground.of(search).held(trial, start)
    best: _Array | None = None
    point, near = start, trial
    for _ in range(3):  # the draws that matter at the end need not be those that mattered at the start
        near = trial.near(point)
        point = _descended(ground, near, point)
        whole = float(trial.slacks(point[None])[0])
        if whole >= 0 and (best is None or ground.costs(point[None])[0] < ground.costs(best[None])[0] * (1 - GAIN)):
            best = point
        elif best is not None:
            break
    return best, near


def climbed(search: Search, trial: Trial, start: _Array) -> _Array:
    """A point near `start` with as much slack as there is, up to 0."""
    return _descended(_Ground.of(search).held(trial, start), trial, start)


def _descended(ground: _Ground, trial: Trial, start: _Array) -> _Array:
    point, slack = start, float(trial.slacks(start[None])[0])
    width = FIRST
    for _ in range(ROUNDS):
        if time.monotonic() > ground.search.task.deadline:
            break
        slopes = _slopes(ground, trial, point)
        found = _smooth_step(ground, trial, point, slack, slopes, width)
        if found is None:
            found = _stepped(ground, trial, point, slack, slopes)
        if found is None:
            width /= 8
            if width < LAST:
                break
            continue
        point, slack, width = found[0], found[1], max(found[2] or width, 8 * LAST)
    return point


def _slopes(ground: _Ground, trial: Trial, point: _Array) -> _Array:
    """Slack per range of each smooth feature, 0 for the others."""
    places = np.flatnonzero(ground.smooth)
    slopes = np.zeros(len(point))
    if not len(places):
        return slopes
    others = np.repeat(point[None], len(places), axis=0)
    highs = np.array([ground.search.task.space.features[int(j)].ends[1] for j in places])
    steps = STEP * ground.spans[places] * np.where(point[places] + STEP * ground.spans[places] > highs, -1.0, 1.0)
    others[np.arange(len(places)), places] += steps
    slopes[places] = trial.slopes(point, others) / steps * ground.spans[places]
    return slopes


def _smooth_step(
    ground: _Ground, trial: Trial, point: _Array, slack: float, slopes: _Array, width: float
) -> tuple[_Array, float, float] | None:
    """The best of several steps: cheapest with slack, or with most slack if none has; and the width of its region."""
    if not ground.smooth.any():
        return None
    tries, widths = [], []
    for w in WIDTHS * width:
        for extra in EXTRA:
            tries.append(_linear(ground, point, slack - extra * w * np.abs(slopes).max(initial=0.0), slopes, w))
            widths.append(w)
    points = ground.snapped(np.array(tries))
    slacks = np.nan_to_num(trial.slacks(points), nan=-np.inf)
    return _better(ground, points, slacks, np.array(widths), point, slack)


def _better(
    ground: _Ground, points: _Array, slacks: _Array, widths: _Array, point: _Array, slack: float
) -> tuple[_Array, float, float] | None:
    different = np.array([ground.search.is_different(p) for p in points], dtype=bool)
    costs = np.where((slacks >= 0) & different, ground.costs(points), np.inf)
    i = int(costs.argmin())
    now = float(ground.costs(point[None])[0]) if slack >= 0 else np.inf
    if costs[i] < now * (1 - GAIN):
        return points[i], float(slacks[i]), float(widths[i])
    if slack < 0 and not np.isfinite(costs[i]):  # nothing passes yet: climb
        i = int(np.where(different, slacks, -np.inf).argmax())
        if slacks[i] > slack:
            return points[i], float(slacks[i]), float(widths[i])
    return None


def _linear(ground: _Ground, point: _Array, slack: float, slopes: _Array, width: float) -> _Array:
    """The cheapest point of the trust region whose slack is 0 if the slack is linear."""
    search = ground.search
    features = search.task.space.features
    low, high = point - width * ground.spans, point + width * ground.spans
    for j, feature in enumerate(features):
        least, most = feature.ends
        least = max(least, search.input[j]) if feature.direction == "increase" else min(least, search.input[j])
        most = min(most, search.input[j]) if feature.direction == "decrease" else max(most, search.input[j])
        low[j], high[j] = max(low[j], least), min(high[j], most)
    fixed = ~ground.smooth
    low[fixed] = high[fixed] = point[fixed]
    low, high = np.minimum(low, point), np.maximum(high, point)
    base = np.clip(search.input, low, high)
    needed = -(slack + float(slopes @ ((base - point) / ground.spans)))
    room = np.where(slopes > 0, high - base, base - low) / ground.spans  # how far each may go the way that helps
    if needed <= 0:
        return base
    if search.task.distance == "linf":
        return _spread(ground, base, slopes, room, needed, low, high)
    moved = base.copy()
    for j in np.argsort(-np.abs(slopes)):
        if needed <= 0 or slopes[j] == 0:
            break
        step = min(room[j], needed / abs(slopes[j]))
        moved[j] += np.sign(slopes[j]) * step * ground.spans[j]
        needed -= step * abs(slopes[j])
    return np.clip(moved, low, high)


def _spread(
    ground: _Ground, base: _Array, slopes: _Array, room: _Array, needed: float, low: _Array, high: _Array
) -> _Array:
    """The same where the largest change counts: all features move, none farther than it takes."""
    already = np.abs(base - ground.search.input) / ground.spans
    a, b = 0.0, float((already + room).max(initial=0.0))
    for _ in range(40):
        middle = 0.5 * (a + b)
        gained = float((np.abs(slopes) * np.clip(middle - already, 0.0, room)).sum())
        a, b = (a, middle) if gained >= needed else (middle, b)
    steps = np.clip(b - already, 0.0, room)
    return np.clip(base + np.sign(slopes) * steps * ground.spans, low, high)


def _stepped(
    ground: _Ground, trial: Trial, point: _Array, slack: float, slopes: _Array
) -> tuple[_Array, float, float] | None:
    """The best change of one feature that moves in steps, the smooth ones making up for it."""
    others = _one_step_away(ground, point)
    if not len(others):
        return None
    slacks = np.nan_to_num(trial.slacks(others), nan=-np.inf)
    tries, widths = [], []
    for other, s in zip(others, slacks, strict=True):
        for w in (FIRST, 4 * FIRST, 1.0):
            tries.append(_linear(ground, other, s, slopes, w) if np.isfinite(s) else other)
            widths.append(FIRST)
    points = ground.snapped(np.array([*others, *tries]))
    again = np.concatenate([slacks, np.nan_to_num(trial.slacks(points[len(others) :]), nan=-np.inf)])
    return _better(ground, points, again, np.array([FIRST] * len(others) + widths), point, slack)


def _one_step_away(ground: _Ground, point: _Array) -> _Array:
    """Rows in which one stepped feature has another value: what it was, the next ones, or any other category."""
    found = []
    features, x = ground.search.task.space.features, ground.search.input
    for j in np.flatnonzero(ground.stepped):
        feature, value = features[int(j)], point[j]
        if feature.kind == "categorical":
            values = set(np.arange(len(feature.values or ()), dtype=np.float64).tolist())
        elif feature.listed is not None:
            place = int(np.searchsorted(feature.listed, value))
            values = {float(v) for v in feature.listed[max(0, place - 1) : place + 2]}
        else:
            size = feature.step or 1.0
            values = {value + k * size for k in (-8, -2, -1, 1, 2, 8)}
        for other in sorted((values | {float(x[j])}) - {float(value)}):
            row = point.copy()
            row[j] = other
            found.append(row)
    return ground.usable(np.array(found)) if found else np.empty((0, len(point)))
