"""One feature of a table: what it may be, and how it may change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from math import inf, isfinite
from numbers import Real
from typing import Any

import numpy as np

from apas._sanitise import shown
from apas._typing import Bools, Floats
from apas.errors import InputError


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
    low, high, step = found.values()
    if low is not None and high is not None and low > high:
        raise InputError(f"`low` of {owner} must not exceed `high`, got {low:g} and {high:g}.")
    if step is not None and step <= 0:
        raise InputError(f"`step` of {owner} must be positive, got {step:g}.")
    values = _sequence(feature, owner)
    if values is not None:
        if not all(map(_is_finite, values)):
            kind = feature.kind
            raise InputError(f"`values` of {owner} must be finite numbers, since it is {kind}, got {shown(values)}.")
        if any(given is not None for given in (low, high, step)):
            raise InputError(f"{owner} has both `values` and a range or step; list the allowed values alone.")
        found["values"] = values = tuple(sorted(float(v) for v in values))
    if feature.kind == "integer":
        if odd := [v for v in (low, high, step, *(values or ())) if v is not None and v != int(v)]:
            raise InputError(f"{owner} is an integer, but {odd[0]:g} in its description is not; round it.")
        found["step"] = None if values is not None else (step or 1.0)
    return found


def _is_finite(value: Any) -> bool:
    """Whether it is a real number that a float can hold (and no boolean)."""
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
    if gone := [v for v in values if is_missing(v)]:
        if feature.kind != "categorical":
            what = f"since it is {feature.kind}, and what is missing has no place in an order"
            raise InputError(f"`values` of {owner} must not hold missing ones, {what}; make it categorical.")
        values = (*(v for v in values if not is_missing(v)), *(None for _ in gone))
    if strange := [v for v in values if v is not None and not isinstance(v, str | bool | Real)]:
        raise InputError(
            f"`values` of {owner} must be texts, numbers or booleans, got {shown(strange[0])}; turn dates into "
            "numbers, such as days, and other things into texts."
        )
    if len(set(values)) != len(values):
        raise InputError(f"`values` of {owner} must differ from each other, got {shown(list(values))}.")
    return values


def is_missing(value: Any) -> bool:
    """Whether a cell holds nothing: NaN, None or what pandas has for it."""
    if isinstance(value, float):
        return value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")  # of pandas, which need not be imported here


KINDS = ("continuous", "integer", "ordinal", "categorical", "binary")
CODES = ("number", "onehot", "thermometer")
#: A value this close to a step of its grid, in units of the step, lies on it: decimal steps are not exact in binary.
ON_GRID = 1e-9
#: Numbers so few units in the last place apart differ by rounding alone: scaling one there and back rounds four times.
ROUNDING = 4.0


@dataclass(frozen=True)
class Feature:
    """What one column may be and how it may change.

    A value that is left as it was is always allowed, also outside the range and between the steps.

    Parameters
    ----------
    name : str
        Name of the column.
    kind : {"continuous", "integer", "ordinal", "categorical", "binary"}
    low, high : float, optional
        Range of a continuous or integer feature.
    values : sequence, optional
        The levels of an ordinal (in order), categorical or binary feature; of a numeric one the only values allowed.
        None among the levels of a categorical one stands for a missing cell, which may then be chosen like any other.
    step : float, optional
        A changed value is a whole number of steps from `low`, or from 0 without one. 1 for integers.
    mutable : bool, default True
        Whether it may change at all.
    direction : {"increase", "decrease"}, optional
        The only way in which it may change; for ordinal and binary features in the order of `values`.
    code : {"number", "onehot", "thermometer"}, optional
        How a model without preprocessing of its own sees it: as one number, as one column per level, or as columns
        of which the first v + 1 are set for level v. Unless given, one column per level for categorical features.

    Examples
    --------
    >>> income = Feature("income", "integer", low=0, high=20_000, step=100, direction="increase")
    >>> income.snapped(np.array([2149.0, 1200.0]), np.array([2000.0, 2000.0])).tolist()
    [2100.0, 2000.0]
    """

    name: str
    kind: str = "continuous"
    low: float | None = None
    high: float | None = None
    values: tuple[Any, ...] | None = None
    step: float | None = None
    mutable: bool = True
    direction: str | None = None
    code: str | None = None

    def __post_init__(self) -> None:
        owner = f"feature {self.name!r}"
        if not isinstance(self.name, str) or not self.name:
            raise InputError(f"`name` of a feature must be a text, got {shown(self.name)}.")
        if self.kind not in KINDS:
            raise InputError(f"`kind` of {owner} must be one of {', '.join(KINDS)}, got {shown(self.kind)}.")
        direction = self.direction
        if direction not in (None, "increase", "decrease"):
            raise InputError(f'`direction` of {owner} must be "increase", "decrease" or None, got {shown(direction)}.')
        if not isinstance(self.mutable, bool | np.bool_):
            raise InputError(f"`mutable` of {owner} must be True or False, got {shown(self.mutable)}.")
        if direction is not None and self.kind == "categorical":
            raise InputError(f"`direction` of {owner} needs an order, which categories do not have; make it ordinal.")
        if direction is not None and not self.mutable:
            raise InputError(f"{owner} is immutable and so cannot {direction}; drop one of the two.")
        if self.code is not None and self.code not in CODES:
            raise InputError(f"`code` of {owner} must be one of {', '.join(CODES)}, got {shown(self.code)}.")
        levels = _levels(self, owner) if self.is_level else _numeric(self, owner)
        code = self.code or ("onehot" if self.kind == "categorical" else "number")
        if code != "onehot" and self.kind == "categorical":
            raise InputError(f'`code` of {owner} must be "onehot", since its levels have no order, got {code!r}.')
        if code != "number" and not self.is_level:
            raise InputError(f'`code` of {owner} must be "number", since it is {self.kind}, got {code!r}.')
        for name, value in {**levels, "code": code, "mutable": bool(self.mutable)}.items():
            object.__setattr__(self, name, value)

    @property
    def is_level(self) -> bool:
        """Whether it is stored as the number of its level rather than by its value."""
        return self.kind in ("ordinal", "categorical", "binary")

    @property
    def has_missing(self) -> bool:
        """Whether a missing cell is one of its levels."""
        return self.is_level and None in (self.values or ())

    @cached_property
    def span(self) -> float:
        """What a difference is divided by to be comparable with those of other features."""
        if self.kind == "categorical":
            return 1.0
        low, high = self.ends
        return high - low if isfinite(high - low) and high > low else 1.0

    @cached_property
    def ends(self) -> tuple[float, float]:
        """Least and largest number that a changed value may have; infinite where nothing is said."""
        if self.is_level:
            return 0.0, float(len(self.values or ()) - 1)
        if self.values is not None:
            return float(min(self.values)), float(max(self.values))
        return (-np.inf if self.low is None else self.low), (np.inf if self.high is None else self.high)

    @cached_property
    def listed(self) -> Floats | None:
        """The allowed numbers, if they were listed."""
        if self.is_level:
            return np.arange(len(self.values or ()), dtype=np.float64)
        return None if self.values is None else np.array(self.values, dtype=np.float64)

    @cached_property
    def size(self) -> float:
        """The largest number that scaling by the range rounds; 0 without one."""
        return max((abs(end) for end in self.ends if isfinite(end)), default=0.0)

    @property
    def anchor(self) -> float:
        """Where steps are counted from."""
        return 0.0 if self.low is None else self.low

    @cached_property
    def decimals(self) -> int:
        """How many decimals the values on the grid have."""
        exponents = [Decimal(repr(v)).as_tuple().exponent for v in (self.step or 1.0, self.anchor)]
        return max(0, *(-int(e) for e in exponents))

    def on_grid(self, steps: Floats) -> Floats:
        """Values so many steps from the anchor, as they are written in decimals: 0.3, not 0.1 + 2 * 0.1."""
        return np.round(self.anchor + (self.step or 1.0) * steps, self.decimals)

    def steps_between(self, low: Any, high: Any) -> tuple[Any, Any]:
        """How many steps from the anchor the first and the last value between two ends are."""
        # an end that lies on the grid may be divided to just beside a whole number of steps
        step = self.step or 1.0
        return np.ceil((low - self.anchor) / step - ON_GRID), np.floor((high - self.anchor) / step + ON_GRID)

    def snapped(self, wanted: Floats, original: Floats) -> Floats:
        """The nearest allowed values, `original` included."""
        if not self.mutable:
            return original.copy()
        low, high = self._reach(original)
        with np.errstate(invalid="ignore"):  # without limits inf - inf
            value = np.clip(wanted, low, np.maximum(low, high))
        if self.listed is not None:
            apart = np.abs(value[:, None] - self.listed)
            apart = np.where((self.listed >= low[:, None]) & (self.listed <= high[:, None]), apart, np.inf)
            value = np.where(np.isfinite(apart.min(axis=1)), self.listed[apart.argmin(axis=1)], original)
        elif self.step is not None:
            with np.errstate(invalid="ignore", over="ignore"):
                first, last = self.steps_between(low, high)
                first += self.on_grid(first) < low  # the tolerance may have let in a step just outside
                last -= self.on_grid(last) > high
                steps = np.clip(np.rint((value - self.anchor) / self.step), first, np.maximum(first, last))
                value = np.where(first <= last, self.on_grid(steps), original)
        return _or_as_it_was(np.where(low <= high, value, original), wanted, original, self.size)

    def allows(self, value: Floats, original: Floats) -> Bools:
        """Which values are allowed, given what they were."""
        same = is_same(value, original, self.size) | (np.isnan(value) & np.isnan(original))
        if not self.mutable:
            return np.asarray(same)
        low, high = self._reach(original)
        fine = (value >= low) & (value <= high)
        if self.listed is not None:
            fine &= np.isin(value, self.listed)
        elif self.step is not None:
            near = self.on_grid(np.rint((value - self.anchor) / self.step))
            # whole numbers are exact in binary; the tolerance of others must not grow to the step for large values
            allowance = 0.0 if self.kind == "integer" else ON_GRID * self.step + 4 * np.spacing(np.abs(value))
            fine &= np.abs(value - near) <= allowance
        return np.asarray(same | fine)

    def differences(self, value: Floats, original: Floats) -> Floats:
        """How far values are apart, from 0 to 1 within the range; 0 or 1 for categories and for what was missing."""
        apart = np.abs(value - original)
        gone = np.isnan(apart)
        found = (apart > 0).astype(np.float64) if self.kind == "categorical" else apart / self.span
        return np.where(gone, is_changed(value, original), found) if gone.any() else found

    def _reach(self, original: Floats) -> tuple[Floats, Floats]:
        low, high = (np.full_like(original, end) for end in self.ends)
        if self.direction == "increase":
            low = np.maximum(low, original)
        if self.direction == "decrease":
            high = np.minimum(high, original)
        return low, high


def nearest_between(wanted: Floats, original: Floats, low: Floats, high: Floats, size: Any) -> Floats:
    """The nearest numbers between limits, `original` included."""
    with np.errstate(invalid="ignore"):  # without limits inf - inf
        value = np.clip(wanted, low, np.maximum(low, high))
    return _or_as_it_was(np.where(low <= high, value, original), wanted, original, size)


def _or_as_it_was(value: Floats, wanted: Floats, original: Floats, size: Any) -> Floats:
    # what was there is allowed as well; ties go to it, and so does what differs from it by rounding alone
    closer = np.abs(wanted - original) <= np.abs(wanted - value)
    stays = closer | is_same(value, original, size) | np.isnan(wanted)  # nothing becomes missing
    return np.where(stays, original, value + 0.0)  # a zero's sign, which `clip` leaves to the length of a batch, is +


def is_same(value: Any, original: Any, size: Any = 0.0) -> Bools:
    """Which numbers are the same but for rounding, where numbers as large as `size` were involved."""
    largest = np.maximum(np.maximum(np.abs(value), np.abs(original)), size)
    return np.asarray(np.abs(np.subtract(value, original)) <= ROUNDING * np.spacing(largest))


def is_changed(value: Any, original: Any) -> Bools:
    """Which numbers are others; a missing one (NaN) that stays missing is not."""
    return np.asarray((value != original) & ~(np.isnan(value) & np.isnan(original)))


def numbers(values: Sequence[Any]) -> bool:
    """Whether all are real numbers (and no booleans)."""
    return all(isinstance(v, Real | np.number) and not isinstance(v, bool | np.bool_) for v in values)
