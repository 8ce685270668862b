"""Guarantee arithmetic: sample sizes, bounds and the spending of risk, as pure functions.

`sample_size`, `allowed_failures` and `refuting_failures` decide, exactly; `coverage_lower`, `coverage_upper`
and `clopper_pearson` describe; the budgets, `spend` and `simultaneous` account for testing more than once.
"""

from __future__ import annotations

from apas.stats.multiplicity import Budget, FixedSequence, Geometric, Telescoping, Uniform, simultaneous, spend
from apas.stats.proportions import clopper_pearson, coverage_lower, coverage_upper
from apas.stats.tolerance import allowed_failures, refuting_failures, sample_size

__all__ = [
    "Budget",
    "FixedSequence",
    "Geometric",
    "Telescoping",
    "Uniform",
    "allowed_failures",
    "clopper_pearson",
    "coverage_lower",
    "coverage_upper",
    "refuting_failures",
    "sample_size",
    "simultaneous",
    "spend",
]
