"""Shift sets read back from files: what `to_dict` wrote, as the set it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from apas.contracts.json_values import Fields, as_number
from apas.errors import InputError
from apas.shifts.base import ShiftSet
from apas.shifts.gaussian import GaussianShifts
from apas.shifts.linf import LinfShifts
from apas.shifts.lp import LpShifts
from apas.shifts.noise import InputNoise
from apas.shifts.observed import ObservedShifts

_REACH = ("relative", "kinds", "layers", "scale", "floor")
_KNOWN = (LinfShifts, LpShifts, GaussianShifts, ObservedShifts, InputNoise)


@dataclass(frozen=True)
class AbsentModels:
    """`ObservedShifts` of which a file holds the fingerprints, but not the models."""

    digests: tuple[str, ...]
    process: str | None

    def to_dict(self) -> dict[str, Any]:
        """What `ObservedShifts.to_dict` gives."""
        return {"kind": "observed", "models": list(self.digests), "process": self.process}

    def _refuse(self, *_: Any) -> NoReturn:
        raise InputError(
            "`shifts` are models of which the file holds only fingerprints; pass the models themselves to verify, or "
            "make apas.ObservedShifts of them."
        )

    directions = margins = radii = contains = measure = region = _refuse


def described_shifts(shifts: ShiftSet) -> dict[str, Any]:
    """The set as JSON values; a set that no reader would know is refused."""
    if not isinstance(shifts, (*_KNOWN, AbsentModels)):
        raise InputError(
            f"certificates about {type(shifts).__name__} cannot be written to a file: a reader would not know the set; "
            "use LinfShifts, LpShifts, GaussianShifts, ObservedShifts or InputNoise."
        )
    return shifts.to_dict()


def read_shifts(about: Fields) -> Any:
    """The set that a file describes."""
    kind = about.choice("kind", "linf", "lp", "gaussian", "observed", "noise")
    if kind == "observed":
        about.only("kind", "models", "process")
        digests = [Fields({"models": d}, about.where).digest("models") for d in about.items("models")]
        return AbsentModels(tuple(digests), None if about.is_null("process") else about.text("process"))
    if kind == "lp":
        about.only("kind", "p", "kinds", "layers")
        return LpShifts(about.number("p"), kinds=_kinds(about), layers=_names(about, "layers"))
    if kind == "noise":
        about.only("kind", "scale", "features", "integers")
        integers = None if about.is_null("integers") else _factors(about.inner("integers"))
        scale = about.any("scale")
        if scale is not None:
            scale = _factors(about.inner("scale")) if isinstance(scale, dict) else _numbers(about, "scale", scale)
        return InputNoise(scale=scale, features=_names(about, "features"), integers=integers)
    about.only("kind", *_REACH)
    options = {
        "relative": about.flag("relative"),
        "kinds": _kinds(about),
        "layers": _names(about, "layers"),
        "floor": about.number("floor"),
        "scale": _scale(about),
    }
    return LinfShifts(**options) if kind == "linf" else GaussianShifts(**options)


def with_models(shifts: Any, models: Sequence[Any]) -> Any:
    """The set with its models, if these are given and are the very ones."""
    if not isinstance(shifts, AbsentModels) or not len(models):
        return shifts
    found = ObservedShifts(models, process=shifts.process)
    if found.to_dict()["models"] != list(shifts.digests):
        raise InputError(
            f"`models` must be the {len(shifts.digests)} models that the certificates are about, in their order, but "
            "their fingerprints differ."
        )
    return found


def _kinds(about: Fields) -> tuple[str, ...]:
    return tuple(Fields({"kinds": k}, about.where).choice("kinds", "weight", "bias") for k in about.items("kinds"))


def _names(about: Fields, key: str) -> list[Any] | None:
    if about.is_null(key):
        return None
    names = about.items(key)
    if not names or not all(isinstance(n, str | int) and not isinstance(n, bool) for n in names):
        raise about.wrong(key, "a list of names or indices")
    return names


def _scale(about: Fields) -> Any:
    scale = about.any("scale")
    if scale is None:
        return None
    if isinstance(scale, dict):
        return _factors(about.inner("scale"))
    return [_numbers(about, "scale", part) for part in about.items("scale")]


def _factors(about: Fields) -> dict[str | int, float]:
    return {key: about.number(key) for key in about.content}


def _numbers(about: Fields, key: str, value: Any) -> Any:
    """A number, or nested lists of numbers of one shape."""
    try:
        found = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise about.wrong(key, "numbers, in lists of one shape") from None
    if as_number(value) is None and not isinstance(value, list):
        raise about.wrong(key, "numbers, in lists of one shape")
    return found if found.ndim else float(found)
