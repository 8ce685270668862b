"""Figure 4: the authors' mean deltas with their draws, close to them with ours, and more along rays."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import shared_folder

from apas.paper import figure4
from apas.paper.experiment import Store, run_units

#: Least and largest delta that the authors' notebooks print: in the worst case, and by sampling.
SPREADS = {
    "diabetes": (0.1059, 0.1141, 0.2074, 0.2935),
    "no2": (0.0210, 0.0248, 0.0643, 0.0879),
    "sba": (0.1082, 0.1117, 0.2701, 0.4531),
    "credit": (0.0548, 0.0974, 0.1380, 0.3327),
}
#: The shift that explanations are made for, and the measured ones: of first-layer weights, and of all parameters.
SHIFTS = {
    "diabetes": (0.105840, 0.279838, 0.2798),
    "no2": (0.020924, 0.071608, 0.1113),
    "sba": (0.108212, 0.248135, 0.2481),
    "credit": (0.054449, 1.281845, 1.2818),
}
DIFFERENT = {"diabetes": 29, "no2": 29, "sba": 43, "credit": 40}


@pytest.fixture
def results_of(tmp_path, monkeypatch):
    monkeypatch.setenv("APAS_DATA", str(shared_folder("datasets")))

    def results(*names: str):
        with Store(tmp_path / "results.sqlite") as store:
            return run_units(figure4.units({"quick": True, "datasets": names}), store)

    return results


def check(results, name: str) -> None:
    tables = figure4.tables(results)
    found = tables["figure4-deltas"].set_index("method")
    assert list(found.index) == list(figure4.METHODS)
    mean = found["mean"].astype(float)
    worst, sampled = figure4.DELTAS[name]
    # with the paper's draws
    low, high, sampled_low, sampled_high = SPREADS[name]
    for method, printed, ends in (
        ("worst case, as published", worst, (low, high)),
        ("paper search, its draws", sampled, (sampled_low, sampled_high)),
    ):
        assert mean[method] == pytest.approx(printed, rel=5e-4)
        spread = float(found.loc[method, "least"]), float(found.loc[method, "largest"])
        assert spread == pytest.approx(ends, abs=1.01e-4)
    # with ours
    assert 0 <= mean["worst case"] - mean["worst case, as published"] < 1e-4
    assert mean["paper search, own draws"] == pytest.approx(sampled, rel=0.1)
    assert mean["rays, n = 1379"] == pytest.approx(sampled, rel=0.2)
    assert mean["rays, n = 20,000"] > 1.1 * sampled
    assert found["ratio"].to_numpy() == pytest.approx(mean.to_numpy() / found["paper"].astype(float), rel=1e-4)
    validity = tables["figure4-validity"].set_index("dataset").loc[name]
    assert (validity["inputs"], validity["different"]) == (50, DIFFERENT[name])
    assert (validity["VM1"], validity["VM2"]) == (1.0, 1.0)
    delta, first, everything = SHIFTS[name]
    assert float(validity["delta"]) == pytest.approx(delta, abs=5e-7)
    assert float(validity["first-layer shift"]) == pytest.approx(first, abs=2e-6)
    assert float(validity["shift of all parameters"]) == pytest.approx(everything, abs=5e-5)


@pytest.mark.parametrize("name", ["diabetes", "no2"])
def test_small_networks(results_of, name):
    check(results_of(name), name)


@pytest.mark.validity
@pytest.mark.parametrize("name", ["sba", "credit"])
def test_large_networks(results_of, name):
    check(results_of(name), name)


def test_units():
    full, quick = figure4.units({}), figure4.units({"quick": True})
    assert len(full) == len(quick) == 4 * (1 + len(figure4.METHODS))
    asked = [u.settings for u in full if "method" in u.settings]
    times = {(settings["dataset"], settings["method"]): settings["repetitions"] for settings in asked}
    assert len(times) == 4 * len(figure4.METHODS)
    assert {times["sba", method] for method in figure4.RANDOM} == {10}
    assert times["sba", "worst case"] == 1
    assert {u.data for u in full} == {("diabetes",), ("no2",), ("sba",), ("credit", "credit-new")}


def line(dataset: str, method: str, mean: float) -> dict:
    return {"dataset": dataset, "method": method, "means": [mean - 0.01, mean + 0.01], "mean": mean, "deviation": 0.02,
            "least": mean - 0.05, "largest": mean + 0.05}  # fmt: skip


def test_bars(tmp_path):
    pytest.importorskip("matplotlib").use("agg")
    results = [line(name, method, 0.1) for name in ("diabetes", "no2") for method in figure4.METHODS]
    results.append({"dataset": "no2", "vm1": 1.0, "shift": 0.1113})
    paths = figure4.figures(results, tmp_path)
    assert [path.name for path in paths] == ["figure4.png", "figure4.svg"]
    text = paths[1].read_text()
    for word in ("diabetes", "no2", "retraining moves it by 0.11", "retraining moves it by ?", "rays, n = 20,000"):
        assert word in text


@pytest.mark.usefixtures("results_of")
def test_inputs_count_as_often_as_they_occur():
    """The mean is over the 50 inputs, not over the 29 that differ."""
    preparation, loops, points = figure4._case("diabetes")
    deltas = figure4._deltas(preparation.network, points, "worst case", 0)
    assert loops.times.sum() == 50
    found = figure4.measure("diabetes", "worst case", 1)
    assert found["mean"] == pytest.approx(np.repeat(deltas, loops.times).mean())
    assert found["deviation"] == pytest.approx(np.repeat(deltas, loops.times).std())
    assert found["mean"] != pytest.approx(deltas.mean(), rel=1e-4)
