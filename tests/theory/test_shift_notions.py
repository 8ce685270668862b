"""Lemma 3: neither notion of shifts contains the other."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

import apas
from apas import InputError, Verdict
from apas.theory import LEMMA_EXAMPLE, PlausibleExample, UnboundedFamily, is_naturally_occurring


def test_the_papers_example_exactly():
    assert LEMMA_EXAMPLE.value() == Fraction(52, 100)
    assert LEMMA_EXAMPLE.expectation() == Fraction(4159, 8000)
    assert float(LEMMA_EXAMPLE.expectation()) == 0.519875
    assert LEMMA_EXAMPLE.expectation() < LEMMA_EXAMPLE.value()  # the paper's proof says the opposite sign


def test_the_papers_example_as_a_model():
    net = LEMMA_EXAMPLE.model()
    assert net.margin(LEMMA_EXAMPLE.X, 1)[0] == pytest.approx(0.02)
    assert net.margin(np.array([[0.9, 0.9]]), 1)[0] + 0.5 == pytest.approx(0.36)  # the paper prints 0.46
    # six weights move, and no bias
    assert apas.LinfShifts().radii(net.parameters).sum() == 6
    # the intervals of the paper's Figure 1, the last one as drawn
    ends = [apas.shifts.geometry.inside_box(net.parameters.values, apas.LinfShifts().radii(net.parameters), 0.3, np.full(9, s)) for s in (-1.0, 1.0)]  # fmt: skip
    kept = apas.LinfShifts().radii(net.parameters) > 0
    assert np.allclose(ends[0][kept], [0.7, -0.3, -0.3, 0.3, 0.7, -1.3])
    assert np.allclose(ends[1][kept], [1.3, 0.3, 0.3, 0.9, 1.3, -0.7])


def test_the_expectation_agrees_with_draws():
    """The difference, 1/8000, is too small for a few draws to see: four million see 0.519875 within 0.0008."""
    net = LEMMA_EXAMPLE.model()
    found = is_naturally_occurring(net, LEMMA_EXAMPLE.X, delta=0.3, n_samples=4_000_000, rng=0)
    error = np.sqrt(found.variance[0] / found.draws)
    assert error < 2e-4
    assert abs(found.mean[0] - 0.519875) < 4 * error
    # as the conditions that hold do not refute anything, and equality is not shown
    assert found.verdict is Verdict.UNKNOWN


def test_a_larger_delta_shows_in_draws():
    example = PlausibleExample(LEMMA_EXAMPLE.hidden, LEMMA_EXAMPLE.output, LEMMA_EXAMPLE.point, Fraction(3, 2))
    assert example.expectation() != example.value()
    net = example.model()
    found = is_naturally_occurring(net, example.X, delta=1.5, n_samples=200_000, rng=1)
    assert abs(found.mean[0] - float(example.expectation())) < 4 * np.sqrt(found.variance[0] / found.draws)
    assert found.verdict is Verdict.REFUTED
    assert found.rejected.all()


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_other_activations_differ_as_well(activation):
    difference, change = LEMMA_EXAMPLE.difference(activation)
    assert abs(difference) > 1e-4
    assert change < 1e-12 < abs(difference)
    net = LEMMA_EXAMPLE.model(activation)
    found = is_naturally_occurring(net, LEMMA_EXAMPLE.X, delta=0.3, n_samples=1_000_000, rng=0)
    error = np.sqrt(found.variance[0] / found.draws)
    assert abs(found.mean[0] - found.original[0] - difference) < 4 * error


@given(data=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8), shift=st.floats(0, 1e300))
def test_unbounded_shifts_that_change_no_output(data, shift):
    X = np.array(data)[:, None]
    family = UnboundedFamily.of(X)
    base, moved = family.model(), family.model(shift)
    assert (moved.margin(X, 1) + moved.threshold == 0.5).all()
    assert np.array_equal(base.margin(X, 1), moved.margin(X, 1))
    # beyond the data it is another function
    assert (base.margin(X.max(keepdims=True) + 0.25 + abs(X.max()), 1) < 0).all()


def test_unbounded_shifts_occur_naturally_and_are_not_plausible():
    X = np.array([[0.5], [-2.0], [1.25]])
    family = UnboundedFamily.of(X)
    sizes = [1.0, 10.0, 1e3, 1e6, 1e9]
    models = [family.model(size) for size in sizes]
    base = family.model()
    for size, model in zip(sizes, models, strict=True):
        assert apas.measure_shift(base, model).delta == pytest.approx(size)
        # so a set of plausible shifts contains it only from that delta on
        assert not apas.LinfShifts().contains(base.parameters, model.parameters, 0.99 * size)
        assert apas.LinfShifts().contains(base.parameters, model.parameters, 1.01 * size)
    found = is_naturally_occurring(base, X, apas.ObservedShifts(models))
    assert (found.difference == 0).all()
    assert (found.variance == 0).all()
    assert (found.p_values == 1).all()
    assert found.verdict is Verdict.UNKNOWN
    assert found.lipschitz_base == found.lipschitz_shifted == pytest.approx(1.0)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(InputError, match="must hold at least one row"):
        UnboundedFamily.of(np.empty((0, 1)))
    with pytest.raises(InputError, match="`X` must have 1 columns"):
        UnboundedFamily.of([[1.0, 2.0]])
    for shift in (-1.0, np.nan, np.inf):
        with pytest.raises(InputError, match="`shift` of UnboundedFamily.model must be a number of at least 0"):
            UnboundedFamily(1.0).model(shift)
