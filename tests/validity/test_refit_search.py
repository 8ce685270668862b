"""Claims after the whole search of refits: how often they are false where the true share is known.

A refit is a row of steps at thresholds that have moved by a normal number t together: it accepts x exactly if x lies above
the middle one. So the share of all refits that accept x is known. At nominal failure 10 %, 60 repetitions may fail 16 times
and 2,000 may fail 252 times (each with probability below 1e-4 of the first and 1e-4 of the second, if the claim holds).
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, norm

import apas
from apas.models.trees import Trees

OFFSETS = np.array([-1.5, -1.0, -0.6, -0.3, 0.0, 0.3, 0.6, 1.0, 1.5])
SPACE = apas.FeatureSpace([apas.Feature("x", low=-4.0, high=8.0)])
METHOD = apas.Sampling(coverage=0.8, confidence=0.9, n_samples=18)  # one failure is allowed


class Steps:
    """A model that counts the thresholds below x."""

    classes, n_features, feature_names, reads_cells = (0, 1), 1, ("x",), True

    def __init__(self, moved: float) -> None:
        self.thresholds = moved + OFFSETS

    def margin(self, X, target):
        found = (X > self.thresholds).sum(axis=1) - 4.5
        return found if target == 1 else -found

    def describe(self):
        return {"kind": "steps", "thresholds": self.thresholds.tolist()}

    def trees(self):
        n = len(OFFSETS)
        column, child = np.tile([0, -1, -1], n), 3 * np.repeat(np.arange(n), 3)
        left, right = np.where(column == 0, child + 1, -1), np.where(column == 0, child + 2, -1)
        value = np.tile([0.0, 0.0, 1.0], n)[:, None]
        about = {"missing_left": np.zeros(3 * n, dtype=bool), "levels": {}, "probability": False, "read": np.asarray}
        return Trees(column, np.repeat(self.thresholds, 3), left, right, value=value, roots=3 * np.arange(n), base=np.array([-4.5]), **about)  # fmt: skip


@pytest.mark.parametrize(("repetitions", "most"), [(60, 16), pytest.param(2000, 252, marks=pytest.mark.validity)])
@pytest.mark.parametrize("alone", [False, True])
def test_claims_after_the_search(repetitions, most, alone):
    assert binom.sf(most, repetitions, 0.1) < 1e-3
    false = found = 0
    for seed in range(repetitions):
        moved = np.random.default_rng(seed).normal(size=26)
        shifts = apas.ObservedShifts([Steps(t) for t in moved], process="normal steps")
        source = apas.RobustOptimum(alone=alone)
        options = {"space": SPACE, "shifts": shifts, "method": METHOD, "source": source, "rng": seed}
        answer = apas.generate(Steps(0.0), [[-3.0]], None, target=1, **options)
        if answer[0].is_found:
            found += 1
            false += bool(norm.cdf(answer.numbers[0, 0]) < 0.8)
    assert false <= most
    assert found > 0.5 * repetitions
    print(f"{false} of {found} claims are false")
