"""Attacks: projected gradient descent from many starts, over pushes of hidden units in a box, else over parameters.

A push of -1 puts the parameters of a unit where its pre-activation is least, 1 where it is largest. Nothing found here
is believed. A row does not depend on others: all share the starts, and every batch has a shape of its own.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from apas._typing import Array, Bools, Floats, Indices, Integers
from apas.models.base import Capability, Differentiable, Parameters
from apas.models.feedforward import FeedForward
from apas.models.forward import activate, by_units, derivative, lowest, shape_of
from apas.shifts.base import Box
from apas.worst_case.intervals import MovingLayer, moving_layers, output_signs, output_terms, rivals
from apas.worst_case.linear import Objective, Relaxation

TURNS = 8  # times that all pushes are turned against the gradient


class _PushedLayers:
    """Layers whose units are pushed, forward and backward; `scale` multiplies how far their parameters move."""

    def __init__(self, layers: list[MovingLayer], names: tuple[str, ...], X: Floats, scale: Floats | float) -> None:
        self.layers, self.names, self.scale = layers, names, scale
        self.first = self._ranges(0, X)  # which depends neither on pushes nor on the scale

    def _ranges(self, layer: int, a: Floats) -> tuple[Floats, Floats]:
        """Middle and half width of what the pre-activations of a layer reach from `a`, for a scale of 1."""
        moving = self.layers[layer]
        return a @ moving.middle + moving.bias, moving.spread(np.abs(a))

    def _reached_ranges(self, layer: int, a: Floats) -> tuple[Floats, Floats]:
        middle, spread = self.first if layer == 0 else self._ranges(layer, a)
        return middle, self.scale * spread

    def _back(self, layer: int, a: Floats, g: Floats, pushes: Floats) -> Floats:
        """Gradient by what enters a layer, from that by the pre-activations of its units."""
        spread = self.layers[layer].spread_back(g * pushes)
        g = g @ self.layers[layer].middle.T
        g += self.scale * np.sign(a) * spread
        return g


class RivalPushes(_PushedLayers):
    """Rows, each against one rival, on networks of which all hidden units are pushed."""

    def __init__(self, relaxation: Relaxation, X: Floats, objective: Objective) -> None:
        super().__init__(relaxation.layers, relaxation.net.activations, X, 1.0)
        self.X, self.objective = X, objective

    def take(self, items: Indices) -> Self:
        """The same for some of the items."""
        some = copy(self)
        some.X, some.objective = self.X[items], self.objective.take(items)
        some.first = self.first[0][items], self.first[1][items]
        return some

    def margins(self, pushes: list[Floats]) -> tuple[Floats, list[Floats]]:
        """Margins, one per item, and all pre-activations; `pushes` holds one (items, units) array per layer."""
        a, arguments = self.X, []
        for i, (name, push) in enumerate(zip(self.names, pushes, strict=True)):
            middle, spread = self._reached_ranges(i, a)
            arguments.append(middle + push * spread)
            a = activate(name, arguments[-1].copy())
        goal = self.objective
        return (goal.lin * a - goal.rho * np.abs(a)).sum(axis=1) + goal.const, arguments

    def slopes(self, pushes: list[Floats], arguments: list[Floats]) -> list[Floats]:
        """Gradient of each margin by all pre-activations."""
        found: list[Floats] = []
        for i in range(len(self.names) - 1, -1, -1):
            a = activate(self.names[i], arguments[i].copy())
            if i == len(self.names) - 1:
                c = self.objective.lin - self.objective.rho * np.sign(a)
            else:
                c = self._back(i + 1, a, found[-1], pushes[i + 1])
            found.append(c * derivative(self.names[i], arguments[i]))
        return found[::-1]

    def improve(self, pushes: list[Floats], enough: Floats | float = -np.inf) -> tuple[Floats, list[Floats]]:
        """Turn all pushes against the gradient while that lowers the margin and it is not below `enough`."""
        least, arguments = self.margins(pushes)
        going = (least >= enough)[:, None]  # an item whose margin does not fall any more stays where it is
        best = pushes
        for _ in range(TURNS):
            if not going.any():
                break
            slopes = self.slopes(pushes, arguments)
            pushes = [np.where(going & (s != 0), -np.sign(s), p) for s, p in zip(slopes, pushes, strict=True)]
            margins, arguments = self.margins(pushes)
            going &= (margins < least)[:, None]
            least = np.where(going[:, 0], margins, least)
            best = [np.where(going, new, kept) for new, kept in zip(pushes, best, strict=True)]
            going &= (least >= enough)[:, None]
        return least, best

    def turn(self) -> tuple[Floats, list[Floats]]:
        """Push every unit against the gradient on the network itself: margins, and pushes."""
        still = [np.zeros((len(self.X), len(layer.bias))) for layer in self.layers[:-1]]
        pushes = [-np.sign(slope) for slope in self.slopes(still, self.margins(still)[1])]
        return self.margins(pushes)[0], pushes

    def towards(self, activations: list[Floats]) -> list[Floats]:
        """Pushes (items, units) per layer that bring piecewise linear units as near as they can get to activations."""
        # where an activation does not tell its pre-activation, the farthest one is taken
        pushes, a = [], self.X
        for i, (name, wish) in enumerate(zip(self.names, activations, strict=True)):
            middle, spread = self._ranges(i, a)
            argument = _argument(name, wish)
            push = np.clip(np.divide(argument - middle, spread, out=np.zeros_like(middle), where=spread > 0), -1.0, 1.0)
            push = np.where(np.isinf(argument), np.sign(argument), push)
            pushes.append(push)
            a = activate(name, middle + push * spread)
        return pushes


@by_units
def _argument(name: str, wish: Floats) -> Floats:
    """Pre-activations of piecewise linear units with given activations; infinite where any far enough will do."""
    kind, numbers = shape_of(name)
    if kind == "leaky_relu":
        below = np.divide(wish, numbers[0], out=np.full_like(wish, -np.inf), where=numbers[0] > 0)
        return np.where((wish < 0) | (numbers[0] == 0) & (wish <= 0), below, wish)
    if kind == "clip":
        return np.where(wish <= numbers[0], -np.inf, np.where(wish >= numbers[1], np.inf, wish))
    return wish


def pushed_parameters(relaxation: Relaxation, x: Floats, pushes: list[Floats], wanted: int, rival: int) -> Floats:
    """Direction in the unit box, shape (k,), that pushes the units of one row so, its score down and the rival's up."""
    inputs, net = [x], relaxation.net
    for layer, name, push in zip(relaxation.layers, net.activations, pushes, strict=False):
        a = inputs[-1]
        z = a @ layer.middle + layer.bias + push * (np.abs(a) @ layer.reach + layer.bias_reach)
        inputs.append(activate(name, z))
    # 0.0 minus: a mere minus sign would make -0.0 of outputs that are not pushed
    output = np.asarray(0.0 - output_signs(net, np.array([wanted]), np.array([rival]))[0])
    return joint_direction(inputs, [*pushes, output])


def joint_direction(inputs: list[Floats], pushes: list[Floats]) -> Floats:
    """The direction of all parameters that pushes the units of each layer so, given what enters it."""
    layers = zip(inputs, pushes, strict=True)
    return np.concatenate([part for a, push in layers for part in ((np.sign(a)[:, None] * push).ravel(), push)])


class UnitPushes(_PushedLayers):
    """Least margins of rows, each a batch and a box of its own, with all but the last hidden layer pushed as told."""

    def __init__(self, net: FeedForward, X: Floats, wanted: Indices, radii: Floats, delta: Floats) -> None:
        self.net, self.X, self.wanted, self.radii = net, X, wanted, radii
        reach = net.parameters.split(radii)
        ends = np.cumsum([0, *(len(b) for b in net.biases[: max(0, len(net.activations) - 1)])]).tolist()
        self.parts, self.size = [slice(*ends_of) for ends_of in pairwise(ends)], ends[-1]  # how many units are pushed
        self.outputs = [output_terms(net, reach, wanted, rival) for rival in rivals(net, wanted).T]
        super().__init__(moving_layers(net, radii), net.activations, X[:, None, :], 1.0)
        self.delta, self.scale = delta, delta[:, None, None]

    def take(self, rows: Indices) -> Self:
        """The same for some of the rows."""
        some = self.at(self.delta[rows])
        some.X, some.wanted = self.X[rows], self.wanted[rows]
        some.outputs = [(v[rows], v_reach[rows], b[rows], b_reach[rows]) for v, v_reach, b, b_reach in self.outputs]
        some.first = self.first[0][rows], self.first[1][rows]
        return some

    def at(self, delta: Floats) -> Self:
        """The same in boxes of other sizes."""
        other = copy(self)
        other.delta, other.scale = delta, delta[:, None, None]
        return other

    def margins(self, points: Floats) -> Floats:
        """Margins (rows, points) on the pushes (rows, points, units)."""
        a = self.X[:, None, :]
        for i, part in enumerate(self.parts):
            middle, spread = self._reached_ranges(i, a)
            a = activate(self.names[i], middle + points[..., part] * spread)
        return np.broadcast_to(self._worst(a)[0], points.shape[:2])

    def gradients(self, points: Floats, softness: Floats | float = 0.0) -> tuple[Floats, Floats]:
        """Margins (rows, points) and their gradients (rows, points, units)."""
        # a unit that is switched off has no slope, and nothing would ever push it on: `softness`, one number or one per
        # point, is taken for slopes that are smaller
        a, kept = self.X[:, None, :], []
        soft = np.asarray(softness)[..., None]
        for i, part in enumerate(self.parts):
            name, push = self.names[i], points[..., part]
            middle, spread = self._reached_ranges(i, a)
            z = middle + push * spread
            kept.append((a, push, spread, _soften(derivative(name, z), soft)))
            a = activate(name, z)
        margins, pushes, weights = self._worst(a)
        gradients = np.empty(points.shape)
        if not self.parts:
            return np.broadcast_to(margins, points.shape[:2]), gradients
        last = len(self.parts)
        middle, spread = self._reached_ranges(last, a)
        slope = _soften(derivative(self.names[last], middle + pushes * spread), soft)
        g = self._back(last, a, weights * slope, pushes)
        for i in reversed(range(last)):
            before, push, spread, slope = kept[i]
            g *= slope
            gradients[..., self.parts[i]] = g * spread
            if i:
                g = self._back(i, before, g, push)
        return margins, gradients

    def direction(self, row: int, point: Floats) -> Floats:
        """The shift of one row, in [-1, 1] per parameter, that pushes its units so and the last ones worst."""
        alone = self.take(np.array([row]))
        inputs, pushes = [alone.X[:, None, :]], [point[part] for part in alone.parts]
        for i, push in enumerate(pushes):
            middle, spread = alone._reached_ranges(i, inputs[-1])
            inputs.append(activate(alone.names[i], middle + push * spread))
        a = inputs[-1]
        worst = int(np.argmin([alone._against(a, rival)[0][0, 0] for rival in range(len(alone.outputs))]))
        if alone.names:
            middle, spread = alone._reached_ranges(len(alone.parts), a)
            pushes.append(alone._against(a, worst)[1][0, 0])
            inputs.append(activate(alone.names[-1], middle + pushes[-1] * spread))
        rival = rivals(self.net, alone.wanted)[0, worst]
        return joint_direction([a[0, 0] for a in inputs], [*pushes, -output_signs(self.net, alone.wanted, rival)[0]])

    def _worst(self, a: Floats) -> tuple[Floats, Floats, Floats]:
        """Least margins, from what enters the last hidden layer; its pushes, and the output weights then at work."""
        margins, pushes, weights = self._against(a, 0)
        for rival in range(1, len(self.outputs)):
            other = self._against(a, rival)
            closer = other[0] < margins
            margins, closer = np.where(closer, other[0], margins), closer[..., None]
            pushes, weights = np.where(closer, other[1], pushes), np.where(closer, other[2], weights)
        return margins, pushes, weights

    def _against(self, a: Floats, rival: int) -> tuple[Floats, Floats, Floats]:
        """The same against one of the rivals of each row."""
        v, v_reach, bias, bias_reach = self.outputs[rival]
        v, v_reach = v[:, None, :], self.scale * v_reach[:, None, :]
        bias = (bias - self.delta * bias_reach)[:, None]
        if not self.names:
            return (a * v - np.abs(a) * v_reach).sum(axis=-1) + bias, a, v
        last = len(self.parts)
        name = self.names[last]
        middle, spread = self._reached_ranges(last, a)
        pushes: list[Floats | float] = [-1.0, 1.0]
        bottom = lowest(name)
        if bottom is not None:  # between its ends the activation can be lower than at either
            room = np.where(spread > 0, spread, np.inf)
            pushes.append(np.nan_to_num(np.clip((bottom - middle) / room, -1.0, 1.0)))
        reached = [activate(name, middle + push * spread) for push in pushes]
        terms = [h * v - np.abs(h) * v_reach for h in reached]
        least, push, h = terms[0], np.full_like(middle, -1.0), reached[0]
        for tried in list(zip(terms, pushes, reached, strict=True))[1:]:
            better = tried[0] < least
            least, push, h = (np.where(better, new, old) for new, old in zip(tried, (least, push, h), strict=True))
        return least.sum(axis=-1) + bias, push, v - np.sign(h) * v_reach


def _soften(slopes: Floats, soft: Floats) -> Floats:
    return np.where(np.abs(slopes) < soft, soft, slopes) if soft.any() else slopes


CLOSED, HALVINGS = 1e-6, 60  # relative width at which a bracket counts as closed, and how often it may be halved
TURNS_AT_BREAK = 6  # times that all pushes are turned against the gradient


def broken_radius(
    net: FeedForward, X: Floats, wanted: Indices, radii: Floats, proved: Floats, limit: float
) -> tuple[Floats, Floats]:
    """Per row a delta above `proved` with a failing shift, as small as found, and its direction of the unit box."""
    units = UnitPushes(net, X, wanted, radii, np.ones(len(X)))
    points = np.zeros((len(X), units.size))
    low, high = proved.copy(), np.minimum(np.maximum(2 * proved, 1e-3 * limit), limit)
    fails, points = _turn_pushes(units, points, high)
    while (~fails & (high < limit)).any():  # larger and larger until it breaks
        low, high = np.where(fails, low, high), np.where(fails, high, np.minimum(4 * high, limit))
        fails, points = _turn_pushes(units, points, high)
    broken, kept = np.where(fails, high, np.inf), points.copy()
    for _ in range(HALVINGS):
        wide = fails & (broken - low > CLOSED * broken)
        if not wide.any():
            break
        middle = np.where(wide, 0.5 * (low + np.where(fails, broken, low)), high)
        now, points = _turn_pushes(units, points, middle)
        broken, low = np.where(wide & now, middle, broken), np.where(wide & ~now, middle, low)
        kept[wide & now] = points[wide & now]
    at = units.at(np.where(fails, broken, limit))
    directions = np.zeros((len(X), len(radii)))
    for row in np.flatnonzero(fails).tolist():
        directions[row] = at.direction(row, kept[row])
    return broken, directions


def _turn_pushes(units: UnitPushes, points: Floats, delta: Floats) -> tuple[Bools, Floats]:
    """Turn the pushes against the gradient again and again: whether each row breaks, and the worst pushes found."""
    at = units.at(delta)
    # from the pushes given and, in case these lead into a corner, from none
    current = np.stack([points, np.zeros_like(points)], axis=1)
    least, best = np.full(len(points), np.inf), points
    for _ in range(TURNS_AT_BREAK):
        margins, gradients = at.gradients(current)
        worst = margins.argmin(axis=1)
        now = np.take_along_axis(margins, worst[:, None], axis=1)[:, 0]
        better = now < least
        best = np.where(better[:, None], current[np.arange(len(points)), worst], best)
        least = np.where(better, now, least)
        if not better.any() or not units.size:
            break
        current = np.where(gradients != 0, -np.sign(gradients), current)
    return least < 0, best


class ParameterMoves:
    """Margins of rows while the parameters move by ``delta * point``."""

    def __init__(self, model: Differentiable, X: Floats, target: Array, moving: Bools, delta: Floats) -> None:
        self.model, self.X, self.target, self.moving, self.delta = model, X, target, moving, delta
        self.size = len(moving)

    def take(self, rows: Indices) -> Self:
        """The same for some of the rows."""
        return type(self)(self.model, self.X[rows], self.target[rows], self.moving, self.delta[rows])

    def at(self, delta: Floats) -> Self:
        """The same with moves of other sizes."""
        return type(self)(self.model, self.X, self.target, self.moving, delta)

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


Moves = UnitPushes | ParameterMoves
Draw = Callable[[int, int], Floats]  # draws unit points number `start` to `stop`
BLOCK = 1 << 17  # how many coordinates of points are held at a time
#: Full steps from the centre before anything else is tried: they break most of the rows that can be broken at all.
JUMPS = 8
#: Up to this many coordinates each is tried by itself at the end, this many times, this many at once.
COORDINATES, PASSES, TOGETHER = 512, 4, 32
#: Slopes that switched-off units are taken to have, turn by turn, for this share of the steps.
SOFTNESS, SOFT_SHARE = (0.1, 0.05, 0.2, 0.3, 0.0), 0.6


class ConvexSet(Capability, Protocol):
    """A convex set of shifts around 0, and what a descent inside it needs."""

    def project(self, moves: Floats, delta: ArrayLike) -> Floats:
        """Rows of changes (rows, k) pulled into the set of size `delta`, up to rounding."""

    def steepest(self, gradients: Floats) -> Floats:
        """Per row of gradients (rows, k) the point u of the unit set with the least ``gradient @ u``."""

    def pull_inside(self, base: Parameters, values: Floats, delta: ArrayLike) -> Floats:
        """Parameters brought inside the set of size `delta` around `base`, without tolerance."""


@dataclass(frozen=True)
class LeastMargins:
    """The least margins that were found."""

    margins: Floats
    points: Floats
    used: Integers

    def note(self, rows: Indices, margins: Floats, points: Floats) -> None:
        """Keep the least of some new margins (rows, points) where it is less than what is known; NaN never is."""
        self.used[rows] += margins.shape[1]
        best = np.where(np.isnan(margins), np.inf, margins).argmin(axis=1)
        least = np.take_along_axis(margins, best[:, None], axis=1)[:, 0]
        better = np.flatnonzero(least < self.margins[rows])
        self.margins[rows[better]] = least[better]
        self.points[rows[better]] = points[better, best[better]]


def search(
    moves: Moves, ball: ConvexSet, draw: Draw, goal: Floats, *, restarts: int, steps: int, warm: Floats | None = None
) -> LeastMargins:
    """Look for points of the unit ball with margins below `goal`."""
    rows, size = len(goal), moves.size
    found = LeastMargins(np.full(rows, np.inf), np.zeros((rows, size)), np.zeros(rows, dtype=np.int64))
    if size == 0:  # everything is known in closed form
        found.note(np.arange(rows), moves.margins(np.zeros((rows, 1, 0))), np.zeros((rows, 1, 0)))
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
            _descend(moves.take(some), ball, found, goal, some, batch, steps if last else -min(steps, JUMPS))
    if isinstance(ball, Box) and size <= COORDINATES:
        for some in _blocks(np.flatnonzero(found.margins >= goal), together * size):
            _one_by_one(moves, ball, found, goal, some)
    return found


def _blocks(rows: Indices, size: int) -> list[Indices]:
    step = max(1, BLOCK // size)
    return [rows[start : start + step] for start in range(0, len(rows), step)]


def _descend(
    part: Any, ball: ConvexSet, found: LeastMargins, goal: Floats, rows: Indices, points: Floats, steps: int
) -> None:
    """Steps against the gradient, ever smaller ones; a negative number of them: full ones, from corner to corner."""
    jump = steps < 0
    soft = np.resize(SOFTNESS, points.shape[1])
    for step in range(abs(steps) + 1):
        share = step / (abs(steps) + 1)
        margins, gradients = part.gradients(points, soft * (share < SOFT_SHARE))
        found.note(rows, margins, points)
        # ever smaller steps; the last one goes all the way, since the least margin is mostly at a corner
        # against the gradient, cut off at the surface; or to the point that is best if the slopes stay
        best = ball.steepest(np.nan_to_num(gradients.reshape(-1, gradients.shape[-1])))
        if not jump and step != abs(steps) - 1:
            best = ball.project(points.reshape(best.shape) + 0.5 * (1 - share) * best, 1.0)
        following = np.asarray(best.reshape(points.shape))
        still = found.margins[rows] >= goal[rows]
        if jump:  # a corner that leads to itself leads nowhere else
            still &= (following != points).any(axis=(1, 2))
        points = following
        if not still.all():
            if not still.any():
                return
            keep = np.flatnonzero(still)
            rows, points, part = rows[keep], points[keep], part.take(keep)


def _one_by_one(moves: Moves, ball: Box, found: LeastMargins, goal: Floats, rows: Indices) -> None:
    """Put single coordinates of the best points to their ends, and then as many of the helpful ones as help."""
    size = len(ball.radii)
    ends = np.concatenate([np.diag(-ball.radii), np.diag(ball.radii)])
    which = np.tile(np.eye(size, dtype=bool), (2, 1))
    for _ in range(PASSES):
        part, best = moves.take(rows), found.points[rows].copy()
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
