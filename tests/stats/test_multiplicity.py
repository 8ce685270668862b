"""Budgets of risk: their sums, their exactness and what they cost in draws."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from fractions import Fraction

import numpy as np
import pytest

from apas.errors import InputError
from apas.stats import (
    Budget,
    FixedSequence,
    Geometric,
    Telescoping,
    Uniform,
    allowed_failures,
    sample_size,
    simultaneous,
    spend,
)


@pytest.mark.parametrize(
    ("budget", "tests", "left"),
    [
        (Uniform(200), 200, Fraction(0)),
        (Uniform(7), 5, Fraction(2, 7)),
        (Geometric(), 20, Fraction(1, 2**20)),
        (Geometric(Fraction(2, 3)), 10, Fraction(2, 3) ** 10),
        (Telescoping(), 300, Fraction(1, 301)),
    ],
)
def test_shares_add_up_exactly(budget: Budget, tests: int, left: Fraction) -> None:
    """What is spent and what is left is the whole risk, never more."""
    shares = [budget.share(test) for test in range(1, tests + 1)]
    assert all(type(share) is Fraction and share > 0 for share in shares)
    assert sum(shares) == 1 - left


def test_shares_by_number() -> None:
    assert [Telescoping().share(j) for j in (1, 2, 9)] == [Fraction(1, 2), Fraction(1, 6), Fraction(1, 90)]
    assert [Geometric(0.1).share(j) for j in (1, 3)] == [Fraction(9, 10), Fraction(9, 1000)]
    assert [FixedSequence().share(j) for j in (1, 1000)] == [1, 1]
    assert Uniform(3).share(3) == Fraction(1, 3)
    assert Telescoping().share(np.int64(2)) == Fraction(1, 6)


def test_two_hundred_tests_cost_2436_draws_each() -> None:
    assert spend(0.999, Uniform(200), 1) == 1 - Fraction(1, 200_000)
    assert sample_size(coverage=0.995, confidence=spend(0.999, Uniform(200), 1)) == 2436
    assert sample_size(coverage=0.995, confidence=spend(0.999, FixedSequence(), 200)) == 1379


def test_halving_starves_late_tests_and_telescoping_does_not() -> None:
    def allowed(budget: Budget, test: int) -> int:
        return allowed_failures(20_000, coverage=0.995, confidence=spend(0.999, budget, test))

    assert allowed(Geometric(), 134) == 0
    assert allowed(Geometric(), 135) == -1
    assert allowed(Telescoping(), 135) > 40


def test_spend_stays_exact_where_floats_round_to_one() -> None:
    confidence = spend(0.999, Geometric(), 100)
    assert float(confidence) == 1.0
    assert confidence == 1 - Fraction(1, 1000 * 2**100)
    assert sample_size(coverage=0.995, confidence=confidence) == 15207


def test_simultaneous() -> None:
    assert simultaneous(0.999, 1) == Fraction(999, 1000)
    assert simultaneous(0.9, 10) == Fraction(99, 100)
    assert simultaneous(0.9, np.int64(10)) == spend(0.9, Uniform(10), 10)


@dataclass(frozen=True)
class Halves:
    """A budget that a user might bring."""

    def share(self, test: int) -> Fraction:
        return Fraction(1, 2) if test <= 2 else Fraction(0)


def test_users_may_bring_their_own_budget() -> None:
    assert isinstance(Halves(), Budget)
    assert spend(0.9, Halves(), 2) == Fraction(95, 100)
    with pytest.raises(InputError, match=r"budget must give shares above 0 and at most 1, got 0 for test 3; corr"):
        spend(0.9, Halves(), 3)


@pytest.mark.parametrize("budget", [FixedSequence(), Uniform(2), Geometric(), Telescoping()])
def test_budgets_are_values(budget: Budget) -> None:
    assert isinstance(budget, Budget)
    assert hash(budget) == hash(eval(repr(budget)))
    assert budget == eval(repr(budget))


def test_fields_are_frozen_and_read_once() -> None:
    assert Geometric(0.5) == Geometric()
    assert type(Uniform(np.int64(3)).tests) is int
    with pytest.raises(FrozenInstanceError):
        Uniform(3).tests = 4


@pytest.mark.parametrize("budget", [FixedSequence(), Uniform(2), Geometric(), Telescoping()])
@pytest.mark.parametrize("test", [0, -1, 1.0, True, None])
def test_tests_are_counted_from_one(budget: Budget, test) -> None:
    with pytest.raises(InputError, match=r"test must be a whole number of at least 1, got .*; count the tests"):
        budget.share(test)
    with pytest.raises(InputError, match=r"test must be a whole number of at least 1, got .*; count the tests"):
        spend(0.9, budget, test)


def test_uniform_refuses_a_test_beyond_its_last() -> None:
    with pytest.raises(InputError, match=r"test must be at most 3, .*, got 4; plan .*Telescoping\(\)"):
        spend(0.9, Uniform(3), 4)


@pytest.mark.parametrize("tests", [0, -3, 2.5, True])
def test_uniform_checks_its_number(tests) -> None:
    with pytest.raises(InputError, match=r"tests must be a whole number of at least 1, got .*; give the largest"):
        Uniform(tests)


@pytest.mark.parametrize("ratio", [0, 1, 1.5, -0.5])
def test_geometric_checks_its_ratio(ratio: float) -> None:
    with pytest.raises(InputError, match=r"ratio must lie strictly between 0 and 1, got .*; give the share"):
        Geometric(ratio)


@pytest.mark.parametrize("budget", [None, "uniform", Telescoping, 3])
def test_spend_checks_its_budget(budget) -> None:
    with pytest.raises(InputError, match=r"budget must have a method share\(test\), got .*; give an instance"):
        spend(0.9, budget, 1)


def test_spend_and_simultaneous_check_the_rest() -> None:
    with pytest.raises(InputError, match=r"confidence must lie strictly between 0 and 1, got 1\.0; no number"):
        spend(1.0, Telescoping(), 1)
    with pytest.raises(InputError, match=r"confidence must lie strictly between 0 and 1, got 2"):
        simultaneous(2, 10)
    with pytest.raises(InputError, match=r"rows must be a whole number of at least 1, got 0; give the number"):
        simultaneous(0.9, 0)
