"""Shifted parameters that lie inside a box in real arithmetic, not just up to rounding.

The box holds every vector whose entry i differs from ``base[i]`` by at most ``delta * radii[i]``, where the product and
the difference are real numbers. Error-free transformations say exactly what each floating-point operation rounded
away: the product of two mantissas by Dekker's splitting, the sum of two numbers by the fast two-sum. Exponents are
handled apart, so that nothing overflows or underflows on the way.

References
----------
Dekker (1971), "A floating-point technique for extending the available precision", Numerische Mathematik 18.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apas._typing import Bools, Floats

LARGEST = float(np.finfo(np.float64).max)
#: Cuts a 53-bit mantissa into two halves whose products are exact.
SPLITTER = 2.0**27 + 1


def inside_box(base: Floats, radii: ArrayLike, delta: ArrayLike, direction: Floats) -> Floats:
    """``base + delta * radii * direction``, rounded towards `base`: inside the box without tolerance."""
    if not (np.abs(direction) <= 1).all():  # written so that a NaN is not
        direction = np.where(np.isnan(direction), 0.0, np.clip(direction, -1.0, 1.0))
    # at most the reach in size, because rounding never passes a float64 number
    step = box_reach(radii, delta) * direction
    with np.errstate(over="ignore"):
        total = np.asarray(base + step)
    if np.isinf(total).any():
        total = np.where(np.isinf(total), np.copysign(LARGEST, total), total)
    # the sum was rounded away from the base; the neighbour on the other side is not beyond it
    past = (total != base) & (np.sign(step) * _sum_error(base, step, total) < 0)
    return np.asarray(np.where(past, np.nextafter(total, base), total))


def box_reach(radii: ArrayLike, delta: ArrayLike) -> Floats:
    """The largest float64 numbers that do not exceed ``delta * radii`` in real arithmetic."""
    # one radius is asked for again and again while a shift is proposed and confirmed
    one = isinstance(radii, float) and isinstance(delta, float)
    return _kept_reach(radii, delta) if one else _box_reach(radii, delta)  # type: ignore[arg-type]


def _box_reach(radii: ArrayLike, delta: ArrayLike) -> Floats:
    fraction, error, exponent = _product(radii, delta)
    fraction = np.where(error < 0, np.nextafter(fraction, 0.0), fraction)
    with np.errstate(over="ignore", under="ignore"):
        reach = np.ldexp(fraction, exponent)
        # below the normal numbers `ldexp` rounds; scaling back shows in which direction
        reach = np.where(np.ldexp(reach, -exponent) > fraction, np.nextafter(reach, 0.0), reach)
    reach = np.asarray(np.minimum(reach, LARGEST))
    reach.flags.writeable = False  # as it may be kept
    return reach


_kept_reach = lru_cache(maxsize=256)(_box_reach)


def within_box(base: Floats, radii: ArrayLike, delta: ArrayLike, values: Floats) -> Bools:
    """Whether each of `values` lies in the box, decided in real arithmetic; what is not finite never does."""
    with np.errstate(over="ignore", invalid="ignore"):
        distance = np.asarray(values - base)
        # as a rule this settles it: a distance rounded to nearest that is less than a number not above the reach, or
        # equal to it and rounded up
        most, size = box_reach(radii, delta), np.abs(distance)
        inside = size < most
        if not inside.all():
            inside |= (size == most) & (np.sign(distance) * _sum_error(values, -base, distance) <= 0)
        if inside.all():
            return inside
    finite = np.isfinite(distance)
    distance = np.where(finite, distance, 0.0)
    rest = _sum_error(np.where(finite, values, 0.0), -np.where(finite, base, 0.0), distance)
    rest = np.where(distance < 0, -rest, rest)
    fraction, error, exponent = _product(radii, delta)
    size, size_exponent = np.frexp(np.abs(distance))
    # both sides are a number rounded to nearest and the exact rest: compared in this order they compare as reals do
    # 0 has no exponent: it gets one below all others, half the least integer, so that its negative is an integer too
    size_exponent = np.where(size == 0, np.iinfo(np.int32).min // 2, size_exponent)
    exponent = np.where(fraction == 0, np.iinfo(np.int32).min // 2, exponent)
    with np.errstate(over="ignore", under="ignore"):
        # in units of the product; no product of two float64 numbers but 0 has an exponent below -2147
        rest_up = np.where(error == 0, rest, np.ldexp(rest, -np.maximum(exponent, -2200)))
    smaller = (size_exponent < exponent) | ((size_exponent == exponent) & (size < fraction))
    equal = (size_exponent == exponent) & (size == fraction) & (rest_up <= error)
    return np.asarray(finite & (smaller | equal))


def box_distances(base: Floats, values: Floats) -> Floats:
    """The least float64 numbers that ``abs(values - base)`` does not exceed in real arithmetic."""
    with np.errstate(over="ignore", invalid="ignore"):
        change = np.asarray(values - base)
        short = np.sign(change) * _sum_error(values, -base, change) > 0
    return np.where(short, np.nextafter(np.abs(change), np.inf), np.abs(change))


def _product(a: ArrayLike, b: ArrayLike) -> tuple[Floats, Floats, NDArray[np.int32]]:
    """``(fraction + error) * 2**exponent`` is a * b exactly; fraction is in [0.5, 1) (or 0), rounded to nearest."""
    x, x_exponent = np.frexp(np.asarray(a, dtype=np.float64))
    y, y_exponent = np.frexp(np.asarray(b, dtype=np.float64))
    product = x * y
    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    error = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    fraction, carry = np.frexp(product)
    return fraction, np.ldexp(error, -carry), x_exponent + y_exponent + carry


def _halves(x: Floats) -> tuple[Floats, Floats]:
    shifted = SPLITTER * x
    high = shifted - (shifted - x)
    return high, x - high


def _sum_error(a: Floats, b: Floats, total: Floats) -> Floats:
    """What rounding took away from ``a + b``: the exact sum is ``total + error``."""
    swap = np.abs(a) < np.abs(b)
    large, small = np.where(swap, b, a), np.where(swap, a, b)
    return np.asarray(small - (total - large))
