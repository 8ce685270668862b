"""Sample sizes and failure counts of the sampling test (Lemma 4 of the paper, Wilks 1941); bounds on shares.

`coverage` is the paper's R, the share of the shifts that must keep the explanation valid; `confidence` is its alpha. A
float is read as the decimal that was typed: 0.995 means 995/1000, not the double nearest to it, because the claim that
gets printed has to be true as printed. No float takes part in a decision.

The bounds of Clopper and Pearson are shown to people: doubles, correct to about 1e-15, so that a bound equal to the
coverage asked for may come out a unit in the last place beside it. What is *decided* is decided by counts.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from typing import Any, SupportsIndex

import numpy as np

import apas.stats.binomial as binomial
from apas._typing import Floats, Integers
from apas.errors import InputError
from apas.stats.binomial import (
    Number,
    Risk,
    as_confidence,
    as_count,
    as_counts,
    as_decimal,
    as_probability,
    as_risk,
    precision,
)

# Newton's method took at most 22 steps on 6,000 random cases, 5 being usual; the limit only keeps a mistake
# from running forever.
_MOST_STEPS = 1000
# Below this log(1 + x) is x to all the digits of a float.
_NO_CURVATURE = Decimal("1e-16")


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
    while not binomial.stays_within(n, c, q, risk):
        n += 1
    while n > c + 1 and binomial.stays_within(n - 1, c, q, risk):
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
    The time grows with the expected number of failures, or of valid draws if that is smaller: 4 s for 10**7
    draws at coverage 0.5, 50 ms at 0.995.

    Examples
    --------
    >>> allowed_failures(20_000, coverage=0.995, confidence=0.999)
    70
    """
    n = _draws(n_samples)
    return binomial.count_below(n, _failure_probability(coverage), as_risk(confidence, log_risk))


def refuting_failures(
    n_samples: SupportsIndex, *, coverage: Number, confidence: Number | None = None, log_risk: Number | None = None
) -> int:
    """Return how many of `n_samples` draws must fail to refute the claim; ``n_samples + 1`` if too few can.

    This is the smallest r with ``P(Binomial(n_samples, 1 - coverage) >= r) <= 1 - confidence``: with so many failures
    less than `coverage` is valid, with that confidence. Between this and `allowed_failures` nothing is known.

    Parameters
    ----------
    n_samples, coverage, confidence, log_risk
        As in `allowed_failures`.

    Notes
    -----
    Below a confidence of 1/2 the two may cross: both claims are then so weak that one count supports either. A run may
    stop at this failure, and only there, its counts ending at that very draw; `coverage_lower` with ``stopped=True``
    says what such a run shows.

    Examples
    --------
    >>> refuting_failures(1379, coverage=0.995, confidence=0.999)
    17
    """
    n = _draws(n_samples)
    return binomial.count_above(n, _failure_probability(coverage), as_risk(confidence, log_risk))


def coverage_lower(
    draws: SupportsIndex, failures: SupportsIndex, *, confidence: Number, stopped: bool = False
) -> float:
    """Return the one-sided lower confidence bound on the share of valid draws.

    Whatever the true share, it is at most that share in at least `confidence` of all runs.

    Parameters
    ----------
    draws : int
        Independent draws that were counted.
    failures : int
        How many of them failed.
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
    return float(_lower(n - k, n - 1 if stopped else n, _risk(confidence)))


def coverage_upper(
    draws: SupportsIndex, failures: SupportsIndex, *, confidence: Number, stopped: bool = False
) -> float:
    """Return the one-sided upper confidence bound on the share of valid draws.

    Whatever the true share, it is at least that share in at least `confidence` of all runs.

    Parameters
    ----------
    draws, failures, confidence, stopped
        As in `coverage_lower`, which names what voids the guarantee. The bound is the same number for a run that
        stopped, because "the r-th failure came by draw n" and "n draws hold at least r failures" are one event.

    Notes
    -----
    ``coverage_upper(n, k) <= R`` holds if and only if ``k >= refuting_failures(n, coverage=R)``, at the same
    confidence and up to rounding.

    Examples
    --------
    >>> round(coverage_upper(1379, 17, confidence=0.999), 6)
    0.994887
    """
    n, k = _counts(draws, failures, stopped)
    return float(_upper(n - k, n, _risk(confidence)))


def coverage_bounds(draws: int, failures: Integers, certain: Integers, *, confidence: Number) -> tuple[Floats, Floats]:
    """Return `coverage_lower` at each of many failures, and `coverage_upper` at those that are `certain`, as arrays."""
    risk, bounds = _risk(confidence), []
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
    successes : int
        How many trials succeeded.
    trials : int
        Independent trials, their number fixed in advance: void if it depended on their outcome.
    confidence : float, Fraction or Decimal
        Of both ends together.

    Examples
    --------
    >>> low, high = clopper_pearson(1379, 1379, confidence=0.999)
    >>> round(low, 5), high
    (0.9945, 1.0)
    """
    n, k = as_counts(trials, successes, ("trials", "successes", "succeeded"))
    half = _risk(confidence) / 2
    return float(_lower(k, n, half)), float(_upper(k, n, half))


def _counts(draws: SupportsIndex, failures: SupportsIndex, stopped: bool) -> tuple[int, int]:
    n, k = as_counts(draws, failures)
    if stopped and k == 0:
        raise InputError(
            "failures must be at least 1 with stopped=True, got 0; a run that stopped at a failure has one, "
            "so give stopped=False for a run that made all its draws"
        )
    return n, k


def _risk(confidence: Number) -> Fraction:
    return 1 - as_confidence(confidence)


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
