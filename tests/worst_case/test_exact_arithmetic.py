from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from apas import FeedForward, Unsupported
from apas.models.forward import LEAKY_SLOPE
from apas.worst_case.exact_arithmetic import PIECEWISE_LINEAR, exact_margin, exact_sign


def plain(weights, biases, activations, x, wanted, offset=0.0):
    """The same by Fraction, operation by operation."""
    a = [Fraction(v) for v in x.tolist()]
    for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
        z = [
            sum((Fraction(v) * u for v, u in zip(column, a, strict=True)), Fraction(c))
            for column, c in zip(w.T.tolist(), b.tolist(), strict=True)
        ]
        if i < len(activations):
            z = {
                "relu": lambda z: [max(v, Fraction(0)) for v in z],
                "leaky_relu": lambda z: [max(v, Fraction(LEAKY_SLOPE) * v) for v in z],
                "hard_tanh": lambda z: [max(Fraction(-1), min(Fraction(1), v)) for v in z],
                "identity": lambda z: z,
            }[activations[i]](z)
        a = z
    if len(a) > 2:
        return a[wanted] - max(v for j, v in enumerate(a) if j != wanted)
    score = a[0] if len(a) == 1 else a[1] - a[0]
    return (score - Fraction(offset)) * (1 if wanted == 1 else -1)


def numbers(rng, shape, spread):
    """Numbers of both signs whose magnitudes span the given powers of ten, some of them 0 or denormal."""
    with np.errstate(under="ignore"):
        values = rng.normal(size=shape) * 10.0 ** rng.uniform(*spread, size=shape)
    values[rng.random(shape) < 0.1] = 0.0
    values[rng.random(shape) < 0.02] = 5e-324
    return values


def layers(rng, sizes, spread):
    weights = [numbers(rng, (a, b), spread) for a, b in zip(sizes, sizes[1:], strict=False)]
    return weights, [numbers(rng, b, spread) for b in sizes[1:]]


@pytest.mark.parametrize("activation", sorted(PIECEWISE_LINEAR))
@pytest.mark.parametrize("spread", [(0, 0), (-1, 1), (-8, 6)])
def test_weights_side_by_side_equal_fractions(activation, spread):
    # layers large enough to be packed, of similar sizes and of very different ones; without the denormals, too far apart
    rng = np.random.default_rng(1)
    for sizes in [(40, 13, 1), (9, 60, 30, 3)]:
        weights, biases = layers(rng, sizes, spread)
        for tensor in (*weights, *biases):
            tensor[np.abs(tensor) < 1e-300] = 0.0
        x, wanted, offset = numbers(rng, sizes[0], (-2, 4)), int(rng.integers(2)), float(rng.normal())
        x[0] = -5e-324
        asked = weights, biases, [activation] * (len(sizes) - 2), x, wanted, offset
        assert exact_margin(*asked) == plain(*asked)


@pytest.mark.parametrize("activation", sorted(PIECEWISE_LINEAR))
@pytest.mark.parametrize("spread", [(-1, 1), (-8, 8), (-300, 8)])
@pytest.mark.parametrize("sizes", [(3, 1), (4, 3, 2), (3, 4, 3, 1), (2, 3, 3, 4)])
def test_equals_fractions(activation, spread, sizes):
    rng = np.random.default_rng(len(sizes))
    for _ in range(8):
        weights, biases = layers(rng, sizes, spread)
        x, wanted, offset = numbers(rng, sizes[0], (-2, 4)), int(rng.integers(max(2, sizes[-1]))), float(rng.normal())
        asked = weights, biases, [activation] * (len(sizes) - 2), x, wanted, offset
        expected = plain(*asked)
        assert exact_margin(*asked) == expected
        assert exact_sign(*asked) == (expected > 0) - (expected < 0)


def test_activations_may_differ_by_layer():
    rng = np.random.default_rng(0)
    names = ["hard_tanh", "leaky_relu", "relu", "identity"]
    weights, biases = layers(rng, (3, 4, 4, 4, 4, 3), (-3, 3))
    for wanted in range(3):
        asked = weights, biases, names, rng.normal(size=3), wanted
        assert exact_margin(*asked) == plain(*asked)


def test_dead_units_and_zero_rows():
    rng = np.random.default_rng(0)
    weights, _ = layers(rng, (3, 4, 2), (-1, 1))
    biases = [np.full(4, -1e6), np.array([0.25, 0.5])]
    for x in (np.zeros(3), rng.normal(size=3)):
        assert exact_margin(weights, biases, ["relu"], x, 1) == Fraction(1, 4)
    assert exact_sign([np.zeros((2, 1))], [np.zeros(1)], [], np.zeros(2), 1) == 0


def test_numbers_beyond_hard_tanh_and_large_powers():
    # every number is a multiple of a large power of two, so that 1 is not one of them
    weights, biases = [np.array([[2.0**80]]), np.array([[2.0**90]])], [np.array([2.0**70]), np.zeros(1)]
    assert exact_margin(weights, biases, ["hard_tanh"], np.array([2.0**60]), 1) == 2**90
    assert exact_margin(weights, biases, ["hard_tanh"], np.array([-(2.0**60)]), 1) == -(2**90)


def test_ties_are_ties():
    w, b = [np.array([[0.1, 0.1, -1.0]])], [np.array([0.3, 0.3, 0.0])]
    assert exact_sign(w, b, [], np.array([0.7]), 0) == 0
    assert exact_sign(w, b, [], np.array([0.7]), 2) == -1
    assert exact_sign([np.array([[0.5]])], [np.array([0.25])], [], np.array([1.0]), 0, 0.75) == 0


def test_the_sign_that_float64_loses():
    # 0.1 + 0.2 - 0.3 is 2**-54 in real arithmetic on these float64 numbers, and 2**-54 * 4 when rounded in between
    w = [np.ones((3, 1))]
    x = np.array([0.1, 0.2, -0.3])
    assert exact_margin(w, [np.zeros(1)], [], x, 1) == Fraction(0.1) + Fraction(0.2) - Fraction(0.3)
    # 1 + 1e-30 - 1 vanishes in float64, in any order of the units
    x = np.array([1.0, -1e-30, -1.0])
    assert (x @ w[0])[0] == 0.0
    assert exact_sign(w, [np.zeros(1)], [], x, 1) == -1
    assert exact_sign(w, [np.zeros(1)], [], x, 0) == 1


def test_agrees_with_the_network():
    rng = np.random.default_rng(1)
    weights, biases = layers(rng, (5, 6, 3), (-1, 1))
    net = FeedForward(weights, biases, activation="leaky_relu", output="softmax")
    X = rng.normal(size=(20, 5))
    margins = net.margin(X, 2)
    exact = [exact_margin(net.weights, net.biases, net.activations, x, 2, net.offset) for x in X]
    np.testing.assert_allclose(margins, [float(e) for e in exact], rtol=1e-11)


def test_smooth_activations_are_refused():
    with pytest.raises(Unsupported, match=r"`activations` must be piecewise linear .*, got 'tanh'"):
        exact_sign([np.ones((1, 1))] * 2, [np.zeros(1)] * 2, ["tanh"], np.ones(1), 1)
