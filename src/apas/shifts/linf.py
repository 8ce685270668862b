"""Boxes of shifts: every parameter moves by at most delta, independently of the others."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from apas._fields import Fields
from apas._random import Stream
from apas._typing import Floats
from apas.errors import InputError
from apas.models.base import Model, Parameters
from apas.shifts.box import box_distances, within_box
from apas.shifts.points import unit_cube
from apas.shifts.selection import ALL_KINDS, Reach, placed


@dataclass(frozen=True, eq=False, kw_only=True)
class LinfShifts:
    """Every model whose parameters differ from the base model's by at most `delta` each.

    Draws are uniform on that box. A parameter moves by ``delta * factor``, where the factor is 1, the parameter's
    magnitude (`relative`), or what `scale` says.

    Parameters
    ----------
    relative : bool, default False
        Move each parameter by at most ``delta`` times its own magnitude. A parameter that is 0 then never moves,
        unless `floor` is set.
    kinds : tuple of str, default ("weight", "bias")
        Which kinds of parameters move.
    layers : sequence of str or int, optional
        Which layers move, by name or index; all unless given.
    scale : mapping, sequence of array_like or array_like, optional
        A factor per layer (``{name or index: factor}``, other layers keep 1), or factors per parameter (one array
        per tensor, or one vector of all). 0 means that the parameter does not move.
    floor : float, default 0.0
        With `relative`: the least magnitude a parameter is taken to have.

    Examples
    --------
    >>> LinfShifts(kinds=("weight",), layers=[0])
    LinfShifts(kinds=('weight',), layers=(0,))
    """

    relative: bool = False
    kinds: tuple[str, ...] = ALL_KINDS
    layers: Sequence[str | int] | None = None
    scale: Mapping[str | int, float] | Sequence[ArrayLike] | Floats | None = None
    floor: float = 0.0
    #: Whether every parameter moves by delta itself.
    is_whole: bool = field(init=False, repr=False)
    _reach: Reach = field(init=False, repr=False)
    kind: ClassVar[str] = "linf"
    order: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        options = {name: getattr(self, name) for name in ("relative", "kinds", "layers", "scale", "floor")}
        reach = Reach("LinfShifts", **options)
        for name in ("kinds", "layers", "scale"):  # as checked, and copied from what may change
            object.__setattr__(self, name, getattr(reach, name))
        object.__setattr__(self, "_reach", reach)
        chosen = reach.relative or reach.kinds != ALL_KINDS or reach.layers is not None or reach.scale is not None
        object.__setattr__(self, "is_whole", not chosen)

    def radii(self, parameters: Parameters) -> Floats:
        """How far each parameter may move when delta is 1, shape (k,)."""
        return self._reach.radii(parameters)

    def directions(self, parameters: Parameters, stream: Stream, start: int, stop: int) -> Floats:
        """Directions number `start` to `stop`, shape (stop - start, k).

        Coordinate ``j`` of a direction is a 32-bit integer times 2**-31, so uniform on a grid of [-1, 1), times
        ``radii[j]``; parameters that do not move take no random number.
        """
        if self._reach.plain(parameters):
            return unit_cube(len(parameters), stream, start, stop)
        radii = self.radii(parameters)
        if radii.all():
            unit = unit_cube(len(radii), stream, start, stop)
            unit *= radii
            return unit
        movers = np.flatnonzero(radii)
        return placed(unit_cube(len(movers), stream, start, stop) * radii[movers], movers, len(radii))

    def margins(self, model: Model, X: Floats, target: Any, directions: Floats, delta: float | Floats) -> Floats:
        """Margins of the rows on every shifted model, shape (directions, rows)."""
        return model.shifted_margins(X, target, directions, delta)

    def contains(self, base: Parameters, other: Parameters, delta: float) -> bool:
        """Whether every parameter of `other` lies within ``delta * radii`` of `base`, decided in real arithmetic."""
        if base.shapes != other.shapes:
            raise InputError("the two models must have parameters of the same shapes to be compared.")
        return bool(within_box(base.values, self.radii(base), delta, other.values).all())

    def distance(self, base: Parameters, other: Parameters) -> float:
        """The largest change of a parameter in units of its radius; infinite if one changed that does not move."""
        moved, radii = box_distances(base.values, other.values), self.radii(base)
        if not np.isfinite(other.values).all() or moved[radii == 0].any():
            return math.inf
        with np.errstate(over="ignore"):
            return float((moved[radii > 0] / radii[radii > 0]).max(initial=0.0))

    def measure(self, parameters: Parameters) -> str:
        """Name of the distribution: what moves, and how far."""
        return f"uniform on {self.region(parameters)}"

    def region(self, parameters: Parameters) -> str:
        """The set itself in words."""
        reach = self._reach
        movers, fixed = reach.movers(parameters), reach.fixed(parameters)
        return f"the box in which {movers} moves by at most {reach.size()}{fixed}"

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to build the set again, as JSON values."""
        return {"kind": "linf", **self._reach.to_dict()}

    @classmethod
    def from_dict(cls, about: Fields) -> LinfShifts:
        """The set that a file describes."""
        return cls(**Reach.options(about))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinfShifts) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return int(hashlib.sha256(repr(self.to_dict()).encode()).hexdigest()[:15], 16)

    def __repr__(self) -> str:
        return repr(self._reach)
