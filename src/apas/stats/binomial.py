"""Confidences, risks and counts read exactly, and tails of the binomial distribution compared with a risk exactly.

A float is read as the decimal that was typed. Every sum is first computed in `decimal` with some 50 digits more than
the comparison needs. Only when the two sides agree in all of them, which is what a tie looks like, whole-number
arithmetic settles it: no rounding error decides.
"""

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
# Digits of exp(log_risk) that are surely right; it is then rounded down, so that no claim is stronger than asked.
_EXPONENTIAL_DIGITS = 50


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
    got = f"{value!r} ({type(value).__name__})"
    raise InputError(f"{name} must be a float, a Fraction or a Decimal, got {got}; {advice}")


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


def as_counts(
    draws: SupportsIndex, failures: SupportsIndex, names: tuple[str, str, str] = ("draws", "failures", "failed")
) -> tuple[int, int]:
    """Read how many draws there were, and how many of them failed."""
    n = as_count(names[0], draws, 0, f"give the number of independent {names[0]} that were counted")
    k = as_count(names[1], failures, 0, f"give how many of the {names[0]} {names[2]}")
    if k > n:
        raise InputError(f"{names[1]} must be at most {names[0]}, got {k} of {n}; check that they are not swapped")
    return n, k


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
    advice = "give the natural logarithm of 1 - confidence, such as log_risk=-92.1 for 1 - 1e-40"
    exponent = _as_fraction("log_risk", log_risk, advice)
    if not _LOWEST_LOG_RISK <= exponent < 0:
        raise InputError(f"log_risk must be negative and at least -1e15, got {log_risk!r}; {advice}")
    with localcontext(precision(20)):
        size = (Decimal(exponent.numerator) / exponent.denominator).adjusted()
    # Rounding a large exponent costs `size` digits of the result; a small one needs -size to differ from 0.
    guard = _EXPONENTIAL_DIGITS + max(0, -size)
    with localcontext(precision(guard + abs(size) + 10)):  # 10 digits are to spare
        risk = (Decimal(exponent.numerator) / exponent.denominator).exp()
        # less by one in the last digit that is sure: not above the true one, whichever way `exp` was rounded
        return risk - risk.scaleb(-guard)


# Digits beyond those that n takes: chance agreement, and with it the slow path, is then a matter of 1e-35.
_GUARD_DIGITS = 40
# A longer risk makes each term of `1 - sum` dearer than summing the other tail, which needs no such digits.
_MOST_RISK_DIGITS = 300


def count_below(n: int, q: Fraction, risk: Risk) -> int:
    """Return the largest c with P(Binomial(n, q) <= c) <= risk, -1 if there is none."""
    if 2 * q.numerator > q.denominator and _digits(risk) <= _MOST_RISK_DIGITS:
        return n - _from_above(n, _complement(q), risk)
    return _from_below(n, q, risk)


def count_above(n: int, q: Fraction, risk: Risk) -> int:
    """Return the smallest r with P(Binomial(n, q) >= r) <= risk, n + 1 if there is none."""
    if 2 * q.numerator > q.denominator or _digits(risk) > _MOST_RISK_DIGITS:
        return n - _from_below(n, _complement(q), risk)
    return _from_above(n, q, risk)


def stays_within(n: int, c: int, q: Fraction, risk: Risk) -> bool:
    """Tell whether P(Binomial(n, q) <= c) <= risk."""
    with localcontext(precision(_digits_for(n))) as context:
        total, _ = head(n, c, q)
        level = as_decimal(risk)
        if abs(total - level) > level * _error(n, context.prec):
            return total < level
    return _exact_sign(n, c, q, Fraction(risk)) <= 0


def head(n: int, c: int, q: Fraction) -> tuple[Decimal, Decimal]:
    """Return P(Binomial(n, q) <= c) and P(Binomial(n, q) = c) in the current decimal context."""
    up, down = q.numerator, q.denominator - q.numerator
    term = total = (Decimal(down) / q.denominator) ** n
    for i in range(c):
        term = term * ((n - i) * up) / ((i + 1) * down)
        total += term
    return total, term


def as_decimal(value: Risk) -> Decimal:
    """Return an exact rational, rounded to the current decimal context."""
    return +value if isinstance(value, Decimal) else Decimal(value.numerator) / value.denominator


def _from_below(n: int, q: Fraction, risk: Risk) -> int:
    """Sum P(X = 0), P(X = 1), ... until the sum exceeds the risk; a relative error is all that matters."""
    with localcontext(precision(_digits_for(n))) as context:
        level = as_decimal(risk)
        return _crossing(n, q, level, level * _error(n, context.prec), Fraction(0), risk) - 1


def _from_above(n: int, q: Fraction, risk: Risk) -> int:
    """Sum the same terms until what is left is at most the risk; digits to hold 1 and the risk at once."""
    with localcontext(precision(_digits_for(n) + _digits(risk))) as context:
        return _crossing(n, q, 1 - as_decimal(risk), _error(n, context.prec), Fraction(1), risk) + 1


def _crossing(n: int, q: Fraction, level: Decimal, slack: Decimal, whole: Fraction, risk: Risk) -> int:
    """Return the smallest k with P(X <= k) > risk (whole = 0) or P(X <= k) >= 1 - risk (whole = 1).

    `level` is the right-hand side and `slack` bounds the error of the comparison.
    """
    up, down = q.numerator, q.denominator - q.numerator
    low, high = level - slack, level + slack
    term = total = (Decimal(down) / q.denominator) ** n
    for k in range(n):
        if total > high:
            return k
        # a near tie: only then the risk is made a Fraction, whose gcd may take long
        if total >= low and _exact_sign(n, k, q, abs(whole - Fraction(risk))) >= 1 - whole:
            return k
        term = term * ((n - k) * up) / ((k + 1) * down)
        total += term
    return n  # P(X <= n) = 1 exactly, whatever the sum was rounded to


def _exact_sign(n: int, c: int, q: Fraction, level: Fraction) -> int:
    """Return the sign of P(Binomial(n, q) <= c) - level in whole numbers: slow, so for near ties only."""
    up, down = q.numerator, q.denominator - q.numerator
    if up == down and n == 2 * c + 1 and 2 * level == 1:
        return 0  # by symmetry, for every odd n: the one tie that whole numbers would take hours over
    term = total = down**n
    for i in range(c):
        term = term * ((n - i) * up) // ((i + 1) * down)  # divides exactly
        total += term
    difference = total * level.denominator - level.numerator * q.denominator**n
    return int(difference > 0) - int(difference < 0)


def _digits_for(n: int) -> int:
    """Return the digits to compute with: errors grow with n, and the tails of n and n + 1 differ by about 1 / n."""
    return _GUARD_DIGITS + 2 * len(str(n))


def _error(n: int, digits: int) -> Decimal:
    """Bound the relative error of any head of the sum, and of the level it is compared with.

    With u one unit in the last place, rounding the base of the power costs n u / 2, the power u, and each of
    at most n terms two products and a sum, 3 u / 2: together below 2 (n + 1) u. Twice that covers the level.
    """
    return Decimal(4 * (n + 4)).scaleb(1 - digits)


def _digits(risk: Risk) -> int:
    """Return about how many zeros follow the decimal point of the risk, never fewer."""
    if isinstance(risk, Decimal):
        return max(0, -risk.adjusted())
    bits = risk.denominator.bit_length() - risk.numerator.bit_length() + 1
    return bits * 1234 // 4096 + 1  # 1234 / 4096 is just above log10(2)


def _complement(q: Fraction) -> Fraction:
    return Fraction(q.denominator - q.numerator, q.denominator)
