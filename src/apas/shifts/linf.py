"""Boxes of shifts: every parameter moves by at most delta, independently of the others."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apas._random import Stream
from apas.errors import InputError
from apas.models.parameters import Parameters
from apas.models.protocol import Model
from apas.shifts.cube import unit_cube
from apas.shifts.selection import (
    ALL_KINDS,
    check_kinds,
    check_layers,
    chosen_layers,
    layer_name,
    moving,
    placed,
    plain,
    selected,
)

__all__ = ["LinfShifts"]


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
    scale: Mapping[str | int, float] | Sequence[ArrayLike] | NDArray[np.float64] | None = None
    floor: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", check_kinds(self.kinds, "LinfShifts"))
        object.__setattr__(self, "layers", check_layers(self.layers))
        object.__setattr__(self, "scale", _copied(self.scale))
        if not isinstance(self.relative, bool | np.bool_):
            raise InputError(f"`relative` of LinfShifts must be True or False, got {self.relative!r}.")
        number = isinstance(self.floor, int | float | np.number) and not isinstance(self.floor, bool)
        if not number or not 0.0 <= self.floor < np.inf or (self.floor and not self.relative):
            raise InputError(
                f"`floor` of LinfShifts must be at least 0 and goes with relative=True, got {self.floor!r}."
            )

    @property
    def _plain(self) -> bool:
        """Whether every parameter moves by delta itself."""
        return not self.relative and len(self.kinds) == 2 and self.layers is None and self.scale is None

    def radii(self, parameters: Parameters) -> NDArray[np.float64]:
        """How far each parameter may move when delta is 1, shape (k,)."""
        if self._plain:
            return np.ones(len(parameters))
        radii = moving(parameters, self.kinds, self.layers, "LinfShifts").astype(np.float64)
        if self.relative:
            radii *= np.maximum(np.abs(parameters.values), self.floor)
        radii *= self._factors(parameters)
        if not radii.any():
            raise InputError(
                f"`shifts` must move at least one parameter, but {self} moves none of this model's; "
                "choose other kinds, layers or scales."
            )
        return radii

    def _factors(self, parameters: Parameters) -> NDArray[np.float64]:
        factors = np.ones(len(parameters))
        if self.scale is None:
            return factors
        if isinstance(self.scale, Mapping):
            for key, factor in self.scale.items():
                name = layer_name(parameters, key, "scale", "LinfShifts")
                for layer, part in zip(parameters.layers, parameters.slices, strict=True):
                    if layer == name:
                        factors[part] = _factor(factor)
        else:
            factors = _flat_scale(self.scale, parameters)
        if not (np.isfinite(factors).all() and (factors >= 0).all()):
            raise InputError("`scale` of LinfShifts must hold finite numbers of at least 0.")
        return factors

    def directions(self, parameters: Parameters, stream: Stream, start: int, stop: int) -> NDArray[np.float64]:
        """Directions number `start` to `stop`, shape (stop - start, k).

        Coordinate ``j`` of a direction is a 32-bit integer times 2**-31, so uniform on a grid of [-1, 1), times
        ``radii[j]``; parameters that do not move take no random number.
        """
        if self._plain:
            return unit_cube(len(parameters), stream, start, stop)
        radii = self.radii(parameters)
        movers = np.flatnonzero(radii)
        unit = unit_cube(len(movers), stream, start, stop)
        if len(movers) == len(radii):
            unit *= radii
            return unit
        return placed(unit * radii[movers], movers, len(radii))

    def margins(
        self, model: Model, X: NDArray[np.float64], target: Any, directions: NDArray[np.float64],
        delta: float | NDArray[np.float64],
    ) -> NDArray[np.float64]:  # fmt: skip
        """Margins of the rows on every shifted model, shape (directions, rows)."""
        return model.shifted_margins(X, target, directions, delta)

    def contains(self, base: Parameters, other: Parameters, delta: float) -> bool:
        """Whether every parameter of `other` lies within ``delta * radii`` of `base` (no tolerance)."""
        if base.shapes != other.shapes:
            raise InputError("the two models must have parameters of the same shapes to be compared.")
        return bool((np.abs(other.values - base.values) <= delta * self.radii(base)).all())

    def measure(self, parameters: Parameters) -> str:
        """Name of the distribution: what moves, and how far."""
        return f"uniform on {self.region(parameters)}"

    def region(self, parameters: Parameters) -> str:
        """The set itself in words."""
        movers = int(np.count_nonzero(self.radii(parameters)))
        what = selected(parameters, self.kinds, self.layers, "LinfShifts")
        size = "delta times its magnitude" if self.relative else "delta"
        size += f" (taken as at least {self.floor:g})" if self.floor else ""
        size += " times its scale" if self.scale is not None else ""
        zeros = self._zeros(parameters)
        still = len(parameters) - movers - len(zeros)
        fixed = f", {still} fixed" if still else ""
        if zeros:
            named = ", ".join(zeros[:3]) + (", ..." if len(zeros) > 3 else "")
            fixed += f", {len(zeros)} that {'is' if len(zeros) == 1 else 'are'} 0 and so cannot move ({named})"
        mover = f"each of {movers} {what}" if movers > 1 else f"the one parameter chosen from the {what}"
        return f"the box in which {mover} moves by at most {size}{fixed}"

    def _zeros(self, parameters: Parameters) -> list[str]:
        """Names of parameters that a relative shift leaves alone because they are 0."""
        if not self.relative or self.floor:
            return []
        chosen, names = chosen_layers(parameters, self.layers, "LinfShifts"), []
        factors = self._factors(parameters)
        tensors = zip(
            parameters.names, parameters.kinds, parameters.layers, parameters.shapes, parameters.slices, strict=True
        )
        for name, kind, layer, shape, part in tensors:
            if kind in self.kinds and layer in chosen:
                idle = (parameters.values[part] == 0) & (factors[part] > 0)
                places = np.argwhere(idle.reshape(shape)).tolist()
                names += [f"{name}[{', '.join(map(str, place))}]" for place in places]
        return names

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to build the set again, as JSON values."""
        scale: Any = None
        if isinstance(self.scale, Mapping):
            scale = {str(key): _factor(value) for key, value in self.scale.items()}
        elif self.scale is not None:
            scale = [np.asarray(s).tolist() for s in self.scale]
        layers = None if self.layers is None else list(self.layers)
        return {
            "kind": "linf", "relative": self.relative, "kinds": list(self.kinds), "layers": layers,
            "scale": scale, "floor": self.floor,
        }  # fmt: skip

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinfShifts) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return int(hashlib.sha256(repr(self.to_dict()).encode()).hexdigest()[:15], 16)

    def __repr__(self) -> str:
        shown = [
            f"{n}={getattr(self, n)!r}"
            for n in ("relative", "kinds", "layers", "floor")
            if getattr(self, n) != _DEFAULTS[n]
        ]
        shown += ["scale=..."] if self.scale is not None else []
        return f"LinfShifts({', '.join(shown)})"


_DEFAULTS = {"relative": False, "kinds": ALL_KINDS, "layers": None, "floor": 0.0}


def _copied(scale: Any) -> Any:
    """The scale as a set of its own: what it was made from may change afterwards."""
    if scale is None:
        return None
    if isinstance(scale, Mapping):
        return {plain(key): value for key, value in scale.items()}
    try:
        return tuple(np.array(s, dtype=np.float64) for s in scale)
    except (TypeError, ValueError):
        raise InputError(
            f"`scale` of LinfShifts must hold numbers, per layer or per parameter, got {scale!r}."
        ) from None


def _factor(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan  # refused together with other numbers that are not finite


def _flat_scale(arrays: Any, parameters: Parameters) -> NDArray[np.float64]:
    if len(arrays) == len(parameters) and all(a.ndim == 0 for a in arrays):
        return np.array(arrays)
    if [a.shape for a in arrays] != list(parameters.shapes):
        raise InputError(
            "`scale` of LinfShifts must be a factor per layer, one array per tensor of shapes "
            f"{list(parameters.shapes)}, or one vector of {len(parameters)} factors, "
            f"got shapes {[a.shape for a in arrays][:6]}."
        )
    return np.concatenate([a.ravel() for a in arrays])
