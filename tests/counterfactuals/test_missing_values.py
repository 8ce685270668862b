"""Rows with missing cells, where the model takes them: spaces, searches, certificate files, distances and noise."""

import numpy as np
import pandas as pd
import pytest
from conftest import spread
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.neighbors import KNeighborsClassifier

import apas
from apas.counterfactuals.sources.base import Search, Task
from apas.counterfactuals.sources.neighbours import NearestNeighbours
from apas.metrics.distance import cost, violations
from apas.models.predictor import Predictor

RNG = np.random.default_rng(3)
TABLE = pd.DataFrame({"income": RNG.normal(40, 10, 120).round(1), "debt": RNG.normal(10, 5, 120).round(1)})
PAID = np.where(TABLE["income"] - TABLE["debt"] > 30, 1, 0)
HOLES = TABLE.assign(debt=TABLE["debt"].where(np.arange(120) % 4 > 0))
JOBS = apas.Feature("job", "categorical", values=("office", "trade"))
SPACE = apas.FeatureSpace([apas.Feature("income", low=0, high=100), apas.Feature("debt", low=0, high=50), JOBS])


def fitted(seed):
    rows = np.random.default_rng(seed).integers(0, 120, 120)
    return HistGradientBoostingClassifier(max_iter=3, random_state=seed).fit(HOLES.iloc[rows], PAID[rows])


def score(rows):
    """Counts income alone, and more where the job is not known."""
    known = rows["job"].notna().to_numpy()
    return rows["income"].to_numpy(float) - np.nan_to_num(rows["debt"].to_numpy(float)) - np.where(known, 40.0, 30.0)


MODEL = Predictor(score, output="score", classes=(0, 1), feature_names=SPACE.names)
ROWS = pd.DataFrame({"income": [20.0, 34.0], "debt": [np.nan, 5.0], "job": ["trade", None]})


def test_missing_cells_stay_or_get_a_value():
    nothing, number = np.array([np.nan]), np.array([10.0])
    for feature, value in ((SPACE["income"], 10.0), (JOBS, 1.0)):
        one = np.array([value])
        assert np.isnan(feature.snapped(nothing, nothing)[0])
        assert feature.snapped(one, nothing)[0] == value
        assert feature.snapped(nothing, one)[0] == value  # nothing becomes missing
        assert feature.allows(nothing, nothing)[0]
        assert feature.allows(one, nothing)[0]
        assert not feature.allows(nothing, one)[0]
        assert [
            float(feature.differences(a, b)[0]) for a, b in ((nothing, nothing), (one, nothing), (nothing, one))
        ] == [0.0, 1.0, 1.0]
    fixed = apas.Feature("age", low=0, high=50, mutable=False)
    assert np.isnan(fixed.snapped(number, nothing)[0])
    assert not fixed.allows(number, nothing)[0]
    rising = apas.Feature("age", low=0, high=50, direction="increase")  # from what, nobody knows
    assert np.isnan(rising.snapped(number, nothing)[0])
    assert not rising.allows(number, nothing)[0]


def test_costs():
    points = ROWS.assign(income=[30.0, 34.0], job=["trade", "office"])
    assert cost(SPACE, ROWS, points).round(12).tolist() == [round(0.1 / 3, 12), round(1 / 3, 12)]
    assert violations(SPACE, ROWS, points).tolist() == [0.0, 0.0]
    assert violations(SPACE, points, ROWS).tolist() == [0.0, 1.0]  # a job that becomes missing
    empty = points.assign(income=[np.nan, 34.0], job=[None, "office"])
    assert np.isnan(cost(SPACE, ROWS, empty)[0])  # a row without any value is no counterfactual
    assert np.isnan(SPACE.costs(np.full((1, 3), np.nan), np.array([[20.0, np.nan, 1.0]]))[0])


def test_missing_as_a_level(tmp_path):
    table = ROWS.assign(job=["trade", "office"])
    space = apas.FeatureSpace.from_frame(pd.concat([table, ROWS], ignore_index=True), missing=["job"])
    assert space["job"].values == ("office", "trade", None)
    assert apas.FeatureSpace.from_dict(space.to_dict()) == space
    space.to_toml(tmp_path / "space.toml")
    assert apas.FeatureSpace.from_toml(tmp_path / "space.toml") == space
    numbers = space.numbers(ROWS.fillna({"debt": 1.0}))
    assert numbers[:, 2].tolist() == [1.0, 2.0]
    only = space.table(numbers[1:])  # one cell, which is missing, in a column of texts
    assert only["job"].isna().all()
    assert only["job"].dtype == table["job"].dtype
    assert space.coding.names[-3:] == ("job_office", "job_trade", "job_nan")
    assert violations(space, table, ROWS.assign(debt=table["debt"])).tolist() == [0.0, 0.0]


def test_a_cell_may_become_missing_where_that_is_a_level():
    wide = [apas.Feature("income", low=0, high=100, mutable=False), apas.Feature("debt", low=0, high=50, mutable=False)]
    space = apas.FeatureSpace([*wide, apas.Feature("job", "categorical", values=("office", "trade", None))])
    rows = pd.DataFrame({"income": [37.0], "debt": [5.0], "job": ["trade"]})
    answer = {"target": 1, "shifts": apas.ObservedShifts([MODEL]), "method": "exact", "source": "neighbours"}
    known = pd.concat([rows, rows.assign(job="office"), rows.assign(job=None)], ignore_index=True)
    found = apas.generate(MODEL, rows, None, space=space, background=known, **answer)
    assert found.to_frame()["changes"].tolist() == ["job trade -> missing"]
    kept = apas.generate(MODEL, rows, None, space=apas.FeatureSpace([*wide, JOBS]), background=known, **answer)
    assert not kept.found.any()


@pytest.mark.parametrize("source", spread([apas.Wachter(iterations=200, patience=20), "prototype", "roar"], 2), ids=str)
def test_descents_choose_among_categories_that_a_model_reads_as_they_are(source):
    jobs = apas.Feature("job", "categorical", values=("none", "office", "trade"))
    rents = apas.Feature("home", "binary", values=("rent", "own"))
    space = apas.FeatureSpace([apas.Feature("income", low=0, high=100, mutable=False), jobs, rents])

    def rule(rows):
        return 2.0 * (rows["job"] == "trade").to_numpy() + (rows["home"] == "own").to_numpy() - 2.5

    model = Predictor(rule, output="score", classes=(0, 1), feature_names=space.names)
    known = pd.DataFrame({"income": 40.0, "job": ["none", "office", "trade", "trade"], "home": ["own", "rent"] * 2})
    answer = {"target": 1, "shifts": apas.ObservedShifts([model]), "method": "exact", "source": source, "rng": 0}
    found = apas.generate(model, known.iloc[[1]], None, space=space, background=known.iloc[[0, 1, 2, 2, 2]], **answer)
    assert found.to_frame()["changes"].tolist() == ["job office -> trade, home rent -> own"]


def test_a_model_that_takes_no_missing_cells_is_not_offered_them():
    nearest = KNeighborsClassifier(3).fit([[0.0], [1.0], [2.0]], [0, 1, 1])
    space = apas.FeatureSpace([apas.Feature("code", "categorical", values=(0, 1, None), code="onehot")])
    with pytest.raises(
        apas.InputError, match="`space` must have kinds and levels that the model knows, .* contains NaN"
    ):
        space.bind(nearest)


@pytest.mark.parametrize("holes", [True, False])
def test_neighbours_of_a_row_with_a_missing_cell_come_in_the_order_of_their_costs(holes):
    background = np.stack([RNG.uniform(0, 100, 60), RNG.uniform(0, 50, 60), RNG.integers(0, 2, 60)], axis=1)
    if holes:
        background[::3, 1] = np.nan
        background[::5, 2] = np.nan
    task = Task(MODEL, SPACE, background=background)
    for start in ([20.0, np.nan, 1.0], [20.0, 30.0, 1.0], [20.0, np.nan, np.nan]):
        search = Search(task, 0, np.array(start), 1)
        points = [c.point for c in NearestNeighbours().candidates(search)]
        costs = [search.cost(p) for p in points]
        assert costs == sorted(costs)
        inputs = np.tile(search.input, (60, 1))
        moved = SPACE.snapped(background, inputs)
        wanted = moved[task.valid(background, 1) & task.valid(moved, 1)]
        assert costs[0] == min(search.cost(p) for p in wanted)
        assert len(points) == len(np.unique(wanted, axis=0))


def test_generate_save_and_verify(tmp_path):
    base, models = fitted(0), [fitted(seed) for seed in range(1, 25)]
    inputs = HOLES[base.predict(HOLES) == 0].head(8)
    assert inputs["debt"].isna().any()
    options = {"background": HOLES, "source": "neighbours", "method": apas.Sampling(coverage=0.7, confidence=0.8)}
    found = apas.generate(base, inputs, None, shifts=apas.ObservedShifts(models), **options)
    rows = found.found & inputs["debt"].isna().to_numpy()
    assert rows.any()
    assert found.points["debt"][rows].isna().any()  # a missing cell may stay
    apas.save_certificates(found, tmp_path / "c.json")
    read = apas.load_certificates(tmp_path / "c.json")
    assert read == found.certificates
    pd.testing.assert_frame_equal(read.points, found.certificates.points)
    assert apas.verify(tmp_path / "c.json", base, models=list(found.certificates.shifts.models)).ok
    assert apas.evaluate(found, background=HOLES, metrics=("validity", "l1", "l0", "lof", "cost")).summary()["vm1"] == 1


def test_words_and_refusals():
    found = apas.Counterfactuals.from_frame(
        MODEL, ROWS, ROWS.assign(debt=[3.0, 5.0], job="trade"), target=1, space=SPACE
    )
    assert found.changes().tolist() == ["debt missing -> 3", "job missing -> trade"]
    with pytest.raises(apas.Unsupported, match="every cell for Wachter.*neighbours"):
        apas.generate(
            MODEL, ROWS, 1, space=SPACE, target=1, source="wachter", shifts=apas.InputNoise(features=["income"])
        )
    network = apas.FeedForward([np.ones((2, 1))], [[0.0]], feature_names=("income", "debt"))
    with pytest.raises(apas.InputError, match="finite numbers in column 'debt', which is continuous, but row 0 is nan"):
        apas.generate(network, ROWS[["income", "debt"]], 0.1, background=TABLE)
    empty = apas.FeatureSpace([*SPACE.features])
    with pytest.raises(apas.InputError, match="finite numbers in column 'income'"):  # a row without any value
        apas.generate(MODEL, ROWS.assign(income=np.nan, debt=np.nan, job=None), 1, space=empty, target=1)


def test_noise_moves_numbers_in_raw_units_and_no_category():
    rows = pd.DataFrame({"income": [47.0, 60.0], "debt": [5.0, 5.0], "job": ["trade", "office"]})
    noise = apas.InputNoise(features=["income"])
    found = apas.certify(MODEL, rows, 3.0, target=1, shifts=noise, rng=0)
    assert found.certified.tolist() == [False, True]  # a margin of 2 does not stand 3 units of income
    assert "one feature (income) of the row moves by at most delta;" in found[0].claim.measure
    for shifts, row in ((apas.InputNoise(), rows), (apas.InputNoise(features=["debt"]), ROWS.assign(income=90.0))):
        name = "job" if shifts.features is None else "debt"
        with pytest.raises(
            apas.InputError, match=f"`features` of InputNoise must name columns of numbers, but '{name}'"
        ):
            apas.certify(MODEL, row, 3.0, target=1, shifts=shifts, rng=0)


@pytest.mark.parametrize("source", ["neighbours", "robust"])
def test_categories_given_as_codes_for_an_embedding(source, tmp_path):
    torch = pytest.importorskip("torch")

    class Embedded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.levels, self.linear = torch.nn.Embedding(4, 2), torch.nn.Linear(3, 1)

        def forward(self, x):
            return self.linear(torch.cat([x[:, :1], self.levels(x[:, 1].long())], 1))

    torch.manual_seed(0)
    model = apas.as_model(Embedded().eval(), output="logit", input_shape=(2,), feature_names=["a", "code"])
    table = pd.DataFrame({"a": RNG.normal(size=40), "code": pd.Categorical(RNG.integers(0, 4, 40))})
    space = apas.FeatureSpace.from_frame(table)
    assert (space["code"].kind, space["code"].values) == ("categorical", (0, 1, 2, 3))
    rows = table[model.margin(table.to_numpy(dtype=float), 1) < 0].head(2)
    found = apas.generate(model, rows, 0.001, space=space, background=table, source=source, target=1, rng=0)
    assert found.found.all()
    assert set(found.points["code"]) <= {0, 1, 2, 3}
    apas.save_certificates(found, tmp_path / "c.json")
    assert apas.load_certificates(tmp_path / "c.json") == found.certificates
    assert apas.verify(tmp_path / "c.json", model).ok
