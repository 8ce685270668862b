"""Sample sizes and failure counts against whole-number arithmetic, known values and mpmath."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from apas.errors import InputError
from apas.stats import allowed_failures, refuting_failures, sample_size

# Far below what the decimal arithmetic resolves, so that only exact arithmetic sees it.
SPECK = Fraction(1, 10**90)


def at_most(n: int, c: int, q: Fraction) -> Fraction:
    """P(Binomial(n, q) <= c), term by term from the definition."""
    up, whole = q.numerator, q.denominator
    return Fraction(sum(math.comb(n, i) * up**i * (whole - up) ** (n - i) for i in range(c + 1)), whole**n)


def at_least(n: int, r: int, q: Fraction) -> Fraction:
    return at_most(n, n - r, 1 - q)


# --- known values ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coverage", "confidence", "failures", "expected"),
    [
        (0.995, 0.999, 0, 1379),
        (0.995, 0.999, 1, 1843),
        (0.995, 0.999, 2, 2242),
        (0.995, 0.999, 5, 3286),
        (0.9, 0.9, 0, 22),
        (0.999, 0.999, 0, 6905),
        (0.95, 0.95, 0, 59),
        (0.95, 0.95, 1, 93),
        # ties, where a logarithm in floats may land on either side of the whole number
        (0.5, 0.75, 0, 2),
        (0.9, 0.19, 0, 2),
        (0.1, 0.99, 0, 2),
        (0.1, 0.9, 0, 1),
        (0.2, 0.992, 0, 3),
        (0.5, 0.5, 0, 1),
        (0.5, 0.5, 1, 3),
    ],
)
def test_sample_size_known(coverage: float, confidence: float, failures: int, expected: int) -> None:
    assert sample_size(coverage=coverage, confidence=confidence, failures=failures) == expected


@pytest.mark.parametrize(
    ("n", "allowed", "refuting"), [(0, -1, 1), (1, -1, 2), (1378, -1, 17), (1379, 0, 17), (20_000, 70, 133)]
)
def test_counts_known(n: int, allowed: int, refuting: int) -> None:
    assert allowed_failures(n, coverage=0.995, confidence=0.999) == allowed
    assert refuting_failures(n, coverage=0.995, confidence=0.999) == refuting


def test_both_sides_of_the_ceiling() -> None:
    """The paper's 1378 draws give less than the confidence it claims for them."""
    risk, coverage = Fraction(1, 1000), Fraction(995, 1000)
    assert coverage**1379 <= risk < coverage**1378
    assert float(1 - coverage**1378) == pytest.approx(0.99899953, abs=5e-9)
    assert sample_size(coverage=0.995, confidence=1 - coverage**1378) == 1378
    assert sample_size(coverage=0.995, confidence=1 - coverage**1378 + SPECK) == 1379


def test_a_float_is_read_as_the_decimal_that_was_typed() -> None:
    """The double 0.9 lies above 9/10, so that its square exceeds 1 - 0.19 and would ask for a third draw."""
    assert Fraction(0.9) ** 2 > 1 - Fraction(0.19)
    assert sample_size(coverage=Fraction(0.9), confidence=Fraction(0.19)) == 3
    assert sample_size(coverage=0.9, confidence=0.19) == 2
    assert sample_size(coverage=np.float64(0.9), confidence=np.float32(0.19)) == 2
    assert sample_size(coverage=Decimal("0.9"), confidence=Fraction(19, 100)) == 2


# --- exact arithmetic on thousands of cases --------------------------------------------------------------------


def cases(seed: int, count: int) -> list[tuple[Fraction, Fraction, int]]:
    """Pairs of coverage and confidence of one to four decimals, and a number of failures."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        scale = 10 ** int(rng.integers(1, 4))
        coverage = Fraction(int(rng.integers(1, scale)), scale)
        scale = 10 ** int(rng.integers(1, 5))
        confidence = Fraction(int(rng.integers(1, scale)), scale)
        found.append((min(coverage, Fraction(98, 100)), confidence, int(rng.integers(0, 12))))
    return found


def test_sample_size_is_the_smallest_on_4000_cases() -> None:
    for coverage, confidence, c in cases(1, 4000):
        n = sample_size(coverage=float(coverage), confidence=float(confidence), failures=c)
        risk, q = 1 - confidence, 1 - coverage
        assert n > c
        assert at_most(n, c, q) <= risk
        assert at_most(n - 1, c, q) > risk


def test_counts_are_the_extreme_ones_on_4000_cases() -> None:
    rng = np.random.default_rng(2)
    for coverage, confidence, _ in cases(3, 4000):
        n = int(rng.integers(0, 60))
        risk, q = 1 - confidence, 1 - coverage
        c = allowed_failures(n, coverage=float(coverage), confidence=float(confidence))
        r = refuting_failures(n, coverage=float(coverage), confidence=float(confidence))
        assert -1 <= c <= n - 1
        assert 1 <= r <= n + 1
        assert c < r or confidence < Fraction(1, 2)
        assert c == -1 or at_most(n, c, q) <= risk
        assert at_most(n, c + 1, q) > risk
        assert r == n + 1 or at_least(n, r, q) <= risk
        assert at_least(n, r - 1, q) > risk


def test_ties_are_settled_exactly() -> None:
    """A risk equal to the tail passes; one smaller by 1e-90 does not."""
    rng = np.random.default_rng(4)
    for coverage, _, c in cases(5, 300):
        n, q = c + int(rng.integers(1, 80)), 1 - coverage
        tail = at_most(n, c, q)
        assert sample_size(coverage=coverage, confidence=1 - tail, failures=c) == n
        assert allowed_failures(n, coverage=coverage, confidence=1 - tail) == c
        if tail > SPECK:
            assert sample_size(coverage=coverage, confidence=1 - tail + SPECK, failures=c) == n + 1
            assert allowed_failures(n, coverage=coverage, confidence=1 - tail + SPECK) == c - 1


def test_refuting_ties_are_settled_exactly() -> None:
    rng = np.random.default_rng(6)
    for coverage, _, _ in cases(7, 300):
        n, q = int(rng.integers(1, 80)), 1 - coverage
        r = int(rng.integers(1, n + 1))
        tail = at_least(n, r, q)
        assert refuting_failures(n, coverage=coverage, confidence=1 - tail) == r
        if tail > SPECK:
            assert refuting_failures(n, coverage=coverage, confidence=1 - tail + SPECK) == r + 1


def test_the_tie_of_symmetry() -> None:
    n = 100_001
    assert allowed_failures(n, coverage=0.5, confidence=0.5) == n // 2
    assert refuting_failures(n, coverage=0.5, confidence=0.5) == n // 2 + 1
    assert sample_size(coverage=0.5, confidence=0.5, failures=n // 2) == n


@settings(max_examples=200, deadline=None)
@given(
    coverage=st.fractions(min_value=Fraction(1, 50), max_value=Fraction(49, 50), max_denominator=10**6),
    confidence=st.fractions(min_value=Fraction(1, 10**6), max_value=1 - Fraction(1, 10**6)),
    n=st.integers(0, 40),
)
def test_the_three_functions_agree(coverage: Fraction, confidence: Fraction, n: int) -> None:
    """Turning valid into failing turns one count into the other; sample_size inverts allowed_failures."""
    level = {"coverage": coverage, "confidence": confidence}
    c = allowed_failures(n, **level)
    assert c == n - refuting_failures(n, coverage=1 - coverage, confidence=confidence)
    if c >= 0:
        assert sample_size(**level, failures=c) <= n
    assert sample_size(**level, failures=c + 1) > n


# --- large numbers ---------------------------------------------------------------------------------------------


def large_tail(n: int, k: int, q: Fraction, step: int) -> mpmath.mpf:
    """P(X <= k) for step -1, P(X >= k) for step 1: outwards from k, where apas sums from 0."""
    p = mpmath.mpf(q.denominator - q.numerator) / q.denominator
    odds = mpmath.mpf(q.numerator) / (q.denominator - q.numerator)
    term = mpmath.binomial(n, k) * mpmath.power(odds, k) * mpmath.power(p, n)
    total = mpmath.mpf(0)
    while 0 <= k <= n and term > total * mpmath.mpf(10) ** -45:
        total += term
        term *= odds * (n - k) / (k + 1) if step > 0 else k / (odds * (n - k + 1))
        k += step
    return total


@pytest.mark.parametrize(
    ("n", "coverage", "confidence"),
    [
        (20_000, "0.995", "0.999"),
        (20_000, "0.123456789", "0.987654321"),
        (200_000, "0.9", "0.000001"),
        (10**6, "0.995", "0.999999999999999999"),
        (10**6, "0.05", "0.5"),
        (10**7, "0.999", "0.999"),
    ],
)
def test_counts_for_many_draws(n: int, coverage: str, confidence: str) -> None:
    q, risk = 1 - Fraction(coverage), 1 - Fraction(confidence)
    c = allowed_failures(n, coverage=Decimal(coverage), confidence=Decimal(confidence))
    r = refuting_failures(n, coverage=Decimal(coverage), confidence=Decimal(confidence))
    with mpmath.workdps(60):
        level = mpmath.mpf(risk.numerator) / risk.denominator
        assert large_tail(n, c, q, -1) <= level < large_tail(n, c + 1, q, -1)
        assert large_tail(n, r, q, 1) <= level < large_tail(n, r - 1, q, 1)


@pytest.mark.parametrize(("coverage", "failures"), [("0.995", 70), ("0.99999", 1000), ("0.3", 2000)])
def test_sample_size_with_many_failures(coverage: str, failures: int) -> None:
    n = sample_size(coverage=float(coverage), confidence=0.999, failures=failures)
    q = 1 - Fraction(coverage)
    with mpmath.workdps(60):
        level = mpmath.mpf(1) / 1000
        assert large_tail(n, failures, q, -1) <= level < large_tail(n - 1, failures, q, -1)


@pytest.mark.parametrize("digits", [16, 60, 330])
def test_sample_size_far_outside_the_floats(digits: int) -> None:
    """At n of 60 digits the tails of neighbours agree in 60 digits; at 330 their difference is no float."""
    n = sample_size(coverage=1 - Fraction(1, 10**digits), confidence=0.999)
    with mpmath.workdps(800):
        root = mpmath.log(mpmath.mpf(1) / 1000) / mpmath.log(1 - mpmath.mpf(10) ** -digits)
        assert n == int(mpmath.ceil(root))


# --- log_risk --------------------------------------------------------------------------------------------------


def test_log_risk_says_what_a_float_confidence_cannot() -> None:
    assert 1 - 1e-40 == 1.0
    risk = Fraction(1, 10**40)
    for failures in (0, 3):
        n = sample_size(coverage=0.995, log_risk=-40 * math.log(10), failures=failures)
        assert at_most(n, failures, Fraction(5, 1000)) <= risk < at_most(n - 1, failures, Fraction(5, 1000))
        assert n == sample_size(coverage=0.995, confidence=1 - risk, failures=failures)
        assert allowed_failures(n, coverage=0.995, log_risk=-40 * math.log(10)) == failures
        assert allowed_failures(n - 1, coverage=0.995, log_risk=-40 * math.log(10)) == failures - 1


def test_log_risk_against_mpmath() -> None:
    rng = np.random.default_rng(8)
    with mpmath.workdps(60):
        for _ in range(300):
            log_risk = -float(10 ** rng.uniform(-3, 12))
            coverage = round(float(rng.uniform(0.01, 0.9999)), 4)
            root = mpmath.mpf(str(log_risk)) / mpmath.log(mpmath.mpf(str(coverage)))
            assert sample_size(coverage=coverage, log_risk=log_risk) == int(mpmath.ceil(root))


def test_deep_log_risk_in_both_counts() -> None:
    """Risks of hundreds and thousands of zeros take the other way of summing; both must agree with fractions."""
    q = Fraction(1, 4)
    for log_risk in (-30.0, -300.0, -690.0, -692.0, -700.0, -5000.0):
        with mpmath.workdps(60):
            digits = mpmath.nstr(mpmath.exp(mpmath.mpf(log_risk)), 55)
        risk = Fraction(digits)
        c = allowed_failures(1500, coverage=0.75, log_risk=log_risk)
        r = refuting_failures(1500, coverage=0.75, log_risk=log_risk)
        assert c == -1 or at_most(1500, c, q) <= risk
        assert at_most(1500, c + 1, q) > risk
        assert r == 1501 or at_least(1500, r, q) <= risk
        assert at_least(1500, r - 1, q) > risk
        assert c == 1500 - refuting_failures(1500, coverage=0.25, log_risk=log_risk)


def test_log_risk_near_zero_keeps_its_digits() -> None:
    """A confidence of 1e-200 takes 1e-200 / q draws, rounded up, for a failure probability q of that order."""
    assert sample_size(coverage=1 - Fraction(1, 10**199), log_risk=-1e-200) == 1
    assert sample_size(coverage=1 - Fraction(3, 10**202), log_risk=-1e-200) == 34


# --- arguments -------------------------------------------------------------------------------------------------


def test_numpy_integers_are_accepted() -> None:
    assert allowed_failures(np.int64(20_000), coverage=0.995, confidence=0.999) == 70
    assert type(refuting_failures(np.int32(0), coverage=0.995, confidence=0.999)) is int
    assert sample_size(coverage=0.995, confidence=0.999, failures=np.uint8(2)) == 2242


def test_the_callers_decimal_context_is_left_alone() -> None:
    before = getcontext().copy()
    sample_size(coverage=0.5, confidence=0.75, failures=1)
    refuting_failures(10, coverage=0.5, log_risk=-1.0)
    assert repr(getcontext()) == repr(before)


@pytest.mark.parametrize("function", [allowed_failures, refuting_failures])
@pytest.mark.parametrize("n", [-1, 1.0, True, np.True_, "10", None, [1]])
def test_n_samples_is_checked(function, n) -> None:
    with pytest.raises(InputError, match=r"n_samples must be a whole number of at least 0, got .*; give the"):
        function(n, coverage=0.9, confidence=0.9)


@pytest.mark.parametrize("failures", [-1, 0.0, False, None])
def test_failures_is_checked(failures) -> None:
    with pytest.raises(InputError, match=r"failures must be a whole number of at least 0, got .*; give how"):
        sample_size(coverage=0.9, confidence=0.9, failures=failures)


def every_function(**level) -> list:
    return [lambda: sample_size(**level), lambda: allowed_failures(5, **level), lambda: refuting_failures(5, **level)]


@pytest.mark.parametrize(
    ("level", "message"),
    [
        ({"coverage": 1.2, "confidence": 0.9}, r"coverage must lie strictly between 0 and 1, got 1\.2; give"),
        ({"coverage": 0.0, "confidence": 0.9}, r"coverage must lie strictly between 0 and 1, got 0\.0"),
        ({"coverage": 1, "confidence": 0.9}, r"coverage must lie strictly between 0 and 1, got 1;"),
        ({"coverage": -0.5, "confidence": 0.9}, r"coverage must lie strictly between 0 and 1, got -0\.5"),
        ({"coverage": math.nan, "confidence": 0.9}, r"coverage must be a finite number, got nan"),
        ({"coverage": "0.9", "confidence": 0.9}, r"coverage must be a float, a Fraction.*'0\.9' \(str\)"),
        ({"coverage": True, "confidence": 0.9}, r"coverage must be a float, a Fraction.*True \(bool\)"),
        ({"coverage": 0.9, "confidence": 1 - 1e-40}, r"between 0 and 1, got 1\.0; no number .*log_risk="),
        ({"coverage": 0.9, "confidence": 0}, r"confidence must lie strictly between 0 and 1, got 0;"),
        ({"coverage": 0.9}, r"exactly one of confidence and log_risk must be given, got neither"),
        ({"coverage": 0.9, "confidence": 0.9, "log_risk": -1.0}, r"exactly one of .*, got both; give"),
        ({"coverage": 0.9, "log_risk": 0.0}, r"log_risk must be negative and at least -1e15, got 0\.0; give"),
        ({"coverage": 0.9, "log_risk": 3}, r"log_risk must be negative and at least -1e15, got 3; give"),
        ({"coverage": 0.9, "log_risk": -1e16}, r"log_risk must be negative and at least -1e15, got -1e\+16"),
        ({"coverage": 0.9, "log_risk": -math.inf}, r"log_risk must be a finite number, got -inf; give"),
    ],
)
def test_levels_are_checked(level: dict, message: str) -> None:
    for call in every_function(**level):
        with pytest.raises(InputError, match=message):
            call()
