"""Table 2: counted as a plain loop counts, with the weights put back every time, beside the paper's numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from paper_tables import appendix_data
from scipy import stats
from scipy.special import expit

from apas import FeedForward, LinfShifts
from apas._random import Stream
from apas.datasets import data_from
from apas.display.tables import markdown_table
from apas.paper import table2
from apas.paper.experiment import Store, run_experiment, run_units


@pytest.fixture
def net():
    rng = np.random.default_rng(4)
    sizes = [5, 20, 10, 1]
    weights = [rng.normal(size=pair) * 0.4 for pair in zip(sizes, sizes[1:], strict=False)]
    return FeedForward(weights, [rng.normal(size=n) * 0.1 for n in sizes[1:]])


POINTS = np.random.default_rng(5).uniform(size=(3, 5))
SEEDS = [11, 12, 13]


def looped(net, point, draws, delta, seed):
    """Outputs of one shifted network after another, each made from the network itself."""
    theta = net.parameters.values
    directions = LinfShifts().directions(net.parameters, Stream(seed, "natural"), 0, draws)
    shifted = (net.with_parameters(theta + delta * np.asarray(u)) for u in directions)
    return np.array([expit(other.margin(point[None], 1)[0]) for other in shifted])


@pytest.mark.parametrize("delta", [0.05, 0.3])
def test_measured_by_brute_force(net, delta):
    found = table2.measured(net, POINTS, 400, delta, SEEDS)
    for i, (point, seed) in enumerate(zip(POINTS, SEEDS, strict=True)):
        original = expit(net.margin(point[None], 1)[0])
        outputs = looped(net, point, 400, delta, seed)
        assert found["original"][i] == pytest.approx(original, rel=1e-12)
        assert found["mean"][i] == pytest.approx(outputs.mean(), rel=1e-10)
        assert found["difference"][i] == pytest.approx(np.abs(outputs - original).mean(), rel=1e-10)
        test = stats.ttest_1samp(outputs, original)
        assert found["t"][i] == pytest.approx(test.statistic, rel=1e-8)
        assert found["p"][i] == pytest.approx(test.pvalue, rel=1e-8)


def test_a_point_does_not_depend_on_those_before_it(net):
    together = table2.measured(net, POINTS, 200, 0.3, SEEDS)
    for i in range(3):
        alone = table2.measured(net, POINTS[i : i + 1], 200, 0.3, SEEDS[i : i + 1])
        assert {name: values[i : i + 1] for name, values in together.items()} == alone


def result(t, p, **changed):
    facts = {"rows": 9, "features": 5, "epochs": 1, "accuracy": 0.9, "majority": 0.5, "ones": 0.5,
             "explanations": len(t), "different": len(t)}  # fmt: skip
    return {
        "dataset": "spam", "draws": 1000, "delta": 0.1, "network": facts, "original": [0.5] * len(t),
        "mean": [0.5, 0.4, 0.6, 0.7], "difference": [0.1, 0.2, 0.3, 0.4], "t": t, "p": p,
        "shown": [False, False, True, True], **changed,
    }  # fmt: skip


def test_lines_of_the_table():
    """Two-sided 0.08 is one-sided 0.04: rejected by the one-sided test only."""
    found = table2.tables([result([0.0, -1.8, 1.8, 5.0], [1.0, 0.08, 0.08, 1e-6])])
    (line,) = found["table2"].to_dict("records")
    assert line == {
        "dataset": "spam", "n": 1000, "delta": "0.1", "difference": 0.25, "paper": 0.034, "rejected": 0.25,
        "paper rejected": 1.0, "lower": 0.25, "higher": 0.5, "shown": 0.5, "moved": pytest.approx(0.1),
    }  # fmt: skip
    assert found["table2-networks"]["dataset"].tolist() == ["spam"]


def test_sides_are_those_of_the_one_sided_test(net):
    points, seeds = np.random.default_rng(6).uniform(-1, 1, size=(12, 5)), list(range(12))
    found = table2.measured(net, points, 400, 0.2, seeds)
    (line,) = table2.tables([result(found.pop("t"), found.pop("p"), **found)])["table2"].to_dict("records")
    drawn = [looped(net, point, 400, 0.2, seed) for point, seed in zip(points, seeds, strict=True)]
    for column, side in (("lower", "less"), ("higher", "greater")):
        p = [
            stats.ttest_1samp(outputs, original, alternative=side).pvalue
            for outputs, original in zip(drawn, found["original"], strict=True)
        ]
        assert line[column] == np.mean(np.array(p) < 0.05)
        assert line[column] > 0, "there is something to compare"


def test_units(tmp_path):
    with data_from(appendix_data(tmp_path / "data")):  # without the authors' logs beside it
        full, quick = table2.units({}), table2.units({"quick": True})
    asked = {(u.settings["dataset"], u.settings["draws"], u.settings["delta"]) for u in full}
    assert asked == set(table2.PAPER)
    assert len(full) == 24
    assert [dict(u.settings) for u in quick] == [dict(u.settings) for u in full if u.settings["draws"] == 1000]
    assert all(u.data == (u.settings["dataset"],) for u in full)


class OnlyGenerated:
    """The experiment without credit, whose file cannot be made up in a few lines."""

    tables, figures = staticmethod(table2.tables), staticmethod(table2.figures)

    @staticmethod
    def units(settings):
        return [unit for unit in table2.units(settings) if unit.settings["dataset"] != "credit"]


def test_generated_tables(tmp_path):
    with data_from(appendix_data(tmp_path / "data")):
        outcome = run_experiment(OnlyGenerated(), tmp_path / "out", quick=True, label="table2")
        with Store(tmp_path / "out" / "results.sqlite") as store:
            again = run_units(OnlyGenerated.units({"quick": True}), store)
            assert len(store) == len(again) == 8
    assert outcome.without_figures == ""
    assert all(file.stat().st_size > 0 for file in outcome.files)
    assert {file.name for file in outcome.files} == {
        "table2.csv", "table2.md", "table2-networks.csv", "table2-networks.md", "table2.png", "table2.svg",
    }  # fmt: skip
    table = outcome.tables["table2"]
    assert table["difference"].between(0, 1).all()
    for one in again:
        assert json.loads(json.dumps(one)) == one
        assert len(set(one["difference"])) == 10, "every explanation has draws of its own"
        assert one["network"]["explanations"] == 10


def test_the_page_shows_the_results():
    docs = Path(__file__).resolve().parents[2] / "docs"
    page = (docs / "paper.md").read_text(encoding="utf-8")
    for name in ("table2", "table2-networks"):
        table = pd.read_csv(docs / "results" / f"{name}.csv", dtype={"delta": str})
        assert markdown_table(table) in page
    table = pd.read_csv(docs / "results" / "table2.csv")
    assert [tuple(line) for line in table[["dataset", "n", "delta"]].itertuples(index=False)] == list(table2.PAPER)
    large = table[(table["n"] == 10_000) & (table["delta"] >= 0.2)]
    assert (large["rejected"] == 1).all(), "the page says so"
