"""Lines through the middle of a box: the margin lies between them everywhere in it."""

from __future__ import annotations

import numpy as np
import pytest
from problems import network

from apas import FeedForward
from apas.models.forward import ACTIVATIONS, scores
from apas.worst_case.enumeration.box_bounds import margin_lines
from apas.worst_case.intervals import rivals

SHAPES = [((4, 1), "sigmoid"), ((4, 5, 1), "sigmoid"), ((4, 5, 3), "softmax"), ((4, 6, 5, 1), "identity"), ((3, 4, 4, 4, 3), "softmax"), ((3, 4, 2), "softmax")]  # fmt: skip


def difference(net, x, wanted, rival, theta):
    """The margin against one rival on the network with these parameters, written down once more."""
    moved = net.with_parameters(theta)
    score = scores(moved.weights, moved.biases, net.activations, x[None, :])[0]
    if len(score) == 1:
        return (1 if wanted == 1 else -1) * (score[0] - net.offset)
    offset = (1 if wanted == 1 else -1) * net.offset if len(score) == 2 else 0.0
    return score[wanted] - score[rival] - offset


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("sizes", "output"), SHAPES, ids=str)
def test_the_margin_lies_between_the_lines(sizes, output, activation):
    rng = np.random.default_rng(11)
    net = network(sizes, output, activation, 6)
    k = len(net.parameters)
    X, wanted = rng.normal(size=(3, sizes[0])) * 2, rng.integers(0, len(net.classes), size=3)
    middle = net.parameters.values + 0.2 * rng.normal(size=(3, k))
    reach = 0.4 * rng.uniform(size=(3, k)) * rng.choice([0.0, 1.0, 1.0], size=(3, k))
    found = margin_lines(net, X, wanted, (middle - reach, middle + reach), (middle, middle))
    for lines, rival in zip(found, rivals(net, wanted).T, strict=True):
        assert (lines.slopes[0] <= lines.slopes[1]).all()
        for i in range(3):
            slope_low, slope_high = lines.slopes[0][i], lines.slopes[1][i]
            for u in np.vstack([rng.uniform(-1, 1, size=(40, k)), rng.choice([-1.0, 1.0], size=(40, k))]):
                moved = reach[i] * u
                value = difference(net, X[i], wanted[i], rival[i], middle[i] + moved)
                below = lines.middle[0][i] + np.minimum(slope_low * moved, slope_high * moved).sum()
                above = lines.middle[1][i] + np.maximum(slope_low * moved, slope_high * moved).sum()
                assert below - 1e-10 <= value <= above + 1e-10
                assert lines.least[i] - 1e-10 <= value <= lines.most[i] + 1e-10


def test_output_slopes_are_exact_with_one_hidden_layer():
    net = network((3, 4, 1), "sigmoid", "tanh", 0)
    x, theta = np.array([[0.3, -1.0, 2.0]]), net.parameters.values[None, :]
    lines = margin_lines(net, x, np.array([1]), (theta - 0.5, theta + 0.5), (theta, theta))[0]
    part = net.parameters.slices[2]
    hidden = np.tanh(x @ net.weights[0] + net.biases[0])
    assert lines.slopes[0][:, part] == pytest.approx(hidden, abs=1e-12)
    assert lines.slopes[1][:, part] == pytest.approx(hidden, abs=1e-12)


def test_a_linear_model_is_its_own_line():
    net = FeedForward([[[2.0], [-3.0]]], [[1.0]])
    theta = net.parameters.values[None, :]
    lines = margin_lines(net, np.array([[0.5, 4.0]]), np.array([0]), (theta - 1, theta + 1), (theta, theta))[0]
    assert lines.slopes[0][0] == pytest.approx([-0.5, -4.0, -1.0], abs=1e-12)
    assert lines.slopes[1][0] == pytest.approx([-0.5, -4.0, -1.0], abs=1e-12)
    assert lines.middle[0][0] == pytest.approx(10.0)
