"""Which parameters a shift set moves, and how far each moves when delta is 1."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache, partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from apas._fields import EqualByContent, Fields, as_number
from apas._random import Stream
from apas._typing import Bools, Floats, Indices
from apas.errors import InputError
from apas.models.base import ABSENT, Model, Parameters
from apas.shifts.base import KINDS
from apas.shifts.geometry import box_distances, within_box

#: Both kinds of parameters, which is what moves unless less is asked for; absent ones never do.
ALL_KINDS = ("weight", "bias")
_PLURALS = {"weight": "weights", "bias": "biases"}


def check_kinds(kinds: Any, owner: str) -> tuple[str, ...]:
    """Give `kinds` as a tuple of different kinds."""
    listed = _listed(kinds)
    if not listed or not set(listed) <= set(ALL_KINDS) or len(set(listed)) < len(listed):
        raise InputError(f'`kinds` of {owner} must hold "weight", "bias" or both, got {kinds!r}.')
    return tuple(kind for kind in ALL_KINDS if kind in listed)  # in one order, so that equal sets read alike


def check_layers(layers: Any) -> tuple[str | int, ...] | None:
    """Give `layers` as a tuple of names and indices; whether a model has them is seen when it is known."""
    return None if layers is None else tuple(scalar(layer) for layer in _listed(layers))


def position_of(names: Sequence[str], key: Any, argument: str, what: str, shown: str | None = None) -> int:
    """Where a name stands, or what an index means; refused if it is neither."""
    if isinstance(key, str) and key in names:
        return names.index(key)
    # an index that has been through JSON is a text, as keys are there
    index = int(key) if isinstance(key, str) and re.fullmatch(r"-?\d{1,9}", key) else key
    if not isinstance(index, int) or isinstance(index, bool) or not -len(names) <= index < len(names):
        told = f"must name {what} of the model ({shown or ', '.join(names)}) or index them (0 to {len(names) - 1})"
        raise InputError(f"{argument} {told}, got {key!r}.")
    return index % len(names)


@lru_cache(maxsize=256)
def whole_words(kinds: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]) -> tuple[str, str, str]:
    """The words of a set in which every parameter that exists moves by delta, which the layout of a model decides."""
    count = sum(math.prod(shape) for kind, shape in zip(kinds, shapes, strict=True) if kind != ABSENT)
    what = " and ".join(word for kind, word in _PLURALS.items() if kind in kinds)
    return f"each of {count} {what}" if count > 1 else f"the one parameter chosen from the {what}", "delta", ""


def placed(points: Floats, movers: Indices, size: int) -> Floats:
    """Points of the parameters that move as points of all `size` parameters, 0 elsewhere, in the same memory order."""
    if len(movers) == size:
        return points
    order = "F" if points.flags.f_contiguous and len(points) > 1 else "C"
    directions = np.zeros((len(points), size), order=order)  # type: ignore[call-overload]
    directions[:, movers] = points
    return directions  # type: ignore[no-any-return]


def scalar(value: Any) -> Any:
    """A scalar of NumPy as one of Python."""
    return value.item() if isinstance(value, np.generic) else value


def _listed(value: Any) -> tuple[Any, ...]:
    """One name or several as a tuple; what cannot be iterated over stands for itself, to be refused by name."""
    return tuple(value) if isinstance(value, list | tuple | set | frozenset | np.ndarray) else (value,)


def _read_names(about: Fields, key: str) -> list[Any] | None:
    """Names or indices of layers or features that a file lists; None for all."""
    if about.is_null(key):
        return None
    names = about.items(key)
    if not names or not all(isinstance(n, str | int) and not isinstance(n, bool) for n in names):
        raise about.wrong(key, "a list of names or indices")
    return names


def _read_factors(about: Fields, key: str, other: Callable[[Fields, str], Any]) -> Any:
    """A number per name, None where they go without saying, or what `other` reads."""
    if isinstance(about.any(key), dict):
        return {name: about.inner(key).number(name) for name in about.object(key)}
    return None if about.is_null(key) else other(about, key)


def _read_numbers(about: Fields, key: str, value: Any) -> Any:
    try:
        found = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None or (as_number(value) is None and not isinstance(value, list)):
        raise about.wrong(key, "numbers, in lists of one shape")
    return found if found.ndim else float(found)


#: How a setting of a shift set is read from a file, by its name, behind the kind of the set where it has its own.
_READERS: dict[str, Callable[[Fields, str], Any]] = {
    **dict.fromkeys(("p", "floor"), Fields.number),
    **dict.fromkeys(("layers", "features"), _read_names),
    "scale": partial(_read_factors, other=lambda about, key: [_read_numbers(about, key, s) for s in about.items(key)]),
    "noise scale": partial(_read_factors, other=lambda about, key: _read_numbers(about, key, about.any(key))),
    "integers": partial(_read_factors, other=Fields.object),
    **dict.fromkeys(("parameters", "row"), lambda about, key: KINDS.read(about.inner(key))),
    "kinds": lambda about, key: tuple(Fields({key: k}, about.where).choice(key, *ALL_KINDS) for k in about.items(key)),
    "relative": Fields.flag,
    "count": partial(Fields.integer, least=1),
    "covariance": lambda about, key: _read_numbers(about, key, about.items(key)),
    "distribution": lambda about, key: about.choice(key, "uniform", "normal"),
}


class SetBySettings(EqualByContent):
    """A set that its settings, which are its fields, say all about."""

    @classmethod
    def from_dict(cls, about: Fields) -> Self:
        """The set that a file describes."""
        kind: Any = cls
        names = [f.name for f in fields(kind) if f.init]
        about.only("kind", *names)
        readers = {name: _READERS.get(f"{kind.kind} {name}") or _READERS.get(name) or Fields.any for name in names}
        return cls(**{name: read(about, name) for name, read in readers.items()})

    def __repr__(self: Any) -> str:
        needed, others = list[str](), list[str]()
        settings = [f for f in fields(self) if f.init]
        for f in sorted(settings, key=lambda f: f.name == "scale" and f is not settings[0]):
            value = getattr(self, f.name)
            if f.default is MISSING:  # it comes without its name, and a matrix by its size
                size = " x ".join(map(str, np.shape(value)))
                needed.append(f"{size} {f.name}" if size else f"{value:.17g}" if value == int(value) else repr(value))
            elif f.name == "scale" and value is not None:
                others.append("scale=...")
            elif value != f.default:
                others.append(f"{f.name}={value!r}")
        return f"{type(self).__name__}({', '.join(needed + others)})"


class ParameterShifts(SetBySettings):
    """What sets share that move parameters of a model: those of some kinds, in some layers."""

    kinds: tuple[str, ...] = ALL_KINDS
    layers: Sequence[str | int] | None
    #: How far each parameter moves when delta is 1, shape (k,).
    radii: Callable[[Parameters], Floats]

    def _layer(self, parameters: Parameters, layer: str | int, argument: str) -> str:
        names = parameters.layer_names
        return names[position_of(names, layer, f"`{argument}` of {type(self).__name__}", "layers")]

    def _chosen(self, parameters: Parameters) -> set[str]:
        if self.layers is None:
            return set(parameters.layers)
        return {self._layer(parameters, layer, "layers") for layer in self.layers}

    def _moving(self, parameters: Parameters) -> Bools:
        chosen, moves = self._chosen(parameters), np.zeros(len(parameters), dtype=bool)
        for kind, layer, part in zip(parameters.kinds, parameters.layers, parameters.slices, strict=True):
            moves[part] = kind in self.kinds and layer in chosen
        return moves

    def _selected(self, parameters: Parameters) -> str:
        """What moves, in words: "weights and biases of layer0", or "weights" if there are no biases."""
        chosen = self._chosen(parameters)
        there = {kind for kind, layer in zip(parameters.kinds, parameters.layers, strict=True) if layer in chosen}
        what = " and ".join(_PLURALS[kind] for kind in self.kinds if kind in there)
        return what if self.layers is None else f"{what} of {', '.join(sorted(chosen))}"

    def _still(self, parameters: Parameters, named: int = 0) -> str:
        """How many do not move, besides those that are named, in words that follow a comma; empty if there are none."""
        still = int(np.count_nonzero(parameters.exist & (self.radii(parameters) == 0))) - named
        return f", {still} fixed" if still else ""

    def _others_stay(self, base: Parameters, other: Parameters) -> bool:
        if base.shapes != other.shapes:
            raise InputError("the two models must have parameters of the same shapes to be compared.")
        still = self.radii(base) == 0
        return bool(np.isfinite(other.values).all() and np.array_equal(base.values[still], other.values[still]))

    def margins(self, model: Model, X: Floats, target: Any, directions: Floats, delta: float | Floats) -> Floats:
        """Margins of the rows on every shifted model, shape (directions, rows)."""
        return model.shifted_margins(X, target, directions, delta)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ScaledShifts(ParameterShifts):
    """The options that boxes and normal shifts share: which parameters move, and in what proportion."""

    kind: ClassVar[str]
    relative: bool = False
    kinds: tuple[str, ...] = ALL_KINDS
    layers: Sequence[str | int] | None = None
    scale: Mapping[str | int, float] | Sequence[ArrayLike] | Floats | None = None
    floor: float = 0.0
    #: Whether every parameter that exists moves by delta itself.
    is_whole: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # as checked, and copied from what may change; the dictionary, since attributes of the set are frozen
        own, name = vars(self), type(self).__name__
        own |= {"kinds": check_kinds(self.kinds, name), "layers": check_layers(self.layers)}
        own |= {"scale": _copy(self.scale, name), "relative": scalar(self.relative), "floor": scalar(self.floor)}
        if not isinstance(self.relative, bool):
            raise InputError(f"`relative` of {name} must be True or False, got {self.relative!r}.")
        floor = self.floor
        number = isinstance(floor, int | float | np.number) and not isinstance(floor, bool)
        if not number or not 0.0 <= floor < np.inf or (floor and not self.relative):
            raise InputError(f"`floor` of {name} must be at least 0 and goes with relative=True, got {floor!r}.")
        own["floor"] = float(floor) + 0.0  # one spelling of each number, as sets are hashed: not 1, and not -0.0
        own["is_whole"] = not self.relative and len(self.kinds) == 2 and self.layers is None and self.scale is None

    def _plain(self, parameters: Parameters) -> bool:
        return self.is_whole and ABSENT not in parameters.kinds

    def radii(self, parameters: Parameters) -> Floats:
        """How far each parameter moves when delta is 1, shape (k,); of normal shifts the standard deviation."""
        if self._plain(parameters):
            return np.ones(parameters.values.size)
        radii = self._moving(parameters).astype(np.float64)
        if self.relative:
            sizes = np.abs(parameters.values)
            radii *= np.maximum(sizes, self.floor, out=sizes)
        if self.scale is not None:
            radii *= self._factors(parameters)
        if not radii.any():
            told = f"must move at least one parameter, but {self} moves none of this model's"
            raise InputError(f"`shifts` {told}; choose other kinds, layers or scales.")
        return radii

    def _factors(self, parameters: Parameters) -> Floats:
        factors = np.ones(len(parameters))
        if isinstance(self.scale, Mapping):
            by_layer = {self._layer(parameters, key, "scale"): factor for key, factor in self.scale.items()}
            for layer, part in zip(parameters.layers, parameters.slices, strict=True):
                factors[part] = by_layer.get(layer, 1.0)
        elif self.scale is not None:
            arrays: Any = self.scale
            shapes = [a.shape for a in arrays]
            if shapes != [()] * len(parameters) and shapes != list(parameters.shapes):
                wanted = f"a factor per layer, one array per tensor of shapes {list(parameters.shapes)}"
                wanted += f", or one vector of {len(parameters)} factors"
                raise InputError(f"`scale` of {type(self).__name__} must be {wanted}, got shapes {shapes[:6]}.")
            factors = np.concatenate([a.ravel() for a in arrays])
        if not (np.isfinite(factors).all() and (factors >= 0).all()):
            raise InputError(f"`scale` of {type(self).__name__} must hold finite numbers of at least 0.")
        return factors

    def _drawn(
        self, unit: Callable[[int, Stream, int, int], Floats], parameters: Parameters, stream: Stream, *ends: int
    ) -> Floats:
        """Points that `unit` draws for the parameters that move, times their radii; the others take no number."""
        radii = self.radii(parameters)
        movers = np.flatnonzero(radii)
        points = unit(len(movers), stream, *ends)
        if not self._plain(parameters):
            points *= radii[movers]
        return placed(points, movers, len(radii))

    def _words(self, parameters: Parameters) -> tuple[str, str, str]:
        if self.is_whole:
            return whole_words(parameters.kinds, parameters.shapes)
        size = "delta times its magnitude" if self.relative else "delta"
        size += f" (taken as at least {self.floor:g})" if self.floor else ""
        size += " times its scale" if self.scale is not None else ""
        count, what = int(np.count_nonzero(self.radii(parameters))), self._selected(parameters)
        movers = f"each of {count} {what}" if count > 1 else f"the one parameter chosen from the {what}"
        return movers, size, self._fixed(parameters)

    def _fixed(self, parameters: Parameters) -> str:
        """What does not move, and the first three of those that a relative shift leaves alone because they are 0."""
        if not self.relative or self.floor:
            return self._still(parameters)
        idle = self._moving(parameters) & (parameters.values == 0) & (self._factors(parameters) > 0)
        zeros, some = int(np.count_nonzero(idle)), list[str]()
        for name, shape, part in zip(parameters.names, parameters.shapes, parameters.slices, strict=True):
            first = np.flatnonzero(idle[part])[: 3 - len(some)]
            places = np.stack(np.unravel_index(first, shape), axis=-1).tolist() if shape else [[]] * len(first)
            some += [f"{name}[{', '.join(map(str, place))}]" for place in places]
        named = ", ".join(some) + (", ..." if zeros > len(some) else "")
        why = f", {zeros} that {'is' if zeros == 1 else 'are'} 0 and so cannot move ({named})"
        return self._still(parameters, zeros) + (why if zeros else "")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BoxedShifts(ScaledShifts):
    """Sets in which every parameter has a range of its own."""

    def contains(self, base: Parameters, other: Parameters, delta: float) -> bool:
        """Whether every parameter of `other` lies within ``delta * radii`` of `base`, decided in real arithmetic."""
        inside = self._others_stay(base, other)
        return inside and bool(within_box(base.values, self.radii(base), delta, other.values).all())

    def distance(self, base: Parameters, other: Parameters) -> float:
        """The largest change of a parameter in units of its radius; infinite if one changed that does not move."""
        moved, radii = box_distances(base.values, other.values), self.radii(base)
        if not np.isfinite(other.values).all() or moved[radii == 0].any():
            return np.inf
        with np.errstate(over="ignore"):
            return float((moved[radii > 0] / radii[radii > 0]).max(initial=0.0))


def _copy(scale: Any, owner: str) -> Any:
    if isinstance(scale, Mapping):
        return {scalar(key): _factor(value) for key, value in scale.items()}
    try:
        return None if scale is None else tuple(np.array(s, dtype=np.float64) for s in scale)
    except (TypeError, ValueError):
        raise InputError(f"`scale` of {owner} must hold numbers, per layer or per parameter, got {scale!r}.") from None


def _factor(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan  # refused together with other numbers that are not finite
