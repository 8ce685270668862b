"""`LinfShifts`, boxes of shifts: every parameter moves by at most delta, independently of the others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from apas._random import Stream, unit_cube
from apas._typing import Floats
from apas.models.base import Parameters
from apas.shifts.base import Box, Ends
from apas.shifts.selection import BoxedShifts
from apas.stats.uniform_sums import uniform_sum_share


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

    _owner: ClassVar[str] = "LinfShifts"
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
