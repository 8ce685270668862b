"""Methods and sets of shifts as the options of a command ask for them."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from apas.errors import InputError

if TYPE_CHECKING:
    from apas.certify.problem import Method
    from apas.shifts.protocol import ShiftSet

__all__ = ["Kind", "Norm", "pick_method", "pick_shifts"]

#: Which methods each option goes with; those that are named nowhere go with all.
GOES_WITH = {
    "coverage": ("sampling", "enumeration"),
    "confidence": ("sampling",),
    "samples": ("sampling",),
    "time-limit": ("exact", "cascade"),
}


class Kind(StrEnum):
    """What may move."""

    weight = "weight"
    bias = "bias"


class Norm(StrEnum):
    """How the size of a shift is measured."""

    linf = "linf"
    l1 = "l1"
    l2 = "l2"


def pick_method(
    name: StrEnum,
    *,
    coverage: float | None = None,
    confidence: float | None = None,
    samples: int | None = None,
    time_limit: float | None = None,
) -> Method | str:
    """What the library takes as its method; an option that does not go with it is refused.

    Parameters
    ----------
    name : StrEnum
        One of the methods that the command knows.
    coverage, confidence, samples, time_limit
        None where the option was not given.
    """
    from apas import Cascade, Enumeration, Exact, Sampling

    given: dict[str, Any] = {
        "coverage": coverage, "confidence": confidence, "samples": samples, "time-limit": time_limit,
    }  # fmt: skip
    given = {option: value for option, value in given.items() if value is not None}
    known = type(name).__members__
    for option in given:
        fitting = [method for method in GOES_WITH[option] if method in known]
        if name not in fitting:
            listed = " or ".join(f"`--method {method}`" for method in fitting)
            raise InputError(f"`--{option}` goes with {listed}, got `--method {name}`; leave it out.")
    if name == "sampling":
        if "samples" in given:
            given["n_samples"] = given.pop("samples")
        return Sampling(**given)
    if name == "enumeration":
        return Enumeration(**given)
    if "time-limit" not in given:
        return str(name)
    exact = Exact(time_limit=given["time-limit"])
    if name == "exact":
        return exact
    return Cascade(*(exact if isinstance(m, Exact) else m for m in Cascade().methods))


def pick_shifts(norm: Norm, *, relative: bool, only: Kind | None) -> ShiftSet:
    """The set of shifts that is asked for."""
    from apas import LinfShifts, LpShifts

    kinds = ("weight", "bias") if only is None else (only.value,)
    if norm is Norm.linf:
        return LinfShifts(relative=relative, kinds=kinds)
    if relative:
        raise InputError(f"`--relative` goes with `--shifts linf`, got `--shifts {norm}`; leave it out.")
    return LpShifts({Norm.l1: 1, Norm.l2: 2}[norm], kinds=kinds)
