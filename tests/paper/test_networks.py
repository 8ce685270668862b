"""The published networks, shifts and inputs come back from the data alone."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from conftest import shared_folder
from sklearn.exceptions import ConvergenceWarning

import apas
from apas.experiments import RECIPES, Preparation, prepare
from apas.paper.networks import fit

#: Accuracy on the rows of D1 held back, on D1, on D2; epochs; delta, delta_max, delta_e, shift over all parameters;
#: class 0, certified and different inputs.
PUBLISHED = {
    "diabetes": ((0.792, 0.812, 0.747), 84, (0.105840, 0.345791, 0.279838, 0.2798), (252, 69, 29)),
    "no2": ((0.640, 0.732, 0.542), 211, (0.020924, 0.114495, 0.071608, 0.1113), (113, 50, 29)),
    "sba": ((0.991, 0.984, 0.963), 82, (0.108212, 0.304981, 0.248135, 0.2481), (178, 113, 43)),
    "credit": ((0.740, 0.782, 0.727), 54, (0.054449, 1.537245, 1.281845, 1.2818), (284, 87, 40)),
}


@cache
def _prepared(name: str, aligned: bool) -> Preparation:
    return prepare(name, aligned=aligned)


@pytest.fixture
def prepared(monkeypatch):
    monkeypatch.setenv("APAS_DATA", str(shared_folder("datasets")))
    return lambda name, aligned=False: _prepared(name, aligned)


def accuracy(network, X, y):
    return float(((network.margin(X, 1) >= 0) == y).mean())


@pytest.mark.parametrize("name", PUBLISHED)
def test_network(prepared, name):
    found, (accuracies, epochs, _, _) = prepared(name), PUBLISHED[name]
    d1, d2, testing = found.d1, found.d2, found.testing
    ours = [accuracy(found.network, X, y) for X, y in ((d1.X[testing], d1.y[testing]), (d1.X, d1.y), (d2.X, d2.y))]
    assert ours == pytest.approx(accuracies, abs=0.00051)
    assert found.estimator.n_iter_ == epochs
    assert sorted([*found.training, *found.testing]) == list(range(len(d1)))
    assert found.name == name
    assert found.network.feature_names == found.tables.inputs


@pytest.mark.parametrize("name", PUBLISHED)
def test_shifts(prepared, name):
    found, (*_, shifts, _) = prepared(name), PUBLISHED[name]
    assert (found.delta, found.delta_max, found.published_shift) == pytest.approx(shifts[:3], abs=1.1e-6)
    assert found.shift == pytest.approx(shifts[3], abs=6e-5)
    assert float(apas.measure_shift(found.network, found.most_shifted)) == found.delta_max


@pytest.mark.parametrize("name", PUBLISHED)
def test_inputs(prepared, name):
    found, (*_, counts) = prepared(name), PUBLISHED[name]
    assert (found.n_class_0, found.n_certified, found.n_distinct) == counts
    assert found.inputs.shape == (50, len(found.tables.inputs))
    assert apas.certify(found.network, found.inputs, found.delta, target=0, method="interval").certified.all()
    encoded = found.tables.space.encode(found.raw_inputs)
    np.testing.assert_array_equal(encoded, found.inputs)


def test_diabetes_networks_are_the_authors(prepared, oracle):
    found = prepared("diabetes")
    for network, theirs in ((found.network, oracle["base"]), (found.retrained, oracle["retrained"])):
        for ours, published in zip(
            [*network.weights, *network.biases], [*theirs["weights"], *theirs["biases"]], strict=True
        ):
            np.testing.assert_allclose(ours, published, rtol=0, atol=5e-7)


def test_credit_rows_put_right(prepared):
    right, published = prepared("credit", aligned=True), prepared("credit")
    assert (right.delta_max, right.published_shift) == pytest.approx((1.684, 1.497), abs=6e-4)
    assert right.delta == pytest.approx(published.delta, abs=1e-6)
    np.testing.assert_array_equal(right.rows, published.rows)


def test_recipes_hold_for_other_data():
    rng = np.random.default_rng(0)
    X = rng.random((40, 3))
    with pytest.warns(ConvergenceWarning):  # what is asked is whether it can be trained
        trained = fit(replace(RECIPES["diabetes"], epochs=9), X, X[:, 0] > 0.5)
    assert trained.coefs_[0].shape == (3, 8)
