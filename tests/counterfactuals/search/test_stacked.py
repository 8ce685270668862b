"""Networks side by side: the margins of each by itself, in every layout and arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import apas
from apas._random import Stream
from apas.counterfactuals.search import stacked, tests as search_tests
from apas.counterfactuals.search.stacked import DrawnModels, NetworkStack, quick_encoder
from apas.counterfactuals.search.tests import CertifyingTest
from apas.counterfactuals.sources.base import Task


def network(sizes, output="sigmoid", activation="relu"):
    rng = np.random.default_rng(0)
    shapes = list(zip(sizes, sizes[1:], strict=False))
    weights, biases = [rng.normal(size=s) for s in shapes], [rng.normal(size=b) for _, b in shapes]
    return apas.FeedForward(weights, biases, output=output, activation=activation)


@pytest.mark.parametrize(
    ("sizes", "output"),
    [
        ((5, 1), "sigmoid"),
        ((5, 3), "softmax"),
        ((5, 7, 1), "sigmoid"),
        ((5, 7, 4, 3), "softmax"),
        ((5, 4, 2), "softmax"),
    ],
)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("float32", [False, True])
def test_the_margins_are_those_of_each_network(sizes, output, activation, float32, monkeypatch):
    monkeypatch.setattr(stacked, "CACHED", 100)  # several blocks
    monkeypatch.setattr(stacked, "LARGE", 0 if float32 else 10**9)
    net = network(sizes, output, activation)
    directions = apas.LinfShifts().directions(net.parameters, Stream(0, "test"), 0, 130)
    moved = net.parameters.values + 0.2 * directions
    stack, X = NetworkStack.of(net, [moved[:50], moved[50:]], 130), np.random.default_rng(1).normal(size=(9, 5))
    slowly = net.shifted_margins(X, 1, directions, 0.2)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if float32 else {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(stack.margins(X, 1), slowly, **tolerance)
    some = np.array([3, 77, 129])
    np.testing.assert_allclose(stack.take(some, np.float64).margins(X, 1), slowly[some], **tolerance)
    assert len(stack) == 130
    assert len(stack.take(some)) == 3


def search_test(delta=0.1, **changes):
    net = network((4, 6, 1))
    space = apas.FeatureSpace([apas.Feature(f"f{i}", low=0, high=1) for i in range(4)])
    test = CertifyingTest(Task(space.bind(net), space), apas.LinfShifts(), apas.Sampling(), 0)
    return replace(test, **changes), test.for_search(1, delta)


def test_what_does_not_fit_is_drawn_again_and_says_the_same(monkeypatch):
    points = np.random.default_rng(2).random((5, 4))
    test, kept = search_test()
    assert isinstance(test.search_models(0.1), NetworkStack)
    slacks, near = kept.slacks(points), kept.near(points[0]).slacks(points)
    monkeypatch.setattr(search_tests, "HELD", 1000)
    again, drawn = search_test()
    models = again.search_models(0.1)
    assert isinstance(models, DrawnModels)
    assert models.directions is None
    # float32 on one side, the band of rounding on the other
    np.testing.assert_allclose(drawn.slacks(points), slacks, atol=1e-5)
    np.testing.assert_allclose(drawn.near(points[0]).slacks(points), near, atol=1e-5)


def test_several_deltas_share_the_memory(monkeypatch):
    test, _ = search_test()
    numbers = test.allowance[0] * len(test.task.model.parameters)
    monkeypatch.setattr(search_tests, "HELD", numbers)
    assert isinstance(test.search_models(0.1), NetworkStack)
    assert isinstance(search_test(n_deltas=2)[0].search_models(0.2), DrawnModels)


class Counted:
    """Models that count how often they are asked."""

    def __init__(self):
        self.asked = 0

    def margins(self, points, target):
        self.asked += 1
        return np.repeat(points[:, 0][None], 50, axis=0)

    def take(self, places, dtype=None):
        return self


def test_the_last_point_is_looked_at_once():
    models = Counted()
    search = replace(search_test()[1], some=models, samples=50, rank=0)
    one, other = np.full((1, 4), 0.5), np.full((1, 4), 0.7)
    assert search.slacks(one) == search.slacks(one) == 0.5
    assert search.with_more_slack(1.0).slacks(one) == -0.5
    assert models.asked == 1
    assert search.slacks(other) == 0.7
    assert models.asked == 2


@pytest.mark.parametrize(("imputer", "times"), [(SimpleImputer(), 2), (KNNImputer(n_neighbors=2), 10)])
def test_rows_with_missing_cells_are_sums_of_parts_unless_the_imputer_mixes_features(imputer, times, monkeypatch):
    draws = np.random.default_rng(0)
    table = pd.DataFrame(draws.normal(size=(60, 3)), columns=list("abc"))
    table = table.mask(draws.random(table.shape) < 0.2)
    model = make_pipeline(imputer, LogisticRegression()).fit(table, draws.random(60) < 0.5)
    space = apas.FeatureSpace.from_frame(table, immutable=["c"])
    task, asked, whole = Task(space.bind(model), space), [], Task.encoded
    monkeypatch.setattr(Task, "encoded", lambda self, rows: asked.append(len(rows)) or whole(self, rows))
    encoded = quick_encoder(task)
    rows = np.array([[np.nan, 0.1, 0.5], [np.nan, 0.8, 0.5], [0.2, 0.1, np.nan], [-0.7, 0.9, np.nan]])
    asked.clear()
    for _ in range(4):
        assert np.allclose(encoded(rows), whole(task, rows))
    assert len(asked) == times  # for each kind of row once; else each time
    alone = quick_encoder(Task(space.bind(model), space))  # one row by itself shows nothing of what is mixed
    for row in rows:
        assert np.allclose(alone(row[None]), whole(task, row[None]))
    assert np.allclose(alone(rows), whole(task, rows))
