"""Formulas to ask about: all small ones, and random ones; and the question itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

import apas
from apas.theory import Formula, Reduction, reduction

#: Every clause of three variables that is not always true, the empty one included: 27.
CLAUSES = [
    frozenset(sign * (i + 1) for i, sign in enumerate(signs) if sign)
    for signs in itertools.product((0, 1, -1), repeat=3)
]


def all_formulas() -> Iterator[Formula]:
    """Every formula with 3 variables and up to 3 clauses: 3304 sets of clauses.

    The order of clauses only orders units; clauses that are repeated or always true are not in the network.
    """
    for count in range(4):
        for clauses in itertools.combinations(CLAUSES, count):
            yield Formula(3, clauses)


def random_formula(rng: np.random.Generator, variables: int, clauses: int, *, widest: int = 3) -> Formula:
    """Clauses of one to `widest` literals; with many clauses most formulas cannot be true."""
    return Formula(
        variables,
        [
            [int(v + 1) * int(rng.choice([-1, 1])) for v in rng.permutation(variables)[: rng.integers(1, widest + 1)]]
            for _ in range(clauses)
        ],
    )


def decided(formula: Formula) -> tuple[Reduction, apas.Certificate]:
    """The question as a network, and what `Exact` says of it."""
    hard = reduction(formula)
    return hard, apas.certify(hard.model, hard.X, hard.delta, target=hard.target, method=apas.Exact(time_limit=600))[0]


def check_decided(formula: Formula) -> bool:
    """Hold `Exact` against brute force, and go from witness to assignment; whether the formula can be true."""
    hard, certificate = decided(formula)
    solvable = formula.solution() is not None
    assert certificate.verdict is (apas.Verdict.REFUTED if solvable else apas.Verdict.CERTIFIED), str(formula)
    if solvable:
        assert certificate.witness is not None
        assert formula.holds(hard.assignment(certificate.witness)), str(formula)
    return solvable
