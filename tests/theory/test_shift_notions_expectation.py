"""Expected activations against integrals that somebody else computes."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.integrate import dblquad

from apas import InputError
from apas.models.forward import activate
from apas.theory.shift_notions import expected_activation, expected_relu

RATIONALS = [Fraction(k, 7) for k in (-20, -5, -1, 0, 1, 3, 11)]


@pytest.mark.parametrize("centre", RATIONALS, ids=str)
def test_relu_with_no_term_and_with_one(centre):
    assert expected_relu(centre, []) == max(centre, 0)
    assert expected_relu(centre, [Fraction(0)]) == max(centre, 0)
    reach = Fraction(6, 5)
    low, high = centre - reach, centre + reach
    by_hand = (max(high, 0) ** 2 - max(low, 0) ** 2) / (2 * (high - low))
    assert expected_relu(centre, [reach]) == expected_relu(centre, [-reach]) == by_hand


@pytest.mark.parametrize(("centre", "reaches"), [(0.3, (0.5, 0.4)), (-0.2, (1.0, 0.3)), (0.48, (0.3, 0.24))])
def test_relu_with_two_terms(centre, reaches):
    exact = expected_relu(Fraction(centre), [Fraction(r) for r in reaches])

    def inner(v, u):
        return max(0.0, centre + reaches[0] * u + reaches[1] * v) / 4

    assert float(exact) == pytest.approx(dblquad(inner, -1, 1, -1, 1, epsabs=1e-9)[0], abs=1e-7)


def test_relu_with_many_terms_against_draws():
    reaches = [Fraction(k, 10) for k in (1, 2, 3, 4, 5)]
    exact = float(expected_relu(Fraction(1, 10), reaches))
    draws = np.random.default_rng(0).uniform(-1, 1, (400_000, 5)) @ np.array([float(r) for r in reaches]) + 0.1
    values = np.maximum(draws, 0)
    assert abs(values.mean() - exact) < 5 * values.std() / np.sqrt(len(values))
    # far on one side the activation is the identity, or nothing
    assert expected_relu(Fraction(2), reaches) == 2
    assert expected_relu(Fraction(-2), reaches) == 0


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "softplus", "gelu", "identity"])
def test_smooth_activations_against_another_quadrature(name):
    value, change = expected_activation(name, 0.7, [0.3, 0.24])

    def inner(v, u):
        return float(activate(name, np.array([0.7 + 0.3 * u + 0.24 * v]))[0]) / 4

    assert value == pytest.approx(dblquad(inner, -1, 1, -1, 1, epsabs=1e-13)[0], abs=1e-12)
    assert change < 1e-13


def test_tanh_in_closed_form():
    """One term: the integral of tanh is log cosh."""
    with mpmath.workdps(30):
        exact = (mpmath.log(mpmath.cosh("1.3")) - mpmath.log(mpmath.cosh("0.7"))) / mpmath.mpf("0.6")
    assert expected_activation("tanh", 1.0, [0.3])[0] == pytest.approx(float(exact), rel=1e-14)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(InputError, match="at most 16 numbers other than 0, got 17"):
        expected_relu(Fraction(0), [Fraction(1)] * 17)
    with pytest.raises(InputError, match="`name` must be one of tanh, .*got 'relu'; for relu use expected_relu"):
        expected_activation("relu", 0.0, [1.0])
    with pytest.raises(InputError, match="`nodes` must be at least 2 and give at most"):
        expected_activation("tanh", 0.0, [1.0] * 5)
