"""Guarantee arithmetic: sample sizes and counts that decide, bounds that describe, and the spending of risk over tests.

Functions that begin with `anytime_` are of the test that may stop, be looked at, and go on at any time.
"""

from apas.stats.binomial import (
    allowed_failures,
    clopper_pearson,
    coverage_lower,
    coverage_upper,
    refuting_failures,
    sample_size,
)
from apas.stats.multiplicity import Budget, FixedSequence, Geometric, Telescoping, Uniform, simultaneous, spend
from apas.stats.sequential import (
    anytime_coverage_lower,
    anytime_coverage_upper,
    anytime_refuting_draw,
    anytime_sample_size,
)

__all__ = [
    "Budget",
    "FixedSequence",
    "Geometric",
    "Telescoping",
    "Uniform",
    "allowed_failures",
    "anytime_coverage_lower",
    "anytime_coverage_upper",
    "anytime_refuting_draw",
    "anytime_sample_size",
    "clopper_pearson",
    "coverage_lower",
    "coverage_upper",
    "refuting_failures",
    "sample_size",
    "simultaneous",
    "spend",
]
