"""The figures that the paper's authors printed for their own counterfactuals."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from conftest import shared_folder

from apas import FeedForward
from apas.counterfactuals.result import Counterfactuals
from apas.experiments import Preparation, prepare
from apas.metrics import evaluate

METRICS = ("validity", "l1", "l0", "lof", "delta_validity")
#: The row "diabetes MILP-R" of their notebook; its 50 counterfactuals are those of the oracle.
PRINTED = {"found": 1.0, "vm1": 1.0, "vm2": 1.0, "l1": 0.21184, "l0": 0.4150, "lof": -0.48, "delta_validity": 1.0}


@cache
def _prepared(name: str) -> Preparation:
    return prepare(name)


@pytest.fixture
def prepared(monkeypatch):
    monkeypatch.setenv("APAS_DATA", str(shared_folder("datasets")))
    return _prepared


@pytest.mark.parametrize("raw", [False, True], ids=["scaled", "raw"])
def test_diabetes(prepared, oracle, oracle_network, raw):
    """From rows that are scaled already, and from rows in raw units through a space that scales."""
    found = prepared("diabetes")
    points = np.array([entry["x"] for entry in oracle["counterfactuals"]])
    later = FeedForward(oracle["retrained"]["weights"], oracle["retrained"]["biases"])
    if raw:
        X, background, space = found.raw_inputs, found.d1.raw, found.tables.space
        table = space.decode(points).set_axis(X.index)
        given = Counterfactuals.from_frame(oracle_network, X, table, target=1, space=space)
    else:
        background = found.d1.X
        given = Counterfactuals.from_frame(oracle_network, found.inputs, points, target=1)
    measured = evaluate(given, background=background, retrained=[later], metrics=METRICS, delta=found.delta)
    assert measured.summary().to_dict() == pytest.approx(PRINTED, abs=5e-6)


def test_credit_has_72_variables_and_20_features(prepared):
    """Rows of class 1 as counterfactuals, measured on the network's inputs."""
    found = prepared("credit")
    ones = np.flatnonzero(found.network.margin(found.d1.X, 1) >= 0)[:50]
    table = found.d1.raw.iloc[ones].set_axis(found.raw_inputs.index)
    given = Counterfactuals.from_frame(found.network, found.raw_inputs, table, target=1, space=found.tables.space)
    measured = evaluate(given, background=found.d1.raw, retrained=[found.retrained], metrics=METRICS[:4])
    apart = np.abs(found.d1.X[ones] - found.inputs)
    assert apart.shape == (50, 72)
    assert measured.rows["l1"].to_numpy() == pytest.approx(apart.sum(axis=1) / 72)
    changed = (table.to_numpy() != found.raw_inputs.to_numpy()).sum(axis=1)
    assert measured.rows["l0"].tolist() == [round(int(n) / 20, 3) for n in changed]
    assert measured.summary()["vm2"] == pytest.approx((found.retrained.margin(found.d1.X[ones], 1) >= 0).mean())
    assert measured.summary()["lof"] > 0
