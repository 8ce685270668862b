"""Straight lines below an activation: what linear bounds are made of.

A layer of a shifted network gives each unit a pre-activation between ``l(a)`` and ``u(a)``. Where a bound needs the
unit small, ``y = l(a)`` and the activation itself counts; where it needs the unit large, ``y = -u(a)`` and its mirror
image ``-act(-y)``. Either way a line ``slope * y + height`` that lies below on the range of y is wanted, with a slope
of at least 0.

Where several lines will do they form a *pencil*: all slopes between two ends, through one pivot. Where the function is
the least of two pieces (a kink that bends down), each piece is a pencil of its own, and the function is as large as
the least of the two: the two *cases* that `apas.bounds.phases` distinguishes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apas.bounds.ranges import activation_range, derivative_range
from apas.models.activations import LEAKY_SLOPE, activate, derivative

__all__ = ["Pencil", "cases", "pencil"]

_Array = NDArray[np.float64]
#: What is taken off a slope that must not be too steep, so that rounding cannot make it so.
SAFE = 1 - 2.0**-40
#: Between minus and plus this number gelu is convex.
BEND = 2.0**0.5
#: A slope not above this is taken as 0.
FLAT = 1e-9
#: Bisections that look for a tangent.
TOUCH_STEPS = 20


@dataclass(frozen=True)
class Pencil:
    """Lines through the pivot (`at`, `value`) with slopes from `flat` to `steep`; all arrays of one shape."""

    flat: _Array
    steep: _Array
    at: _Array
    value: _Array

    def height(self, slope: _Array) -> _Array:
        """Height at 0 of the lines with such slopes."""
        return self.value - slope * self.at


def pencil(name: str, low: _Array, high: _Array, *, mirrored: bool) -> Pencil:
    """Lines below the activation (or its mirror image) on [low, high].

    Examples
    --------
    >>> lines = pencil("relu", np.array([-1.0]), np.array([3.0]), mirrored=False)
    >>> float(lines.flat[0]), float(lines.steep[0])
    (0.0, 1.0)
    """
    zero = np.zeros_like(low)
    if name == "identity":
        return Pencil(zero + 1.0, zero + 1.0, zero, zero)
    if name in ("relu", "leaky_relu"):
        slope = 0.0 if name == "relu" else LEAKY_SLOPE
        return _falling_kink(low, high, slope) if mirrored else _rising_kink(low, high, slope)
    if name == "hard_tanh":
        return _clip(low, high)
    return _smooth(name, low, high, mirrored=mirrored)


def cases(name: str, low: _Array, high: _Array, *, mirrored: bool) -> tuple[Pencil, Pencil] | None:
    """The two pieces whose least is the activation (or its mirror image), if it has a kink that bends down.

    Outside the interval of a kink both pieces are the pencil itself, so that nothing is gained by telling them apart.
    """
    zero = np.zeros_like(low)
    if name in ("relu", "leaky_relu") and mirrored:
        slope = 0.0 if name == "relu" else LEAKY_SLOPE
        left, right = np.where(low >= 0, slope, 1.0), np.where(high <= 0, 1.0, slope)
        return Pencil(left, left, zero, zero), Pencil(right, right, zero, zero)
    if name == "hard_tanh":
        bends = (low < 1) & (high > 1)
        whole, below = _clip(low, high), _clip(low, np.minimum(high, 1.0))
        capped = _line(zero, zero + 1.0)
        return _where(bends, below, whole), _where(bends, capped, whole)
    return None


def _where(condition: NDArray[np.bool_], yes: Pencil, no: Pencil) -> Pencil:
    pairs = ((yes.flat, no.flat), (yes.steep, no.steep), (yes.at, no.at), (yes.value, no.value))
    return Pencil(*(np.where(condition, a, b) for a, b in pairs))


def _line(slope: _Array, height: _Array) -> Pencil:
    return Pencil(slope, slope, np.zeros_like(slope), height)


def _rising_kink(low: _Array, high: _Array, slope: float) -> Pencil:
    """max(y, slope y): all lines through the kink."""
    zero = np.zeros_like(low)
    return Pencil(np.where(low >= 0, 1.0, slope), np.where((high <= 0) & (low < 0), slope, 1.0), zero, zero)


def _falling_kink(low: _Array, high: _Array, slope: float) -> Pencil:
    """min(y, slope y): the chord, or the piece itself."""
    left, right = np.minimum(low, 0.0), np.maximum(high, 0.0)
    width = right - left
    share = np.divide(-left, width, out=np.zeros_like(low), where=width > 0)  # of the way on which the slope is 1
    chord = slope + (1 - slope) * np.clip(share, 0.0, 1.0)
    chord = np.where(low >= 0, slope, np.where(high <= 0, 1.0, chord))
    return _line(chord, _height(chord, low, high, np.minimum(low, slope * low), np.minimum(high, slope * high)))


def _clip(low: _Array, high: _Array) -> Pencil:
    """Lines below y cut off at -1 and 1."""
    at_low, at_high = np.clip(low, -1.0, 1.0), np.clip(high, -1.0, 1.0)
    # from the lower kink, or from the lower end beyond it, to the upper end
    begin = np.maximum(low, -1.0)
    width = high - begin
    chord = np.divide(at_high - np.maximum(at_low, -1.0), width, out=np.ones_like(low), where=width > 0)
    chord = np.clip(chord, 0.0, 1.0) * np.where(high > 1, SAFE, 1.0)
    bends = (low < -1) & (high > -1)  # the kink at -1 bends up: all flatter lines through it will do
    constant = high <= -1
    height = _height(chord, low, high, at_low, at_high)
    flat, steep = np.where(bends | constant, 0.0, chord), np.where(constant, 0.0, chord)
    pivot = np.where(bends | constant, -1.0, 0.0)
    return Pencil(flat, steep, pivot, np.where(bends | constant, -1.0, height))


def _height(slope: _Array, low: _Array, high: _Array, at_low: _Array, at_high: _Array) -> _Array:
    """Height of a line below a concave function, whatever rounding did to its slope: it touches at an end."""
    return np.minimum(at_low - slope * low, at_high - slope * high)


def _smooth(name: str, low: _Array, high: _Array, *, mirrored: bool) -> Pencil:
    """One line below a smooth activation, and all between it and the least value, through where these two meet."""
    sign = -1.0 if mirrored else 1.0

    def value(y: _Array) -> _Array:
        return sign * activate(name, sign * y)

    at_low, at_high, middle, width = value(low), value(high), 0.5 * (low + high), high - low
    argument = (-high, -low) if mirrored else (low, high)
    convex, concave = _bends(name, low, high, mirrored=mirrored)
    chord = np.divide(at_high - at_low, width, out=np.zeros_like(low), where=width > 0)
    if name in ("tanh", "sigmoid"):  # convex, then concave: below both lies the tangent that ends on the function
        touch, beyond = _touching(name, low, high, at_high, value)
        middle, concave, convex = np.where(convex, middle, touch), concave | beyond, ~(concave | beyond)
    # elsewhere a line from the lower end, nowhere steeper than the function
    least = derivative_range(name, *argument)[0] * SAFE
    slope = np.where(convex, derivative(name, sign * middle), np.where(concave, chord, least))
    height = np.where(concave, _height(slope, low, high, at_low, at_high), at_low - slope * low)
    height = np.where(convex, value(middle) - slope * middle, height)
    if name in ("tanh", "sigmoid"):  # more than the search for the tangent can be off
        height -= 2.0**-43
    bottom, top = activation_range(name, *argument)
    least_value = -top if mirrored else bottom
    steep = np.where(slope > FLAT, slope, 0.0)  # a line must not fall
    meeting = np.divide(least_value - height, steep, out=np.zeros_like(low), where=steep > 0)
    return Pencil(np.zeros_like(low), steep, meeting, least_value)


def _touching(
    name: str, low: _Array, high: _Array, at_high: _Array, value: Callable[[_Array], _Array]
) -> tuple[_Array, NDArray[np.bool_]]:
    """Where the tangent to an S-shaped function passes just below its upper end; and where none does, but the chord.

    A tangent on the convex part that is below the function at 0 and at the upper end is below all of the concave part.
    """
    first, last = np.minimum(low, 0.0), np.minimum(high, 0.0)

    def overshoots(t: _Array) -> NDArray[np.bool_]:
        # the derivatives are even, so the mirror image has the same
        reached = value(t) + derivative(name, t) * (high - t)
        return np.asarray(reached > at_high - 2.0**-45 * (1 + np.abs(reached)))

    beyond = overshoots(first)
    for _ in range(TOUCH_STEPS):
        t = 0.5 * (first + last)
        far = overshoots(t)
        first, last = np.where(far, first, t), np.where(far, t, last)
    return first, beyond


def _bends(name: str, low: _Array, high: _Array, *, mirrored: bool) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Where a smooth activation (or its mirror image) is convex, and where it is concave, on all of [low, high]."""
    everywhere = np.ones(low.shape, dtype=bool)
    if name in ("softplus", "elu"):
        return (~everywhere, everywhere) if mirrored else (everywhere, ~everywhere)
    if name == "gelu":
        inside = (low > -BEND) & (high < BEND)
        return (~everywhere, inside) if mirrored else (inside, ~everywhere)
    return high <= 0, low >= 0  # sigmoid and tanh, and their mirror images
