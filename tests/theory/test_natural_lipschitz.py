"""Bounds on Lipschitz constants are never passed, and are reached where that can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest

import apas
from apas.theory import lipschitz_bound

ACTIVATIONS = ("relu", "leaky_relu", "hard_tanh", "tanh", "sigmoid", "identity", "softplus", "elu", "gelu")


def random_network(rng, activation, outputs=1, output="sigmoid"):
    sizes = [3, 5, 4, outputs]
    weights = [rng.normal(size=shape) for shape in zip(sizes, sizes[1:], strict=False)]
    return apas.FeedForward(weights, [rng.normal(size=n) for n in sizes[1:]], activation=activation, output=output)


def steepest(net, target, rng, read=lambda m: m):
    points = rng.normal(scale=2.0, size=(2000, 3))
    others = points + rng.normal(scale=1e-3, size=points.shape)
    change = np.abs(read(net.margin(points, target)) - read(net.margin(others, target)))
    return float((change / np.linalg.norm(points - others, axis=1)).max())


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_no_difference_passes_the_bound(activation):
    rng = np.random.default_rng(0)
    for _ in range(5):
        net = random_network(rng, activation)
        assert 0 < steepest(net, 1, rng) <= lipschitz_bound(net, margin=True)
        assert steepest(net, 1, rng, lambda m: 1 / (1 + np.exp(-m))) <= lipschitz_bound(net)


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
def test_no_shifted_network_passes_the_bound_of_the_box(activation):
    rng = np.random.default_rng(1)
    net = random_network(rng, activation)
    reach = rng.uniform(0, 0.3, len(net.parameters))
    bound = lipschitz_bound(net, reach, margin=True)
    assert bound > lipschitz_bound(net, margin=True)
    for _ in range(30):
        values = net.parameters.values + reach * rng.choice([-1.0, 1.0], len(reach))
        shifted = net.with_parameters(values)
        assert lipschitz_bound(shifted, margin=True) <= bound
        assert steepest(shifted, 1, rng) <= bound


def test_several_classes():
    rng = np.random.default_rng(2)
    for outputs in (2, 4):
        net = random_network(rng, "relu", outputs, "softmax")
        for target in range(outputs):
            assert steepest(net, target, rng) <= lipschitz_bound(net, margin=True)


def test_bounds_that_are_known():
    line = apas.FeedForward([[[3.0], [-4.0]]], [[0.0]])
    assert lipschitz_bound(line, margin=True) == pytest.approx(5)
    assert lipschitz_bound(line) == pytest.approx(1.25)
    assert lipschitz_bound(line, np.array([1.0, 1.0, 0.0]), margin=True) == pytest.approx(np.sqrt(16 + 25))
    # two units that undo each other: magnitudes see 2, norms sqrt(2) * sqrt(2); neither sees 0
    same = apas.FeedForward([[[1.0, 1.0]], [[1.0], [-1.0]]], [[0.0, 0.0], [0.0]], output="identity")
    assert lipschitz_bound(same) == pytest.approx(2)
    # two inputs, each through a unit of its own: magnitudes see sqrt(2), as it is
    apart = apas.FeedForward([np.eye(2), [[1.0], [1.0]]], [[0.0, 0.0], [0.0]], output="identity")
    assert lipschitz_bound(apart) == pytest.approx(np.sqrt(2))


def test_the_product_of_norms_counts_the_shift():
    """A matrix of signs: its norm is 2, that of its magnitudes 4, so that the product of norms is the lesser bound."""
    signs = np.array([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
    net = apas.FeedForward([signs, np.ones((4, 1))], [None, None], activation="identity", output="identity")
    assert lipschitz_bound(net) == pytest.approx(4)
    reach = np.where(np.arange(len(net.parameters)) < 16, 0.1, 0.0)  # the first matrix moves
    worst = net.with_parameters(net.parameters.values + reach)
    slope = np.linalg.norm(worst.weights[0] @ worst.weights[1])
    assert 4.4 < slope <= lipschitz_bound(net, reach) < 8
    assert lipschitz_bound(net, reach) == pytest.approx(2 * (2 + 0.4))
