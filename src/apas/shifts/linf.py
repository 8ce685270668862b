"""Boxes of shifts: every parameter moves by at most delta, independently (`LinfShifts`), or a few do (`SparseShifts`).

Margins that are linear in the shift are weighted sums of uniform numbers, between proved bounds on their distribution:
let ``S = sum of c_i u_i`` with independent u_i uniform on [-1, 1] and all c_i >= 0, and C their sum. For ``|t| < C``
take ``L = C + |t|``: then ``|t - S| < L`` but for the ends, where the sign function has the Fourier series
``sgn(y) = 4 / pi * sum over odd k of sin(pi k y / L) / k``. Its expectation at ``y = t - S`` is, S being symmetric,

``2 P(S <= t) - 1 = 4 / pi * sum over odd k of sin(pi k t / L) / k * product of sinc(k c_i / L)``,

with ``sinc(x) = sin(pi x) / (pi x)``: an equation, since nothing lies beyond the period, so that truncation alone has
to be bounded. Every factor is at most ``min(1, L / (pi k c_i))``: of the j largest c_i the term k is then at most
``A_j / k**(j + 1)``, where A_j is the product of their ``L / (pi c_i)``, and the terms from k = K on, every second one,
add up to at most ``A_j (K**-(j + 1) + K**-j / (2 j))``. The best j counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from apas._random import SMALL, Stream, uniform, unit_cube
from apas._typing import Floats
from apas._validation import check_integer
from apas.models.base import Parameters
from apas.shifts.base import Box, Ends, Sparse
from apas.shifts.selection import BoxedShifts, placed

#: How many terms of the series are summed up, one number after the other, while the bounds are not close enough.
TERMS = (16, 64, 512, 4096)
#: Bounds that are this close are close enough.
CLOSE = 1e-11


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LinfShifts(BoxedShifts):
    """Every model whose parameters differ from the base model's by at most `delta` each.

    Draws are uniform on that box. A parameter moves by ``delta * factor``, where the factor is 1, the parameter's
    magnitude (`relative`), or what `scale` says.

    Parameters
    ----------
    relative : bool, default False
        Move each parameter by at most ``delta`` times its own magnitude; one that is 0 then stays, unless for `floor`.
    kinds : tuple of str, default ("weight", "bias")
    layers : sequence of str or int, optional
        Which layers move, by name or index; all unless given.
    scale : mapping, sequence of array_like or array_like, optional
        A factor per layer (``{name or index: factor}``, other layers keep 1), or factors per parameter (one array
        per tensor, or one vector of all). 0 means that the parameter does not move.
    floor : float, default 0.0
        With `relative`: the least magnitude a parameter is taken to have.
    """

    kind: ClassVar[str] = "linf"
    order: ClassVar[float] = math.inf

    def geometry(self, parameters: Parameters) -> Box:
        """The box itself."""
        return Box(self.radii(parameters))

    def directions(self, parameters: Parameters, stream: Stream, start: int, stop: int) -> Floats:
        """Directions number `start` to `stop`, (stop - start, k): uniform on a grid of [-1, 1), times the radii."""
        return self._drawn(unit_cube, parameters, stream, start, stop)

    def linear_share(self, parameters: Parameters, sizes: Floats, level: float, slack: float, decides: Any) -> Ends:
        """Bounds on the share of draws that keep a margin which is linear in the shift, from its Fourier series."""
        if abs(level) + slack >= float(sizes.sum()) * (1 - len(sizes) * 2.0**-52):  # all or none, or close to it
            return uniform_sum_share(sizes, level - slack)[0], uniform_sum_share(sizes, level + slack)[1]
        lower, upper = uniform_sum_share(sizes, level, decides)
        more = slack / (2 * float(sizes.max()))  # no sum that contains a uniform number has a larger density
        return lower - more, upper + more

    def measure(self, parameters: Parameters) -> str:
        """Name of the distribution: what moves, and how far."""
        return f"uniform on {self.region(parameters)}"

    def region(self, parameters: Parameters) -> str:
        """The set itself in words."""
        movers, size, fixed = self._words(parameters)
        return f"the box in which {movers} moves by at most {size}{fixed}"


@dataclass(frozen=True, eq=False, repr=False)
class SparseShifts(BoxedShifts):
    """Every model in which at most `count` parameters differ from the base model's, each by at most `delta`.

    A draw moves exactly `count` of those that can move, any of which are as likely as others, each by a number that is
    uniform on [-delta, delta], times its factor, independently of the others.

    Parameters
    ----------
    count : int
    relative, kinds, layers, scale, floor : optional
        Which parameters can move, and in what proportion: as for `LinfShifts`.

    Notes
    -----
    This is p = 0 of the L_p distances, the number of parameters that changed, with a bound on each change. Without it
    nothing would survive: an output bias, or an output weight whose input is not 0, breaks a row all by itself.

    Examples
    --------
    >>> SparseShifts(2, kinds=("weight",))
    SparseShifts(2, kinds=('weight',))
    """

    count: int = field(kw_only=False)
    kind: ClassVar[str] = "sparse"

    def __post_init__(self) -> None:
        vars(self)["count"] = check_integer(self.count, "count", "SparseShifts", least=1)
        super().__post_init__()

    def geometry(self, parameters: Parameters) -> Sparse:
        """The set itself."""
        return Sparse(self.count, self.radii(parameters))

    def directions(self, parameters: Parameters, stream: Stream, start: int, stop: int) -> Floats:
        """Directions number `start` to `stop`, shape (stop - start, k).

        With n of them moving, a direction takes 2 n words: by the first n its parameters are chosen (Floyd's way to
        draw a set), by the highest 53 bits of the others each moves by a number of (-1, 1) that is never 0.
        """
        radii = self.radii(parameters)
        movers = np.flatnonzero(radii)
        chosen, rows = min(self.count, len(movers)), np.arange(stop - start)
        words = stream.words(2 * chosen * start, 2 * chosen * len(rows)).reshape(len(rows), 2 * chosen)
        shares = uniform(words[:, :chosen])
        sizes = ((words[:, chosen:] >> np.uint64(11)).astype(np.int64) - 2**52 + 0.5) * 2.0**-52
        points = np.zeros((len(rows), len(movers)), order="F" if len(movers) <= SMALL else "C")
        for i, last in enumerate(range(len(movers) - chosen, len(movers))):
            # one of the first `last + 1`; or, where that is taken, the last of them, which cannot be
            place = np.minimum((shares[:, i] * (last + 1)).astype(np.intp), last)
            place = np.where(points[rows, place] != 0, last, place)
            points[rows, place] = sizes[:, i]
        points *= radii[movers]
        return placed(points, movers, len(radii))

    def contains(self, base: Parameters, other: Parameters, delta: float) -> bool:
        """Whether at most `count` parameters differ, each by at most ``delta * radii``, decided in real arithmetic."""
        return super().contains(base, other, delta) and self._few(base, other)

    def distance(self, base: Parameters, other: Parameters) -> float:
        """The largest change in units of its radius; infinite if too many, or others than can move, changed."""
        return super().distance(base, other) if self._few(base, other) else math.inf

    def _few(self, base: Parameters, other: Parameters) -> bool:
        return bool(np.count_nonzero(base.values != other.values) <= self.count)

    def measure(self, parameters: Parameters) -> str:
        """Name of the distribution: how many move, how they are chosen, and how far each moves."""
        some, size, fixed = self._some(parameters)
        return f"{some}, chosen at random, move, each uniformly by at most {size}{fixed}"

    def region(self, parameters: Parameters) -> str:
        """The set itself in words."""
        some, size, fixed = self._some(parameters)
        return f"the set in which at most {some} move, each by at most {size}{fixed}"

    def _some(self, parameters: Parameters) -> tuple[str, str, str]:
        movers = np.count_nonzero(self.radii(parameters))
        some = f"{min(self.count, movers)} of {movers} {self._selected(parameters)}"
        return some, *self._words(parameters)[1:]


def uniform_sum_share(sizes: Floats, level: float, decides: float | None = None) -> tuple[float, float]:
    """Bounds on P(S <= level), where S is the sum of ``sizes[i] * u_i`` with independent u_i uniform on [-1, 1].

    No closer than it takes to know on which side of `decides` it lies, if that is given. They hold in real arithmetic
    for the very numbers that are given.

    >>> [round(bound, 8) for bound in uniform_sum_share(np.array([1.0, 1.0]), 1.0)]
    [0.875, 0.875]
    """
    sizes = -np.sort(-sizes[sizes > 0])
    # the sum of n numbers is off by less than n rounding errors of it: beyond that, all or nothing is certain
    whole = float(sizes.sum()) * (1 + len(sizes) * 2.0**-52)
    if not len(sizes) or abs(level) >= whole:
        return (1.0, 1.0) if level >= 0 else (0.0, 0.0)
    if len(sizes) == 1:
        share = 0.5 + 0.5 * level / sizes[0]
        return max(0.0, share - 2.0**-52), min(1.0, share + 2.0**-52)
    low, high, total, done = 0.0, 1.0, 0.0, 0
    period = whole + abs(level)  # a longer one than needed does no harm
    rates = sizes / period
    slopes = np.cumsum(np.log(1 / (math.pi * rates)))  # log A_j
    for terms in TERMS:
        k = np.arange(2 * done + 1, 2 * terms, 2.0)
        factors = np.sinc(k[:, None] * rates).prod(axis=1)
        total += float((np.sin(math.pi * level / period * k) / k * factors).sum())
        # what the terms that are left out can add, with a thousandth to spare, since logarithms of up to thousands of
        # factors are off in their last digits
        first, j = 2 * terms + 1, np.arange(1, len(slopes) + 1)
        logs = slopes - (j + 1) * math.log(first) + np.log1p(first / (2 * j))
        error = 2 / math.pi * math.exp(min(0.0, float(logs.min()))) * 1.001
        # what rounding can add: with units of 2**-53, each factor is off by less than 24 and a sine of x by 4 x + 8;
        # the terms are divided by k, the reciprocals of which add up to less than 1 + log(terms)
        error += 2.0**-53 * 24 * ((len(sizes) + 2) * (1 + math.log(terms)) + terms)
        low, high = max(low, 0.5 + 2 / math.pi * total - error), min(high, 0.5 + 2 / math.pi * total + error)
        done = terms
        if high - low <= 2 * CLOSE or (decides is not None and not low < decides <= high):
            break
    return low, high
