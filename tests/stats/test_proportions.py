"""Clopper-Pearson bounds against exact tails, SciPy's own, and the exact coverage of stopped runs."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import binomtest

from apas.errors import InputError
from apas.stats import allowed_failures, clopper_pearson, coverage_lower, coverage_upper, refuting_failures
from apas.stats.binomial import coverage_bounds


def at_most(n: int, c: int, q: Fraction) -> float:
    """P(Binomial(n, q) <= c), exact until the last rounding."""
    up, whole = q.as_integer_ratio()
    total = sum(math.comb(n, i) * up**i * (whole - up) ** (n - i) for i in range(c + 1))
    return float(Fraction(total, whole**n))


# --- a run of fixed length -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "k"), [(1, 1), (10, 1), (10, 3), (10, 9), (400, 17)])
@pytest.mark.parametrize("confidence", [Fraction(3, 10), Fraction(999, 1000), 1 - Fraction(1, 10**12)])
def test_bounds_solve_their_equations(n: int, k: int, confidence: Fraction) -> None:
    risk = float(1 - confidence)
    low = Fraction(coverage_lower(n, k - 1, confidence=confidence))
    high = Fraction(coverage_upper(n, k, confidence=confidence))
    assert at_most(n, k - 1, 1 - low) == pytest.approx(risk, rel=1e-9)
    assert at_most(n, n - k, high) == pytest.approx(risk, rel=1e-9)


@pytest.mark.parametrize(("n", "r"), [(2, 1), (12, 3), (500, 17)])
@pytest.mark.parametrize("confidence", [0.3, 0.9, 0.999])
def test_stopped_bounds_solve_their_equations(n: int, r: int, confidence: float) -> None:
    risk = float(1 - Fraction(str(confidence)))
    low = Fraction(coverage_lower(n, r, confidence=confidence, stopped=True))
    high = Fraction(coverage_upper(n, r, confidence=confidence, stopped=True))
    assert at_most(n - 1, r - 1, 1 - low) == pytest.approx(risk, rel=1e-9)
    assert at_most(n, n - r, high) == pytest.approx(risk, rel=1e-9)


def test_ends_of_the_scale() -> None:
    assert coverage_upper(50, 0, confidence=0.999) == 1.0
    assert coverage_lower(50, 50, confidence=0.999) == 0.0
    assert coverage_lower(0, 0, confidence=0.999) == 0.0
    assert coverage_upper(0, 0, confidence=0.999) == 1.0
    assert clopper_pearson(0, 0, confidence=0.9) == (0.0, 1.0)
    assert coverage_lower(3, 3, confidence=0.9, stopped=True) == 0.0
    assert coverage_lower(1, 1, confidence=0.9, stopped=True) == 0.0


def test_small_risks_keep_their_digits() -> None:
    """1 - risk is 1 in floats, so an inverse that took it would answer 0 or 1."""
    confidence = 1 - Fraction(1, 10**40)
    root = -40 * math.log(10) / 1379
    assert coverage_lower(1379, 0, confidence=confidence) == pytest.approx(math.exp(root), rel=1e-14)
    assert coverage_upper(1379, 1379, confidence=confidence) == pytest.approx(-math.expm1(root), rel=1e-13)


def test_the_two_sided_interval_is_another_number() -> None:
    """0 failures of 1379 pass the test for 0.995, yet SciPy's default interval starts below it."""
    assert coverage_lower(1379, 0, confidence=0.999) > 0.995
    assert clopper_pearson(1379, 1379, confidence=0.999)[0] == pytest.approx(0.99450, abs=5e-6)


def test_counts_decide_as_the_bounds_do() -> None:
    """At most c failures: lower bound at least R. At least r: upper bound at most R. Up to rounding at a tie."""
    rng = np.random.default_rng(1)
    decided = 0
    for _ in range(1500):
        n = int(rng.integers(1, 3000))
        coverage = round(float(rng.uniform(0.05, 0.999)), 3)
        confidence = round(float(rng.uniform(0.05, 0.9999)), 4)
        c = allowed_failures(n, coverage=coverage, confidence=confidence)
        r = refuting_failures(n, coverage=coverage, confidence=confidence)
        for bound, deciding in ((coverage_lower, c), (coverage_upper, r - 1)):
            for k in (deciding, deciding + 1):
                if 0 <= k <= n:
                    value = bound(n, k, confidence=confidence)
                    # c is the last count with the lower bound at R or above, r - 1 the last with the upper above
                    assert (value >= coverage) == (k == deciding) or abs(value - coverage) < 1e-14
                    decided += abs(value - coverage) >= 1e-14
    assert decided > 5000


@pytest.mark.parametrize(("n", "coverage", "confidence"), [(2, 0.5, 0.75), (2, 0.9, 0.19), (2, 0.1, 0.99)])
def test_at_a_tie_the_bound_is_the_coverage_up_to_rounding(n: int, coverage: float, confidence: float) -> None:
    assert allowed_failures(n, coverage=coverage, confidence=confidence) == 0
    assert coverage_lower(n, 0, confidence=confidence) == pytest.approx(coverage, abs=1e-15)


@pytest.mark.parametrize("pairs", [500, pytest.param(5000, marks=pytest.mark.validity)])
def test_agrees_with_scipy(pairs: int) -> None:
    """SciPy finds the same ends by root finding, to about 1e-12; one- and two-sided in turn."""
    rng = np.random.default_rng(2)
    for i in range(pairs):
        n = int(10 ** rng.uniform(0, 5))
        k = int(rng.integers(0, n + 1)) if i % 2 else n - int(rng.integers(0, min(n, 50) + 1))
        confidence = float(rng.choice([0.5, 0.9, 0.95, 0.999]))
        side = ("two-sided", "greater", "less")[i % 3]
        ends = binomtest(k, n, alternative=side).proportion_ci(confidence, method="exact")
        if side == "two-sided":
            low, high = clopper_pearson(k, n, confidence=confidence)
        elif side == "greater":
            low, high = coverage_lower(n, n - k, confidence=confidence), 1.0
        else:
            low, high = 0.0, coverage_upper(n, n - k, confidence=confidence)
        assert abs(low - ends.low) <= 1e-12
        assert abs(high - ends.high) <= 1e-12


# --- a run that stops at its r-th failure ----------------------------------------------------------------------

Outcome = tuple[int, int, bool]


def distribution(n: int, r: int, q: float) -> dict[Outcome, float]:
    """Every outcome of "stop at failure number r, or after n draws" with its exact probability."""
    law = {(m, r, True): math.comb(m - 1, r - 1) * q**r * (1 - q) ** (m - r) for m in range(r, n + 1)}
    law |= {(n, k, False): math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(r)}
    assert math.fsum(law.values()) == pytest.approx(1.0, abs=1e-12)
    return law


def bounds(n: int, r: int, confidence: float) -> tuple[dict[Outcome, float], dict[Outcome, float]]:
    outcomes = distribution(n, r, 0.5)
    low = {o: coverage_lower(o[0], o[1], confidence=confidence, stopped=o[2]) for o in outcomes}
    high = {o: coverage_upper(o[0], o[1], confidence=confidence, stopped=o[2]) for o in outcomes}
    return low, high


@pytest.mark.parametrize(("n", "r"), [(1, 1), (8, 1), (8, 3), (30, 2), (60, 9), (60, 60)])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_stopped_runs_cover(n: int, r: int, confidence: float) -> None:
    """The share lies on the right side of each bound in at least `confidence` of runs, whatever the share.

    The hardest shares are those just beyond a bound, so they are on the grid; there the confidence is also met
    almost exactly, which shows that nothing is given away.
    """
    low, high = bounds(n, r, confidence)
    inner_low = sorted({b for b in low.values() if 0 < b < 1})
    inner_high = sorted({b for b in high.values() if 0 < b < 1})
    grid = np.linspace(0.001, 0.999, 97)
    for share in [*grid, *(b - 1e-9 for b in inner_low)]:
        law = distribution(n, r, 1 - share)
        covered = math.fsum(law[o] for o in law if low[o] <= share)
        assert covered >= confidence - 1e-12
        assert share in grid or covered == pytest.approx(confidence, abs=1e-5)
    for share in [*grid, *(b + 1e-9 for b in inner_high)]:
        law = distribution(n, r, 1 - share)
        covered = math.fsum(law[o] for o in law if high[o] >= share)
        assert covered >= confidence - 1e-12
        assert share in grid or covered == pytest.approx(confidence, abs=1e-5)


def test_worse_outcomes_have_lower_bounds() -> None:
    """From an early stop over a late one to fewer and fewer failures, both bounds only rise."""
    order = [(m, 4, True) for m in range(4, 31)] + [(30, k, False) for k in (3, 2, 1, 0)]
    for bound in (coverage_lower, coverage_upper):
        values = [bound(m, k, confidence=0.9, stopped=stopped) for m, k, stopped in order]
        assert all(a < b for a, b in pairwise(values) if 0 < b < 1)


def block_coverage(n: int, r: int, block: int, q: float, confidence: float) -> tuple[float, float]:
    """Exact coverage of both bounds when a run stops after the block that holds failure number r."""
    going, share = {0: 1.0}, 1 - q
    low = high = 0.0
    for draws in range(block, n + 1, block):
        after: dict[int, float] = {}
        for k, mass in going.items():
            for j in range(block + 1):
                chance = mass * math.comb(block, j) * q**j * share ** (block - j)
                after[k + j] = after.get(k + j, 0.0) + chance
        ended = {k: p for k, p in after.items() if k >= r or draws == n}
        going = {k: p for k, p in after.items() if k < r}
        low += sum(p for k, p in ended.items() if coverage_lower(draws, k, confidence=confidence) <= share)
        high += sum(p for k, p in ended.items() if coverage_upper(draws, k, confidence=confidence) >= share)
    return low, high


def test_counting_to_the_end_of_a_block_does_not_cover() -> None:
    """Why the counts of a stopped run must end at the failure that stopped it."""
    found = [block_coverage(60, 3, 10, q, 0.9) for q in np.linspace(0.02, 0.5, 49)]
    assert min(high for _, high in found) < 0.88
    # with blocks of one draw the counts end where they should
    assert min(min(block_coverage(60, 3, 1, q, 0.9)) for q in np.linspace(0.02, 0.5, 13)) >= 0.9


# --- arguments -------------------------------------------------------------------------------------------------


def test_numpy_integers_give_plain_floats() -> None:
    value = coverage_lower(np.int64(20_000), np.int32(70), confidence=np.float64(0.999))
    assert type(value) is float
    assert value == coverage_lower(20_000, 70, confidence=Fraction(999, 1000))


@pytest.mark.parametrize("bound", [coverage_lower, coverage_upper])
@pytest.mark.parametrize(
    ("draws", "failures", "message"),
    [
        (-1, 0, r"draws must be a whole number of at least 0, got -1; give"),
        (10.0, 0, r"draws must be a whole number of at least 0, got 10\.0; give"),
        (10, -1, r"failures must be a whole number of at least 0, got -1; give"),
        (10, True, r"failures must be a whole number of at least 0, got True; give"),
        (3, 10, r"failures must be at most draws, got 10 of 3; check"),
    ],
)
def test_counts_are_checked(bound, draws, failures, message: str) -> None:
    with pytest.raises(InputError, match=message):
        bound(draws, failures, confidence=0.9)


@pytest.mark.parametrize("bound", [coverage_lower, coverage_upper])
def test_a_run_that_stopped_has_a_failure(bound) -> None:
    with pytest.raises(InputError, match=r"failures must be at least 1 with stopped=True, got 0; .*False"):
        bound(10, 0, confidence=0.9, stopped=True)


@pytest.mark.parametrize(
    ("successes", "trials", "message"),
    [
        (1, -2, r"trials must be a whole number of at least 0, got -2; give"),
        ("1", 2, r"successes must be a whole number of at least 0, got '1'; give"),
        (3, 2, r"successes must be at most trials, got 3 of 2; check"),
    ],
)
def test_clopper_pearson_checks_its_counts(successes, trials, message: str) -> None:
    with pytest.raises(InputError, match=message):
        clopper_pearson(successes, trials, confidence=0.9)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.1, 1.5])
def test_confidence_is_checked(confidence: float) -> None:
    for call in (coverage_lower, coverage_upper, clopper_pearson):
        with pytest.raises(InputError, match=r"confidence must lie strictly between 0 and 1, got"):
            call(1, 1, confidence=confidence)


@pytest.mark.parametrize("confidence", [0.5, 0.999, Fraction(10**9 - 1, 10**9)])
def test_bounds_of_arrays_are_those_of_single_counts(confidence):
    rng = np.random.default_rng(7)
    for draws in (1, 2, 17, 208, 1379, 50_000):
        some = np.concatenate(
            [[0, 0, draws, draws], rng.integers(0, draws + 1, 60), rng.integers(0, 1 + draws // 20, 30)]
        )
        failures, certain = rng.permutation(some).reshape(-1, 2), rng.permutation(some).reshape(-1, 2)
        lower, upper = coverage_bounds(draws, failures, certain, confidence=confidence)
        assert lower.shape == upper.shape == failures.shape
        singles = ((coverage_lower, failures, lower), (coverage_upper, certain, upper))
        for single, counts, found in singles:
            wanted = [[single(draws, int(k), confidence=confidence) for k in row] for row in counts]
            np.testing.assert_array_equal(found, wanted)
