"""Rows behind cuts: each is certified by `certify` itself, and none is much cheaper."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import apas
from apas import CuttingPlanes, DataChange

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 2))
Y = (X[:, 0] - 0.5 * X[:, 1] + RNG.normal(size=300) > 0).astype(int)
MODEL = LogisticRegression(solver="newton-cholesky", tol=1e-10).fit(X, Y)
KINDS = ("removed", "relabelled", "added", "replaced")


@pytest.mark.parametrize("kind", KINDS)
def test_generated_rows_are_certified(kind):
    change = DataChange(kind, X, Y)
    inputs = X[MODEL.predict(X) == 0][:6]
    delta = {"removed": 6, "relabelled": 3, "added": 2, "replaced": 1}[kind]
    options = {"shifts": change, "method": "refit"}
    found = apas.generate(MODEL, inputs, delta, background=X, source="cuts", **options)
    assert {status.name for status in found.status} == {"FOUND"}
    again = apas.certify(MODEL, found.points, delta, target=1, **options)
    assert all(item.is_certified for item in again)
    assert not any(item.is_certified for item in apas.certify(MODEL, found.points, 20 * delta, target=1, **options))
    plain = apas.generate(MODEL, inputs, 0, background=X)
    assert all(a.cost >= b.cost for a, b in zip(found, plain, strict=True))
    # bound by a whole number of changes, a slightly nearer row is not certified
    nearer = inputs + 0.995 * (found.points - inputs)
    assert not all(item.is_certified for item in apas.certify(MODEL, nearer, delta, target=1, **options))


def test_generate_says_when_no_row_is_certified():
    change = DataChange("added", X, Y)
    found = apas.generate(
        MODEL, X[MODEL.predict(X) == 0][:1], 50, background=X, source="cuts", shifts=change, method="refit"
    )
    assert found.status.tolist()[0].name != "FOUND"
    with pytest.raises(apas.Unsupported, match="concave bound"):
        apas.generate(MODEL, X[MODEL.predict(X) == 0][:1], 0.01, background=X, source="cuts", method="interval")


def test_hidden_layers_stay_while_the_last_one_is_fitted_again():
    net = apas.FeedForward([[[1.0, -1.0], [-0.5, 0.5]], [[2.0], [-2.0]]], [[0.1, 0.1], [0.0]])
    change = DataChange("removed", X, Y)
    theta = change.bind(net).problem.minimiser()
    fitted = net.with_parameters(np.append(net.parameters.values[:-3], theta))
    inputs = X[fitted.margin(X, 1) < -0.1][:4]
    options = {"shifts": change, "method": "refit"}
    found = apas.generate(fitted, inputs, 3, target=1, background=X, source=CuttingPlanes(slack=1e-5), **options)
    assert {status.name for status in found.status} == {"FOUND"}
    assert all(item.is_certified for item in apas.certify(fitted, found.points, 3, target=1, **options))


def test_arguments():
    for options in ({"time_limit": 0}, {"slack": -1.0}):
        with pytest.raises(apas.InputError, match="CuttingPlanes"):
            CuttingPlanes(**options)
