"""Sparse shifts: a few parameters move, each by at most delta; which ones, nobody knows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from apas._random import SMALL, Stream, uniform
from apas._typing import Floats
from apas._validation import check_integer
from apas.models.base import Parameters
from apas.shifts.base import Sparse
from apas.shifts.selection import BoxedShifts, placed


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
