"""`GaussianShifts`, normal shifts: every parameter moves by a normal number of standard deviation delta."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from apas._random import LARGEST, Stream, standard_normals
from apas._typing import Floats
from apas.errors import Unsupported
from apas.models.base import Model, Parameters
from apas.shifts.base import NORMAL_WORDS, Ends, ShiftWords, magnitudes, outward_share
from apas.shifts.selection import ScaledShifts


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GaussianShifts(ScaledShifts):
    """Every parameter moves by an independent normal number with mean 0 and standard deviation `delta`.

    Most parameters move by less than `delta`, about one in three by more, and none has a limit. There is therefore no
    claim about every shift: `Sampling` is the only method.

    Parameters
    ----------
    relative, kinds, layers, scale, floor : optional
        Which parameters move, and in what proportion: as for `LinfShifts`.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> shifts = GaussianShifts(kinds=("weight",))
    >>> apas.certify(net, [[2.0, 0.5]], 0.1, target=1, shifts=shifts, rng=0)[0].claim.measure
    'each of 2 weights moves by an independent normal number of standard deviation delta, 1 fixed'
    """

    kind: ClassVar[str] = "gaussian"
    words: ClassVar[ShiftWords] = NORMAL_WORDS

    def directions(self, parameters: Parameters, stream: Stream, start: int, stop: int) -> Floats:
        """Directions number `start` to `stop`, shape (stop - start, k): normal numbers times the radii."""
        return self._drawn(standard_normals, parameters, stream, start, stop)

    def magnitudes(self, model: Model, points: Any, X: Floats, target: Any, delta: float | Floats) -> Floats:
        """How large the numbers behind any margin of each row get, on the farthest model that can be drawn."""
        return magnitudes(model, X, target, LARGEST * self.radii(model.parameters), delta)

    def linear_share(self, parameters: Parameters, sizes: Floats, level: float, slack: float, decides: Any) -> Ends:
        """Bounds on the share of draws that keep a margin which is linear in the shift: that of a normal number."""
        from scipy.special import ndtr

        lower, upper = outward_share(ndtr, sizes, level, slack)
        # rounding is known up to the farthest draw, and any of so many numbers is farther with less than this chance
        return lower - len(sizes) * 2.0**-50, upper

    def contains(self, base: Parameters, other: Parameters, delta: float) -> bool:
        """Whether `other` could have been drawn, at whatever distance: unless a parameter changed that stays."""
        return self._others_stay(base, other)

    def measure(self, parameters: Parameters) -> str:
        """Name of the distribution: what moves, and how far."""
        movers, size, fixed = self._words(parameters)
        return f"{movers} moves by an independent normal number of standard deviation {size}{fixed}"

    @property
    def no_worst_case(self) -> str:
        """Why nothing can be said about every shift."""
        return f"normal shifts ({self!r}) have no bound"

    def region(self, parameters: Parameters) -> str:
        """Refuse: a normal distribution has no bounded set, so that nothing can be said about every shift."""
        told = f"{self} has no limit to how far a parameter moves, so nothing holds for every one of its shifts"
        instead = 'method="sampling", which speaks of most of them, or shifts in a box (LinfShifts)'
        raise Unsupported(f"{told}; use {instead}.")
