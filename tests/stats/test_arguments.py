"""Numbers are read exactly, or refused."""

from __future__ import annotations

import math
from decimal import Decimal, Underflow
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, strategies as st

from apas.errors import InputError
from apas.stats.binomial import as_confidence, as_count, as_probability, as_risk, precision


@given(st.floats(min_value=0, max_value=1, exclude_min=True, exclude_max=True))
def test_a_float_is_its_shortest_decimal(value: float) -> None:
    assert as_probability("coverage", value, "") == Fraction(repr(value))


@pytest.mark.parametrize("value", [0.995, np.float64(0.995), np.float32(0.995), Fraction(199, 200), Decimal("0.9950")])
def test_every_spelling_of_a_number(value) -> None:
    assert as_probability("coverage", value, "") == Fraction(199, 200)


def test_extreme_floats_are_read_too() -> None:
    assert as_confidence(0.9999999999999999) == 1 - Fraction(1, 10**16)
    assert as_probability("coverage", 5e-324, "") == Fraction(5, 10**324)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, Decimal("NaN"), Decimal("Infinity"), np.float32("nan")])
def test_numbers_without_a_value_are_refused(value) -> None:
    with pytest.raises(InputError, match=r"coverage must be a finite number, got .*; say so"):
        as_probability("coverage", value, "say so")


@pytest.mark.parametrize("value", ["0.5", None, 0.5j, [0.5], np.array([0.5]), np.True_, True])
def test_other_things_are_refused(value) -> None:
    with pytest.raises(InputError, match=r"coverage must be a float, a Fraction or a Decimal, got .*; say so"):
        as_probability("coverage", value, "say so")


@pytest.mark.parametrize("one", [1, 1.0, np.float64(1), Fraction(1)])
def test_a_confidence_of_one_gets_its_own_advice(one) -> None:
    with pytest.raises(InputError, match=r"confidence .*; no number of draws .* log_risk=log\(1 - confidence\)"):
        as_confidence(one)
    with pytest.raises(InputError, match=r"confidence .* got 0\.0; give a confidence such as 0\.999"):
        as_confidence(0.0)


def test_counts() -> None:
    assert as_count("n", np.uint16(3), 3, "") == 3
    with pytest.raises(InputError, match=r"n must be a whole number of at least 4, got 3; do"):
        as_count("n", 3, 4, "do")


@pytest.mark.parametrize(
    "log_risk", [-1e-300, -1e-9, -0.5, -1, -92.1, -1e5, -1e9, Fraction(-1, 3), Fraction(-(10**9), 7)]
)
def test_log_risk_is_cut_off_below_by_next_to_nothing(log_risk) -> None:
    """Rounding can only make a claim stricter, and not by a part in 10**49; near 1, of what is left to 1."""
    risk = as_risk(None, log_risk)
    exact = Fraction(str(log_risk))
    with mpmath.workdps(450):
        true = mpmath.exp(mpmath.mpf(exact.numerator) / exact.denominator)
        value = mpmath.mpf(str(risk))
        assert 0 < true - value < mpmath.mpf(10) ** -49 * min(true, 1 - true)


def test_underflow_is_an_error_not_a_zero() -> None:
    with pytest.raises(Underflow):
        precision(20).power(Decimal("1e-9"), 10**18)


def test_risk_of_a_confidence_is_exact() -> None:
    assert as_risk(0.999, None) == Fraction(1, 1000)
    assert as_risk(math.nextafter(1, 0), None) == 1 - Fraction(repr(math.nextafter(1, 0)))
