"""How often `is_naturally_occurring` errs where the truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import apas
from apas.theory import is_naturally_occurring

pytestmark = pytest.mark.validity
RUNS, RISK = 1000, 0.2
LIMIT = stats.binom.isf(1e-6, RUNS, RISK)
BIASES = apas.LinfShifts(kinds=("bias",))


def softplus(z):
    return math.log1p(math.exp(z))


@pytest.mark.parametrize("draws", [5, 50, 500])
def test_shifts_that_keep_the_expectation_are_rarely_refuted(draws):
    """A score that is linear in what moves; its variance is delta**2 / 3, just within the limit."""
    net = apas.FeedForward([[[0.0]]], [[1.0]], output="identity", threshold=0.5)
    options = {"delta": 0.3, "n_samples": draws, "confidence": 1 - RISK, "variance_limit": 0.0301}
    refuted = sum(
        is_naturally_occurring(net, [[0.0]], BIASES, rng=seed, **options).verdict is apas.Verdict.REFUTED
        for seed in range(RUNS)
    )
    assert refuted <= LIMIT


@pytest.mark.parametrize("draws", [5, 50, 500])
def test_bounds_on_several_rows_hold_together(draws):
    """Logistic outputs far out, which are very skewed: all bounds on the expectation of all rows at once."""
    net, delta = apas.FeedForward([[[1.0]]], [[-4.0]]), 6.0
    rows = np.array([[0.0], [2.0], [8.0]])
    centres = rows[:, 0] - 4
    true = np.array([(softplus(c + delta) - softplus(c - delta)) / (2 * delta) for c in centres])
    wrong = 0
    for seed in range(RUNS):
        found = is_naturally_occurring(net, rows, BIASES, delta=delta, n_samples=draws, confidence=1 - RISK, rng=seed)
        wrong += not ((found.mean_low <= true) & (true <= found.mean_high)).all()
    assert wrong <= LIMIT
