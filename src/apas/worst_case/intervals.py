"""Interval arithmetic through dense networks whose parameters move, and the largest delta that it proves.

Exact with at most one hidden layer, where no parameter is used twice. Rounding is bounded from the magnitudes behind
the sums and taken off, so that bounds hold in real arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from apas._typing import Floats, Indices
from apas.models import forward
from apas.models.feedforward import FeedForward


@forward.by_units
def derivative_range(name: str, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Least and largest derivative of an activation over ``[low, high]``; at a kink, everything between both sides."""
    kind, numbers = forward.shape_of(name)
    if name == "identity":
        return np.ones_like(low), np.ones_like(high)
    if kind == "leaky_relu":
        return np.where(low > 0, 1.0, numbers[0]), np.where(high < 0, numbers[0], 1.0)
    if kind == "clip":
        inside, outside = (low > numbers[0]) & (high < numbers[1]), (high < numbers[0]) | (low > numbers[1])
        return np.where(inside, 1.0, 0.0), np.where(outside, 0.0, 1.0)
    if name in ("tanh", "sigmoid"):  # 1 - tanh**2 falls with the distance from 0; sigmoid(z) = (1 + tanh(z / 2)) / 2
        scale, top = (1.0, 1.0) if name == "tanh" else (0.5, 0.25)
        nearest = np.maximum(np.maximum(scale * low, -(scale * high)), 0.0)
        farthest = np.maximum(-(scale * low), scale * high)
        return top * (1.0 - np.tanh(farthest) ** 2), top * (1.0 - np.tanh(nearest) ** 2)
    if kind == "softplus":
        return forward.derivative(name, low), forward.derivative(name, high)
    if kind == "elu":
        below = numbers[0] * np.exp(np.minimum(low, 0.0)), numbers[0] * np.exp(np.minimum(high, 0.0))
        least = np.where(high >= 0, np.minimum(below[0], 1.0), below[0])
        most = np.where(high >= 0, np.maximum(below[1], 1.0), below[1])
        return np.where(low > 0, 1.0, least), np.where(low > 0, 1.0, most)
    ends, turn = (_slope(name, low), _slope(name, high)), forward.BEND[name]
    bottom, top = _slope(name, np.array([-turn, turn])).tolist()
    least = np.where((low < -turn) & (high > -turn), bottom, np.minimum(*ends))
    return least, np.where((low < turn) & (high > turn), top, np.maximum(*ends))


def _slope(name: str, z: Floats) -> Floats:
    """Derivatives of gelu and its like; of gelu itself by a function that keeps its digits far below 0."""
    if name != "gelu":
        return np.asarray(forward.derivative(name, z))
    from scipy.special import ndtr

    return np.asarray(ndtr(z) + z * np.exp(-0.5 * z * z) * (2.0 * np.pi) ** -0.5)


def interval_product(a: tuple[Floats, Floats], b: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Ends of the product of two intervals: of the four products of ends, the least and the largest."""
    corners = [x * y for x in a for y in b]
    least, most = np.minimum(corners[0], corners[1]), np.maximum(corners[0], corners[1])
    for corner in corners[2:]:
        np.minimum(least, corner, out=least)
        np.maximum(most, corner, out=most)
    return least, most


@dataclass(frozen=True)
class MovingLayer:
    """A layer in a box of parameters: middle and reach of its weights (inputs, outputs) and biases."""

    # sums range from l(a) = a @ middle - abs(a) @ reach to u(a); over a box of a each term of l is least, of u largest,
    # at an end: both come from products of matrices split by sign, without looking at the terms one by one

    middle: Floats
    reach: Floats
    bias: Floats
    bias_reach: Floats

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """The least and the largest weights."""
        return self.middle - self.reach, self.middle + self.reach

    @cached_property
    def _split(self) -> tuple[Floats, ...]:
        """Both ends split by sign, stacked either way round for one product with [lower ends, upper ends] of inputs."""
        parts = [(np.maximum(end, 0.0), np.minimum(end, 0.0)) for end in self.ends]
        return tuple(np.vstack(pair) for up, down in parts for pair in ((up, down), (down, up)))

    def outer(self, low: Floats, high: Floats, *, positive: bool = False) -> tuple[Floats, Floats]:
        """Least l and largest u over the box of each row; `positive` promises that no end is below 0."""
        least_up, least_down, most_up, most_down = self._split
        if positive:
            ends = np.hstack([low, high])
            return ends @ least_up, ends @ most_down
        above, below = _by_sign(low, high)
        least, most = above @ least_up + below @ most_up, above @ most_down + below @ least_down
        self._separate(np.maximum(high, 0.0), np.maximum(-low, 0.0), least, most)
        return least, most

    def both(self, low: Floats, high: Floats, *, positive: bool = False) -> tuple[Floats, Floats, Floats, Floats]:
        """Least and largest l, least and largest u over the box of each row."""
        if positive:
            middle, spread = 0.5 * (low + high), 0.5 * (high - low)
            (down, down_spread), (up, up_spread) = ((middle @ end, spread @ np.abs(end)) for end in self.ends)
            return down - down_spread, down + down_spread, up - up_spread, up + up_spread
        least, most = self.outer(low, high)
        least_up, least_down, most_up, most_down = self._split
        above, below = _by_sign(low, high)
        return least, above @ least_down + below @ most_down, above @ most_up + below @ least_up, most

    def _separate(self, above: Floats, below: Floats, least: Floats, most: Floats) -> None:
        """Where both the weight and the activation can have either sign, two ends were added up: keep the worse one."""
        low, high = self.ends
        loose = (low < 0) & (high > 0)
        for i in np.flatnonzero(loose.any(axis=1) & (above.any(axis=0) & below.any(axis=0))):
            units = np.flatnonzero(loose[i])
            down, up = -low[i, units], high[i, units]
            least[:, units] += np.minimum(above[:, i, None] * down, below[:, i, None] * up)
            most[:, units] -= np.minimum(above[:, i, None] * up, below[:, i, None] * down)

    @cached_property
    def uniform(self) -> float | None:
        """The reach of all weights, if they share one, as they mostly do: a sum then replaces a matrix product."""
        first = float(self.reach.flat[0])
        return first if (self.reach == first).all() else None

    def spread(self, sizes: Floats) -> Floats:
        """How far pre-activations can move for inputs of such magnitudes: (items, outputs) or (items, 1)."""
        if self.uniform is not None:
            return np.asarray(self.uniform * sizes.sum(axis=-1, keepdims=True) + self.bias_reach)
        return np.asarray(sizes @ self.reach + self.bias_reach)

    def spread_back(self, sizes: Floats) -> Floats:
        """How much magnitudes at the outputs make of each input's: (items, inputs) or (items, 1)."""
        if self.uniform is not None:
            return np.asarray(self.uniform * sizes.sum(axis=-1, keepdims=True))
        return np.asarray(sizes @ self.reach.T)


def _by_sign(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Lower and upper ends next to each other: what of them is above 0, and what is below."""
    above, below = np.hstack([np.maximum(low, 0.0), np.maximum(high, 0.0)]), np.hstack([low, high])
    below -= above
    return above, below


PRODUCTS = 1 << 14  # how many products of activations and weights are held at a time: few enough for a cache
ROWS = 4096  # rows whose layers are held at a time
TINY = 2.0**-960  # added to magnitudes, so that a rounding allowance also covers products that underflow


def is_exact(net: FeedForward) -> bool:
    """Whether interval arithmetic gives the least margin itself: with at most one hidden layer."""
    return len(net.activations) <= 1


def rivals(net: FeedForward, wanted: Indices) -> Indices:
    """The classes that each row competes with, shape (rows, classes - 1); one dummy column for one output."""
    if net.weights[-1].shape[1] == 1:
        return np.zeros((len(wanted), 1), dtype=np.intp)
    others = np.arange(len(net.classes) - 1)
    return np.asarray(others + (others >= np.asarray(wanted)[:, None]), dtype=np.intp)


def output_signs(net: FeedForward, wanted: Indices, rival: Indices) -> Floats:
    """How each output enters the margin against one rival per row, (rows, outputs): 1 the wanted one, -1 the rival."""
    signs, rows = np.zeros((len(wanted), net.weights[-1].shape[1])), np.arange(len(wanted))
    if signs.shape[1] == 1:
        signs[:, 0] = np.where(wanted == 1, 1.0, -1.0)
    else:
        signs[rows, rival], signs[rows, wanted] = -1.0, 1.0
    return signs


def moving_layers(net: FeedForward, radii: Floats, delta: float = 1.0) -> list[MovingLayer]:
    """The layers of a network whose parameter i moves by at most ``delta * radii[i]``."""
    tensors = net.parameters.split(delta * radii)
    return [MovingLayer(*ends) for ends in zip(net.weights, tensors[::2], net.biases, tensors[1::2], strict=True)]


def magnitudes(net: FeedForward, reach: Any, X: Floats, delta: Floats) -> list[Floats]:
    """Per layer and row a bound on the magnitudes behind its values; the margin's, last, is at least its scale."""
    # the sum over a layer instead of each unit; `reach` is one number if all parameters share it: 0 if nothing moves
    x = np.abs(X)
    given: Any = x @ net.layer_sizes[0][0], x.sum(axis=1), delta
    if len(X) == 1:  # numbers of Python's instead of arrays of one number each: several times faster
        given = tuple(float(values[0]) for values in given)
    size, total, step = given
    sizes: list[Any] = []
    for i, (_, most, bias) in enumerate(net.layer_sizes):
        units = net.weights[i].shape[1]
        # how far weights move per input, over all outputs, and all biases together
        one = isinstance(reach, float)
        most_moved = reach if one else float(reach[2 * i].max())
        moved = reach * units if one else float(reach[2 * i + 1].sum())
        moving, biases = most_moved * units, bias + step * moved
        size = size + step * (total * moving) + biases if i == 0 else size * (most + step * moving) + biases
        if i:  # errors before it grow by as much as it is steep
            size = size * max(1.0, forward.steepest(net.activations[i - 1]))
        size = size + TINY
        if i < len(net.activations):  # the two activations that can exceed the magnitude of their argument
            name = net.activations[i]
            size = size + (0.7 if name == "softplus" else forward.excess(name)) * units
        sizes.append(size)
    sizes[-1] = sizes[-1] + abs(net.offset)
    return [np.array([size]) for size in sizes] if len(X) == 1 else sizes


def margin_error(net: FeedForward, X: Floats, reach: list[Floats] | float, delta: Floats) -> Floats:
    """What rounding can change in a computed margin of each row, or in a bound on it, while tensors move by `reach`."""
    return np.asarray(rounding_share(net) * magnitudes(net, reach, X, delta)[-1])


def rounding_share(net: FeedForward) -> float:
    """The share of the magnitudes behind a margin that rounding can change, several times over."""
    # each of the operations behind a sum is off by 2**-53 of the magnitudes it adds up
    return 4 * sum(len(w) + 8 for w in net.weights) * 2.0**-53


def output_terms(
    net: FeedForward, reach: list[Floats], wanted: Indices, rival: Indices
) -> tuple[Floats, Floats, Floats, Floats]:
    """Weights and bias of the margin against one rival per row, and how far each can move."""
    w, b, w_reach, b_reach = net.weights[-1], net.biases[-1], *reach[-2:]
    sign = np.where(wanted == 1, 1.0, -1.0)
    if w.shape[1] == 1:
        one = w_reach.T if len(wanted) == 1 else np.broadcast_to(w_reach.T, (len(wanted), len(w)))
        return sign[:, None] * w[:, 0], one, sign * (b[0] - net.offset), np.full(len(wanted), b_reach[0])
    difference = b[wanted] - b[rival] - (sign * net.offset if w.shape[1] == 2 else 0.0)
    weights = (w[:, wanted] - w[:, rival]).T, (w_reach[:, wanted] + w_reach[:, rival]).T
    return *weights, difference, b_reach[wanted] + b_reach[rival]


class Boxes:
    """Rows against growing boxes of parameters; what does not depend on delta is computed once."""

    step = "interval"  # what certificates call such bounds

    def __init__(self, net: FeedForward, X: Floats, wanted: Indices, radii: Floats) -> None:
        self.net, self.X, self.wanted, self.radii = net, X, wanted, radii
        self.region: Any = radii  # what it is made of
        self.reach = net.parameters.split(radii)
        if net.activations:
            self.middle = X @ net.weights[0] + net.biases[0]
            self.spread = MovingLayer(net.weights[0], self.reach[0], net.biases[0], self.reach[1]).spread(np.abs(X))
        self.outputs = [output_terms(net, self.reach, wanted, rival) for rival in rivals(net, wanted).T]

    def take(self, rows: Indices) -> Self:
        """The same for some of the rows."""
        return type(self)(self.net, self.X[rows], self.wanted[rows], self.region)

    def worst(self, delta: Floats) -> Floats | None:
        """Per row a shift of delta 1 whose margin at `delta` is the bound; None beyond one layer of monotone units."""
        net, X, wanted = self.net, self.X, self.wanted
        if not is_exact(net) or (net.activations and forward.lowest(net.activations[0]) is not None):
            return None
        rival = rivals(net, wanted)[:, 0]
        if len(self.outputs) > 1:  # the rival whose bound is least is the one to push for
            least = self.against(delta).argmin(axis=0)
            rival = np.take_along_axis(rivals(net, wanted).T, least[None, :], axis=0)[0]
        enters = output_signs(net, wanted, rival)
        if not net.activations:
            pushes = [-np.sign(X)[:, :, None] * enters[:, None, :], -enters]
        else:
            name, spread = net.activations[0], delta[:, None] * self.spread
            ends = [forward.activate(name, self.middle - spread), forward.activate(name, self.middle + spread)]
            weight, weight_spread = enters @ net.weights[1].T, delta[:, None] * (np.abs(enters) @ self.reach[2].T)
            # of each unit the least of the four products of an end of its activation and an end of its weight
            best = np.stack([a * (weight + s * weight_spread) for a in ends for s in (-1.0, 1.0)]).argmin(axis=0)
            unit_side, weight_side = np.where(best < 2, -1.0, 1.0), np.where(best % 2 == 0, -1.0, 1.0)
            first = np.sign(X)[:, :, None] * unit_side[:, None, :]
            pushes = [first, unit_side, weight_side[:, :, None] * enters[:, None, :], -enters]
        return np.asarray(np.hstack([push.reshape(len(X), -1) for push in pushes]) * self.radii)

    def least(self, delta: Floats) -> tuple[Floats, Floats]:
        """What `bound` says, and how much rounding can have added to it."""
        return self.bound(delta), self.error(delta)

    def radius(self, limit: float) -> tuple[Floats, Floats]:
        """Bracket per row the largest delta up to `limit` that interval arithmetic proves."""
        low, high = np.zeros(len(self.X)), np.full(len(self.X), float(limit))
        at_low, at_high = self.bound(low), self.bound(high)
        proved_all = at_high - self.error(high) > 0
        refused = ~(at_low - self.error(low) > 0)
        open_rows = np.flatnonzero(~refused & ~proved_all)
        if len(open_rows):
            part = self if len(open_rows) == len(self.X) else self.take(open_rows)
            low[open_rows], high[open_rows] = _root(part, float(limit), at_low[open_rows], at_high[open_rows])
            # that is the root of the bound as computed; rounding, whose effect is tiny, is allowed for by stepping down
            proved = cut_last_bits(low[open_rows])
            start, step = proved.copy(), 2.0**-36
            for _ in range(20):
                failing = ~(part.bound(proved) - part.error(proved) > 0)
                if not failing.any():
                    break
                proved[failing] = start[failing] * (1 - step)
                step = min(8 * step, 1.0)
            else:
                proved[failing] = 0.0
            low[open_rows] = proved
        low[proved_all], high[proved_all] = limit, np.inf
        high[refused & ~proved_all] = 0.0
        return low, high

    def bound(self, delta: Floats) -> Floats:
        """Least margins as computed, with one delta per row, less what coarser arithmetic does to them in use."""
        return np.asarray(self._bound(delta) - self.net.rounding(self.X, self.radii, delta))

    def _bound(self, delta: Floats) -> Floats:
        if len(self.net.activations) > 1 and len(delta) > ROWS:
            parts = np.array_split(np.arange(len(delta)), -(-len(delta) // ROWS))
            return np.concatenate([self.take(rows)._bound(delta[rows]) for rows in parts])
        rises = self.net.activations and "softplus(" not in self.net.activations[-1]  # which falls a little at a jump
        if rises and self._positive(len(self.net.activations)) and self.net.weights[-1].shape[1] == 1:
            # of each unit that is never below 0 the end counts at which the worse end of its output weight wants it
            (low, high), (v, v_reach, bias, bias_reach) = self._pre_activations(delta), self.outputs[0]
            down = v - delta[:, None] * v_reach
            worse = forward.activate(self.net.activations[-1], np.where(down < 0, high, low))
            return np.asarray(np.einsum("ru,ru->r", worse, down) + bias - delta * bias_reach)
        return np.asarray(np.minimum.reduce(self._leasts(delta)))

    def against(self, delta: Floats) -> Floats:
        """Least margins against each of the rivals of each row, (rivals, rows)."""
        return np.asarray(self._leasts(delta) - self.net.rounding(self.X, self.radii, delta))

    def _leasts(self, delta: Floats) -> Floats:
        ends = self._activated(*self._pre_activations(delta), len(self.net.activations))
        return np.stack([self._output(*ends, delta, *terms) for terms in self.outputs])

    def _pre_activations(self, delta: Floats) -> tuple[Floats, Floats]:
        """Range of the last pre-activations; of the input itself where there is no hidden layer."""
        low = high = self.X
        for i in range(len(self.net.activations)):
            if i == 0:  # the input is a point, and the reach of each unit is known exactly
                spread = delta[:, None] * self.spread
                low, high = self.middle - spread, self.middle + spread
            else:
                b, b_spread = self.net.biases[i], delta[:, None] * self.reach[2 * i + 1]
                low, high = self._products(i, *self._activated(low, high, i), delta)
                low, high = low + b - b_spread, high + b + b_spread
        return low, high

    def _activated(self, low: Floats, high: Floats, layer: int) -> tuple[Floats, Floats]:
        """Range of what enters a layer, from that of the pre-activations before it."""
        return forward.activation_range(self.net.activations[layer - 1], low, high) if layer else (low, high)

    def _positive(self, layer: int) -> bool:
        """Whether what enters a layer is never below 0."""
        return layer > 0 and forward.is_positive(self.net.activations[layer - 1])

    def _products(self, layer: int, low: Floats, high: Floats, delta: Floats) -> tuple[Floats, Floats]:
        """Range of ``a @ w`` with a in [low, high] and the weights of a layer within their reach."""
        w, values = self.net.weights[layer], np.unique(delta)
        reach, bias_reach = self.reach[2 * layer : 2 * layer + 2]
        least, most = np.empty((len(low), w.shape[1])), np.empty((len(low), w.shape[1]))
        if len(values) > 1 and len(delta) < 16 * len(values):  # rows with a delta of their own: term by term
            step = max(1, PRODUCTS // w.size)
            for part in (slice(start, start + step) for start in range(0, len(delta), step)):
                spread = delta[part, None, None] * reach
                # for given activations the worst weights are known, and the worst activations are at an end
                ends = [(a[part, :, None] * w, np.abs(a[part, :, None]) * spread) for a in (low, high)]
                least[part] = np.minimum(*(middle - moved for middle, moved in ends)).sum(axis=1)
                most[part] = np.maximum(*(middle + moved for middle, moved in ends)).sum(axis=1)
            return least, most
        for value in values:  # rows that share a delta share the ends of the weights
            rows = np.flatnonzero(delta == value)
            moving = MovingLayer(w, value * reach, self.net.biases[layer], value * bias_reach)
            least[rows], most[rows] = moving.outer(low[rows], high[rows], positive=self._positive(layer))
        return least, most

    def error(self, delta: Floats) -> Floats:
        """What rounding can add to `bound` at most."""
        shared = float(self.radii[0]) if (self.radii == self.radii[0]).all() else None
        return margin_error(self.net, self.X, self.reach if shared is None else shared, delta)

    def _output(
        self, low: Floats, high: Floats, delta: Floats, v: Floats, v_reach: Floats, bias: Floats, bias_reach: Floats
    ) -> Floats:
        spread = delta[:, None] * v_reach
        if not self.net.activations:  # the input is a point
            terms = low * v - np.abs(low) * spread
        else:
            down, up = v - spread, v + spread
            terms = np.minimum(np.minimum(low * down, low * up), np.minimum(high * down, high * up))
        return np.asarray(terms.sum(axis=1) + bias - delta * bias_reach)


CLOSED, STEPS = 1e-12, 200  # relative width at which a bracket counts as closed, and how many evaluations that may take


def cut_last_bits(deltas: Floats) -> Floats:
    """Deltas cut down to 37 bits: the last ones depend on what rows are asked about together, and do not show."""
    fraction, exponent = np.frexp(deltas * (1 - 2.0**-40))
    return np.ldexp(np.floor(fraction * 2.0**37) / 2.0**37, exponent)


def _root(boxes: Boxes, limit: float, at_low: Floats, at_high: Floats) -> tuple[Floats, Floats]:
    """Bracket the root of the bound as computed; it is above 0 at the lower end and not at the upper one."""
    low, high = np.zeros(len(at_low)), np.full(len(at_low), limit)
    # an output bias that moves makes the bound fall by at least its reach, wherever the root is
    fall = np.minimum.reduce([terms[3] for terms in boxes.outputs])
    with np.errstate(divide="ignore"):
        high = np.minimum(high, at_low * (1 + 1e-9) / fall)
    at_high = np.where(high < limit, np.minimum(boxes.bound(high), 0.0), at_high)
    before, value_before, point, value = low, at_low, high, at_high
    with np.errstate(divide="ignore", invalid="ignore"):
        for step in range(STEPS):
            if step % 10 < 8:  # the secant through the last two points
                following = point - value * (point - before) / (value - value_before)
            else:  # after so many steps it is next to the root: look on either side, then begin again
                following = point * (1 + (0.4 if step % 10 == 9 else -0.4) * CLOSED)
            # or half of the bracket where that leaves it
            following = np.where((following > low) & (following < high), following, 0.5 * (low + high))
            before, value_before, point, value = point, value, following, boxes.bound(following)
            up = value > 0
            wide = high - low > CLOSED * high  # a closed bracket stays as it is, whatever other rows still need
            low, high = np.where(up & wide, point, low), np.where(~up & wide, point, high)
            if step >= 6 and not (high - low > CLOSED * high).any():
                break
    return low, high
