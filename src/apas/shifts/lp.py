"""`LpShifts`, balls of shifts: all parameters together move by at most delta, measured by an L_p norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from apas._random import Stream, unit_ball
from apas._typing import Bools, Floats
from apas.errors import InputError
from apas.models.base import Parameters
from apas.shifts.base import Ball, Ends, ball_share, outward_share
from apas.shifts.geometry import lp_norm, within_ball
from apas.shifts.selection import ALL_KINDS, ParameterShifts, check_kinds, check_layers, placed

#: The smallest p: below it, the root of a sum rounded to nearest has few digits left.
LEAST = 0.001


@dataclass(frozen=True, eq=False, repr=False)
class LpShifts(ParameterShifts):
    """Every model whose parameters, as one vector, differ from the base model's by at most `delta` in the L_p norm.

    Draws are uniform in that ball.

    Parameters
    ----------
    p : float
        At least 0.001 and finite: 1 is the sum of the changes, 2 the Euclidean distance. Below 1 it is no norm, and the
        ball is not convex; proofs about it are those about the L_1 ball of the same `delta`, in which it lies.
    kinds, layers : optional
        Which parameters move: as for `LinfShifts`.

    Notes
    -----
    In many dimensions a uniform point of a ball lies next to its surface and in no direction far from the centre: of k
    coordinates each is about ``k**(-1/p)``. A `Most` claim about an L_2 ball therefore says much less than `Every`.

    Examples
    --------
    >>> LpShifts(2, kinds=("weight",))
    LpShifts(2, kinds=('weight',))
    """

    p: float
    kinds: tuple[str, ...] = field(default=ALL_KINDS, kw_only=True)
    layers: Sequence[str | int] | None = field(default=None, kw_only=True)
    kind: ClassVar[str] = "lp"

    def __post_init__(self) -> None:
        kinds, layers = check_kinds(self.kinds, "LpShifts"), check_layers(self.layers)
        vars(self).update(p=_check_order(self.p), kinds=kinds, layers=layers)

    def moves(self, parameters: Parameters) -> Bools:
        """Which parameters move, shape (k,)."""
        moves = self._moving(parameters)
        if not moves.any():
            told = f"must move at least one parameter, but {self} moves none of this model's"
            raise InputError(f"`shifts` {told}; choose other kinds or layers.")
        return moves

    def radii(self, parameters: Parameters) -> Floats:
        """How far each parameter may move when delta is 1, shape (k,): the box around the ball."""
        return self.moves(parameters).astype(np.float64)

    def geometry(self, parameters: Parameters) -> Ball:
        """The ball itself."""
        return Ball(self.p, self.radii(parameters))

    def directions(self, parameters: Parameters, stream: Stream, start: int, stop: int) -> Floats:
        """Directions number `start` to `stop`, (stop - start, k), uniform in the unit ball but for last digits."""
        movers = np.flatnonzero(self.moves(parameters))
        points = unit_ball(len(movers), self.p, stream, start, stop)
        return placed(points, movers, len(parameters))

    def linear_share(self, parameters: Parameters, sizes: Floats, level: float, slack: float, decides: Any) -> Ends:
        """Bounds on the share of draws that keep a margin which is linear in the shift: known for p = 2 alone."""
        if self.p != 2:
            return 0.0, 1.0
        share = partial(ball_share, count=int(np.count_nonzero(self.moves(parameters))))
        return outward_share(share, sizes, level, slack)

    def contains(self, base: Parameters, other: Parameters, delta: float) -> bool:
        """Whether `other` lies in the ball around `base`, decided in real arithmetic, as `within_ball` says."""
        moves = self.moves(base)
        inside = self._others_stay(base, other)
        return inside and within_ball(base.values[moves], other.values[moves], self.p, float(delta))

    def distance(self, base: Parameters, other: Parameters) -> float:
        """The norm of the change, but for rounding; infinite if a parameter changed that does not move."""
        moves = self.moves(base)
        if not self._others_stay(base, other):
            return math.inf
        with np.errstate(over="ignore"):
            return float(lp_norm(other.values[moves] - base.values[moves], self.p))

    @property
    def order(self) -> float:
        """The p of the norm that delta bounds."""
        return self.p

    @property
    def is_whole(self) -> bool:
        """Whether all parameters move."""
        return self == LpShifts(self.p)

    def measure(self, parameters: Parameters) -> str:
        """Name of the distribution: what moves, and how far."""
        return f"uniform in {self.region(parameters)}"

    def region(self, parameters: Parameters) -> str:
        """The set itself in words."""
        movers, what = int(np.count_nonzero(self.moves(parameters))), self._selected(parameters)
        mover = f"{movers} {what} together move" if movers > 1 else f"the one parameter chosen from the {what} moves"
        norm = "norm" if self.p >= 1 else "quasi-norm"
        return f"the ball in which {mover} by at most delta in the L{self.p:.15g} {norm}{self._still(parameters)}"


def _check_order(p: Any) -> float:
    number = isinstance(p, int | float | np.integer | np.floating) and not isinstance(p, bool)
    order = math.nan if not number else math.inf if p > 1e300 else float(p)
    if order == math.inf:
        raise InputError("`p` of LpShifts must be finite, got inf; the ball of that norm is a box: use LinfShifts().")
    if order < LEAST:
        instead = "to bound the number of parameters that move, p = 0, use SparseShifts(count)"
        raise InputError(f"`p` of LpShifts must be at least {LEAST}, got {p!r}; {instead}.")
    if math.isnan(order):
        raise InputError(f"`p` of LpShifts must be a number of at least {LEAST}, such as 1 or 2, got {p!r}.")
    return order
