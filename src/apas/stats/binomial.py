"""Sample sizes and failure counts of the sampling test (Lemma 4 of the paper, Wilks 1941), exactly; bounds on shares.

`coverage` is the paper's R, the share of the shifts that must keep the explanation valid; `confidence` is its alpha. A
float is read as the decimal that was typed: 0.995 means 995/1000, because the claim that gets printed has to be true as
printed. Every sum is first computed in `decimal` with some 50 digits more than the comparison needs. Only when the two
sides agree in all of them, which is what a tie looks like, whole numbers settle it: no rounding error decides.

The bounds of Clopper and Pearson are shown to people: doubles, correct to about 1e-15, so that a bound equal to the
coverage asked for may come out a unit in the last place beside it. What is *decided* is decided by counts.
"""

from __future__ import annotations

import math
import operator
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Underflow, localcontext
from fractions import Fraction
from typing import Any, SupportsIndex, TypeAlias

import numpy as np

from apas._typing import Floats, Integers
from apas.errors import InputError

Number: TypeAlias = float | Fraction | Decimal
"""What a coverage, a confidence or a log-risk may be given as."""

Risk: TypeAlias = Fraction | Decimal
"""An exact rational. Decimal only for `log_risk`, whose digits may be too many for a Fraction's gcd."""

# Below this the exponent of exp(log_risk) leaves the range in which `decimal` computes.
_LOWEST_LOG_RISK = Fraction(-(10**15))
# Digits of exp(log_risk) that are surely right; it is then rounded down, so that no claim is stronger than asked.
_EXPONENTIAL_DIGITS = 50
# Newton's method took at most 22 steps on 6,000 random cases, 5 being usual; the limit only keeps a mistake
# from running forever.
_MOST_STEPS = 1000


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
        told = f"exactly one of confidence and log_risk must be given, got {got}; give confidence=0.999,"
        raise InputError(f"{told} or log_risk=log(1 - confidence) for a confidence that a float would round to 1")
    if confidence is not None:
        return 1 - as_confidence(confidence)
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
        # fewer terms: the chances of 0, 1, ... of the others until what is left is at most the risk; digits to hold 1
        # and the risk at once
        with localcontext(precision(_digits_for(n) + _digits(risk))) as context:
            level, slack = 1 - as_decimal(risk), _error(n, context.prec)
            return n - 1 - _crossing(n, 1 - q, level, slack, Fraction(1), risk)
    with localcontext(precision(_digits_for(n))) as context:  # until the sum exceeds it; a relative error is all
        level = as_decimal(risk)
        return _crossing(n, q, level, level * _error(n, context.prec), Fraction(0), risk) - 1


def count_above(n: int, q: Fraction, risk: Risk) -> int:
    """Return the smallest r with P(Binomial(n, q) >= r) <= risk, n + 1 if there is none."""
    # r or more failures are n - r or fewer of the draws that keep the claim
    return n - count_below(n, 1 - q, risk)


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


def _crossing(n: int, q: Fraction, level: Decimal, slack: Decimal, whole: Fraction, risk: Risk) -> int:
    """Return the smallest k with P(X <= k) > risk (whole = 0) or >= 1 - risk (1), a `level` that is off by `slack`."""
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


def sample_size(
    *, coverage: Number, confidence: Number | None = None, failures: SupportsIndex = 0, log_risk: Number | None = None
) -> int:
    """Return how many draws the sampling test needs.

    This is the smallest n with ``P(Binomial(n, 1 - coverage) <= failures) <= 1 - confidence``. If at most `failures` of
    n independent draws fail, at least `coverage` of the set is valid, with that confidence.

    Parameters
    ----------
    coverage : float, Fraction or Decimal
        Share of the set that must be valid, strictly between 0 and 1.
    confidence : float, Fraction or Decimal, optional
        Strictly between 0 and 1. Give either this or `log_risk`.
    failures : int, default 0
        Failures that the test is to allow.
    log_risk : float, Fraction or Decimal, optional
        Natural logarithm of ``1 - confidence``, for confidences such as 1 - 1e-40 that round to 1.

    Notes
    -----
    The guarantee is void if the number is not fixed before drawing ("draw more if the answer is poor" is a selection),
    or if the draws took part in choosing what is tested.

    References
    ----------
    Wilks, S. S. (1941). Determination of sample sizes for setting tolerance limits. Annals of Mathematical
    Statistics 12, 91-96.

    Examples
    --------
    >>> sample_size(coverage=0.995, confidence=0.999), sample_size(coverage=0.995, confidence=0.999, failures=2)
    (1379, 2242)
    >>> sample_size(coverage=0.995, log_risk=-92.1)  # confidence about 1 - 1e-40
    18374
    """
    q = _failure_probability(coverage)
    c = as_count("failures", failures, 0, "give how many failing draws the test is to allow")
    risk = as_risk(confidence, log_risk)
    n = _approximate_size(q, c, risk)
    while count_below(n, q, risk) < c:
        n += 1
    while n > c + 1 and count_below(n - 1, q, risk) >= c:
        n -= 1
    return n


def allowed_failures(
    n_samples: SupportsIndex, *, coverage: Number, confidence: Number | None = None, log_risk: Number | None = None
) -> int:
    """Return how many of `n_samples` draws may fail with the claim still certified; -1 if too few can certify anything.

    This is the largest c with ``P(Binomial(n_samples, 1 - coverage) <= c) <= 1 - confidence``. "At most c failures" is
    the same as "`coverage_lower` is at least `coverage`"; decide by the count, which is exact, and show the bound.

    Parameters
    ----------
    n_samples : int
        Number of independent draws, fixed before drawing.
    coverage, confidence, log_risk
        As in `sample_size`, which names what voids the guarantee.

    Notes
    -----
    The time grows with the expected number of failures, or of valid draws if that is smaller: 4 s for 10**7 draws at
    coverage 0.5, 50 ms at 0.995.

    Examples
    --------
    >>> allowed_failures(20_000, coverage=0.995, confidence=0.999)
    70
    """
    n = as_count("n_samples", n_samples, 0, "give the number of independent draws")
    return count_below(n, _failure_probability(coverage), as_risk(confidence, log_risk))


def refuting_failures(
    n_samples: SupportsIndex, *, coverage: Number, confidence: Number | None = None, log_risk: Number | None = None
) -> int:
    """Return how many of `n_samples` draws must fail to refute the claim; ``n_samples + 1`` if too few can.

    This is the smallest r with ``P(Binomial(n_samples, 1 - coverage) >= r) <= 1 - confidence``: with so many failures
    less than `coverage` is valid, with that confidence. Between this and `allowed_failures` nothing is known.

    The parameters are those of `allowed_failures`. Below a confidence of 1/2 the two may cross: both claims are then so
    weak that one count supports either. A run may stop at this failure, and only there, its counts ending at that very
    draw; `coverage_lower` with ``stopped=True`` says what such a run shows.

    Examples
    --------
    >>> refuting_failures(1379, coverage=0.995, confidence=0.999)
    17
    """
    n = as_count("n_samples", n_samples, 0, "give the number of independent draws")
    return count_above(n, _failure_probability(coverage), as_risk(confidence, log_risk))


def coverage_lower(
    draws: SupportsIndex, failures: SupportsIndex, *, confidence: Number, stopped: bool = False
) -> float:
    """Return the one-sided lower confidence bound on the share of valid draws.

    Whatever the true share, it is at most that share in at least `confidence` of all runs.

    Parameters
    ----------
    draws, failures : int
        Independent draws that were counted, and how many of them failed.
    confidence : float, Fraction or Decimal
        Of this bound alone, strictly between 0 and 1.
    stopped : bool, default False
        True if the run stopped at a number of failures fixed in advance, `failures`, reached at draw number
        `draws`; False if it made all the draws it had set out to make.

    Notes
    -----
    ``coverage_lower(n, k) >= R`` holds if and only if ``k <= allowed_failures(n, coverage=R)``, at the same
    confidence and up to rounding. A two-sided interval has other ends and does not agree with the test.

    The guarantee is void if a run that stopped counts on to the end of a block of draws (at nominal 0.90 that
    has been seen to cover 0.878), or if it stopped for any other reason that depends on the draws.

    References
    ----------
    Clopper, C. J. and Pearson, E. S. (1934). The use of confidence or fiducial limits illustrated in the case
    of the binomial. Biometrika 26, 404-413.

    Examples
    --------
    >>> round(coverage_lower(1379, 0, confidence=0.999), 6)
    0.995003
    """
    n, k = _counts(draws, failures, stopped)
    # A run that stopped at draw n was sure of that failure: what it shows lies in the draws before.
    return float(_lower(n - k, n - 1 if stopped else n, 1 - as_confidence(confidence)))


def coverage_upper(
    draws: SupportsIndex, failures: SupportsIndex, *, confidence: Number, stopped: bool = False
) -> float:
    """Return the one-sided upper confidence bound on the share of valid draws.

    Whatever the true share, it is at least that share in at least `confidence` of all runs; `coverage_lower` has the
    parameters, and names what voids the guarantee. It is the same number for a run that stopped, because "the r-th
    failure came by draw n" and "n draws hold at least r failures" are one event. ``coverage_upper(n, k) <= R`` holds if
    and only if ``k >= refuting_failures(n, coverage=R)``, at the same confidence and up to rounding.

    Examples
    --------
    >>> round(coverage_upper(1379, 17, confidence=0.999), 6)
    0.994887
    """
    n, k = _counts(draws, failures, stopped)
    return float(_upper(n - k, n, 1 - as_confidence(confidence)))


def coverage_bounds(draws: int, failures: Integers, certain: Integers, *, confidence: Number) -> tuple[Floats, Floats]:
    """Return `coverage_lower` at each of many failures, and `coverage_upper` at those that are `certain`, as arrays."""
    risk, bounds = 1 - as_confidence(confidence), []
    for bound, counts in ((_lower, failures), (_upper, certain)):
        # few of the counts differ, and inverting a beta function takes far longer than to find these
        kinds, places = np.unique(counts, return_inverse=True)
        bounds.append(np.asarray(bound(draws - kinds, draws, risk))[places.reshape(counts.shape)])
    return bounds[0], bounds[1]


def clopper_pearson(successes: SupportsIndex, trials: SupportsIndex, *, confidence: Number) -> tuple[float, float]:
    """Return the two-sided "exact" confidence interval of a probability.

    Each of its ends alone holds at ``(1 + confidence) / 2``. The sampling test agrees with the *one-sided*
    `coverage_lower`, not with this interval.

    Parameters
    ----------
    successes, trials : int
        How many of the independent trials succeeded, and how many there were: void if that depended on their outcome.
    confidence : float, Fraction or Decimal
        Of both ends together.

    Examples
    --------
    >>> low, high = clopper_pearson(1379, 1379, confidence=0.999)
    >>> round(low, 5), high
    (0.9945, 1.0)
    """
    n, k = as_counts(trials, successes, ("trials", "successes", "succeeded"))
    half = (1 - as_confidence(confidence)) / 2
    return float(_lower(k, n, half)), float(_upper(k, n, half))


def _counts(draws: SupportsIndex, failures: SupportsIndex, stopped: bool) -> tuple[int, int]:
    n, k = as_counts(draws, failures)
    if stopped and k == 0:
        told = "failures must be at least 1 with stopped=True, got 0; a run that stopped at a failure has one,"
        raise InputError(f"{told} so give stopped=False for a run that made all its draws")
    return n, k


def _lower(k: Any, n: int, risk: Fraction) -> Any:
    """Return the success probability at which k or more of n successes has probability `risk`; 0 for k = 0."""
    from scipy import special

    return special.betaincinv(np.maximum(k, 1), n - k + 1, float(risk)) * (k != 0)


def _upper(k: Any, n: int, risk: Fraction) -> Any:
    """Return the success probability at which k or fewer of n successes has probability `risk`; 1 for k = n."""
    from scipy import special

    # The complemented function takes the small risk itself: 1 - risk would lose its digits.
    return np.where(k == n, 1.0, special.betainccinv(k + 1, np.maximum(n - k, 1), float(risk)))


def _failure_probability(coverage: Number) -> Fraction:
    return 1 - as_probability("coverage", coverage, "give the share of shifts that must stay valid, such as 0.995")


def _approximate_size(q: Fraction, c: int, risk: Risk) -> int:
    """Return a number at or beside the sample size, by Newton's method on the logarithm of the tail.

    The tail is the survival function of a sum of geometric waiting times, hence log-concave in n: from the
    first step on Newton's method comes down to the root from above, so any start will do.
    """
    with localcontext(precision(40)):
        length, rate = -as_decimal(risk).ln(), as_decimal(q)
        # for c = 0 the root itself, else where Chernoff's bound is about the risk
        start = length / _rate(rate) if c == 0 else (c + length + (length * (length + 2 * c)).sqrt()) / rate
        n = max(math.ceil(start), c + 1)
    if c == 0 and n < 10**12:  # the start is right up to the rounding of a float
        return n
    with localcontext(precision(40 + len(str(n)))):
        failure, level = as_decimal(q), as_decimal(risk)
        for _ in range(_MOST_STEPS):
            total, last = head(n, c, q)
            # One more draw takes away the chance that the c-th failure is out and this draw is the next.
            step = math.ceil(-(level / total).ln() / _rate(failure * last / total))
            n = max(n + step, c + 1)
            if abs(step) <= 1:
                break
    return n


def _rate(x: Decimal) -> Decimal:
    """Return ``-log(1 - x)``, which is x itself when the digits at hand cannot tell 1 - x from 1."""
    return -(1 - x).ln() or x
