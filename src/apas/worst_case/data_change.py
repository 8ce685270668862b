"""The least score of a row over every refit on changed data: a ball that holds all refits, and a bound within it.

The theorem and its proof are in docs/mathematics.md. Everything is computed in the coordinates of `WhitenedFit`, and
every number is rounded to the side on which the statement stays true.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from apas._typing import Floats, Indices
from apas.shifts.data_change import AddedRows
from apas.shifts.fit_problem import RELATIVE, UNIT, FitProblem, WhitenedFit, expit, gamma, least_eigenvalue, slope

#: Radii that are tried, times the median row's norm, how many, and how often the gaps between them are halved at most.
NEAREST, FARTHEST, COUNT, HALVINGS, WORK = 0.024, 12.0, 96, 4, 3e9
#: Where thresholds lie among the sorted costs of rows, in units of k, and which part of the k rows is taken out of the
#: quadratic bound.
THRESHOLDS, SPARED = (1, 2, 4, 8, 16, 32), (0.0, 0.25, 0.5, 1.0)
#: The second derivative of the logistic function is largest here, and so large, rounded up.
STEEPEST, TOP = math.log(2.0 + math.sqrt(3.0)), (1 + 2.0**-50) / (6.0 * math.sqrt(3.0))
PIECES = 32  # pieces into which an edge of the planar set of added rows is cut


def secant(m: Floats, t: Floats) -> Floats:
    """Mean slope of the logistic function between m and m + t, t > 0, with a small relative error."""
    # p(m + t) - p(m) = 2 sinh(t / 2) sqrt(p'(m) p'(m + t)), written so that nothing cancels or overflows
    a, b = np.abs(m), np.abs(m + t)
    grown = -np.expm1(-t) * np.exp(-0.5 * np.maximum(a + b - t, 0.0))
    return np.asarray(grown / (t * (1 + np.exp(-a)) * (1 + np.exp(-b))))


class Effects(NamedTuple):
    """What a radius allows to each row: how z_i in the gradient can change, and how the loss bends."""

    up: Floats
    down: Floats
    convex: Floats
    concave: Floats


@dataclass(frozen=True)
class RefitBall:
    """A radius within which every refit on data with at most `changes` changed rows lies, and what proves it."""

    radius: float
    changes: int
    threshold: float = 0.0
    spared: int = 0


class RefitScores(WhitenedFit):
    """Bounds on scores over every refit after k changes; its gradient is within `tolerance` in the inverse Hessian."""

    def __init__(self, problem: FitProblem, kind: str, tolerance: float, added: AddedRows) -> None:
        super().__init__(problem)
        self.kind, self.tolerance, self.added = kind, tolerance, added
        #: Norm of the gradient at the centre, and what a refit may leave of its own.
        self.start = self.gradient_norm(problem, self.theta) + tolerance * math.sqrt(max(self.high, 1.0))
        self.start *= 1 + 8 * UNIT
        self.reach = self._reach_of_added() if kind in ("added", "replaced") else 0.0
        self.effects = lru_cache(maxsize=64)(self._effects)
        self.balls = self._balls()

    def _widths(self, radius: float) -> Floats:
        """How far the score of each row can move within a radius, and the rounding of scores."""
        moved = radius * self.norms
        return np.asarray(moved + self.off + 4 * UNIT * (np.abs(self.m) + moved))

    def _effects(self, radius: float) -> Effects:
        problem, m, t = self.problem, self.m, self._widths(radius)
        c, other, turns = problem.weights, problem.turned, self.kind == "relabelled"
        if not problem.logistic:
            apart, const = (other - c, (other + c) * problem.y) if turns else (-c, c * problem.y)
            ends = [apart * end + const for end in (m - t, m + t)]
            error = RELATIVE * (c + other) * (np.abs(m) + t + 1.0)
            up, down = (np.maximum(np.maximum(s * ends[0], s * ends[1]), 0.0) + error for s in (1.0, -1.0))
            return Effects(up, down, np.zeros(len(m)), np.zeros(len(m)))
        sign = 1.0 - 2.0 * problem.y
        worst = expit(sign * m + t)  # the largest |p - y|, at an end since p is monotone
        size = c * worst * (1 + 2 * self.relative)
        if turns:  # c |p - y| + c' |p - y'| is monotone in p: largest at an end
            ends = [c * part + other * (1 - part) for part in (worst, expit(sign * m - t))]
            size = np.where(c == other, c, np.maximum(*ends) + 2 * self.relative * (c + other))
        up, down = np.where(problem.y > 0, size, 0.0), np.where(problem.y > 0, 0.0, size)
        low, high = m - t, m + t
        bends = [slope(end) * np.tanh(-0.5 * end) for end in (low, high)]
        steep = [(low <= at) & (high >= at) for at in (-STEEPEST, STEEPEST)]
        convex = np.where(steep[0], TOP, np.maximum(*bends)) + RELATIVE
        concave = np.where(steep[1], TOP, -np.minimum(*bends)) + RELATIVE
        return Effects(up, down, c * convex, c * concave)

    def _flattest(self, radius: float) -> Floats:
        """Lower bounds on the weighted mean slopes of the residuals from the centre to anywhere within a radius."""
        c, m, t = self.problem.weights, self.m, self._widths(radius)
        if not self.problem.logistic:
            return c
        # the slope has one peak, so its mean from m to m + t is least for the shortest or the longest t of either side
        least = np.minimum(slope(m), np.minimum(secant(m, t), secant(-m, t)))
        return np.asarray(np.maximum(c * least * (1 - 4 * self.relative - 32 * UNIT * (np.abs(m) + t)), 0.0))

    def _balls(self) -> list[RefitBall]:
        """Radii that grow together with the number of changes that they hold the refits of."""
        width, found, best = len(self.W), list[RefitBall](), 0.0
        radii = (np.geomspace(NEAREST, FARTHEST, COUNT) / float(np.median(self.norms))).tolist()
        for radius in radii:
            ball, grown = self._ball(radius)
            if grown < 0.9 * best:
                break
            found, best = [*found, ball], max(best, grown)
        each = len(self.m) * width**2 + 1000 * width**3
        for _ in range(int(np.clip(np.log2(WORK / (COUNT * each)), 0, HALVINGS))):  # where it is cheap, closer radii
            pairs = [(a, b) for a, b in pairwise(found) if a.changes < b.changes]
            found += [self._ball(math.sqrt(a.radius * b.radius))[0] for a, b in pairs]
            found.sort(key=lambda ball: ball.radius)
        most = np.maximum.accumulate([0, *(ball.changes for ball in found)])
        return [ball for ball, before in zip(found, most, strict=False) if ball.changes > before]

    def _ball(self, radius: float) -> tuple[RefitBall, float]:
        """The most changes whose refits lie within a radius, and how much the gradient grows up to it at least."""
        flat = self._flattest(radius)
        gram, error = self.gram(flat)
        matrix, error = gram + self.ridge, error + self.ridge_off
        grown = radius * least_eigenvalue(matrix, error)
        # rounding of a difference is a part of its terms
        room = grown - self.start - 4 * UNIT * (abs(grown) + self.start)
        if self.kind == "added":
            return RefitBall(radius, _below(room / self._cost_of_added(radius))), grown
        return self._largest(radius, flat, room, matrix, error), grown

    def _cost_of_added(self, radius: float) -> float:
        """The most that an added row can take from the gradient's growth."""
        if not self.reach:
            return 0.0
        most = 1.0
        if not self.problem.logistic:  # by the largest magnitude of a score at the centre
            points, starts = self.added.points
            scores = np.abs(points @ self.theta) + gamma(len(self.theta)) * (np.abs(points) @ np.abs(self.theta))
            most = float(np.maximum.reduceat(scores, starts).sum()) * self.wide + self.reach * radius + 1.0
        return self.added.weight * most * self.reach * (1 + 1e-13)

    def _largest(self, radius: float, flat: Floats, room: float, matrix: Floats, error: float) -> RefitBall:
        """The most changes whose refits lie within a radius, by a sum of the largest costs or a quadratic bound."""
        # per row the most that its change can take from the gradient's growth, without its norm
        b, extra = np.maximum(*self.effects(radius)[:2]), self._cost_of_added(radius)
        if self.kind != "relabelled":
            residual = self.problem.weights * np.abs(self.problem.residuals(self.m)) * (1 + 2 * self.relative)
            residual += 0.0 if self.problem.logistic else self.problem.weights * (self.off + RELATIVE * np.abs(self.m))
            b = np.minimum(b, (residual + flat * self._widths(radius)) * (1 + 4 * UNIT))
        costs = b * self.norms * (1 + 8 * UNIT)
        order = np.argsort(-costs, kind="stable")
        b, costs = b[order], costs[order]
        sums = costs.cumsum() * (1 + gamma(len(costs) + 2)) + extra * np.arange(1, len(costs) + 1) * (1 + 1e-13)
        best = RefitBall(radius, int(np.searchsorted(sums, room)))
        seed, rounded = max(1, best.changes), 4 * UNIT * radius * float(np.linalg.norm(matrix))
        for many in (many for many in THRESHOLDS if many * seed < len(costs)):
            tau = float(costs[many * seed])
            if not tau > 0:
                break
            above = costs[: many * seed]
            # (a - tau)_+ is at most this times a^2 for every a up to the row's cost
            quadratic = np.where(above < 2 * tau, (above - tau) / above**2, 1 / (4 * tau)) * (1 + 1e-14)
            for part in SPARED:
                spared = round(part * seed)
                whole = float((above[:spared] - tau).sum()) * (1 + gamma(spared + 2))
                if room - whole <= (best.changes + 1) * (tau + extra):  # what is taken off makes it no better
                    continue
                taken, more = self.gram(quadratic[spared:] * b[spared : many * seed] ** 2, order[spared : many * seed])
                off = radius * error + more + rounded + 4 * UNIT * float(np.linalg.norm(taken))
                least = least_eigenvalue(radius * matrix - taken, off)
                left = least - self.start - whole - 8 * UNIT * (abs(least) + self.start + whole)
                changes = min(_below(left / (tau + extra)), len(costs))
                if changes > best.changes:
                    best = RefitBall(radius, changes, tau, spared)
        return best

    def curve(self, u: Floats, ball: RefitBall) -> Floats:
        """Lower bounds on ``u @ theta`` over every refit after at most 0, 1, ... changes, up to those of the ball."""
        v, radius, effects = self.W @ u, ball.radius, self.effects(ball.radius)
        off = gamma(len(v)) * float(np.linalg.norm(np.abs(self.W) @ np.abs(u))) * self.wide
        length = (float(np.linalg.norm(v)) + off) * self.wide
        a = self.zt @ v
        a_off = (gamma(len(v)) * self.norms + self.zt_off) * length
        score, score_off = float(u @ self.theta), gamma(len(u) + 1) * float(np.abs(u) @ np.abs(self.theta)) * self.wide
        bend = 0.0
        if self.problem.logistic:
            # what bends upwards helps; rounding of the effects is charged at the largest bend, 0.0963
            bends = np.where(a > 0, a * effects.convex, -a * effects.concave)
            bent, error = self.gram(bends + (0.1 * a_off + 8 * UNIT * np.abs(a)) * self.problem.weights)
            bend = 0.5 * radius**2 * max(0.0, -least_eigenvalue(-bent, error))
        fixed = self.start * length + radius * (self.gap * length + off) + bend
        falls = np.arange(1.0, ball.changes + 1) * (self.worst_added(v, radius)[0] if self.reach else 0.0)
        if self.kind != "added":
            harms = np.maximum((a + a_off) * effects.up, (a_off - a) * effects.down)
            top = -np.sort(-np.partition(harms, len(harms) - ball.changes)[len(harms) - ball.changes :])
            falls = falls + top.cumsum() * (1 + gamma(ball.changes + 2))
        falls = np.concatenate([[0.0], falls])
        return np.asarray(score - score_off - (fixed + falls) * (1 + 1e-13) - 8 * UNIT * abs(score))

    def largest(self, u: Floats, offset: float) -> tuple[int, float, RefitBall | None]:
        """The most changes after which every refit scores above `offset`, the bound then, and the ball of it."""

        def here(i: int) -> tuple[int, float]:
            curve = self.curve(u, self.balls[i]) - offset - 4 * UNIT * abs(offset)
            below = np.flatnonzero(~(curve > 0))
            most = int(below[0]) - 1 if len(below) else len(curve) - 1
            return most, float(curve[max(most, 0)])

        low, high = -1, len(self.balls)  # the score at the changes of a ball falls from ball to ball
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if here(middle)[0] == self.balls[middle].changes else (low, middle)
        found = [(*here(i), self.balls[i]) for i in (low, low + 1) if 0 <= i < len(self.balls)]
        return max(found, key=lambda answer: answer[0], default=(0, -math.inf, None))

    def at(self, u: Floats, offset: float, changes: int) -> tuple[float, RefitBall | None]:
        """A lower bound on ``u @ theta - offset`` after so many changes, and the ball of it; none beyond all balls."""
        for ball in self.balls:
            if ball.changes >= changes:
                return float(self.curve(u, ball)[changes] - offset - 4 * UNIT * abs(offset)), ball
        return -math.inf, None

    def cut(self, u: Floats, changes: int, ball: RefitBall) -> Floats:
        """A vector G with about ``G @ u`` for the bound at u, and no more than ``G @ x`` at any x: it is concave."""
        v, radius, effects = self.W @ u, ball.radius, self.effects(ball.radius)
        a = self.zt @ v
        slopes = np.where(a > 0, effects.up, -effects.down)
        fall = (self.start + radius * self.gap) * v / max(float(np.linalg.norm(v)), 1e-300)
        if self.kind != "added":
            top = np.argsort(-a * slopes, kind="stable")[:changes]
            fall = fall + slopes[top] @ self.zt[top]
        if self.problem.logistic:
            bends = np.where(a > 0, effects.convex, -effects.concave)
            values, vectors = np.linalg.eigh(self.gram(a * bends)[0])
            weight = 0.5 * radius**2 if values[-1] > 0 else 0.0
            fall = fall + weight * (bends * (self.zt @ vectors[:, -1]) ** 2) @ self.zt
        if self.reach:
            _, _, label, row = self.worst_added(v, radius)
            sign = -1.0 if label == 1 else 1.0
            place = np.array(sign * float(row @ self.theta) + self.reach * radius)
            residual = sign * self.added.weight * float(expit(place) if self.problem.logistic else place + 1.0)
            fall = fall + changes * residual * (self.W @ row)
        return np.asarray(self.theta - self.W.T @ fall)

    def _reach_of_added(self) -> float:
        """An upper bound on the norm of whitened rows that may be added: pair by pair of groups the largest product."""
        points, starts = self.added.points
        white = points @ self.W.T
        products = white @ white.T
        pairs = np.maximum.reduceat(np.maximum.reduceat(products, starts, axis=0), starts, axis=1)
        # within a group a row takes one point; on a box the square is convex, so that it is largest at an end
        np.fill_diagonal(pairs, np.maximum.reduceat(np.diag(products), starts))
        sizes = np.linalg.norm(np.abs(points) @ np.abs(self.W).T, axis=1)
        error = gamma(8 * len(self.W) + 16 + pairs.size) * float(np.maximum.reduceat(sizes, starts).sum()) ** 2
        return math.sqrt(max(0.0, float(pairs.sum())) + error) * self.wide

    def worst_added(self, v: Floats, radius: float) -> tuple[float, Floats, float, Floats]:
        """The most an added row can take from a score; about the worst row, its label, and a mix that takes as much."""
        points, _ = self.added.points
        white = points @ self.W.T
        scores, effects = points @ self.theta, white @ v
        # rounding of both numbers of each point, and of the sums along the polygon: rows are sums of one per group
        error = gamma(8 * len(points) + 8)
        off = error * (np.abs(points) @ np.abs(self.theta)), error * (np.abs(points) @ np.abs(self.W).T @ np.abs(v))
        wide = float(off[0].sum()), float(off[1].sum())
        found = []
        for sign in (1.0, -1.0):  # a row of class 0 takes where its effect is positive, one of class 1 where negative
            most, row, mixed = self._most_along(sign * scores, sign * effects, self.reach * radius + wide[0], wide[1])
            label = (0.0 if self.problem.logistic else -1.0) if sign > 0 else 1.0
            found.append((most * self.added.weight * (1 + 1e-12), row, label, mixed))
        return max(found, key=lambda worst: worst[0])

    def _most_along(self, scores: Floats, effects: Floats, wide: float, off: float) -> tuple[float, Floats, Floats]:
        """An upper bound on effect times residual over added rows, a row that comes close, and a closer mix."""
        # in the plane of scores and effects the rows fill a polygon, a sum of one per group. Residuals grow with the
        # score, so the upper side of it counts: its edges, by falling slope, start at the least score
        points, starts = self.added.points
        at, edges = np.zeros(points.shape[1]), list[tuple[float, float, float, Floats]]()
        s, e = 0.0, 0.0
        for group in np.split(np.arange(len(points)), starts[1:]):
            hull = _upper_side(scores[group], effects[group])
            first = group[hull[0]]
            s, e, at = s + float(scores[first]), e + float(effects[first]), at + points[first]
            for i, j in zip(group[hull[:-1]], group[hull[1:]], strict=True):
                run, rise = float(scores[j] - scores[i]), float(effects[j] - effects[i])
                edges.append((rise / run, run, rise, points[j] - points[i]))
        best, tall, row, taller, mixed = 0.0, 0.0, at, 0.0, at
        parts = np.linspace(0.0, 1.0, PIECES + 1)
        for slanted, run, rise, step in [(0.0, 0.0, 0.0, np.zeros_like(at)), *sorted(edges, key=lambda edge: -edge[0])]:
            heights, places = e + parts * rise + off, s + parts * run + wide
            grown = expit(places) if self.problem.logistic else np.maximum(places + 1.0, 0.0)
            box = np.maximum(np.maximum(heights[:-1], heights[1:]), 0.0) * grown[1:]
            if self.problem.logistic:  # its logarithm is concave, so a piece lies below the tangent in its middle
                height, place = 0.5 * (heights[1:] + heights[:-1]), 0.5 * (places[1:] + places[:-1])
                with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                    tilt = np.abs(slanted / height + expit(-place)) * (run / PIECES / 2)
                    tangent = np.where(height > 0, height * expit(place) * np.exp(tilt), np.inf)
                box = np.minimum(box, np.nan_to_num(tangent, nan=np.inf))
            top = int((heights * grown).argmax())
            if heights[top] * grown[top] > taller:
                taller, mixed = float(heights[top] * grown[top]), at + parts[top] * step
            best, at = max(best, float(box.max())), at + step
            if heights[-1] * grown[-1] > tall:  # a corner is a row whatever the groups are
                tall, row = float(heights[-1] * grown[-1]), at
            s, e = s + run, e + rise
        return best * (1 + 1e-12), row, mixed


@dataclass(frozen=True, eq=False)
class BreakingChange:
    """A change of the data, and a refit on it that breaks a row: which rows change, and what is added, as often."""

    theta: Floats
    rows: Indices
    added: Floats | None
    label: float

    def applied(self, bounds: RefitScores, count: int) -> FitProblem:
        """The problem on the changed data."""
        problem, relabels = bounds.problem, bounds.kind == "relabelled"
        if len(self.rows):
            problem = problem.relabelled(self.rows) if relabels else problem.without(self.rows)
        weight = bounds.added.weight
        return problem if self.added is None else problem.with_copies(self.added, self.label, weight, count)

    def breaks(self, bounds: RefitScores, u: Floats, offset: float, count: int) -> bool:
        """Whether it is a refit of the set, and scores below the offset for sure."""
        score, off = float(u @ self.theta), gamma(len(u) + 2) * float(np.abs(u) @ np.abs(self.theta) + abs(offset))
        fits = len(self.rows) <= count and len(set(self.rows.tolist())) == len(self.rows)
        fits = fits and (self.added is None or bool(bounds.added.contain(self.added[None, :-1])[0]))
        if not fits or not score < offset - off:
            return False
        return bounds.dual_norm(self.applied(bounds, count), self.theta) <= bounds.tolerance


def breaking_change(bounds: RefitScores, u: Floats, offset: float, count: int) -> BreakingChange | None:
    """Look for `count` changes after which the refit scores a row below the offset: greedily, and once more there."""
    theta, added, label = bounds.theta, None, 0.0
    if bounds.kind in ("added", "replaced"):
        _, added, label, _ = bounds.worst_added(bounds.W @ u, 0.0)
        added = bounds.added.snapped(added)
    for _ in range(1 if bounds.kind == "added" else 2):
        rows = np.empty(0, dtype=np.intp)
        if bounds.kind != "added":
            effects = _influences(bounds, theta, u)
            rows = np.argsort(effects, kind="stable")[:count]
            rows = rows[effects[rows] < 0]
        found = BreakingChange(theta, rows, added, label)
        theta = found.applied(bounds, count).minimiser(start=theta, enough=1e-3 * bounds.tolerance)
        found = BreakingChange(theta, rows, added, label)
        if found.breaks(bounds, u, offset, count):
            return found
    return None


def least_breaking(
    bounds: RefitScores, u: Floats, offset: float, above: int, limit: int
) -> tuple[int, BreakingChange] | None:
    """The smallest number of changes above one, up to a limit, that an attack is known to break a row with."""
    spare = float(u @ bounds.theta) - offset
    if bounds.kind == "added":
        each = bounds.worst_added(bounds.W @ u, 0.0)[0]
        guess = spare / each if each > 0 else limit
    else:
        fallen = np.cumsum(np.sort(_influences(bounds, bounds.theta, u)))
        guess = float(np.searchsorted(-fallen, spare)) + 1
    low, count = above, int(min(max(above + 1, guess), limit))
    best: tuple[int, BreakingChange] | None = None
    while low < count <= limit:
        found = breaking_change(bounds, u, offset, count)
        best = best if found is None else (count, found)
        low = count if found is None else low
        further = min(limit, count + max(1, count // 2)) if best is None else (low + best[0]) // 2
        if further in (count, low) and (best is None or best[0] - low <= 1 or further == low):
            break
        count = further
    return best


def _influences(bounds: RefitScores, theta: Floats, u: Floats) -> Floats:
    """About how much each row's change alone adds to a score, after a refit: its gradient, divided by 1 - leverage."""
    problem, m = bounds.problem, bounds.problem.Z @ theta
    a = problem.Z @ np.linalg.lstsq(problem.hessian(theta), u, rcond=None)[0]
    own = problem.weights * problem.residuals(m)
    if bounds.kind == "relabelled":
        turned = problem.turned * replace(problem, y=problem.other).residuals(m)
        return np.asarray(a * (own - turned))
    return np.asarray(a * own / np.maximum(1 - problem.curvatures(m) * bounds.norms**2, 0.05))


def _below(value: float) -> int:
    """The largest whole number of at least 0 that lies below a value for sure."""
    return max(0, math.ceil(min(value * (1 - 1e-13), 1e9)) - 1) if value > 0 else 0


def _upper_side(x: Floats, y: Floats) -> Indices:
    """Positions of the corners of the upper side of some points of a plane, from left to right."""
    kept = list[int]()
    for i in np.lexsort((-y, x)).tolist():
        if kept and x[i] == x[kept[-1]]:
            continue
        while len(kept) > 1:
            a, b = kept[-2:]
            # whether the way from a to here passes above b, or through it
            if not (x[b] - x[a]) * (y[i] - y[a]) >= (x[i] - x[a]) * (y[b] - y[a]):
                break
            kept.pop()
        kept.append(i)
    return np.array(kept)
