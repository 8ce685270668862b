"""Bounds on weighted sums of uniform numbers, against the exact volume, long series and draws."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from apas.shifts.linf import uniform_sum_share


def exact_share(sizes: np.ndarray, level: float) -> Fraction:
    """P(sum of sizes * u <= level) by inclusion and exclusion of the corners of the cube, in rational numbers."""
    c, t, n = [Fraction(float(v)) for v in sizes], Fraction(float(level)), len(sizes)
    total = Fraction(0)
    for signs in product((1, -1), repeat=n):
        beyond = t + sum(s * v for s, v in zip(signs, c, strict=True))
        total += math.prod(signs) * beyond**n if beyond > 0 else 0
    return total / (2**n * math.factorial(n) * math.prod(c))


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
def test_the_exact_volume_lies_between(spread):
    rng, widths = np.random.default_rng(int(10 * spread)), []
    for _ in range(120):
        sizes = np.exp(spread * rng.normal(size=rng.integers(1, 8)))
        level = float(rng.uniform(-1.05, 1.05) * sizes.sum())
        share = exact_share(sizes, level)
        low, high = uniform_sum_share(sizes, level)
        assert Fraction(low) <= share <= Fraction(high)
        widths.append(high - low)
    assert np.median(widths) < 1e-9


def test_stops_where_the_side_is_known():
    rng = np.random.default_rng(3)
    for _ in range(60):
        sizes = np.abs(rng.normal(size=4))
        level = float(rng.uniform(0, 1) * sizes.sum())
        low, high = uniform_sum_share(sizes, level, decides=0.9)
        closer = uniform_sum_share(sizes, level)
        assert low <= closer[0] <= closer[1] <= high
        assert (low >= 0.9) == (closer[0] >= 0.9)
        assert (high < 0.9) == (closer[1] < 0.9)


def test_many_terms_against_draws():
    rng = np.random.default_rng(4)
    sizes = np.abs(rng.normal(size=300))
    level = 2.0 * float(np.sqrt((sizes**2).sum() / 3))
    drawn = sum(size * rng.uniform(-1, 1, 100_000) for size in sizes)
    low, high = uniform_sum_share(sizes, level)
    assert high - low < 1e-10
    assert abs(np.mean(drawn <= level) - low) < 6 * math.sqrt(0.025 / 100_000)


def test_all_or_nothing():
    for level, share in ((3.0, 1.0), (-3.0, 0.0), (2.0, 1.0)):
        assert uniform_sum_share(np.array([1.0, 0.0, 0.5]), level) == (share, share)
    assert uniform_sum_share(np.zeros(3), 0.0) == (1.0, 1.0)
    low, high = uniform_sum_share(np.array([2.0]), 1.0)
    assert low <= 0.75 <= high
