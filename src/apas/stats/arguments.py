"""How the arguments of `apas.stats` are read: exactly, or refused with a message that says what to do."""

from __future__ import annotations

import operator
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Underflow, localcontext
from fractions import Fraction
from typing import SupportsIndex, TypeAlias

import numpy as np

from apas.errors import InputError

Number: TypeAlias = float | Fraction | Decimal
"""What a coverage, a confidence or a log-risk may be given as."""

Risk: TypeAlias = Fraction | Decimal
"""An exact rational. Decimal only for `log_risk`, whose digits may be too many for a Fraction's gcd."""

# Below this the exponent of exp(log_risk) leaves the range in which `decimal` computes.
_LOWEST_LOG_RISK = Fraction(-(10**15))
_GUARD_DIGITS = 50


def precision(digits: int) -> Context:
    """Return a decimal context with `digits` digits and the widest exponents there are."""
    context = Context(prec=digits, Emin=MIN_EMIN, Emax=MAX_EMAX)
    context.traps[Underflow] = True
    return context


def _as_fraction(name: str, value: Number, advice: str) -> Fraction:
    """Read a number as the decimal its user typed: 0.995 is 995/1000, not the nearest binary double."""
    try:
        if isinstance(value, float | np.floating):
            # str, not repr: NumPy's repr carries the type; both print the shortest decimal that reads back.
            # Through Decimal, as Fraction's own parser takes three times as long.
            return Fraction(*Decimal(str(value)).as_integer_ratio())
        if isinstance(value, Fraction | Decimal):
            return Fraction(value)
        if isinstance(value, int | np.integer) and not isinstance(value, bool):
            return Fraction(int(value))
    except (ValueError, OverflowError):  # nan and inf have no ratio
        raise InputError(f"{name} must be a finite number, got {value!r}; {advice}") from None
    raise InputError(
        f"{name} must be a float, a Fraction or a Decimal, got {value!r} ({type(value).__name__}); {advice}"
    )


def as_probability(name: str, value: Number, advice: str) -> Fraction:
    """Read a number strictly between 0 and 1."""
    number = _as_fraction(name, value, advice)
    if not 0 < number.numerator < number.denominator:  # five times as fast as comparing the Fraction
        raise InputError(f"{name} must lie strictly between 0 and 1, got {value!r}; {advice}")
    return number


def as_count(name: str, value: SupportsIndex, least: int, advice: str) -> int:
    """Read a whole number that is at least `least`; booleans and floats are refused."""
    try:
        number = None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}; {advice}")
    return number


def as_confidence(confidence: Number) -> Fraction:
    """Read a confidence; 1.0 gets its own advice because 1 - 1e-17 already rounds to it."""
    advice = "give a confidence such as 0.999"
    if isinstance(confidence, float | int | Fraction | np.floating) and confidence == 1:
        advice = (
            "no number of draws gives certainty; if a value just below 1 was rounded, give "
            "log_risk=log(1 - confidence) instead where it is accepted, or an exact Fraction"
        )
    return as_probability("confidence", confidence, advice)


def as_risk(confidence: Number | None, log_risk: Number | None) -> Risk:
    """Return the exact risk of a wrong claim, from whichever of the two was given."""
    if (confidence is None) == (log_risk is None):
        got = "neither" if confidence is None else "both"
        raise InputError(
            f"exactly one of confidence and log_risk must be given, got {got}; give confidence=0.999, or "
            "log_risk=log(1 - confidence) for a confidence that a float would round to 1"
        )
    if confidence is not None:
        exact = as_confidence(confidence)
        return Fraction(exact.denominator - exact.numerator, exact.denominator)
    assert log_risk is not None  # for mypy; the test above has settled it
    return _exponential(log_risk)


def _exponential(log_risk: Number) -> Decimal:
    advice = "give the natural logarithm of 1 - confidence, such as log_risk=-92.1 for 1 - 1e-40"
    exponent = _as_fraction("log_risk", log_risk, advice)
    if not _LOWEST_LOG_RISK <= exponent < 0:
        raise InputError(f"log_risk must be negative and at least -1e15, got {log_risk!r}; {advice}")
    with localcontext(precision(20)):
        size = (Decimal(exponent.numerator) / exponent.denominator).adjusted()
    # Rounding a large exponent costs `size` digits of the result; a small one needs -size to differ from 0.
    guard = _GUARD_DIGITS + max(0, -size)
    with localcontext(precision(guard + abs(size) + 10)):
        risk = (Decimal(exponent.numerator) / exponent.denominator).exp()
        return risk - risk.scaleb(-guard)
