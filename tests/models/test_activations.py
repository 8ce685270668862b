"""Every activation against a formula evaluated with 400 digits."""

import mpmath
import numpy as np
import pytest

from apas.models.forward import ACTIVATIONS, LEAKY_SLOPE, activate

FORMULAS = {
    "relu": lambda z: max(z, mpmath.mpf(0)),
    "leaky_relu": lambda z: z if z > 0 else mpmath.mpf(0.01) * z,
    "hard_tanh": lambda z: min(max(z, mpmath.mpf(-1)), mpmath.mpf(1)),
    "tanh": mpmath.tanh,
    "sigmoid": lambda z: 1 / (1 + mpmath.exp(-z)),
    "identity": lambda z: z,
    "softplus": lambda z: mpmath.log(1 + mpmath.exp(z)),
    "elu": lambda z: z if z > 0 else mpmath.exp(z) - 1,
    "gelu": lambda z: z * (1 + mpmath.erf(z / mpmath.sqrt(2))) / 2,
}
MAGNITUDES = [
    0.0,
    1e-300,
    1e-17,
    1e-8,
    1e-3,
    0.1,
    0.5,
    0.75179,
    1.0,
    1.5,
    3.0,
    7.0,
    20.0,
    40.0,
    300.0,
    710.0,
    1e6,
    1e300,
]
POINTS = np.array([s * m for m in MAGNITUDES for s in (1.0, -1.0)])


def test_the_table_holds_the_promised_names():
    assert set(ACTIVATIONS) == set(FORMULAS)
    assert LEAKY_SLOPE == 0.01


@pytest.mark.parametrize("name", FORMULAS)
def test_formula(name):
    with mpmath.workdps(400):
        expected = np.array([float(FORMULAS[name](mpmath.mpf(float(z)))) for z in POINTS])
    got = activate(name, POINTS.copy())
    # these two may lose relative, never absolute accuracy where they vanish
    np.testing.assert_allclose(got, expected, rtol=1e-14, atol=2e-16 if name in ("sigmoid", "gelu") else 1e-307)


@pytest.mark.parametrize("name", FORMULAS)
def test_works_in_place_on_any_layout(name):
    z = np.random.default_rng(0).normal(size=(3, 4, 5))
    expected = activate(name, z.copy())
    assert np.array_equal(activate(name, np.asfortranarray(z)), expected)
    view = np.zeros((3, 4, 10))[:, :, ::2]
    view[:] = z
    assert activate(name, view) is view
    assert np.array_equal(view, expected)


@pytest.mark.parametrize("name", FORMULAS)
def test_nan_stays_nan_beside_numbers(name):
    with np.errstate(invalid="ignore"):
        got = activate(name, np.array([float("nan"), 1.0]))
    assert np.isnan(got[0])
    assert np.isfinite(got[1])


@pytest.mark.parametrize("name", sorted(set(FORMULAS) - {"gelu"}))
def test_monotone(name):
    z = np.sort(np.concatenate([POINTS, np.linspace(-8, 8, 2001)]))
    assert (np.diff(activate(name, z.copy())) >= 0).all()
