"""`LinfShifts`, boxes of shifts: every parameter moves by at most delta, independently of the others.

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
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from apas._random import Stream, unit_cube
from apas._typing import Floats
from apas.models.base import Parameters
from apas.shifts.base import Box, Ends
from apas.shifts.selection import BoxedShifts


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


#: How many terms of the series are summed up, one number after the other, while the bounds are not close enough.
TERMS = (16, 64, 512, 4096)
#: Bounds that are this close are close enough.
CLOSE = 1e-11


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
