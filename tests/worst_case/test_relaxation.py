"""Linear bounds: below drawn margins for every activation, unit ranges that hold, and never worse than intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import network

import apas
from apas import IntervalBounds, LinearBounds, Verdict
from apas.models.forward import ACTIVATIONS, activate
from apas.worst_case.attack import RivalPushes
from apas.worst_case.decide import RivalBounds
from apas.worst_case.intervals import Boxes, rivals
from apas.worst_case.linear import Relaxation, carried_back

SHAPES = [((4, 5, 4, 1), "sigmoid"), ((3, 5, 4, 4, 1), "identity"), ((3, 4, 4, 4, 3, 1), "sigmoid"), ((3, 5, 4, 3), "softmax"), ((3, 4, 4, 2), "softmax")]  # fmt: skip


def question(sizes, output, activation, seed):
    net = network(sizes, output, activation, seed)
    rng = np.random.default_rng([seed, 3])
    X = rng.normal(size=(5, sizes[0])) * rng.choice([0.3, 1.0, 10.0], size=(5, 1))
    wanted = rng.integers(0, len(net.classes), size=5)
    radii = np.ones(len(net.parameters)) if seed == 0 else rng.choice([0.0, 0.5, 1.0], size=len(net.parameters))
    return net, X, wanted, radii, float(rng.choice([1e-3, 0.03, 0.2]))


def directions(rng, radii, count=300):
    unit = np.vstack([rng.uniform(-1, 1, size=(count, len(radii))), rng.choice([-1.0, 1.0], size=(count, len(radii)))])
    return unit * radii


def linear(net, X, wanted, radii, delta):
    """Linear bounds, and the same without improved slopes."""
    relaxation = Relaxation(net, radii, delta)
    relaxed = relaxation.relax(X)
    bounds, plain = [], []
    for rival in rivals(net, wanted).T:
        pair = RivalBounds(RivalPushes(relaxation, X, relaxation.objective(wanted, rival)), rival, relaxed)
        plain.append(
            carried_back(relaxation.layers, relaxed[1], pair.objective, len(relaxed[0]) - 1).bound - relaxed[2]
        )
        bounds.append(pair.linear())
    return np.min(bounds, axis=0), np.min(plain, axis=0)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("sizes", "output"), SHAPES, ids=str)
def test_below_every_shift(sizes, output, activation):
    for seed in range(3):
        net, X, wanted, radii, delta = question(sizes, output, activation, seed)
        bound, plain = linear(net, X, wanted, radii, delta)
        labels = [net.classes[w] for w in wanted]
        margins = net.shifted_margins(X, labels, directions(np.random.default_rng(seed), radii), delta).min(axis=0)
        assert (margins >= bound).all()
        assert (margins >= plain).all()
        # corners of the steepest descent, one row at a time, come closer than drawn ones
        _, gradient = net.parameter_gradient(X, labels)
        for i in range(len(X)):
            worst = net.shifted_margins(X[i : i + 1], labels[i], -np.sign(gradient[i : i + 1]) * radii, delta)[0, 0]
            assert worst >= bound[i]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("sizes", [(4, 5, 4, 1), (3, 5, 4, 4, 1)], ids=str)
def test_ranges_hold_the_units_of_shifted_networks(sizes, activation):
    for seed in range(3):
        net, X, _, radii, delta = question(sizes, "identity", activation, seed)
        units, _, _ = Relaxation(net, radii, delta).relax(X)
        for move in directions(np.random.default_rng(seed), radii, 60):
            shifted = net.with_parameters(net.parameters.values + delta * move)
            a = X
            for unit, w, b in zip(units, shifted.weights, shifted.biases, strict=False):
                z = a @ w + b
                a = activate(activation, z.copy())
                assert ((z >= unit.low_l) & (z <= unit.high_u)).all()
                assert ((a >= unit.low) & (a <= unit.high)).all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("sizes", "output"), SHAPES, ids=str)
def test_at_least_as_good_as_intervals(sizes, output, activation):
    better = 0
    for seed in range(3):
        net, X, wanted, radii, delta = question(sizes, output, activation, seed)
        bound, _ = linear(net, X, wanted, radii, delta)
        interval, _ = Boxes(net, X, wanted, radii).least(np.full(5, delta))
        # up to what either sets aside for rounding
        slack = Relaxation(net, radii, delta).allowance(X)[-1] + Boxes(net, X, wanted, radii).error(np.full(5, delta))
        assert (bound >= interval - 2 * slack - 1e-9 * np.abs(interval)).all()
        better += int((bound > interval + 1e-6 * np.abs(interval)).sum())
    assert better > 0


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "hard_tanh", "tanh", "gelu"])
@pytest.mark.parametrize("sizes", [(4, 6, 5, 1), (4, 6, 5, 4, 1), (4, 6, 5, 3)], ids=str)
def test_linear_certifies_what_intervals_certify(sizes, activation):
    net = network(sizes, "sigmoid" if sizes[-1] == 1 else "softmax", activation, 2)
    X = np.random.default_rng(1).normal(size=(10, 4))
    proved = apas.max_shift(net, X, target="predicted", method="interval").deltas
    rows = proved > 0
    for factor in (0.5, 1 - 1e-8):  # closer to the end of what intervals prove, more is set aside for rounding
        some = {"target": "predicted", "rng": 0}
        by_interval = apas.certify(net, X[rows], factor * proved[rows], method=IntervalBounds(), **some)
        by_linear = apas.certify(net, X[rows], factor * proved[rows], method=LinearBounds(), **some)
        assert all(c.verdict is Verdict.CERTIFIED for c in by_interval)
        assert all(c.verdict is Verdict.CERTIFIED for c in by_linear)


def test_exact_with_one_hidden_layer():
    net, X, wanted, radii, delta = question((4, 6, 1), "sigmoid", "relu", 1)
    bound, _ = linear(net, X, wanted, radii, delta)
    interval, _ = Boxes(net, X, wanted, radii).least(np.full(5, delta))
    assert bound == pytest.approx(interval, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("sizes", [(3, 5, 4, 1), (3, 5, 4, 4, 1)], ids=str)
@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "hard_tanh", "tanh", "softplus", "gelu"])
def test_any_slopes_of_the_pencils_are_sound(sizes, activation):
    """The ascent may choose whatever it likes."""
    rng = np.random.default_rng(0)
    for seed in range(3):
        net, X, wanted, radii, delta = question(sizes, "identity", activation, seed)
        relaxation = Relaxation(net, radii, delta)
        units, lines, allowance = relaxation.relax(X)
        goal = relaxation.objective(wanted, np.zeros(5, dtype=int))
        labels = [net.classes[w] for w in wanted]
        margins = net.shifted_margins(X, labels, directions(rng, radii), delta).min(axis=0)
        for _ in range(20):
            tilted = [lines[0]]
            for line in lines[1:]:
                t = rng.choice([0.0, 1.0, rng.random()], size=line.down_slope.shape)
                tilted.append(replace(
                    line, down_slope=line.down.flat + t * (line.down.steep - line.down.flat),
                    up_slope=line.up.flat + t * (line.up.steep - line.up.flat),
                ))  # fmt: skip
            bound = carried_back(relaxation.layers, tilted, goal, len(units) - 1).bound - allowance
            assert (margins >= bound).all()


def test_nothing_moves():
    net, X, wanted, radii, _ = question((3, 5, 4, 4, 1), "identity", "relu", 1)
    bound, _ = linear(net, X, wanted, radii * 0, 0.3)
    margin = net.margin(X, [net.classes[w] for w in wanted])
    assert (bound <= margin).all()
    assert bound == pytest.approx(margin, rel=1e-9, abs=1e-9)


def test_denormals_and_zeros():
    for size in (0.0, 5e-324, 1e-310, 1e-160):
        net = network((3, 4, 4, 1), "identity", "relu", 0)
        net = net.with_parameters(net.parameters.values * size)
        X = np.array([[1.0, -2.0, 0.5]])
        for label in (0, 1):
            bound, _ = linear(net, X, np.array([label]), np.ones(len(net.parameters)), 1e-9)
            margins = net.shifted_margins(
                X, label, directions(np.random.default_rng(0), np.ones(len(net.parameters))), 1e-9
            )
            assert margins.min() >= bound[0]
