"""Theorem 2: a shift that fails strictly has failing shifts around it, so the robust fraction is below 1."""

from __future__ import annotations

import numpy as np
import pytest
from formulas import decided, random_formula

import apas
from apas import InputError
from apas.theory import Formula, failing_neighbourhood, reduction


@pytest.mark.parametrize("seed", range(3))
def test_the_robust_fraction_is_below_1_exactly_if_the_formula_can_be_true(seed):
    rng = np.random.default_rng(seed)
    kinds = set()
    for _ in range(12):
        formula = random_formula(rng, int(rng.integers(1, 5)), int(rng.integers(1, 9)))
        hard, certificate = decided(formula)
        solution = formula.solution()
        kinds.add(solution is None)
        if solution is None:  # every shift keeps class 0: the fraction is 1
            assert certificate.verdict is apas.Verdict.CERTIFIED
            continue
        around = failing_neighbourhood(hard.model, hard.X, hard.delta, hard.parameters(solution), target=0)
        assert around.margin < 0
        assert np.isfinite(around.log10_share)
        base = hard.model.parameters
        for end in (around.low, around.high):
            assert apas.LinfShifts().contains(base, hard.model.with_parameters(end).parameters, hard.delta)
        assert (around.low < around.high).all()  # so it has a volume
        drawn = rng.uniform(around.low, around.high, (200, len(base)))
        corners = np.where(rng.random((200, len(base))) < 0.5, around.low, around.high)
        for values in (*drawn, *corners):
            assert float(hard.model.with_parameters(values).margin(hard.X, 0)[0]) <= around.margin
        assert around.log10_share <= np.log10((around.high - around.low) / (2 * hard.delta)).sum()
    assert kinds == {True, False}


def test_the_witness_of_a_certificate_has_a_neighbourhood():
    """Exact's witness has a logit of at least 0; that of an assignment has gap / 2."""
    hard, certificate = decided(Formula(2, [[1, 2], [-1, -2]]))
    assert certificate.witness is not None
    solution = hard.assignment(certificate.witness)
    around = failing_neighbourhood(hard.model, hard.X, hard.delta, hard.parameters(solution), target=0)
    assert around.margin < 0


@pytest.mark.parametrize(("clauses", "solvable"), [([[1]], True), ([[1], [-1]], False)])
def test_the_fraction_itself_for_one_variable(clauses, solvable):
    hard = reduction(Formula(1, clauses))
    drawn = apas.robust_fraction(hard.model, hard.X, hard.delta, target=0, rng=0)[0]
    if solvable:  # the values near 1, a good part of all
        assert drawn.upper[0] < 1
        around = failing_neighbourhood(hard.model, hard.X, hard.delta, hard.parameters([True]), target=0)
        assert 10**around.log10_share <= 1 - drawn.lower[0]
    else:
        assert drawn.upper[0] == 1


def test_the_share_of_a_box_that_is_known():
    # class 1 is lost where w + b < 0.5; at (0.5, -0.5) that holds on the box of half-width below 0.25
    net = apas.FeedForward([[[1.0]]], [[0.0]], output="identity")
    x = np.array([[1.0]])
    around = failing_neighbourhood(net, x, 0.5, np.array([0.5, -0.5]), target=1)
    assert (around.low.tolist(), around.high.tolist()) == ([0.5, -0.5], [0.625, -0.375])
    assert 10**around.log10_share == pytest.approx(0.125**2, rel=1e-6)
    assert around.margin == pytest.approx(-0.25)


def test_a_box_without_a_volume_is_no_neighbourhood():
    """The float64 numbers around 1e16 are 2 apart, so that in this direction no box has a width."""
    net = apas.FeedForward([[[1e16], [1.0]]], [[-0.8]], output="identity", threshold=0.0)
    x, values = np.array([[0.0, 1.0]]), np.array([1e16, 0.6, -1.0])
    with pytest.raises(InputError, match="margin is below 0 by more than rounding"):
        failing_neighbourhood(net, x, 0.5, values, target=1)


def test_a_witness_that_does_not_fail_is_refused():
    net = apas.FeedForward([[[1.0]]], [[0.0]], output="identity")
    x = np.array([[1.0]])
    with pytest.raises(InputError, match="margin is below 0 by more than rounding"):
        failing_neighbourhood(net, x, 0.5, np.array([1.0, -0.5]), target=1)
    for values in (np.array([0.4, -0.5]), None):
        with pytest.raises(InputError, match="must be 2 parameters within delta = 0.5"):
            failing_neighbourhood(net, x, 0.5, values, target=1)
