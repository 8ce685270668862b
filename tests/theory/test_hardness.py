"""Theorem 1: the network of a formula is robust exactly if the formula cannot be true."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from conftest import spread
from formulas import all_formulas, check_decided, random_formula

import apas
from apas import InputError
from apas.theory import Formula, reduction
from apas.theory.hardness import gap, shift_size

UNSATISFIABLE = Formula(2, [[1, 2], [1, -2], [-1, 2], [-1, -2]])


@cache
def small_formulas():
    return list(all_formulas())


def test_the_small_formulas_are_all_there():
    small = small_formulas()
    assert len(small) == len({frozenset(f.clauses) for f in small}) == 1 + 27 + 351 + 2925 == 3304
    assert sum(f.solution() is None for f in small) == 451  # 352 with the empty clause


@pytest.mark.parametrize("part", spread(range(16), 8))
def test_exact_decides_every_small_formula(part):
    """All formulas of 3 variables and up to 3 clauses."""
    for formula in small_formulas()[part::16]:
        check_decided(formula)


@pytest.mark.parametrize("seed", range(6))
def test_exact_decides_random_formulas(seed):
    """Up to 4 variables and 8 clauses."""
    rng = np.random.default_rng(seed)
    solvable = [check_decided(random_formula(rng, int(rng.integers(1, 5)), int(rng.integers(1, 9)))) for _ in range(60)]
    assert 5 < sum(solvable) < 55  # both answers occur


@pytest.mark.parametrize("formula", [Formula(1, []), Formula(1, [[]]), Formula(2, [[1, -1]]), UNSATISFIABLE], ids=str)
def test_formulas_at_the_edge(formula):
    check_decided(formula)


def test_the_network_is_as_constructed():
    hard = reduction(Formula(3, [[1, -2, 3], [-1, 2], [2, -2]]))
    assert hard.model.weights[1].shape == (3, 8)  # the tautology is left out
    assert hard.delta == 1 / 128
    assert hard.X.tolist() == [[63.0]]
    assert hard.gap == gap(3)
    assert hard.model.weights[1][:, 6:].T.tolist() == [[-1, 1, -1], [1, -1, 0]]
    assert hard.model.biases[1].tolist() == [1, 1, 1, -1, -1, -1, 0, 0]
    assert hard.model.margin(hard.X, 0)[0] > 0
    # every parameter moves, those that are 0 as well
    assert (apas.LinfShifts().radii(hard.model.parameters) == 1).all()


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 12])
def test_delta_and_bias_are_rounded_down(n):
    hard = reduction(Formula(n, []))
    assert 0 <= shift_size(n) - Fraction(hard.delta) < Fraction(1, 2**53)
    assert 0 <= -n + gap(n) / 2 - Fraction(float(hard.model.biases[-1][0])) < Fraction(1, 2**48)


@pytest.mark.parametrize("seed", range(4))
def test_an_assignment_becomes_a_shift_and_comes_back(seed):
    rng = np.random.default_rng(seed)
    formula = random_formula(rng, 5, 6)
    hard = reduction(formula)
    for assignment in itertools.product((False, True), repeat=5):
        values = hard.parameters(assignment)
        moved = np.flatnonzero(values != hard.model.parameters.values)
        assert moved.tolist() == list(range(10))  # the first layer alone
        logit = hard.logit(values)
        if formula.holds(assignment):
            assert abs(logit - hard.gap / 2) < Fraction(1, 10**12)
            assert hard.assignment(values) == assignment
        else:
            assert logit <= -hard.gap / 2
            with pytest.raises(InputError, match="`witness` must be a shifted model that gives class 1"):
                hard.assignment(values)


def test_no_shift_gets_past_the_gap_of_a_formula_that_cannot_be_true():
    hard = reduction(UNSATISFIABLE)
    rng = np.random.default_rng(0)
    directions = np.vstack([rng.uniform(-1, 1, (4000, len(hard.model.parameters))), rng.choice([-1.0, 1.0], (4000, len(hard.model.parameters)))])  # fmt: skip
    logits = hard.model.shifted_margins(hard.X, 1, directions, hard.delta)
    assert logits.max() < -float(hard.gap) / 2
    found = apas.output_range(hard.model, hard.X, hard.delta, target=1, method="exact")[0]
    assert logits.max() <= found.high <= -float(hard.gap) / 2


def test_shifts_that_read_as_an_assignment_make_the_formula_true():
    """Not only those that were built from one: draws around solutions, wherever the logit is not negative."""
    rng = np.random.default_rng(1)
    read = 0
    for _ in range(20):
        formula = random_formula(rng, 3, 4)
        hard = reduction(formula)
        base = hard.model.parameters.values
        for assignment in itertools.product((False, True), repeat=3):
            near = hard.parameters(assignment)
            for _ in range(5):
                step = near + rng.uniform(-0.2, 0.2, len(near)) * hard.delta
                values = np.clip(step, base - hard.delta, base + hard.delta)
                if apas.LinfShifts().contains(hard.model.parameters, hard.model.with_parameters(values).parameters, hard.delta) and hard.logit(values) >= 0:  # fmt: skip
                    assert formula.holds(hard.assignment(values))
                    read += 1
    assert read > 100


def test_what_is_no_formula_or_witness_is_refused():
    with pytest.raises(InputError, match="`formula` must be a Formula, got list; read one with"):
        reduction([[1]])
    with pytest.raises(InputError, match="a network of at most 10000000 parameters, got 2000000000006000000000001 for"):
        reduction(Formula(10**12, []))
    hard = reduction(Formula(2, [[1]]))
    with pytest.raises(InputError, match="`assignment` must be one True or False for each of the 2 variables"):
        hard.parameters([True])
    # None is the witness of a formula that cannot be true
    for values in (np.zeros(3), hard.model.parameters.values + 2 * hard.delta, None, "witness"):
        with pytest.raises(InputError, match="`witness` must be 25 parameters within delta"):
            hard.assignment(values)


def test_one_hidden_layer_needs_no_search():
    """The closed form decides; the reduction needs two hidden layers."""
    rng = np.random.default_rng(0)
    net = apas.FeedForward([rng.normal(size=(3, 6)), rng.normal(size=(6, 1))], [rng.normal(size=6), [0.5]])
    for certificate in apas.certify(net, rng.normal(size=(20, 3)), 0.05, target="predicted", method="exact"):
        assert certificate.evidence.exact
        assert certificate.evidence.nodes == 0
        assert certificate.verdict is not apas.Verdict.UNKNOWN
