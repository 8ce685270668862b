"""Sample sizes and failure counts of the sampling test (Lemma 4 of the paper, Wilks 1941), exactly.

`coverage` is the paper's R, the share of the shifts that must keep the explanation valid; `confidence` is its
alpha. A float is read as the decimal that was typed: 0.995 means 995/1000, not the double nearest to it,
because the claim that gets printed has to be true as printed. No float takes part in a decision.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from typing import SupportsIndex

import apas.stats.binomial as binomial
from apas.stats.binomial import Number, Risk, as_count, as_decimal, as_probability, as_risk, precision

# Newton's method took at most 22 steps on 6,000 random cases, 5 being usual; the limit only keeps a mistake
# from running forever.
_MOST_STEPS = 1000
# Below this log(1 + x) is x to all the digits of a float.
_NO_CURVATURE = Decimal("1e-16")


def sample_size(
    *, coverage: Number, confidence: Number | None = None, failures: SupportsIndex = 0, log_risk: Number | None = None
) -> int:
    """Return how many draws the sampling test needs.

    This is the smallest n with ``P(Binomial(n, 1 - coverage) <= failures) <= 1 - confidence``. If at most
    `failures` of n independent draws fail, at least `coverage` of the set is valid, with that confidence.

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

    Returns
    -------
    int
        The number of draws.

    Notes
    -----
    The guarantee is void if the number is not fixed before drawing ("draw more if the answer is poor" is a
    selection), or if the draws took part in choosing what is tested.

    References
    ----------
    Wilks, S. S. (1941). Determination of sample sizes for setting tolerance limits. Annals of Mathematical
    Statistics 12, 91-96.

    Examples
    --------
    >>> sample_size(coverage=0.995, confidence=0.999)
    1379
    >>> sample_size(coverage=0.995, confidence=0.999, failures=2)
    2242
    >>> sample_size(coverage=0.995, log_risk=-92.1)  # confidence about 1 - 1e-40
    18374
    """
    q = _failure_probability(coverage)
    c = as_count("failures", failures, 0, "give how many failing draws the test is to allow")
    risk = as_risk(confidence, log_risk)
    n = _approximate_size(q, c, risk)
    while not binomial.stays_within(n, c, q, risk):
        n += 1
    while n > c + 1 and binomial.stays_within(n - 1, c, q, risk):
        n -= 1
    return n


def allowed_failures(
    n_samples: SupportsIndex, *, coverage: Number, confidence: Number | None = None, log_risk: Number | None = None
) -> int:
    """Return how many of `n_samples` draws may fail with the claim still certified.

    This is the largest c with ``P(Binomial(n_samples, 1 - coverage) <= c) <= 1 - confidence``.

    Parameters
    ----------
    n_samples : int
        Number of independent draws, fixed before drawing.
    coverage, confidence, log_risk
        As in `sample_size`.

    Returns
    -------
    int
        The number of failures allowed; -1 if there are too few draws to certify anything.

    Notes
    -----
    The time grows with the expected number of failures, or of valid draws if that is smaller: 4 s for 10**7
    draws at coverage 0.5, 50 ms at 0.995.

    "At most c failures" is the same as "`coverage_lower` is at least `coverage`"; decide by the count, which
    is exact, and show the bound. The guarantee is void under the conditions named at `sample_size`.

    Examples
    --------
    >>> allowed_failures(20_000, coverage=0.995, confidence=0.999)
    70
    >>> allowed_failures(1378, coverage=0.995, confidence=0.999)
    -1
    """
    n = _draws(n_samples)
    return binomial.count_below(n, _failure_probability(coverage), as_risk(confidence, log_risk))


def refuting_failures(
    n_samples: SupportsIndex, *, coverage: Number, confidence: Number | None = None, log_risk: Number | None = None
) -> int:
    """Return how many of `n_samples` draws must fail to refute the claim.

    This is the smallest r with ``P(Binomial(n_samples, 1 - coverage) >= r) <= 1 - confidence``.

    Parameters
    ----------
    n_samples, coverage, confidence, log_risk
        As in `allowed_failures`.

    Returns
    -------
    int
        The number of failures that refutes; ``n_samples + 1`` if there are too few draws to refute anything.

    Notes
    -----
    With this many failures less than `coverage` of the set is valid, with that confidence; between this and
    `allowed_failures` nothing is known. (Below a confidence of 1/2 the two may cross: both claims are then so
    weak that one count supports either.) A run may stop at this failure, and only there, its counts ending at
    that very draw; `coverage_lower` with ``stopped=True`` says what such a run shows.

    Examples
    --------
    >>> refuting_failures(1379, coverage=0.995, confidence=0.999)
    17
    >>> refuting_failures(1, coverage=0.995, confidence=0.999)
    2
    """
    n = _draws(n_samples)
    return binomial.count_above(n, _failure_probability(coverage), as_risk(confidence, log_risk))


def _failure_probability(coverage: Number) -> Fraction:
    share = as_probability("coverage", coverage, "give the share of shifts that must stay valid, such as 0.995")
    return Fraction(share.denominator - share.numerator, share.denominator)


def _draws(n_samples: SupportsIndex) -> int:
    return as_count("n_samples", n_samples, 0, "give the number of independent draws")


def _approximate_size(q: Fraction, c: int, risk: Risk) -> int:
    """Return a number at or beside the sample size, by Newton's method on the logarithm of the tail.

    The tail is the survival function of a sum of geometric waiting times, hence log-concave in n: from the
    first step on Newton's method comes down to the root from above, so any start will do.
    """
    with localcontext(precision(40)):
        n = max(_start(as_decimal(q), c, as_decimal(risk)), c + 1)
    if c == 0 and n < 10**12:  # the start is right up to the rounding of a float
        return n
    with localcontext(precision(40 + len(str(n)))):
        failure, level = as_decimal(q), as_decimal(risk)
        for _ in range(_MOST_STEPS):
            total, last = binomial.head(n, c, q)
            # One more draw takes away the chance that the c-th failure is out and this draw is the next.
            step = _ceiling(-_log(level / total) / _rate(failure * last / total))
            n = max(n + step, c + 1)
            if abs(step) <= 1:
                break
    return n


def _start(q: Decimal, c: int, risk: Decimal) -> int:
    """Return the root itself for c = 0, and else the n at which Chernoff's bound is about the risk."""
    length = -_log(risk)
    if c == 0:
        return _ceiling(length / _rate(q))
    return _ceiling((c + length + (length * (length + 2 * c)).sqrt()) / q)


def _rate(x: Decimal) -> Decimal:
    """Return ``-log(1 - x)``, which is x itself when the digits at hand cannot tell 1 - x from 1."""
    return -_log(1 - x) or x


def _log(x: Decimal) -> Decimal:
    """Return the natural logarithm to about 15 digits, also where x is no float, or rounds to 1 as a float."""
    beyond = x - 1
    if abs(beyond) < _NO_CURVATURE:
        return beyond
    if abs(beyond) < 0.5:
        return Decimal(math.log1p(float(beyond)))
    exponent = x.adjusted()
    return Decimal(math.log(float(x.scaleb(-exponent))) + exponent * math.log(10))


def _ceiling(x: Decimal) -> int:
    return int(x.to_integral_value(rounding=ROUND_CEILING))
