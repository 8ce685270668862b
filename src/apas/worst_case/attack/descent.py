"""Attack by projected gradient descent from many starts, for rows side by side, over a `Landscape` of margins.

Nothing found here is believed. A row does not depend on others: all share the random starts, every batch has a shape
fixed by the landscape, and a row leaves as soon as it is broken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from apas._typing import Array, Bools, Floats, Indices, Integers
from apas.models.base import Differentiable, Parameters
from apas.models.feedforward import FeedForward
from apas.shifts.base import Box

#: Draws unit points number `start` to `stop`.
Draw = Callable[[int, int], Floats]
#: How many coordinates of points are held at a time.
BLOCK = 1 << 17
#: Full steps from the centre before anything else is tried: they break most of the rows that can be broken at all.
JUMPS = 8
#: Up to this many coordinates each is tried by itself at the end, this many times, this many at once.
COORDINATES, PASSES, TOGETHER = 512, 4, 32
#: Slopes that switched-off units are taken to have, turn by turn, for this share of the steps.
SOFTNESS, SOFT_SHARE = (0.1, 0.05, 0.2, 0.3, 0.0), 0.6


@runtime_checkable
class ConvexSet(Protocol):
    """A convex set of shifts around 0, and what a descent inside it needs."""

    def project(self, moves: Floats, delta: ArrayLike) -> Floats:
        """Rows of changes (rows, k) pulled into the set of size `delta`, up to rounding."""

    def steepest(self, gradients: Floats) -> Floats:
        """Per row of gradients (rows, k) the point u of the unit set with the least ``gradient @ u``."""

    def pull_inside(self, base: Parameters, values: Floats, delta: ArrayLike) -> Floats:
        """Parameters brought inside the set of size `delta` around `base`, without tolerance."""


class Landscape(Protocol):
    """Margins of rows as a function of a point of the unit ball each."""

    @property
    def size(self) -> int:
        """How many coordinates a point has."""

    def take(self, rows: Indices) -> Any:
        """The same for some of the rows."""

    def margins(self, points: Floats) -> Floats:
        """Margins (rows, points) at the points (rows, points, size)."""

    def gradients(self, points: Floats, softness: Floats | float = 0.0) -> tuple[Floats, Floats]:
        """Margins (rows, points) and their gradients (rows, points, size)."""


@dataclass(frozen=True)
class LeastMargins:
    """The least margins that were found."""

    margins: Floats
    points: Floats
    used: Integers

    @classmethod
    def nothing(cls, rows: int, size: int) -> LeastMargins:
        """The centre, of which nothing is known yet."""
        return cls(np.full(rows, np.inf), np.zeros((rows, size)), np.zeros(rows, dtype=np.int64))

    def note(self, rows: Indices, margins: Floats, points: Floats) -> None:
        """Keep the least of some new margins (rows, points) where it is less than what is known; NaN never is."""
        self.used[rows] += margins.shape[1]
        best = np.where(np.isnan(margins), np.inf, margins).argmin(axis=1)
        least = np.take_along_axis(margins, best[:, None], axis=1)[:, 0]
        better = np.flatnonzero(least < self.margins[rows])
        self.margins[rows[better]] = least[better]
        self.points[rows[better]] = points[better, best[better]]


def search(
    landscape: Landscape,
    ball: ConvexSet,
    draw: Draw,
    goal: Floats,
    *,
    restarts: int,
    steps: int,
    warm: Floats | None = None,
) -> LeastMargins:
    """Look for points of the unit ball with margins below `goal`."""
    rows, size = len(goal), landscape.size
    found = LeastMargins.nothing(rows, size)
    if size == 0:  # everything is known in closed form
        found.note(np.arange(rows), landscape.margins(np.zeros((rows, 1, 0))), np.zeros((rows, 1, 0)))
        return found
    centre = np.zeros((rows, size)) if warm is None else warm
    together = max(1, min(restarts, BLOCK // size))
    starts = [(0, 0), *((first, min(first + together, restarts)) for first in range(0, restarts, together))]
    for first, last in starts:
        points = draw(first, max(last, first + 1)).copy()
        corners = np.arange(first, first + len(points)) % 2 == 0
        points[corners] = ball.steepest(-points[corners])
        for some in _blocks(np.flatnonzero(found.margins >= goal), max(1, last - first) * size):
            batch = np.broadcast_to(points, (len(some), *points.shape)).copy()
            if first == 0:
                batch = np.concatenate([centre[some, None, :], batch[:, 1:]], axis=1)
            _descend(landscape, ball, found, goal, some, batch, steps if last else -min(steps, JUMPS))
    if isinstance(ball, Box) and size <= COORDINATES:
        for some in _blocks(np.flatnonzero(found.margins >= goal), together * size):
            _one_by_one(landscape, ball, found, goal, some)
    return found


def _blocks(rows: Indices, size: int) -> list[Indices]:
    step = max(1, BLOCK // size)
    return [rows[start : start + step] for start in range(0, len(rows), step)]


def _descend(
    landscape: Landscape, ball: ConvexSet, found: LeastMargins, goal: Floats, rows: Indices, points: Floats, steps: int
) -> None:
    """Steps against the gradient, ever smaller ones; a negative number of them: full ones, from corner to corner."""
    part, jump = landscape.take(rows), steps < 0
    soft = np.resize(SOFTNESS, points.shape[1])
    for step in range(abs(steps) + 1):
        share = step / (abs(steps) + 1)
        margins, gradients = part.gradients(points, soft * (share < SOFT_SHARE))
        found.note(rows, margins, points)
        # ever smaller steps; the last one goes all the way, since the least margin is mostly at a corner
        following = _step(ball, points, gradients, 0.5 * (1 - share), jump=jump or step == abs(steps) - 1)
        still = found.margins[rows] >= goal[rows]
        if jump:  # a corner that leads to itself leads nowhere else
            still &= (following != points).any(axis=(1, 2))
        points = following
        if not still.all():
            if not still.any():
                return
            keep = np.flatnonzero(still)
            rows, points, part = rows[keep], points[keep], part.take(keep)


def _step(ball: ConvexSet, points: Floats, gradients: Floats, size: float, *, jump: bool) -> Floats:
    """A step against the gradient, cut off at the surface; or to the point that is best if the slopes stay."""
    flat = np.nan_to_num(gradients.reshape(-1, gradients.shape[-1]))
    best = ball.steepest(flat)
    moved = best if jump else ball.project(points.reshape(flat.shape) + size * best, 1.0)
    return np.asarray(moved.reshape(points.shape))


def _one_by_one(landscape: Landscape, ball: Box, found: LeastMargins, goal: Floats, rows: Indices) -> None:
    """Put single coordinates of the best points to their ends, and then as many of the helpful ones as help."""
    size = len(ball.radii)
    ends = np.concatenate([np.diag(-ball.radii), np.diag(ball.radii)])
    which = np.tile(np.eye(size, dtype=bool), (2, 1))
    for _ in range(PASSES):
        part, best = landscape.take(rows), found.points[rows].copy()
        before = found.margins[rows].copy()
        gains = np.empty((len(rows), 2 * size))
        for start in range(0, 2 * size, TOGETHER):
            some = slice(start, start + TOGETHER)
            tried = np.where(which[some], ends[some], best[:, None, :])
            margins = part.margins(tried)
            found.note(rows, margins, tried)
            gains[:, some] = margins - before[:, None]
        order = gains.argsort(axis=1)
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.broadcast_to(np.arange(2 * size), order.shape), axis=1)
        counts = 2 ** np.arange(1, 2 + int(np.log2(size)))
        take = (rank[:, None, :] < counts[:, None]) & (gains[:, None, :] < 0)
        down, up = take[..., :size], take[..., size:]
        tried = np.where(down, -ball.radii, np.where(up, ball.radii, best[:, None, :]))
        found.note(rows, part.margins(tried), tried)
        rows = rows[(found.margins[rows] < before) & (found.margins[rows] >= goal[rows])]
        if not len(rows):
            return


class ParameterMoves:
    """Margins of rows while the parameters move by ``delta * point``."""

    def __init__(self, model: Differentiable, X: Floats, target: Array, moving: Bools, delta: Floats) -> None:
        self.model, self.X, self.target, self.moving, self.delta = model, X, target, moving, delta

    @property
    def size(self) -> int:
        """How many parameters there are."""
        return len(self.moving)

    def take(self, rows: Indices) -> ParameterMoves:
        """The same for some of the rows."""
        return ParameterMoves(self.model, self.X[rows], self.target[rows], self.moving, self.delta[rows])

    def at(self, delta: Floats) -> ParameterMoves:
        """The same with moves of other sizes."""
        return ParameterMoves(self.model, self.X, self.target, self.moving, delta)

    def margins(self, points: Floats) -> Floats:
        """Margins (rows, points) at the points (rows, points, k)."""
        return self.gradients(points)[0]

    def gradients(self, points: Floats, softness: Floats | float = 0.0) -> tuple[Floats, Floats]:
        """Margins (rows, points) and gradients (rows, points, k) up to the factor delta; `softness` changes nothing."""
        if isinstance(self.model, FeedForward):  # whose answers do not depend on the batch
            return self._ask(points)
        alone = [self.take(np.array([i]))._ask(points[i : i + 1]) for i in range(len(points))]
        margins, gradients = zip(*alone, strict=True)
        return np.concatenate(margins), np.concatenate(gradients)

    def _ask(self, points: Floats) -> tuple[Floats, Floats]:
        rows, count, size = points.shape
        moves = (points * self.delta[:, None, None]).reshape(-1, size)
        same = all(label == self.target[0] for label in self.target)
        target = self.target[0] if same else np.repeat(self.target, count)
        margins, gradients = self.model.parameter_gradient(np.repeat(self.X, count, axis=0), target, moves)
        gradients = np.where(self.moving, gradients, 0.0)
        return np.asarray(margins).reshape(rows, count), gradients.reshape(rows, count, size)
