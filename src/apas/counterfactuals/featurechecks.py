"""Checks of a single feature: what contradicts itself is refused in one sentence."""

from __future__ import annotations

from math import inf
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from apas._sanitise import shown
from apas.errors import InputError

if TYPE_CHECKING:
    from apas.counterfactuals.feature import Feature

__all__ = ["checked"]


def checked(feature: Feature) -> dict[str, Any]:
    """The attributes of a feature as they are kept, or one sentence about what is wrong with them."""
    from apas.counterfactuals.feature import CODES, KINDS

    owner = f"feature {feature.name!r}"
    if not isinstance(feature.name, str) or not feature.name:
        raise InputError(f"`name` of a feature must be a text, got {shown(feature.name)}.")
    if feature.kind not in KINDS:
        raise InputError(f"`kind` of {owner} must be one of {', '.join(KINDS)}, got {shown(feature.kind)}.")
    if feature.direction not in (None, "increase", "decrease"):
        raise InputError(
            f'`direction` of {owner} must be "increase", "decrease" or None, got {shown(feature.direction)}.'
        )
    if not isinstance(feature.mutable, bool | np.bool_):
        raise InputError(f"`mutable` of {owner} must be True or False, got {shown(feature.mutable)}.")
    if feature.direction is not None and feature.kind == "categorical":
        raise InputError(f"`direction` of {owner} needs an order, which categories do not have; make it ordinal.")
    if feature.direction is not None and not feature.mutable:
        raise InputError(f"{owner} is immutable and so cannot {feature.direction}; drop one of the two.")
    if feature.code is not None and feature.code not in CODES:
        raise InputError(f"`code` of {owner} must be one of {', '.join(CODES)}, got {shown(feature.code)}.")
    levels = _levels(feature, owner) if feature.is_level else _numeric(feature, owner)
    code = feature.code or ("onehot" if feature.kind == "categorical" else "number")
    if code != "onehot" and feature.kind == "categorical":
        raise InputError(f'`code` of {owner} must be "onehot", since its levels have no order, got {code!r}.')
    if code != "number" and not feature.is_level:
        raise InputError(f'`code` of {owner} must be "number", since it is {feature.kind}, got {code!r}.')
    return {**levels, "code": code, "mutable": bool(feature.mutable)}


def _levels(feature: Feature, owner: str) -> dict[str, Any]:
    values = _sequence(feature, owner)
    for name in ("low", "high", "step"):
        if getattr(feature, name) is not None:
            raise InputError(f"`{name}` of {owner} is for numbers, but it is {feature.kind}; give `values` alone.")
    if values is None:
        raise InputError(f"`values` of {owner} must list its levels, since it is {feature.kind}.")
    if feature.kind == "binary" and len(values) != 2:
        raise InputError(f"`values` of {owner} must be two, since it is binary, got {len(values)}.")
    return {"values": values}


def _numeric(feature: Feature, owner: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("low", "high", "step"):
        value = getattr(feature, name)
        if value is not None and not _is_finite(value):
            raise InputError(f"`{name}` of {owner} must be a finite number, got {shown(value)}.")
        found[name] = None if value is None else float(value)
    low, high, step = found["low"], found["high"], found["step"]
    if low is not None and high is not None and low > high:
        raise InputError(f"`low` of {owner} must not exceed `high`, got {low:g} and {high:g}.")
    if step is not None and step <= 0:
        raise InputError(f"`step` of {owner} must be positive, got {step:g}.")
    values = _sequence(feature, owner)
    if values is not None:
        if not all(map(_is_finite, values)):
            raise InputError(
                f"`values` of {owner} must be finite numbers, since it is {feature.kind}, got {shown(values)}."
            )
        if any(given is not None for given in (low, high, step)):
            raise InputError(f"{owner} has both `values` and a range or step; list the allowed values alone.")
        found["values"] = values = tuple(sorted(float(v) for v in values))
    if feature.kind == "integer":
        whole = [v for v in (low, high, step, *(values or ())) if v is not None]
        odd = [v for v in whole if v != int(v)]
        if odd:
            raise InputError(f"{owner} is an integer, but {odd[0]:g} in its description is not; round it.")
        found["step"] = None if values is not None else (step or 1.0)
    return found


def _is_finite(value: Any) -> bool:
    """Whether it is a real number that a float can hold (and no boolean)."""
    from apas.counterfactuals.feature import numbers

    try:
        return numbers([value]) and abs(float(value)) < inf
    except OverflowError:  # a whole number of hundreds of digits
        return False


def _sequence(feature: Feature, owner: str) -> tuple[Any, ...] | None:
    if feature.values is None:
        return None
    if isinstance(feature.values, str | bytes) or not hasattr(feature.values, "__iter__"):
        raise InputError(f"`values` of {owner} must be a list of values, got {shown(feature.values)}.")
    values = tuple(v.item() if isinstance(v, np.generic) else v for v in feature.values)
    if not values:
        raise InputError(f"`values` of {owner} must not be empty; nothing would be allowed.")
    if any(_is_missing(v) for v in values):
        raise InputError(
            f"`values` of {owner} must not hold missing values, got {shown(list(values))}; name the level."
        )
    strange = [v for v in values if not isinstance(v, str | bool | Real)]
    if strange:
        raise InputError(
            f"`values` of {owner} must be texts, numbers or booleans, got {shown(strange[0])}; turn dates into "
            "numbers, such as days, and other things into texts."
        )
    if len(set(values)) != len(values):
        raise InputError(f"`values` of {owner} must differ from each other, got {shown(list(values))}.")
    return values


def _is_missing(value: Any) -> bool:
    if isinstance(value, float):
        return value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")  # of pandas, which need not be imported here
