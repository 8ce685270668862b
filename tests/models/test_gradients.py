from __future__ import annotations

import numpy as np
import pytest

from apas import FeedForward, InputError, as_model
from apas.models import forward as gradients
from apas.models.base import Differentiable, offers
from apas.models.forward import ACTIVATIONS

#: Inputs, hidden layers, outputs: no hidden layer to three, one output to four.
SIZES = [(3, 1), (3, 2), (3, 4), (3, 5, 1), (4, 3, 2), (3, 4, 3), (2, 4, 3, 1), (3, 4, 5, 4), (2, 3, 4, 3, 2)]
STEP = 1e-6


def network(sizes, activation, seed=0):
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(a, b)) for a, b in zip(sizes, sizes[1:], strict=False)]
    biases = [rng.normal(size=b) for b in sizes[1:]]
    output = "sigmoid" if sizes[-1] == 1 else "softmax"
    return FeedForward(weights, biases, activation=activation, output=output, threshold=0.5 if sizes[-1] > 2 else 0.3)


def margin(model, x, target, move):
    return float(model.shifted_margins(x[None, :], target, move[None, :], 1.0)[0, 0])


def differences(model, x, target, move, *, by):
    """Central differences, coordinate by coordinate."""
    size = len(x) if by == "input" else len(move)
    found = []
    for step in STEP * np.eye(size):
        ends = [(x + s * step, move) if by == "input" else (x, move + s * step) for s in (1, -1)]
        high, low = (margin(model, a, target, m) for a, m in ends)
        found.append((high - low) / (2 * STEP))
    return np.array(found)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("moved", [False, True])
def test_against_differences(activation, sizes, moved):
    net = network(sizes, activation)
    rng = np.random.default_rng(1)
    X = rng.normal(size=(4, sizes[0]))
    target = rng.integers(max(2, sizes[-1]), size=4)
    moves = rng.normal(size=(4, len(net.parameters))) * 0.3 if moved else None
    margins, by_input = net.input_gradient(X, target, moves)
    same, by_parameters = net.parameter_gradient(X, target, moves)
    assert by_input.shape == X.shape
    assert by_parameters.shape == (4, len(net.parameters))
    np.testing.assert_array_equal(margins, same)
    for i, (x, wanted) in enumerate(zip(X, target, strict=True)):
        move = np.zeros(len(net.parameters)) if moves is None else moves[i]
        assert margins[i] == pytest.approx(margin(net, x, int(wanted), move), rel=1e-12, abs=1e-12)
        for by, found in (("input", by_input[i]), ("parameters", by_parameters[i])):
            np.testing.assert_allclose(found, differences(net, x, int(wanted), move, by=by), rtol=2e-6, atol=2e-7)


def test_activations_may_differ_by_layer():
    net = network((3, 4, 4, 2), ["gelu", "hard_tanh"])
    x, move = np.array([0.3, -0.8, 1.1]), np.zeros(len(net.parameters))
    _, found = net.parameter_gradient(x[None, :], 0)
    np.testing.assert_allclose(found[0], differences(net, x, 0, move, by="parameters"), rtol=1e-6, atol=1e-7)


def test_order_of_the_parameters():
    # one layer: the gradient by weight (i, j) is x_i where j enters the margin
    net = FeedForward([np.zeros((2, 3))], [np.array([0.0, 5.0, 1.0])], output="softmax")
    _, found = net.parameter_gradient(np.array([[2.0, 3.0]]), 1)
    assert found.tolist() == [[0.0, 2.0, -2.0, 0.0, 3.0, -3.0, 0.0, 1.0, -1.0]]


def test_the_active_rival_counts():
    net = FeedForward([np.eye(3)], [np.zeros(3)], output="softmax")
    margins, found = net.input_gradient(np.array([[5.0, 1.0, 2.0], [5.0, 2.0, 1.0]]), 0)
    assert margins.tolist() == [3.0, 3.0]
    assert found.tolist() == [[1.0, 0.0, -1.0], [1.0, -1.0, 0.0]]


@pytest.mark.parametrize("moved", [False, True])
def test_blocks_do_not_change_the_answer(moved, monkeypatch):
    net = network((3, 5, 4, 3), "tanh")
    rng = np.random.default_rng(2)
    X, target = rng.normal(size=(50, 3)), rng.integers(3, size=50)
    moves = rng.normal(size=(50, len(net.parameters))) if moved else None
    whole = [net.input_gradient(X, target, moves), net.parameter_gradient(X, target, moves)]
    monkeypatch.setattr(gradients, "BLOCK", 100)
    parts = [net.input_gradient(X, target, moves), net.parameter_gradient(X, target, moves)]
    for a, b in zip(whole, parts, strict=True):
        for one, other in zip(a, b, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def test_rows_on_networks_of_their_own_do_not_depend_on_each_other():
    net = network((7, 20, 9, 3), "relu")
    rng = np.random.default_rng(3)
    X, target = rng.normal(size=(40, 7)), rng.integers(3, size=40)
    moves = rng.normal(size=(40, len(net.parameters)))
    margins, found = net.parameter_gradient(X, target, moves)
    for rows in (rng.permutation(40)[:n] for n in (1, 2, 5, 17)):
        some = net.parameter_gradient(X[rows], target[rows], moves[rows])
        np.testing.assert_array_equal(some[0], margins[rows])
        np.testing.assert_array_equal(some[1], found[rows])


def test_no_rows():
    net = network((3, 4, 1), "relu")
    margins, found = net.parameter_gradient(np.empty((0, 3)), 1)
    assert margins.shape == (0,)
    assert found.shape == (0, len(net.parameters))


def test_wrong_moves_are_refused():
    net = network((3, 4, 1), "relu")
    with pytest.raises(InputError, match=r"`moves` must hold one change per row and parameter, shape \(2, 21\), got"):
        net.parameter_gradient(np.ones((2, 3)), 1, np.zeros((1, 21)))


def data():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(80, 4)) * [1.0, 10.0, 0.1, 3.0]
    return X, (X[:, 0] + 0.1 * X[:, 1] > 0).astype(int), np.digitize(X[:, 0], [-0.5, 0.5])


class TestScikitLearn:
    @staticmethod
    def check(estimator, X, target):
        model = as_model(estimator)
        assert offers(model, Differentiable)
        encoded = model.encode(X[:3])
        rng = np.random.default_rng(5)
        for moves in (None, rng.normal(size=(3, len(model.parameters))) * 0.05):
            margins, by_input = model.input_gradient(encoded, target, moves)
            _, by_parameters = model.parameter_gradient(encoded, target, moves)
            for i, x in enumerate(encoded):
                move = np.zeros(len(model.parameters)) if moves is None else moves[i]
                assert margins[i] == pytest.approx(margin(model, x, target, move), rel=1e-10)
                for by, found in (("input", by_input[i]), ("parameters", by_parameters[i])):
                    expected = differences(model, x, target, move, by=by)
                    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

    def test_linear(self):
        from sklearn.linear_model import LogisticRegression, RidgeClassifier

        X, binary, three = data()
        self.check(LogisticRegression(max_iter=1000).fit(X, binary), X, 0)
        self.check(LogisticRegression(max_iter=1000).fit(X, three), X, 2)
        self.check(RidgeClassifier().fit(X, binary), X, 1)

    @pytest.mark.parametrize("activation", ["relu", "logistic"])
    def test_networks_behind_preprocessing(self, activation):
        from sklearn.neural_network import MLPClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        X, binary, three = data()
        for y, target in ((binary, 1), (three, 0)):
            net = MLPClassifier((5, 4), activation=activation, solver="lbfgs", max_iter=50, tol=0.1, random_state=0)
            self.check(make_pipeline(StandardScaler(), net).fit(X, y), X, target)
