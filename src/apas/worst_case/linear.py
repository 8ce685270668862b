"""Linear bounds (in the manner of CROWN) with weights and biases as what moves.

Carried backwards: `lin . a - rho . abs(a) + const`, rho from the weights above. Where a unit should be small y = l(a)
counts, else the mirror image at y = -u(a); all slopes of a `Pencil` are sound, and improved by ascent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple, Self

import numpy as np

from apas._typing import Bools, Floats, Indices
from apas.models import forward
from apas.models.feedforward import FeedForward
from apas.worst_case.intervals import MovingLayer, derivative_range, magnitudes, moving_layers, output_terms

SAFE = 1 - 2.0**-40  # what is taken off a slope that must not be too steep, so that rounding cannot make it so
FLAT = 1e-9  # a slope not above this is taken as 0
TOUCH_STEPS = 20  # bisections that look for a tangent
BLOCK = 1 << 20  # how many bounds on single units are computed at a time


@dataclass(frozen=True)
class Pencil:
    """Lines through the pivot (`at`, `value`) with slopes from `flat` to `steep`; all arrays of one shape."""

    flat: Floats
    steep: Floats
    at: Floats
    value: Floats

    def height(self, slope: Floats) -> Floats:
        """Height at 0 of the lines with such slopes."""
        return self.value - slope * self.at

    def leaning_slope(self, low: Floats, high: Floats) -> Floats:
        """The slope that loses least: steep where more of the range lies beyond the pivot than before it."""
        return np.where(high - self.at > self.at - low, self.steep, self.flat)


@forward.by_units
def pencil(name: str, low: Floats, high: Floats, *, mirrored: bool) -> Pencil:
    """Lines below the activation (or its mirror image) on [low, high]."""
    zero, (kind, numbers) = np.zeros_like(low), forward.shape_of(name)
    if name == "identity":
        return Pencil(zero + 1.0, zero + 1.0, zero, zero)
    if kind == "leaky_relu":
        slope = numbers[0]
        if mirrored:  # min(y, slope y): the chord, or the piece itself
            left = np.minimum(low, 0.0)
            width = np.maximum(high, 0.0) - left
            # the share of the way on which the slope is 1: a quotient of two numbers of which the first is not larger,
            # and so 0 above the kink, 1 below it, and nowhere beyond, whatever is rounded
            chord = np.divide(-left, width, out=np.zeros_like(low), where=width > 0)
            if slope:
                chord = slope + (1 - slope) * chord
            return _line(chord, _height(chord, low, high, np.minimum(low, slope * low), np.minimum(high, slope * high)))
        # max(y, slope y): all lines through the kink
        return Pencil(np.where(low >= 0, 1.0, slope), np.where((high <= 0) & (low < 0), slope, 1.0), zero, zero)
    if kind == "clip":
        return _clip(low, high, *_ends(numbers, mirrored=mirrored))
    return _smooth(name, low, high, mirrored=mirrored)


@forward.by_units
def cases(name: str, low: Floats, high: Floats, *, mirrored: bool) -> tuple[Pencil, Pencil]:
    """The two pieces whose least is the activation (or its mirror image), where it has a kink that bends down."""
    # elsewhere, and outside the interval of a kink, both pieces are the pencil itself
    zero, (kind, numbers) = np.zeros_like(low), forward.shape_of(name)
    if kind == "leaky_relu" and mirrored:
        slope = numbers[0]
        left, right = np.where(low >= 0, slope, 1.0), np.where(high <= 0, 1.0, slope)
        return Pencil(left, left, zero, zero), Pencil(right, right, zero, zero)
    if kind == "clip":
        first, last = _ends(numbers, mirrored=mirrored)
        bends = (low < last) & (high > last)
        whole, below = _clip(low, high, first, last), _clip(low, np.minimum(high, last), first, last)
        return tuple(
            Pencil(*(np.where(bends, *both) for both in zip(vars(p).values(), vars(whole).values(), strict=True)))
            for p in (below, _line(zero, zero + last))
        )  # type: ignore[return-value]
    whole = pencil(name, low, high, mirrored=mirrored)
    return whole, whole


def _line(slope: Floats, height: Floats) -> Pencil:
    return Pencil(slope, slope, np.zeros_like(slope), height)


def _ends(ends: tuple[float, ...], *, mirrored: bool) -> tuple[float, float]:
    return (-ends[1], -ends[0]) if mirrored else (ends[0], ends[1])


def _clip(low: Floats, high: Floats, first: float, last: float) -> Pencil:
    """Lines below y cut off at `first` and `last`."""
    at_low, at_high = np.clip(low, first, last), np.clip(high, first, last)
    # from the lower kink, or from the lower end beyond it, to the upper end
    width = high - np.maximum(low, first)
    chord = np.divide(at_high - np.maximum(at_low, first), width, out=np.ones_like(low), where=width > 0)
    chord = np.clip(chord, 0.0, 1.0) * np.where(high > last, SAFE, 1.0)
    bends = (low < first) & (high > first)  # the lower kink bends up: all flatter lines through it will do
    constant = high <= first
    height = _height(chord, low, high, at_low, at_high)
    flat, steep = np.where(bends | constant, 0.0, chord), np.where(constant, 0.0, chord)
    return Pencil(flat, steep, np.where(bends | constant, first, 0.0), np.where(bends | constant, first, height))


def _height(slope: Floats, low: Floats, high: Floats, at_low: Floats, at_high: Floats) -> Floats:
    """Height of a line below a concave function, whatever rounding did to its slope: it touches at an end."""
    return np.minimum(at_low - slope * low, at_high - slope * high)


def _smooth(name: str, low: Floats, high: Floats, *, mirrored: bool) -> Pencil:
    """One line below a smooth activation, and all between it and the least value, through where these two meet."""
    sign = -1.0 if mirrored else 1.0

    def value(y: Floats) -> Floats:
        return sign * forward.activate(name, sign * y)

    at_low, at_high, middle, width = value(low), value(high), 0.5 * (low + high), high - low
    argument = (-high, -low) if mirrored else (low, high)
    convex, concave = _bends(name, low, high, mirrored=mirrored)
    chord = np.divide(at_high - at_low, width, out=np.zeros_like(low), where=width > 0)
    if name in ("tanh", "sigmoid"):  # convex, then concave: below both lies the tangent that ends on the function
        touch, beyond = _touching_point(name, low, high, at_high, value)
        middle, concave, convex = np.where(convex, middle, touch), concave | beyond, ~(concave | beyond)
    # elsewhere a line from the lower end, nowhere steeper than the function
    least = derivative_range(name, *argument)[0] * SAFE
    slope = np.where(convex, forward.derivative(name, sign * middle), np.where(concave, chord, least))
    height = np.where(concave, _height(slope, low, high, at_low, at_high), at_low - slope * low)
    height = np.where(convex, value(middle) - slope * middle, height)
    if name in ("tanh", "sigmoid"):  # more than the search for the tangent can be off
        height -= 2.0**-43
    if name.startswith("softplus("):
        height -= forward.drop(name, *argument)
    bottom, top = forward.activation_range(name, *argument)
    least_value = -top if mirrored else bottom
    steep = np.where(slope > FLAT, slope, 0.0)  # a line must not fall
    meeting = np.divide(least_value - height, steep, out=np.zeros_like(low), where=steep > 0)
    return Pencil(np.zeros_like(low), steep, meeting, least_value)


def _touching_point(
    name: str, low: Floats, high: Floats, at_high: Floats, value: Callable[[Floats], Floats]
) -> tuple[Floats, Bools]:
    """Where the tangent to an S-shaped function passes just below its upper end; and where none does, but the chord."""
    # a tangent on the convex part that is below the function at 0 and at the upper end is below all of the concave part
    first, last = np.minimum(low, 0.0), np.minimum(high, 0.0)

    def overshoots(t: Floats) -> Bools:
        # the derivatives are even, so the mirror image has the same
        reached = value(t) + forward.derivative(name, t) * (high - t)
        # values and slopes are at most 1 and off by a few 2**-53, and so is the line: 2**-45 is to spare
        return np.asarray(reached > at_high - 2.0**-45 * (1 + np.abs(reached)))

    beyond = overshoots(first)
    for _ in range(TOUCH_STEPS):
        t = 0.5 * (first + last)
        far = overshoots(t)
        first, last = np.where(far, first, t), np.where(far, t, last)
    return first, beyond


def _bends(name: str, low: Floats, high: Floats, *, mirrored: bool) -> tuple[Bools, Bools]:
    """Where a smooth activation (or its mirror image) is convex, and where it is concave, on all of [low, high]."""
    everywhere = np.ones(low.shape, dtype=bool)
    kind, numbers = forward.shape_of(name)
    if kind in ("softplus", "elu"):
        if kind == "elu" and numbers[0] > 1:  # whose kink bends down
            everywhere = (low >= 0) | (high <= 0)
        return (np.zeros_like(everywhere), everywhere) if mirrored else (everywhere, np.zeros_like(everywhere))
    if name in forward.LOWEST:
        turn = forward.BEND[name] * (1.0 if name == "gelu" else 1 - 1e-9)  # of the others the number is rounded
        inside = (low > -turn) & (high < turn)
        return (~everywhere, inside) if mirrored else (inside, ~everywhere)
    return high <= 0, low >= 0  # sigmoid and tanh, and their mirror images


class Units(NamedTuple):
    """Units of a layer, (rows, units): ends of least (l) and largest (u) pre-activations, and of activations."""

    low_l: Floats
    high_l: Floats
    low_u: Floats
    high_u: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Objective:
    """A lower bound ``lin . a - rho . abs(a) + const`` in terms of a layer's activations, one per item."""

    lin: Floats
    rho: Floats
    const: Floats

    def take(self, items: Indices) -> Self:
        """The same for some of the items."""
        return type(self)(self.lin[items], self.rho[items], self.const[items])


@dataclass(frozen=True)
class LayerLines:
    """What replaces a layer: lines below the activation and its mirror image, and `tilt * a + lift` for abs(a)."""

    down: Pencil
    up: Pencil
    down_slope: Floats
    up_slope: Floats
    tilt: Floats
    lift: Floats
    low: Floats
    high: Floats
    positive: bool  # whether no activation is below 0, so that each is its own magnitude
    slack: Floats  # what rounding can change in a computed bound on a pre-activation, (rows,)
    side: Floats | None = None  # per unit 1 where u is known to be at most 0, -1 where it is at least 0, else 0
    beta: Floats | None = None  # Lagrange multipliers, at least 0, of what is known

    @cached_property
    def heights(self) -> tuple[Floats, Floats]:
        """Heights at 0 of the lines chosen, down and up."""
        return self.down.height(self.down_slope), self.up.height(self.up_slope)

    @classmethod
    def of(cls, name: str, units: Units, slack: Floats | None) -> Self:
        """Lines for the whole range of each unit; the first layer's activations fill a box: it has no slack."""
        none, positive = np.zeros((1, 1)), forward.is_positive(name)
        tilt, lift = (none, none) if positive else chord_of_magnitude(units.low, units.high)
        if slack is None:  # and it needs no lines but for magnitudes
            nothing = Pencil(none, none, none, none)
            return cls(nothing, nothing, none, none, tilt, lift, units.low, units.high, positive, none[0])
        # the one activation that is not monotone: its argument can be anywhere, not only at l or u
        low_u, high_l = (units.low_l, units.high_u) if forward.lowest(name) is not None else (units.low_u, units.high_l)
        down = pencil(name, units.low_l, high_l, mirrored=False)
        up = pencil(name, -units.high_u, -low_u, mirrored=True)
        slopes = down.leaning_slope(units.low_l, high_l), up.leaning_slope(-units.high_u, -low_u)
        return cls(down, up, *slopes, tilt, lift, units.low, units.high, positive, slack)

    def take(self, items: Indices) -> Self:
        """The same for some of the items."""

        def some(part: Any) -> Any:
            if isinstance(part, Pencil):
                return Pencil(*map(some, vars(part).values()))
            return part[items] if isinstance(part, np.ndarray) and len(part) > 1 else part

        return type(self)(**{name: some(part) for name, part in vars(self).items() if name != "heights"})


def chord_of_magnitude(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Slope and height of a line that is nowhere below abs(a) on [low, high]."""
    crossing = (low < 0) & (high > 0)
    width = np.where(crossing, high - low, 1.0)
    tilt = np.where(crossing, (high + low) / width, np.where(low >= 0, 1.0, -1.0))
    # whatever rounding did to the slope, the line is above the magnitude at both ends
    return tilt, np.where(crossing, np.maximum(-low * (1 + tilt), high * (1 - tilt)), 0.0)


class CarriedBound(NamedTuple):
    """A bound, and per layer, the first one first, the coefficients on activations and, `moved`, on magnitudes."""

    bound: Floats
    coefficients: list[Floats]
    moved: list[Floats]


def carried_back(
    layers: Sequence[MovingLayer], lines: Sequence[LayerLines], objective: Objective, top: int
) -> CarriedBound:
    """Bound an objective on the activations of hidden layer `top` from below; ordinary rounding."""
    lin, rho, const = objective.lin, objective.rho, objective.const
    coefficients, moved = [], []
    for i in range(top, -1, -1):
        line = lines[i]
        if line.positive:
            c = lin - rho
        else:
            c = lin - rho * line.tilt
            const = const - (rho * line.lift).sum(axis=1)
        coefficients.append(c)
        moved.append(rho)
        if i:
            layer, small, size = layers[i], c >= 0, np.abs(c)
            slope = np.where(small, line.down_slope, line.up_slope)
            height = np.where(small, *line.heights)
            g, size_g = c * slope, size * slope
            if line.side is not None and line.beta is not None:
                # weak duality: on the known side of u, ``side * beta * u`` is at most 0, and adding it keeps a bound
                # a bound. Rounding does to these terms what it does to bounds on u: twice as much is taken off
                more = line.side * line.beta
                g, size_g = g + more, size_g - more
                const = const - 2 * line.slack * line.beta.sum(axis=1)
            const = const + np.einsum("nu,nu->n", size, height) + g @ layer.bias - size_g @ layer.bias_reach
            lin, rho = g @ layer.middle.T, layer.spread_back(size_g)
    least = np.einsum("nu,nu->n", np.maximum(c, 0.0), line.low) + np.einsum("nu,nu->n", np.minimum(c, 0.0), line.high)
    return CarriedBound(const + least, coefficients[::-1], moved[::-1])


def gradients(
    layers: Sequence[MovingLayer], lines: Sequence[LayerLines], carried: CarriedBound
) -> tuple[list[Floats], list[Floats | None], list[Floats], list[Floats]]:
    """Gradients of the bound by slopes and multipliers, and where it is least: arguments and activations."""
    # the first layer is at ends of its box; from there values are carried forward along the lines
    a = np.where(carried.coefficients[0] >= 0, lines[0].low, lines[0].high)
    by_slope, by_beta, arguments, points = list[Floats](), list[Floats | None](), list[Floats](), [a]
    for i in range(1, len(carried.coefficients)):
        layer, line, c, before = layers[i], lines[i], carried.coefficients[i], lines[i - 1]
        spread = layer.spread(a if before.positive else before.tilt * a + before.lift)
        z, small = a @ layer.middle + layer.bias, c >= 0
        sign = np.where(small, 1.0, -1.0)
        y = sign * z - spread
        slope = np.where(small, line.down_slope, line.up_slope)
        height = np.where(small, *line.heights)
        by_slope.append(np.abs(c) * (y - np.where(small, line.down.at, line.up.at)))
        by_beta.append(None if line.side is None else line.side * (z + spread))
        arguments.append(y)
        a = sign * (slope * y + height)
        points.append(a)
    return by_slope, by_beta, arguments, points


def ascend(
    layers: Sequence[MovingLayer], lines: list[LayerLines], carried: CarriedBound, target: Floats
) -> tuple[list[LayerLines], list[Floats]]:
    """One step of the slopes that would bring each bound to its target, were it linear; where it is least, too."""
    by_slope, by_beta, _, points = gradients(layers, lines, carried)
    length = np.zeros(len(carried.bound))
    for i, gradient in enumerate(by_slope, start=1):
        line, small = lines[i], carried.coefficients[i] >= 0
        gradient[np.where(small, line.down.steep <= line.down.flat, line.up.steep <= line.up.flat)] = 0.0
        length += np.einsum("nu,nu->n", gradient, gradient)
        if (known := by_beta[i - 1]) is not None and (beta := line.beta) is not None:
            known[(beta <= 0) & (known < 0)] = 0.0  # a multiplier does not fall below 0
            length += np.einsum("nu,nu->n", known, known)
    # a length of 0 means that nothing moves, whatever it is divided by
    step = (np.maximum(target - carried.bound, 0.0) / np.maximum(length, 1e-300))[:, None]
    new = [lines[0]]
    for i, gradient in enumerate(by_slope, start=1):
        line, small, change = lines[i], carried.coefficients[i] >= 0, step * gradient
        down = np.clip(line.down_slope + np.where(small, change, 0.0), line.down.flat, line.down.steep)
        up = np.clip(line.up_slope + np.where(small, 0.0, change), line.up.flat, line.up.steep)
        known, beta = by_beta[i - 1], line.beta
        if known is not None and beta is not None:
            beta = np.maximum(beta + step * known, 0.0)
        new.append(replace(line, down_slope=down, up_slope=up, beta=beta))
    return new, points


_Ranges = tuple[Floats, Floats, Floats, Floats]
#: The units and lines of all layers, and the rounding allowance of a bound per row.
Relaxed = tuple[list[Units], list[LayerLines], Floats]


class Relaxation:
    """A network whose parameter i moves by at most ``delta * radii[i]``."""

    def __init__(self, net: FeedForward, radii: Floats, delta: float) -> None:
        self.net, self.radii, self.delta = net, radii, delta
        self.unit_reach = net.parameters.split(radii)
        self.layers = moving_layers(net, radii, delta)

    def relax(self, X: Floats) -> Relaxed:
        """Ranges of all units for the rows `X`, their lines, and what rounding can change in a bound on the margin."""
        names, allowance = self.net.activations, self.allowance(X)
        first = self.layers[0]
        middle, spread = X @ first.middle + first.bias, first.spread(np.abs(X))
        low, high = middle - spread, middle + spread
        low, high = low - allowance[0][:, None], high + allowance[0][:, None]
        units = [Units(low, high, low, high, *forward.activation_range(names[0], low, high))]
        lines = [LayerLines.of(names[0], units[0], None)]
        for i in range(1, len(names)):
            layer, before = self.layers[i], units[-1]
            ends = layer.both(before.low, before.high, positive=forward.is_positive(names[i - 1]))
            down, up = layer.bias - layer.bias_reach, layer.bias + layer.bias_reach
            ranges: _Ranges = (ends[0] + down, ends[1] + down, ends[2] + up, ends[3] + up)
            if i > 1:
                ranges = self._tighten(i, lines, ranges)
            slack = allowance[i][:, None]
            low_l, high_l, low_u, high_u = ranges[0] - slack, ranges[1] + slack, ranges[2] - slack, ranges[3] + slack
            units.append(Units(low_l, high_l, low_u, high_u, *forward.activation_range(names[i], low_l, high_u)))
            lines.append(LayerLines.of(names[i], units[-1], allowance[i]))
        return units, lines, allowance[-1]

    def allowance(self, X: Floats) -> list[Floats]:
        """Per layer and row what rounding can change in a computed bound, the margin's last."""
        first = float(self.radii[0])
        reach = first if (self.radii == first).all() else self.unit_reach
        sizes = magnitudes(self.net, reach, X, np.full(len(X), self.delta))
        steps = accumulate(len(w) + 8 for w in self.net.weights)
        # each of the operations behind a sum is off by at most 2**-53 of the magnitudes it adds up; a bound adds up one
        # constant per layer, each of at most the magnitude of the whole; the factor 8 is to spare
        slack = [8 * s * (i + 2) * 2.0**-53 * size for i, (s, size) in enumerate(zip(steps, sizes, strict=True))]
        slack[-1] += self.net.rounding(X, self.radii, self.delta)  # where the network is used
        return slack

    def objective(self, wanted: Indices, rival: Indices) -> Objective:
        """The margin against one rival per row, in terms of the last hidden layer."""
        v, v_reach, bias, bias_reach = output_terms(self.net, self.unit_reach, wanted, rival)
        return Objective(v, self.delta * v_reach, bias - self.delta * bias_reach)

    def _tighten(self, i: int, lines: list[LayerLines], ranges: _Ranges) -> _Ranges:
        """Linear bounds on every unit of layer i where they beat interval arithmetic."""
        layer, rows = self.layers[i], len(ranges[0])
        inputs, outputs = layer.middle.shape
        least, most = np.empty((rows, outputs)), np.empty((rows, outputs))
        step = max(1, BLOCK // (outputs * inputs))
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            some = [line.take(np.repeat(np.arange(start, stop), outputs)) for line in lines]
            for sign, into in ((1.0, least), (-1.0, most)):
                units = Objective(sign * layer.middle.T, layer.reach.T, sign * layer.bias - layer.bias_reach)
                every_unit = units.take(np.tile(np.arange(outputs), stop - start))
                bound = carried_back(self.layers, some, every_unit, i - 1).bound
                into[start:stop] = sign * bound.reshape(stop - start, outputs)
        low_l, high_u = np.maximum(ranges[0], least), np.minimum(ranges[3], most)
        return low_l, np.minimum(ranges[1], high_u), np.maximum(ranges[2], low_l), high_u
