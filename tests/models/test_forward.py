"""Shifted forward passes: every layout of the directions against a network built anew for each shift."""

import numpy as np
import pytest
from conftest import spread

import apas
from apas.models.forward import BLOCK, FEW_ROWS

NETWORKS = {
    "linear": ([7, 1], {}),
    "one hidden": ([6, 9, 1], {}),
    "two classes": ([4, 5, 2], {"activation": "tanh", "output": "softmax", "threshold": 0.3}),
    "deep": ([3, 5, 4, 6, 2, 3], {"activation": ["relu", "gelu", "leaky_relu", "softplus"], "output": "softmax"}),
    "wide": ([5, 40, 11, 1], {"activation": ["elu", "sigmoid"], "threshold": 0.8}),
}


def network(name, seed=0):
    sizes, options = NETWORKS[name]
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(i, o)) for i, o in zip(sizes, sizes[1:], strict=False)]
    return apas.FeedForward(weights, [rng.normal(size=o) for o in sizes[1:]], **options), options


def rebuilt(net, options, theta):
    tensors, at = [], 0
    for shape in net.parameters.shapes:
        size = int(np.prod(shape))
        tensors.append(theta[at : at + size].reshape(shape))
        at += size
    return apas.FeedForward(tensors[0::2], tensors[1::2], **options)


def expected_margins(net, options, X, target, directions, deltas):
    """Row by row, the margin on a network that holds theta + delta * direction."""
    expected = np.empty((len(directions), len(X)))
    for s, direction in enumerate(directions):
        for delta in np.unique(deltas):
            rows = deltas == delta
            shifted = rebuilt(net, options, net.parameters.values + delta * direction)
            expected[s, rows] = shifted.margin(X[rows], target[rows])
    return expected


def laid_out(directions, layout):
    if layout == "strided":
        return np.repeat(directions, 2, axis=0)[::2]
    return np.array(directions, order=layout)


@pytest.mark.parametrize("samples", spread([1, 2, 64, 200], 2))
@pytest.mark.parametrize("rows", [1, 5, FEW_ROWS, FEW_ROWS + 1, 50])
@pytest.mark.parametrize("name", NETWORKS)
def test_shifted_margins_are_those_of_networks_built_anew(name, rows, samples):
    net, options = network(name)
    rng = np.random.default_rng([rows, samples])
    X = rng.normal(size=(rows, net.n_features))
    target = rng.integers(0, len(net.classes), rows)
    directions = rng.uniform(-1, 1, size=(samples, len(net.parameters)))
    for delta in (0.3, rng.choice([0.01, 0.3, 2.0], rows)):
        expected = expected_margins(net, options, X, target, directions, np.broadcast_to(delta, rows))
        scale = net.margin_scale(X, np.max(delta) * np.ones(len(net.parameters)))
        for layout in ("C", "F", "strided"):
            given = laid_out(directions, layout)
            kept = [array.copy() for array in (X, target, given)]
            got = net.shifted_margins(X, target, given, delta)
            assert got.shape == (samples, rows)
            assert (np.abs(got - expected) <= 1e-12 * np.maximum(np.abs(expected), 0.01 * scale)).all(), layout
            assert all(np.array_equal(a, b) for a, b in zip((X, target, given), kept, strict=True))


def test_the_table_above_reaches_several_blocks_of_rows():
    # otherwise the seam between two blocks would not be tested
    assert 200 * 40 * 50 > 2 * BLOCK


@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("rows", [0, 3, 20])
@pytest.mark.parametrize("samples", [0, 1, 3])
def test_nothing_asked_nothing_answered(samples, rows, layout):
    net, _ = network("deep")
    directions = np.zeros((samples, len(net.parameters)), order=layout)
    assert net.shifted_margins(np.ones((rows, 3)), 1, directions, 0.1).shape == (samples, rows)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("rows", [1, 30])
def test_a_zero_direction_is_the_model_itself(name, rows):
    net, _ = network(name)
    X = np.random.default_rng(3).normal(size=(rows, net.n_features))
    got = net.shifted_margins(X, 1, np.zeros((3, len(net.parameters))), 5.0)
    np.testing.assert_allclose(got, np.broadcast_to(net.margin(X, 1), (3, rows)), rtol=1e-12)


def test_a_nan_spreads_to_its_own_row_only():
    net, _ = network("one hidden")
    X = np.random.default_rng(4).normal(size=(3, 6))
    X[1] = np.nan
    for rows in (X, np.vstack([X, X, X, X])):
        margins = net.shifted_margins(rows, 1, np.random.default_rng(5).normal(size=(70, len(net.parameters))), 0.1)
        assert (np.isnan(margins).all(axis=0) == np.isnan(rows).any(axis=1)).all()
        assert np.isfinite(margins[:, ~np.isnan(rows).any(axis=1)]).all()
