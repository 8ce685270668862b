"""Interval bounds: below every drawn margin, exact with one hidden layer, right where public encodings are wrong."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from problems import CASES, network

from apas import FeedForward, LinfShifts
from apas.models.base import class_indices
from apas.models.forward import ACTIVATIONS
from apas.worst_case.intervals import Boxes, is_exact

SHAPES = [((4, 1), "sigmoid"), ((4, 5, 1), "sigmoid"), ((4, 5, 3), "softmax"), ((4, 6, 5, 1), "identity"), ((3, 4, 4, 4, 3), "softmax"), ((3, 4, 2), "softmax")]  # fmt: skip


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("sizes", "output"), SHAPES, ids=str)
def test_below_every_shift(sizes, output, activation):
    rng = np.random.default_rng(7)
    for seed in range(4):
        net = network(sizes, output, activation, seed)
        X = rng.normal(size=(5, sizes[0])) * rng.choice([1.0, 30.0], size=(5, 1))
        wanted = rng.integers(0, len(net.classes), size=5)
        labels = [net.classes[w] for w in wanted]
        radii = rng.choice([0.0, 0.5, 1.0], size=len(net.parameters))
        delta = rng.uniform(0.01, 0.5, size=5)
        bound, error = Boxes(net, X, wanted, radii).least(delta)
        inside = rng.uniform(-1, 1, size=(300, len(radii)))
        corners = rng.choice([-1.0, 1.0], size=(300, len(radii)))
        margins = net.shifted_margins(X, labels, np.vstack([inside, corners]) * radii, delta)
        assert (margins.min(axis=0) >= bound - error).all()
        assert (error < 1e-9 * (1 + net.margin_scale(X, radii, delta))).all()


@pytest.mark.parametrize("activation", [a for a in ACTIVATIONS if a != "gelu"])
@pytest.mark.parametrize(("sizes", "output"), [s for s in SHAPES if len(s[0]) <= 3], ids=str)
def test_attained_by_a_corner_with_at_most_one_hidden_layer(sizes, output, activation):
    rng = np.random.default_rng(3)
    net = network(sizes, output, activation, 1)
    assert is_exact(net)
    X = rng.normal(size=(8, sizes[0]))
    wanted = rng.integers(0, len(net.classes), size=8)
    radii = rng.choice([0.0, 0.5, 1.0], size=len(net.parameters))
    bound, _ = Boxes(net, X, wanted, radii).least(np.full(8, 0.3))
    corners = Boxes(net, X, wanted, radii).worst(np.full(8, 0.3))
    for i, corner in enumerate(corners):
        assert (np.abs(corner) <= radii).all()
        margin = net.shifted_margins(X[i : i + 1], net.classes[wanted[i]], corner[None, :], 0.3)[0, 0]
        assert margin == pytest.approx(bound[i], abs=1e-9)


def test_exact_against_all_corners_in_rational_arithmetic():
    # 1-2-1 has seven parameters: all 128 corners of the box, evaluated without rounding
    net = FeedForward([[[0.5, -0.75]], [[1.25], [-0.5]]], [[0.25, 0.5], [0.125]])
    x, delta = Fraction(-3, 2), Fraction(1, 4)
    theta = [Fraction(v) for v in net.parameters.values]
    least = min(
        _exact_margin([p + s * delta for p, s in zip(theta, signs, strict=True)], x)
        for signs in product((-1, 1), repeat=7)
    )
    bound, error = Boxes(net, np.array([[-1.5]]), np.array([1]), np.ones(7)).least(np.array([0.25]))
    assert abs(float(least) - bound[0]) < 1e-12
    assert bound[0] - error[0] <= float(least)


def _exact_margin(theta, x):
    hidden = [max(theta[j] * x + theta[2 + j], 0) for j in range(2)]
    return theta[4] * hidden[0] + theta[5] * hidden[1] + theta[6]


def test_negative_inputs_where_public_encodings_fail():
    # x = (1, -0.9), one ReLU unit: an encoding that multiplies upper ends by the raw input reports +0.45
    net = FeedForward([[[1.0], [0.0]], [[1.0]]], [[0.0], [-0.0]], output="identity", threshold=0.0)
    shifts = LinfShifts(layers=[0], kinds=("weight",))
    radii = shifts.radii(net.parameters)
    bound, _ = Boxes(net, np.array([[1.0, -0.9]]), np.array([1]), radii).least(np.array([0.5]))
    assert bound[0] == pytest.approx(1.0 - 0.5 * 1.9)


def test_unscaled_inputs_where_a_fixed_big_m_fails():
    # x = 5000, w in [0, 1], output 3000 - h: a fixed M of 1000 reports +2000, the truth is -2000
    net = FeedForward([[[0.5]], [[-1.0]]], [[0.0], [3000.0]], output="identity", threshold=0.0)
    radii = LinfShifts(layers=[0], kinds=("weight",)).radii(net.parameters)
    bound, error = Boxes(net, np.array([[5000.0]]), np.array([1]), radii).least(np.array([0.5]))
    assert bound[0] == pytest.approx(-2000.0)
    assert error[0] < 1e-6


@pytest.mark.parametrize("size", [1e-8, 1e-3, 1.0, 1e4, 1e8])
def test_weights_of_every_size(size):
    rng = np.random.default_rng(0)
    net = FeedForward(
        [size * rng.normal(size=(3, 4)), size * rng.normal(size=(4, 1))], [size * rng.normal(size=4), [0.3 * size]]
    )
    X = rng.normal(size=(20, 3))
    labels = [int(m >= 0) for m in net.margin(X, 1)]
    wanted = class_indices(net.classes, labels, 20)
    proved, open_end = Boxes(net, X, wanted, np.ones(len(net.parameters))).radius(10 * size)
    assert (proved > 0).all()
    assert (open_end <= proved * (1 + 1e-9)).all()
    directions = rng.choice([-1.0, 1.0], size=(500, len(net.parameters)))
    assert (net.shifted_margins(X, labels, directions, proved) >= 0).all()


@pytest.mark.parametrize("known", CASES, ids=lambda c: c.name)
def test_radius_of_known_problems(known):
    radii = known.shifts.radii(known.model.parameters)
    wanted = class_indices(known.model.classes, known.target, 1)
    proved, open_end = Boxes(known.model, known.X, wanted, radii).radius(100.0)
    assert proved[0] == pytest.approx(known.worst_case, rel=1e-9)
    assert proved[0] <= known.worst_case
    assert open_end[0] >= known.worst_case * (1 - 1e-9)


def test_radius_when_nothing_fails():
    net = FeedForward([[[1.0]], [[1.0]]], [[0.0], [5.0]], activation="sigmoid")
    radii = LinfShifts(layers=[0]).radii(net.parameters)
    proved, open_end = Boxes(net, np.array([[1.0]]), np.array([1]), radii).radius(50.0)
    assert (proved[0], open_end[0]) == (50.0, np.inf)


def test_radius_does_not_depend_on_other_rows():
    net = network((4, 5, 1), "sigmoid", "relu", 0)
    X = np.random.default_rng(0).normal(size=(20, 4)) * 3
    wanted = (net.margin(X, 1) >= 0).astype(int)
    radii = np.ones(len(net.parameters))
    together, _ = Boxes(net, X, wanted, radii).radius(10.0)
    alone = [Boxes(net, X[i : i + 1], wanted[i : i + 1], radii).radius(10.0)[0][0] for i in range(20)]
    assert together == pytest.approx(alone, rel=1e-12)
