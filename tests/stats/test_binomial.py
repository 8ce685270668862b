"""The error bound that decides when decimals are trusted, and the way out when they are not."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest

from apas.stats import binomial as _binomial
from apas.stats.binomial import precision


def exact_head(n: int, c: int, q: Fraction) -> Fraction:
    return sum((math.comb(n, i) * q**i * (1 - q) ** (n - i) for i in range(c + 1)), Fraction(0))


@pytest.mark.parametrize("digits", [8, 12, 20])
@pytest.mark.parametrize("q", [Fraction(1, 3), Fraction(5, 1000), Fraction(2, 7), Fraction(999, 1001)])
def test_the_error_bound_holds_and_is_not_idle(digits: int, q: Fraction) -> None:
    """At few digits the rounding errors are large enough to be seen against the bound."""
    largest = Fraction(0)
    for n in (1, 2, 10, 77, 300):
        for c in {0, n // 7, n // 2, n - 1}:
            with localcontext(precision(digits)):
                computed, _ = _binomial.head(n, c, q)
            exact = exact_head(n, c, q)
            error = abs(Fraction(computed) - exact) / exact
            bound = Fraction(_binomial._error(n, digits))
            assert error <= bound / 2  # the other half is for the level
            largest = max(largest, error / bound)
    assert largest > Fraction(1, 10**4)


@pytest.mark.parametrize("risk", [Fraction(1, 2), Fraction(1, 1000), Fraction(999, 10**6), Fraction(7, 10**33)])
def test_digits_are_never_too_few(risk: Fraction) -> None:
    for level in (risk, Decimal(risk.numerator) / Decimal(risk.denominator)):
        assert 0 <= -math.log10(risk) <= _binomial._digits(level) + 1 <= -math.log10(risk) + 3


def test_whole_numbers_only_settle_near_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    exact_sign = _binomial._exact_sign
    monkeypatch.setattr(_binomial, "_exact_sign", lambda *a: asked.append(a) or exact_sign(*a))
    for n in range(1, 200):
        _binomial.count_below(n, Fraction(1, 200), Fraction(1, 1000))
        _binomial.count_above(n, Fraction(1, 200), Fraction(1, 1000))
        _binomial.sample_size(coverage=Fraction(199, 200), confidence=Fraction(999, 1000))
        # a tiny risk needs its digits in the one sum and a relative error bound in the other
        _binomial.count_above(n, Fraction(1, 200), Fraction(1, 10**80))
        _binomial.count_below(n, Fraction(9, 20), Fraction(1, 10**80))
    assert not asked
    assert _binomial.sample_size(coverage=Fraction(1, 2), confidence=Fraction(3, 4)) == 2
    assert _binomial.count_below(2, Fraction(1, 2), Fraction(1, 4)) == 0
    assert _binomial.count_above(2, Fraction(1, 2), Fraction(1, 4)) == 2
    assert len(asked) == 3


@pytest.mark.parametrize("n", [1, 3, 9, 101])
def test_the_shortcut_for_the_symmetric_tie_is_true(n: int) -> None:
    c, half = n // 2, Fraction(1, 2)
    assert exact_head(n, c, half) == half
    assert _binomial._exact_sign(n, c, half, half) == 0
    assert _binomial._exact_sign(n, c, half, half + Fraction(1, 10**50)) == -1
    assert _binomial._exact_sign(n, c, half, half - Fraction(1, 10**50)) == 1
    assert _binomial._exact_sign(n + 1, c, half, half) == -1
    assert _binomial._exact_sign(n + 1, c + 1, half, half) == 1


def test_either_way_of_summing_gives_the_same_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice between the two tails is one of speed only."""
    shares = Fraction(1, 5), Fraction(1, 2), Fraction(4, 5)
    risks = Fraction(1, 1000), Fraction(1, 5), Fraction(1, 4), Fraction(31, 32), Fraction(1, 5**25)
    asked = [(n, q, risk) for n in (0, 1, 2, 25) for q in shares for risk in risks]
    counts = [(_binomial.count_below(*case), _binomial.count_above(*case)) for case in asked]
    monkeypatch.setattr(_binomial, "_MOST_RISK_DIGITS", -1)  # always from the tail itself
    assert counts == [(_binomial.count_below(*case), _binomial.count_above(*case)) for case in asked]
    for (n, q, risk), (below, above) in zip(asked, counts, strict=True):
        assert below == n - _binomial.count_above(n, 1 - q, risk)
        assert exact_head(n, below, q) <= risk < exact_head(n, below + 1, q) or below == n
        assert 1 - exact_head(n, above - 1, q) <= risk or above > n
