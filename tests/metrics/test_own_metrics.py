"""Metrics of a user: functions and objects with a name, beside the names that `evaluate` knows."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest

import apas
from apas import Feature, FeatureSpace, FeedForward, InputError
from apas.counterfactuals.result import Counterfactuals
from apas.metrics import evaluate

SPACE = FeatureSpace([Feature("income", low=0, high=2), Feature("savings", low=0, high=2)])
NET = FeedForward([[[1.0], [1.0]]], [[-1.0]], feature_names=SPACE.names)
X = [[0.2, 0.3], [0.3, 0.3], [0.1, 0.1], [0.4, 0.1]]
GAP = [float("nan")] * 2
#: Valid, not valid, not found, valid.
POINTS = [[0.9, 0.3], [0.3, 0.6], GAP, [0.9, 0.9]]


@pytest.fixture
def given():
    return Counterfactuals.from_frame(NET, X, POINTS, space=SPACE)


def squared(inputs):
    """Squared distance in the columns of the model."""
    return np.square(inputs.points - inputs.inputs).sum(axis=1)


class Below:
    """Whether a feature stays below a limit."""

    def __init__(self, feature, limit):
        self.feature, self.limit, self.name = feature, limit, f"{feature} below {limit}"

    def __call__(self, inputs):
        return (inputs.table[self.feature] < self.limit).tolist()


def test_a_function_and_an_object_are_columns_beside_the_known_ones(given):
    found = evaluate(given, metrics=["validity", squared, Below("savings", 0.5), "l1"])
    assert list(found.rows.columns) == ["row", "rank", "found", "valid", "squared", "savings below 0.5", "l1"]
    assert found.metrics == ("validity", "squared", "savings below 0.5", "l1")
    by_hand = [np.square(np.subtract(p, x)).sum() for p, x in zip(POINTS, X, strict=True)]
    np.testing.assert_allclose(found.rows["squared"], by_hand)
    assert found.rows["savings below 0.5"].tolist()[:2] == [True, False]
    assert found.rows["savings below 0.5"].isna().tolist() == [False, False, True, False]


def test_the_summary_is_the_mean_over_the_valid_ones(given):
    found = evaluate(given, metrics=[squared, Below("savings", 0.5)])
    summary = found.summary()
    assert list(summary.index) == ["found", "squared", "savings below 0.5"]
    assert summary["squared"] == pytest.approx((0.7**2 + 0.5**2 + 0.8**2) / 2)  # rows 0 and 3
    assert summary["savings below 0.5"] == 0.5
    assert "savings below 0.5 0.5." in str(found)


def test_written_and_compared(given):
    found = evaluate(given, metrics=[squared, Below("savings", 0.5)])
    written = found.to_dict()
    assert written["metrics"] == ["squared", "savings below 0.5"]
    assert [line["savings below 0.5"] for line in written["counterfactuals"]] == [True, False, None, False]
    assert written["entropy"] is None
    assert found == evaluate(given, metrics=(squared, Below("savings", 0.5), squared))
    assert found != evaluate(given, metrics=(squared, Below("savings", 0.2)))
    assert found.to_frame()["squared"].equals(found.rows["squared"])


def test_what_a_metric_is_given(given):
    seen = {}

    def curious(inputs):
        seen.update(vars(inputs), points=inputs.points, found=inputs.found)
        return np.zeros(len(inputs.found))

    later = FeedForward([[[1.0], [1.0]]], [[-1.1]], feature_names=SPACE.names)
    evaluate(given, metrics=[curious], background=X, retrained=[later], delta=0.1, rng=7)
    assert len(seen["found"]) == 3
    assert seen["points"].tolist() == [p for p in POINTS if p is not GAP]
    assert seen["background"].tolist() == X
    assert len(seen["retrained"]) == 1
    assert (seen["delta"], seen["entropy"]) == (0.1, 7)


def test_a_metric_that_draws_has_its_entropy_recorded(given):
    class Drawn:
        name, draws = "drawn", True

        def __call__(self, inputs):
            return np.random.default_rng(inputs.entropy).random(len(inputs.found))

    first = evaluate(given, metrics=[Drawn()])
    assert first.entropy is not None
    assert first == evaluate(given, metrics=[Drawn()], rng=first.entropy)
    assert first != evaluate(given, metrics=[Drawn()])


def test_nothing_found():
    nothing = Counterfactuals.from_frame(NET, X[:2], [GAP, GAP], space=SPACE)
    found = evaluate(nothing, metrics=[squared])
    assert found.rows["squared"].isna().all()
    assert np.isnan(found.summary()["squared"])


def test_on_what_generate_gives():
    found = apas.generate(NET, X[:2], 0.05, space=SPACE, k=2, rng=0)
    rows = evaluate(found, metrics=[squared]).rows
    assert rows["squared"].notna().tolist() == found.found.tolist()


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda inputs: 0, "must have a name for its column, got '<lambda>'; set its `name`."),
        (partial(squared), "must have a name for its column, got None; set its `name`."),
        (Below, "`metrics` must be out of 'validity', "),
        (3, "`metrics` must be out of 'validity', "),
    ],
)
def test_what_is_no_metric(given, metric, message):
    with pytest.raises(InputError, match=re.escape(message)):
        evaluate(given, metrics=[metric])


@pytest.mark.parametrize("name", ["l1", "validity", "valid", "found", "row", "valid_retrained_3", "vm1", "vm2_0"])
def test_names_that_are_taken(given, name):
    metric = Below("savings", 0.5)
    metric.name = name
    with pytest.raises(InputError, match=f"must not be called '{name}', as a column of apas is; rename it"):
        evaluate(given, metrics=[metric])


def test_two_of_one_name(given):
    one, two = Below("savings", 0.5), Below("savings", 0.5)
    with pytest.raises(InputError, match="must have different names, got 'savings below 0.5' for two metrics"):
        evaluate(given, metrics=[one, two])


@pytest.mark.parametrize(
    ("values", "got"),
    [
        (0.5, r"shape \(\) of type float64"),
        ([1.0, 2.0], r"shape \(2,\)"),
        ([[1.0]] * 3, r"shape \(3, 1\)"),
        (["a", "b", "c"], "of type <U1"),
        ([1j, 2j, 3j], "of type complex128"),
        (None, "of type object"),
    ],
)
def test_what_it_returns(given, values, got):
    def strange(inputs):
        return values

    with pytest.raises(InputError, match=rf"the metric 'strange' must return a number .* shape \(3,\), .*{got}"):
        evaluate(given, metrics=[strange])
