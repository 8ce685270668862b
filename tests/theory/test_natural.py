"""`is_naturally_occurring`: what it tests, against shifts whose expectation and variance are known."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

import apas
from apas import InputError, Unsupported, Verdict
from apas.theory import is_naturally_occurring

#: Its only parameter is a bias; the margin is uniform on [1 - delta, 1 + delta].
BIAS = apas.FeedForward([[[0.0]]], [[1.0]])
BIASES = apas.LinfShifts(kinds=("bias",))
NUMBER = apas.FeedForward([[[0.0]]], [[1.0]], output="identity", threshold=0.5)
X = np.array([[0.0]])


def mean_of_logistic(delta):
    """The expectation of the logistic function over [1 - delta, 1 + delta]: its integral is softplus."""
    return (math.log1p(math.exp(1 + delta)) - math.log1p(math.exp(1 - delta))) / (2 * delta)


@pytest.mark.parametrize("delta", [0.2, 2.0, 4.0])
def test_a_known_expectation(delta):
    found = is_naturally_occurring(BIAS, X, BIASES, delta=delta, n_samples=20_000, rng=0)
    assert found.original[0] == pytest.approx(expit(1.0))
    true = mean_of_logistic(delta)
    assert found.mean_low[0] <= true <= found.mean_high[0]
    assert abs(found.mean[0] - true) < 4 * np.sqrt(found.variance[0] / found.draws)
    # at 4 the mean is 0.62 against 0.731; at 0.2 it is 0.7305, too near for so many draws
    assert found.verdict is (Verdict.REFUTED if delta > 1 else Verdict.UNKNOWN)
    assert found.t[0] < 0


def test_the_numbers_are_those_of_the_draws():
    net, rows = apas.FeedForward([[[1.0], [-1.0]]], [[0.3]]), np.array([[2.0, 0.5], [-1.0, 1.0], [0.0, 0.0]])
    found = is_naturally_occurring(net, rows, delta=0.4, n_samples=3000, rng=5, variance_limit=1e-6)
    directions = apas.LinfShifts().directions(net.parameters, apas._random.Stream(5, "natural"), 0, 3000)
    outputs = expit(net.shifted_margins(rows, 1, directions, 0.4))
    original = expit(net.margin(rows, 1))
    assert found.difference == pytest.approx(np.abs(outputs - original).mean(axis=0))
    assert found.mean == pytest.approx(outputs.mean(axis=0))
    assert found.variance == pytest.approx(outputs.var(axis=0, ddof=1))
    assert found.p_values == pytest.approx(stats.ttest_1samp(outputs, original).pvalue, rel=1e-6)
    assert found.entropy == 5
    assert found.level == pytest.approx(0.05 / 3)
    assert found.rejected.tolist() == (found.p_values < found.level).tolist()
    each = is_naturally_occurring(net, rows, delta=0.4, n_samples=3000, rng=5, simultaneous=False)
    assert each.level == pytest.approx(0.05)
    assert (each.mean_high - each.mean_low < found.mean_high - found.mean_low).all()


def test_a_set_whose_expectation_does_not_move_is_not_refuted():
    # a linear score: E[w x + b] is that of the model
    found = is_naturally_occurring(NUMBER, X, BIASES, delta=0.2, n_samples=5000, rng=0, variance_limit=0.02)
    assert found.original.tolist() == [1.0]
    assert found.verdict is Verdict.UNKNOWN
    assert not found.rejected.any()
    # the range of the outputs is proved, [0.8, 1.2], so that the variance, 0.04 / 3, is bounded
    assert found.variance_low[0] <= 0.04 / 3 <= found.variance_high[0] <= 0.04 + 1e-6
    assert "shown to exceed 0.02 on 0 rows and to stay within it on 1" in found.sentence()


def test_a_variance_beyond_the_limit_refutes():
    found = is_naturally_occurring(NUMBER, X, BIASES, delta=0.2, n_samples=5000, rng=0, variance_limit=0.005)
    assert found.scattered.all()
    assert not found.moved.any()
    assert found.verdict is Verdict.REFUTED


def test_one_sided_tests():
    shared = {"delta": 2.0, "n_samples": 2000, "rng": 0}
    less, greater, both = (
        is_naturally_occurring(BIAS, X, BIASES, alternative=a, **shared).p_values[0]
        for a in ("less", "greater", "two-sided")
    )
    assert less < 0.01
    assert greater == pytest.approx(1 - less)
    assert both == pytest.approx(2 * less)


@pytest.mark.parametrize("shifts", ["linf", "l1", "l2", "gaussian", apas.LinfShifts(relative=True)], ids=str)
def test_every_set_of_shifts(shifts, small_network):
    rows = np.random.default_rng(0).normal(size=(3, 4))
    found = is_naturally_occurring(small_network, rows, shifts, delta=0.1, rng=0)
    assert found.draws == 1000
    assert (found.mean_low <= found.mean).all()
    assert (found.mean <= found.mean_high).all()
    assert (found.lipschitz_shifted is None) == (shifts == "gaussian")
    assert 0 < found.lipschitz_base
    assert "upper bounds" in found.sentence() or shifts == "gaussian"


def test_margins_of_any_model(small_network):
    class Plain:
        """The five members and no more."""

        classes, n_features, parameters = small_network.classes, 4, small_network.parameters

        def margin(self, X, target):
            return small_network.margin(X, target)

        def shifted_margins(self, X, target, directions, delta):
            return small_network.shifted_margins(X, target, directions, delta)

    rows = np.random.default_rng(0).normal(size=(2, 4))
    with pytest.raises(Unsupported, match='needs a model whose threshold is known; use quantity="margin"'):
        is_naturally_occurring(Plain(), rows, delta=0.1)
    found = is_naturally_occurring(Plain(), rows, delta=0.1, quantity="margin", rng=0)
    dense = is_naturally_occurring(small_network, rows, delta=0.1, quantity="margin", rng=0)
    assert found.mean == pytest.approx(dense.mean)
    # nothing is known of the range, so nothing is claimed for every distribution
    assert np.isinf(found.mean_low).all()
    assert np.isinf(found.variance_high).all()
    assert found.verdict is Verdict.UNKNOWN
    assert found.lipschitz_base is None
    assert "no bound on Lipschitz constants is known" in found.sentence()
    assert np.isfinite(dense.mean_low).all()
    assert json.loads(json.dumps(found.to_dict()))["mean_low"] == [None, None]


def test_several_classes():
    net = apas.FeedForward([np.eye(3)], [np.zeros(3)], output="softmax")
    rows = np.array([[1.0, 0.5, 0.0]])
    with pytest.raises(Unsupported, match="needs a model with two classes"):
        is_naturally_occurring(net, rows, delta=0.1)
    # the lead over the best other class falls on average
    found = is_naturally_occurring(net, rows, delta=1.0, n_samples=20_000, quantity="margin", target=0, rng=0)
    assert found.verdict is Verdict.REFUTED
    assert found.mean[0] < found.original[0] == 0.5


def test_estimators_and_retrained_models():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(120, 3))
    labels = (table @ [1.0, -1.0, 0.5] + rng.normal(size=120) > 0).astype(int)
    model = LogisticRegression().fit(table, labels)
    later = apas.retrain(model, table, labels, n_models=40, rng=0)
    found = is_naturally_occurring(model, table[:5], apas.ObservedShifts(later))
    assert found.draws == 40
    assert found.original == pytest.approx(model.predict_proba(table[:5])[:, 1])
    assert found.lipschitz_shifted > 0
    network = MLPClassifier((4,), max_iter=20, random_state=0)
    with pytest.warns(match="Maximum iterations"):
        network.fit(table, labels)
    assert is_naturally_occurring(network, table[:2], delta=0.1, rng=0).original == pytest.approx(
        network.predict_proba(table[:2])[:, 1]
    )
    moved = apas.as_model(model, threshold=0.3)
    with pytest.raises(Unsupported, match="the same kind of output and threshold"):
        is_naturally_occurring(moved, table[:5], apas.ObservedShifts(later))
    # the threshold is no part of the output
    assert is_naturally_occurring(moved, table[:5], delta=0.1, rng=0).original == pytest.approx(found.original)


def test_the_result_is_evidence_and_no_yes_or_no():
    found = is_naturally_occurring(BIAS, X, BIASES, delta=2.0, n_samples=20_000, rng=0)
    with pytest.raises(TypeError, match="can only speak against"):
        bool(found)
    assert len(found) == 1
    frame = found.to_frame()
    assert frame.loc[0, "moved"]
    assert list(frame.columns)[:4] == ["original", "mean", "difference", "variance"]
    assert json.loads(json.dumps(found.to_dict()))["draws"] == 20_000
    said = str(found)
    assert said.startswith("REFUTED: on 20000 shifted models")
    assert "on 1 of 1 rows with confidence 0.95" in said
    assert "the t-test, an approximation, rejects equality on 1 at level 0.05" in said


def test_what_makes_no_sense_is_refused():
    for options, message in [
        ({}, "`delta` must be given"),
        ({"delta": -1.0}, "`delta` must be positive"),
        ({"delta": 1.0, "n_samples": 1}, "`n_samples` of is_naturally_occurring must be an integer of at least 2"),
        ({"delta": 1.0, "confidence": 1.0}, "`confidence` of is_naturally_occurring must be"),
        ({"delta": 1.0, "alternative": "other"}, "`alternative` must be one of 'two-sided', 'less', 'greater'"),
        ({"delta": 1.0, "quantity": "score"}, "`quantity` must be one of 'output', 'margin', got 'score'"),
        ({"delta": 1.0, "variance_limit": 0.0}, "`variance_limit` must be a positive number"),
        ({"delta": 1.0, "target": 1}, '`target` goes with quantity="margin"'),
        ({"delta": 1.0, "simultaneous": 1}, "`simultaneous` must be True or False"),
    ]:
        with pytest.raises(InputError, match=message):
            is_naturally_occurring(BIAS, X, BIASES, **options)
    with pytest.raises(InputError, match="must hold at least one row"):
        is_naturally_occurring(BIAS, np.empty((0, 1)), BIASES, delta=1.0)
    with pytest.raises(InputError, match="must number at least 2 here"):
        is_naturally_occurring(BIAS, X, apas.ObservedShifts([BIAS]))
    huge = apas.FeedForward([[[1e200]], [[1e200]]], [[0.0], [0.0]], output="identity")
    with pytest.raises(InputError, match="whose outputs are numbers"):
        is_naturally_occurring(huge, [[1.0]], delta=1.0)
