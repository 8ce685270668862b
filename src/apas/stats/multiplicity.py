"""How one risk is spent over several tests.

A search that tests until something passes returns a *selected* result; at confidence 0.999 each, 200 tries can make a
false claim in 18 % of all searches. A budget says which part of the total risk each test may use. The cost is small:
the sample size grows with the logarithm of the risk, 1379 draws for one test and 2436 for each of 200.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, SupportsIndex, runtime_checkable

from apas.errors import InputError
from apas.stats.binomial import Number, as_confidence, as_count, as_probability


@runtime_checkable
class Budget(Protocol):
    """A rule that divides one risk among tests that are numbered from 1 in the order they are run."""

    def share(self, test: int) -> Fraction:
        """Return the part of the total risk that test number `test` may use."""


@dataclass(frozen=True)
class FixedSequence:
    """Every test at the full risk: in an order fixed in advance, and no further than the first failure.

    A false claim needs the first false hypothesis of the order to pass its one test, so nothing is spent by going on.
    All tests may share one sample. Void if the order depends on the draws, if a test is skipped or repeated, or if
    anything after the first failure is claimed.

    Examples
    --------
    >>> FixedSequence().share(7)
    Fraction(1, 1)
    """

    def share(self, test: SupportsIndex) -> Fraction:
        """Return 1."""
        _number(test)
        return Fraction(1)


@dataclass(frozen=True)
class Uniform:
    """The same part of the risk for each of at most `tests` tests, a number fixed in advance.

    Void if a test is run beyond that number (which is refused), or if its hypothesis was chosen with the draws that
    test it: use fresh draws for each test, or a list of hypotheses fixed in advance.

    Examples
    --------
    >>> Uniform(200).share(1)
    Fraction(1, 200)
    """

    tests: int

    def __post_init__(self) -> None:
        tests = as_count("tests", self.tests, 1, "give the largest number of tests that will be run")
        object.__setattr__(self, "tests", tests)

    def share(self, test: SupportsIndex) -> Fraction:
        """Return one part in `tests`."""
        if _number(test) > self.tests:
            told = f"test must be at most {self.tests}, the number of tests of this Uniform budget, got {test};"
            raise InputError(f"{told} plan for more tests in advance, or use Telescoping(), which has no last test")
        return Fraction(1, self.tests)


@dataclass(frozen=True)
class Geometric:
    """Shares that fall by a constant ratio, strictly between 0 and 1: ``(1 - ratio) * ratio**(test - 1)``.

    Spends most on the first tests. With ratio 1/2, 20,000 draws at coverage 0.995 and confidence 0.999 cannot pass any
    test from number 135 on. Void if a test's draws were used before, in a test or in the choice of what is tested.

    Examples
    --------
    >>> [str(Geometric().share(test)) for test in (1, 2, 3)]
    ['1/2', '1/4', '1/8']
    """

    ratio: Number = Fraction(1, 2)

    def __post_init__(self) -> None:
        ratio = as_probability("ratio", self.ratio, "give the share of the risk that is kept for later tests")
        object.__setattr__(self, "ratio", ratio)

    def share(self, test: SupportsIndex) -> Fraction:
        """Return the share of test number `test`."""
        ratio = Fraction(self.ratio)
        return (1 - ratio) * ratio ** (_number(test) - 1)


@dataclass(frozen=True)
class Telescoping:
    """Shares ``1 / (test * (test + 1))``, which add up to 1 and never starve a late test.

    The hypotheses may depend on everything that happened before. Void if a test's draws were used before, in a test or
    in the choice of what is tested.

    Examples
    --------
    >>> [str(Telescoping().share(test)) for test in (1, 2, 3)]
    ['1/2', '1/6', '1/12']
    """

    def share(self, test: SupportsIndex) -> Fraction:
        """Return the share of test number `test`."""
        number = _number(test)
        return Fraction(1, number * (number + 1))


def spend(confidence: Number, budget: Budget, test: SupportsIndex) -> Fraction:
    """Return the confidence at which one test of several has to run: ``1 - (1 - confidence) * share``, exactly.

    Pass it on as it is, a float may round it to 1. Void if a test that was run is not counted, and as the budget says.

    Parameters
    ----------
    confidence : float, Fraction or Decimal
        Confidence of the claim that comes out in the end, strictly between 0 and 1.
    budget : Budget
        How the risk is divided.
    test : int
        Number of the test, from 1, counting every test that was run.

    Examples
    --------
    >>> from apas.stats import sample_size
    >>> sample_size(coverage=0.995, confidence=spend(0.999, Uniform(200), 1))
    2436
    """
    total = as_confidence(confidence)
    if not isinstance(budget, Budget) or isinstance(budget, type):
        advice = "give an instance, such as Telescoping()"
        raise InputError(f"budget must have a method share(test), got {budget!r}; {advice}")
    share = Fraction(budget.share(_number(test)))
    if not 0 < share <= 1:
        got = f"{share} for test {test}"
        raise InputError(f"budget must give shares above 0 and at most 1, got {got}; correct {budget!r}")
    return 1 - (1 - total) * share


def simultaneous(confidence: Number, rows: SupportsIndex) -> Fraction:
    """Return the confidence of each row at which all rows hold together (Bonferroni), exactly.

    Rows may share their draws.

    Parameters
    ----------
    confidence : float, Fraction or Decimal
        Confidence that no row's claim is false, strictly between 0 and 1.
    rows : int
        Rows that were asked for, not those that passed: void if rows are left out that were tested and then dropped.

    Examples
    --------
    >>> simultaneous(0.999, 10)
    Fraction(9999, 10000)
    """
    number = as_count("rows", rows, 1, "give the number of rows that are certified together")
    return 1 - (1 - as_confidence(confidence)) / number


def _number(test: SupportsIndex) -> int:
    return as_count("test", test, 1, "count the tests from 1 in the order they are run")
