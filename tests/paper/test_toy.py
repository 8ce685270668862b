"""Section 7.1: the numbers of the paper and of its program, digit by digit, and ours beside them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import shared_folder

from apas.paper import toy
from apas.paper.experiment import Store, run_units


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with Store(tmp_path_factory.mktemp("toy") / "results.sqlite") as store:
        return run_units(toy.units({"quick": True}), store)


@pytest.fixture(scope="module")
def tables(results):
    return toy.tables(results)


def test_network():
    theirs = json.loads((shared_folder("oracle") / "toy.json").read_text())
    for ours, weights in zip(toy.TOY.weights, theirs["network"]["weights"], strict=True):
        assert np.abs(ours - np.array(weights)).max() <= 5e-7
    assert toy.TOY_X.tolist() == [theirs["x"]]
    assert 1 / (1 + np.exp(-toy.TOY.margin(toy.TOY_X, 1))) == pytest.approx(0.70326, abs=1e-5)


def test_deltas(tables):
    found = tables["toy-delta"].set_index("search")
    assert round(float(found.loc["interval", "delta"]), 4) == 0.1090 == float(found.loc["interval", "paper"])
    assert found.loc["paper, its draws", "delta"] == found.loc["paper, its draws", "paper"] == "0.11505"
    assert (
        0.111 < float(found.loc["paper, own draws", "least"]) <= float(found.loc["paper, own draws", "largest"]) < 0.12
    )
    assert 0.265 < float(found.loc["rays", "least"]) <= float(found.loc["rays", "largest"]) < 0.276
    assert found.loc["rays, fewest draws", "draws"] == 88
    # what each claims is true of its delta, as cutting up the box proves
    assert float(found.loc["interval", "share at least"]) == 1.0
    assert float(found.loc["paper, its draws", "share at least"]) > 0.999
    for search in ("rays", "rays, fewest draws"):
        assert float(found.loc[search, "share at least"]) >= 0.9
        assert found.loc[search, "claim"] == "90 % of the shifts, confidence 0.9999"
    assert "per test only" in found.loc["paper, its draws", "claim"]


def test_draws(tables):
    found = tables["toy-draws"]
    assert found["draws stated"].tolist() == [87, 100_000, 1378]
    assert found["draws needed"].tolist() == [88, 875, 1379]
    assert 1 - 0.9**87 < 0.9999 <= 1 - 0.9**88


def test_published_levels(tables):
    """The program's depths 1 to 6, and the paper's seventh with ten parts to come."""
    table = tables["toy-halving"]
    first = table[(table["delta"] == "0.115") & (table["rule"] == "first")]
    assert [float(v) for v in first["valid"]][:7] == [0, 0.5, 0.75, 0.875, 0.875, 0.90625, 0.921875]
    assert {float(v) for v in first["failing"]} == {0.0}
    assert first["halves to look at"].tolist()[5:7] == [6, 10]
    assert float(first["open"].tolist()[5]) == 0.09375
    effect = table[(table["delta"] == "0.115") & (table["rule"] == "effect")]
    assert (effect["valid"].astype(float).to_numpy() >= first["valid"].astype(float).to_numpy()).all()
    assert effect["valid"].tolist()[9] == "0.998046875"


def test_enumeration_needs_fewer_boxes(tables):
    table = tables["toy-enumeration"]
    near = table[table["delta"] == "0.115"]
    assert float(near["share at least"].iloc[0]) > 0.99  # of one box, where the published rule knows nothing
    far = table[table["delta"] == "0.27"]
    assert float(far["share at least"].iloc[-1]) >= 0.9
    for part in (near, far):
        low, high = part["share at least"].astype(float), part["share at most"].astype(float)
        assert (low <= high).all()
        assert (np.diff(high - low) <= 1e-9).all()


def test_figure(results, tmp_path):
    pytest.importorskip("matplotlib").use("agg")
    paths = toy.figures(results, tmp_path / "new")
    assert [path.name for path in paths] == ["toy-halving.png", "toy-halving.svg"]
    before = [path.read_bytes() for path in paths]
    assert "92.1875 %" in paths[1].read_text()
    assert [path.read_bytes() for path in toy.figures(results, tmp_path)] == before
