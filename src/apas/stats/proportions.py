"""Clopper-Pearson bounds on a probability, from counts.

The bounds are shown to people; what is *decided* is decided by counts (`allowed_failures` and
`refuting_failures`), which are exact. A bound is a double, correct to about 1e-15, so that a bound equal to
the coverage asked for may come out a unit in the last place beside it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import SupportsIndex

from apas.errors import InputError
from apas.stats.binomial import Number, as_confidence, as_counts


def coverage_lower(
    draws: SupportsIndex, failures: SupportsIndex, *, confidence: Number, stopped: bool = False
) -> float:
    """Return the one-sided lower confidence bound on the share of valid draws.

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

    Returns
    -------
    float
        The bound. Whatever the true share, it is at most that share in at least `confidence` of all runs.

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
    >>> round(coverage_lower(500, 17, confidence=0.999, stopped=True), 6)
    0.935707
    """
    n, k = _counts(draws, failures, stopped)
    # A run that stopped at draw n was sure of that failure: what it shows lies in the draws before.
    return _lower(n - k, n - 1 if stopped else n, _risk(confidence))


def coverage_upper(
    draws: SupportsIndex, failures: SupportsIndex, *, confidence: Number, stopped: bool = False
) -> float:
    """Return the one-sided upper confidence bound on the share of valid draws.

    Parameters
    ----------
    draws, failures, confidence, stopped
        As in `coverage_lower`. The bound is the same number for a run that stopped, because "the r-th failure came by
        draw n" and "n draws hold at least r failures" are one event.

    Returns
    -------
    float
        The bound. Whatever the true share, it is at least that share in at least `confidence` of all runs.

    Notes
    -----
    ``coverage_upper(n, k) <= R`` holds if and only if ``k >= refuting_failures(n, coverage=R)``, at the same
    confidence and up to rounding. What voids the guarantee is named at `coverage_lower`.

    Examples
    --------
    >>> round(coverage_upper(1379, 17, confidence=0.999), 6)
    0.994887
    """
    n, k = _counts(draws, failures, stopped)
    return _upper(n - k, n, _risk(confidence))


def clopper_pearson(successes: SupportsIndex, trials: SupportsIndex, *, confidence: Number) -> tuple[float, float]:
    """Return the two-sided "exact" confidence interval of a probability.

    Parameters
    ----------
    successes : int
        How many trials succeeded.
    trials : int
        Independent trials, their number fixed in advance.
    confidence : float, Fraction or Decimal
        Of both ends together; each alone holds at ``(1 + confidence) / 2``.

    Returns
    -------
    tuple of float
        Lower and upper end.

    Notes
    -----
    The sampling test agrees with the *one-sided* `coverage_lower`, not with this interval. The guarantee is
    void if the number of trials depended on their outcome.

    Examples
    --------
    >>> low, high = clopper_pearson(1379, 1379, confidence=0.999)
    >>> round(low, 5), high
    (0.9945, 1.0)
    """
    n, k = as_counts(trials, successes, ("trials", "successes", "succeeded"))
    half = _risk(confidence) / 2
    return _lower(k, n, half), _upper(k, n, half)


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


def _lower(k: int, n: int, risk: Fraction) -> float:
    """Return the success probability at which k or more of n successes has probability `risk`."""
    if k == 0:
        return 0.0
    from scipy import special

    return float(special.betaincinv(k, n - k + 1, float(risk)))


def _upper(k: int, n: int, risk: Fraction) -> float:
    """Return the success probability at which k or fewer of n successes has probability `risk`."""
    if k == n:
        return 1.0
    from scipy import special

    # The complemented function takes the small risk itself: 1 - risk would lose its digits.
    return float(special.betainccinv(k + 1, n - k, float(risk)))
