"""Theorem 1 on larger formulas."""

from __future__ import annotations

import numpy as np
import pytest
from formulas import check_decided, random_formula

from apas.theory import Formula

pytestmark = pytest.mark.validity


@pytest.mark.parametrize("variables", [5, 6, 7, 8])
def test_random_formulas_of_up_to_eight_variables(variables):
    """From a few clauses to six per variable: the hardest are in between."""
    rng = np.random.default_rng(variables)
    solvable = [
        check_decided(random_formula(rng, variables, int(rng.integers(variables, 6 * variables)), widest=4))
        for _ in range(300)
    ]
    assert 20 < sum(solvable) < 300


def test_random_formulas_of_three_literals_in_each_clause():
    rng, solvable = np.random.default_rng(0), []
    for _ in range(300):
        clauses = int(rng.integers(24, 48))
        rows = [rng.permutation(8)[:3] + 1 for _ in range(clauses)]
        formula = Formula(8, [[int(v * s) for v, s in zip(row, rng.choice([-1, 1], 3), strict=True)] for row in rows])
        solvable.append(check_decided(formula))
    assert 120 < sum(solvable) < 300
