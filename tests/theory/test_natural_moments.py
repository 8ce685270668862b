"""Means, variances, t-tests and bounds of drawn numbers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from apas.theory.shift_notions import Moments, mean_reach, spread_reach, t_test


def collected(values, block):
    moments = Moments.none(values.shape[1])
    for start in range(0, len(values), block):
        moments.add(values[start : start + block])
    return moments


@pytest.mark.parametrize("block", [1, 7, 100, 1000])
def test_blocks_make_no_difference(block):
    values = np.random.default_rng(0).normal(1e6, 1.0, (1000, 3))  # a naive sum of squares would lose six digits
    moments = collected(values, block)
    assert moments.count == 1000
    assert moments.mean == pytest.approx(values.mean(axis=0), rel=1e-14)
    assert moments.variance == pytest.approx(values.var(axis=0, ddof=1), rel=1e-9)
    assert moments.magnitude == pytest.approx(np.abs(values).mean(axis=0), rel=1e-13)


@pytest.mark.parametrize("alternative", ["two-sided", "less", "greater"])
def test_the_t_test_is_that_of_scipy(alternative):
    values = np.random.default_rng(1).normal(0.05, 1.0, (200, 4))
    t, p = t_test(collected(values, 64), alternative)
    known = stats.ttest_1samp(values, 0.0, alternative=alternative)
    assert t == pytest.approx(known.statistic, rel=1e-10)
    assert p == pytest.approx(known.pvalue, rel=1e-8)


def test_numbers_that_are_all_the_same():
    t, p = t_test(collected(np.array([[0.0, 0.5, -0.5]] * 10), 3), "two-sided")
    assert t.tolist() == [0.0, np.inf, -np.inf]
    assert p.tolist() == [1.0, 0.0, 0.0]
    assert t_test(collected(np.full((10, 1), 0.5), 10), "less")[1].tolist() == [1.0]


@pytest.mark.parametrize("share", [0.002, 0.05, 0.5])
def test_the_bounds_hold_as_often_as_they_say(share):
    """Numbers that are 0 or 1, for which normal approximations are worst; every bound at a risk of 0.05."""
    rng, count, risk, runs = np.random.default_rng(2), 200, 0.05, 2000
    values = (rng.random((count, runs)) < share).astype(float)
    deviation = values.std(axis=0, ddof=1)
    reach, wide = mean_reach(count, deviation, np.ones(runs), risk), spread_reach(count, np.ones(runs), risk)
    true = np.sqrt(share * (1 - share))
    for wrong in (
        values.mean(axis=0) + reach < share,
        values.mean(axis=0) - reach > share,
        deviation + wide < true,
        deviation - wide > true,
    ):
        assert wrong.sum() <= stats.binom.isf(1e-6, runs, risk)
