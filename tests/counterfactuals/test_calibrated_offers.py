"""Offers calibrated as a family over a grid."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import apas
from apas import Feature, FeatureSpace, FeedForward, InputError
from apas.contracts.certificate_file import content_digest

BASE = FeedForward([[[1.0], [1.0]]], [[-1.0]], feature_names=("income", "savings"))
SPACE = FeatureSpace([Feature(name, low=0, high=4) for name in BASE.feature_names])
GRID = (0.01, 0.05, 0.2)
X = [[0.2, 0.3], [0.1, 0.1]]


def shifted(*biases):
    return [FeedForward([[[1.0], [1.0]]], [[float(-1 - b)]], feature_names=BASE.feature_names) for b in biases]


def calibrated(updates, **options):
    how = {"confidence": None, "space": SPACE, "method": "interval", "rng": 0, **options}
    return apas.calibrate_offers(BASE, X, updates, GRID, **how)


def test_the_least_delta_above_the_threshold_is_taken(tmp_path):
    # offers at 0.01, 0.05 and 0.2 have margins of a few times that
    lists = [apas.generate(BASE, X, d, space=SPACE, method="interval", rng=0).points for d in GRID]
    margins = [float(BASE.margin(np.asarray(points), 1).min()) for points in lists]
    updates = shifted(*np.linspace(0.001, 0.9 * margins[0], 8), 0.5 * (margins[0] + margins[1]))
    found = calibrated(updates)
    assert found.claim.worst == (-math.inf,) * 8 + (0.01,)
    assert found.delta == 0.05
    assert found.certified.all()
    assert np.allclose(found.points, lists[1])
    assert "all 2 offers at the least delta of the grid above 0.01" in str(found.claim)
    assert found.offers[0].certificate.delta == 0.05
    path = tmp_path / "c.json"
    apas.save_certificates(found, path)
    assert apas.verify(path, BASE, models=updates).ok
    content = json.loads(path.read_text())
    for entry in content["certificates"]:
        del entry["certificate"]["claim"]["score"]["grid"]
    other = tmp_path / "forged.json"
    other.write_text(json.dumps({**content, "digest": content_digest(content)}))
    with pytest.raises(apas.ApasError, match="grid"):
        apas.load_certificates(other)
    assert not apas.audit(found, updates[-1], base=BASE, repairs=False).broken.any()


def test_no_delta_of_the_grid_certifies_nothing():
    found = calibrated(shifted(*np.linspace(2.0, 3.0, 9)))
    assert found.delta == math.inf
    assert not found.certified.any()
    assert found.scores.tolist() == [0.2, 0.2]


def test_what_is_not_found_at_the_delta_is_not_taken_from_a_larger_one(monkeypatch):
    """Delta and rows must be those of one list, also if a search finds nothing there and something beyond."""
    from apas.counterfactuals import api

    updates, generate = shifted(*np.linspace(0.001, 0.002, 9)), apas.generate

    def sometimes(model, X, delta, **search):
        found = generate(model, X, delta, **search)
        return found[np.zeros(len(found), dtype=bool)] if delta == GRID[0] else found

    monkeypatch.setattr(api, "generate", sometimes)
    found = calibrated(updates)
    assert found.delta == GRID[0]
    assert len(found) == 0


def test_spaces_that_encode_bind_the_updates():
    rng = np.random.default_rng(0)
    space = FeatureSpace([Feature("income", low=0, high=4), Feature("house", "categorical", values=("rent", "own"))])
    table = space.table(np.column_stack([4 * rng.random(200), rng.integers(0, 2, 200)]))
    rows, y = space.encode(table), (table["income"] + (table["house"] == "own") > 2).astype(int).to_numpy()
    base, *updates = (LogisticRegression().fit(rows[i], y[i]) for i in rng.integers(0, 200, (10, 200)))
    rejected = table[base.predict(rows) == 0].head(2)
    found = apas.calibrate_offers(base, rejected, updates, [0.1, 0.5], confidence=None, space=space, target=1, rng=0)
    assert list(found.points.columns) == ["income", "house"]
    assert found.claim.score == {"kind": "offers", "grid": [0.1, 0.5]}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"grid": []}, "grid"),
        ({"grid": [0.1, 0.1]}, "different"),
        ({"grid": [-0.1]}, "at least 0"),
        ({"updates": [BASE, *shifted(*range(1, 10))]}, "the model itself"),
        ({"updates": [(BASE, update) for update in shifted(*range(1, 10))]}, "calibrate_delta takes pairs"),
        ({"updates": shifted(1)}, "at least 9"),
    ],
)
def test_what_makes_no_sense_is_refused(options, said):
    asked = {"updates": shifted(*range(1, 10)), "grid": GRID, **options}
    with pytest.raises(InputError, match=said):
        apas.calibrate_offers(BASE, X, asked["updates"], asked["grid"], confidence=None, space=SPACE)
