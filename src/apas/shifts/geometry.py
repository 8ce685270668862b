"""What lies in a box or an L_p ball in real arithmetic, not just up to rounding, and the nearest and steepest points.

The box holds every vector whose entry i differs from ``base[i]`` by at most ``delta * radii[i]``, where the product and
the difference are real numbers. Error-free transformations say exactly what each floating-point operation rounded
away: the product of two mantissas by Dekker's splitting, the sum of two numbers by the fast two-sum. Exponents are
handled apart, so that nothing overflows or underflows on the way. What they leave open, fractions and integers decide.

Below p = 1 the ball is not convex; it lies inside that of L_1, whose corners it shares.

References
----------
Dekker (1971), "A floating-point technique for extending the available precision", Numerische Mathematik 18.
"""

import math
from fractions import Fraction
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apas._typing import Bools, Floats

LARGEST = float(np.finfo(np.float64).max)
#: Cuts a 53-bit mantissa into two halves whose products are exact.
SPLITTER = 2.0**27 + 1
#: Up to this whole p, what floating point leaves open is decided with integers.
EXACT = 16
#: The relative error of a power, far above the few units in the last place that libraries promise.
POWER = 2.0**-46


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
        # the next number is above the reach: what is beyond even that, once rounded, is outside
        undecided = ~inside & np.isfinite(distance) & (size <= np.nextafter(most, np.inf))
    numbers = np.broadcast_arrays(base, radii, delta, values)
    for place in map(tuple, np.argwhere(undecided)):
        b, r, d, v = (Fraction(float(number[place])) for number in numbers)
        inside[place] = abs(v - b) <= r * d
    return np.asarray(inside)


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


def lp_norm(rows: Floats, p: float) -> Floats:
    """L_p norms of the rows, which may be of any size: nothing overflows before the norm itself does."""
    sizes = np.abs(rows)
    largest = sizes.max(axis=-1, initial=0.0)
    scale = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    if p == math.inf:
        return np.asarray(largest)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(scale * np.sum(share_powers(sizes, scale[..., None], p), axis=-1) ** (1.0 / p))


def share_powers(sizes: Floats, scale: Floats | float, p: float) -> Floats:
    """``(sizes / scale)**p``; below p = 1 powers go first: a quotient that underflows may have a power that counts."""
    return np.asarray(sizes**p / scale**p if p < 1 else (sizes / scale) ** p)


def within_ball(base: Floats, values: Floats, p: float, delta: float) -> bool:
    """Whether ``values - base`` has an L_p norm of at most `delta`, decided in real arithmetic.

    True is always right. So is False for whole p up to 16; for other p, vectors whose norm lies within about 1e-13 of
    `delta` (more for very large p, and 1 / p times as much below 1) may be refused.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        moves = values - base
    if not np.isfinite(moves).all():
        return False
    # each size is a number rounded to nearest, plus the exact rest
    sizes, rest = np.abs(moves), np.sign(moves) * _sum_error(values, -base, moves)
    if ((sizes > delta) | ((sizes == delta) & (rest > 0))).any() or not delta >= 0:
        return False
    if p == 1.0 or np.count_nonzero(sizes) <= 1:
        return _sum_within(sizes, rest, delta)
    # below p = 1 a small ball is enlarged by a power of two, without rounding, so that powers have all their digits
    larger = 2.0**600 if p < 1 and delta < 2.0**-600 else 1.0
    with np.errstate(under="ignore"):
        total = float(np.sum(share_powers(sizes * larger, delta * larger, p)))
    error = (4 * p + 8 * math.log2(len(sizes) + 256)) * 2.0**-53 + POWER * (1 + (p < 1))  # quotient, powers, sum
    if error < 0.5 and total * (1 + error) + len(sizes) * 1e-300 <= 1:  # 1e-300 each for terms that underflowed
        return True
    if total * (1 - error) > 1:
        return False
    if p.is_integer() and p <= EXACT:
        return _power_within(base, values, int(p), delta)
    return p > 1 and _sum_within(sizes, rest, delta)  # from p = 1 on no L_p norm exceeds the L_1 norm


def _sum_within(sizes: Floats, rest: Floats, delta: float) -> bool:
    try:  # correctly rounded, so its sign is that of the exact sum
        return math.fsum(chain(sizes, rest, [-delta])) <= 0
    except OverflowError:
        return False


def _power_within(base: Floats, values: Floats, p: int, delta: float) -> bool:
    moved = values != base
    pairs = [(b.as_integer_ratio(), v.as_integer_ratio()) for b, v in zip(base[moved], values[moved], strict=True)]
    radius = delta.as_integer_ratio()
    unit = max(radius[1], *(max(b[1], v[1]) for b, v in pairs))  # denominators are powers of 2
    total: int = sum(abs(v[0] * (unit // v[1]) - b[0] * (unit // b[1])) ** p for b, v in pairs)
    return bool(total <= (radius[0] * (unit // radius[1])) ** p)


def inside_ball(base: Floats, values: Floats, p: float, delta: float) -> Floats:
    """`values` if `within_ball` accepts them, else a point on the way to them that it accepts, close to the surface."""
    if within_ball(base, values, p, delta):
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        moves = np.nan_to_num(values - base)
    # a norm of millions of terms is off by far less than 2**-44; if not, the cut grows until the exact test accepts
    size, cut = float(lp_norm(moves, p)), 2.0**-44
    share = min(1.0, delta / size) if size > 0 else 0.0
    while cut < 1:
        step = moves * (share * (1 - cut))
        total = base + step
        # where the sum was rounded away from the base, the neighbour on the other side is not beyond the exact sum
        past = np.abs(total - base) >= np.abs(step)
        total = np.where(past & (total != base), np.nextafter(total, base), total)
        if within_ball(base, total, p, delta):
            return total
        cut *= 4
    return base.copy()


def steepest_point(gradients: Floats, p: float) -> Floats:
    """Per row the point u of the unit ball with the least ``gradient @ u``; 0 where the gradient is 0."""
    sizes = np.abs(gradients)
    largest = sizes.max(axis=1, keepdims=True, initial=0.0)
    shares = sizes / np.where(largest > 0, largest, 1.0)
    if p <= 1.0:  # all in the steepest coordinate, the first of several
        point = np.zeros_like(shares)
        np.put_along_axis(point, shares.argmax(axis=1)[:, None], 1.0, axis=1)
        point *= largest > 0
    else:
        with np.errstate(under="ignore"):
            point = shares ** (1.0 / (p - 1.0))
        norms = lp_norm(point, p)[:, None]
        point /= np.where(norms > 0, norms, 1.0)
    return np.asarray(np.where(gradients > 0, -point, point))
