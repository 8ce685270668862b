"""One pass over the table of leaves gives the margins that the models themselves give after every move."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import library
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from tree_refits import Problem, behind_encoder, loans

import apas
from apas.counterfactuals.search.leaf_table import THRESHOLDS, LeafTable, RowGrid, grid_values
from apas.counterfactuals.sources.base import Search, Task


def check_all_moves(problem: Problem, tolerance: float, probability: bool = False) -> None:
    table = problem.table()
    assert table is not None
    rng = np.random.default_rng(1)
    for row in range(2):
        grid, passes = problem.sweeps(table, row)
        for _ in range(3):
            state = np.array([rng.integers(n) for n in grid.sizes])
            found, rows = passes.margins(state), grid.moves(state)
            assert problem.space.allowed(rows, np.tile(problem.inputs[row], (len(rows), 1))).all()
            said = np.array([Task(m, problem.space).margins(rows, 1) for m in problem.refits])
            said = 1 / (1 + np.exp(-said)) - 0.5 if probability else said
            np.testing.assert_allclose(found, said, rtol=tolerance, atol=tolerance)


def test_boosted_trees_behind_an_encoder():
    check_all_moves(Problem(behind_encoder(GradientBoostingClassifier(n_estimators=10)), *loans(), 3), 1e-9)


def test_forests_behind_an_encoder():
    check_all_moves(Problem(behind_encoder(RandomForestClassifier(8, max_depth=5)), *loans(), 3), 1e-9, True)


def bent(X):
    return np.log1p(np.asarray(X, dtype=float).clip(0) / 100) * (1 + (np.asarray(X, dtype=float) > 2990.5))


def test_columns_that_bend_are_encoded_value_by_value():
    columns = make_column_transformer(
        (FunctionTransformer(bent), ["income"]), (StandardScaler(), ["cards", "debt", "age"])
    )
    estimator = make_pipeline(columns, GradientBoostingClassifier(n_estimators=10))
    check_all_moves(Problem(estimator, *loans(), 3), 1e-9)


def test_thresholds_that_are_rare_stay_on_the_grid():
    space = apas.FeatureSpace([apas.Feature("gain", "integer", low=0, high=99_999)])
    model = apas.FeedForward([[[1.0]]], [[0.0]], feature_names=("gain",))
    dense = np.repeat(np.arange(100, 400) + 0.5, 50)
    values, common = grid_values(Task(model, space), np.zeros((1, 1)), [np.append(dense, 90_000.5)])
    assert len(values[0]) <= 2 * THRESHOLDS + 1
    assert common[0][1:].all()
    assert {90_000.0, 90_001.0} <= set(values[0].tolist())  # quantiles alone would end at 399


def with_gaps():
    frame, y = loans()
    frame = frame.assign(home=frame["home"].astype("category"), cards=frame["cards"].astype(float))
    frame.loc[::3, "debt"] = np.nan
    frame.loc[::5, "home"] = np.nan
    return frame, y


@pytest.mark.parametrize("name", ["histograms", "xgboost", "lightgbm"])
def test_categories_and_missing_cells_as_they_are(name):
    if name == "histograms":
        kind = HistGradientBoostingClassifier(max_iter=10, categorical_features="from_dtype")
    elif name == "xgboost":
        kind = library(name).XGBClassifier(n_estimators=10, max_depth=3, n_jobs=1, enable_categorical=True)
    else:
        kind = library(name).LGBMClassifier(n_estimators=10, num_leaves=8, verbose=-1, n_jobs=1, min_data_per_group=5)
    problem = Problem(kind, *with_gaps(), 3, rows=8)
    assert np.isnan(problem.inputs).any()
    check_all_moves(problem, 5e-6 if name == "xgboost" else 1e-9)


@pytest.mark.parametrize(("imputer", "mixes"), [(SimpleImputer(), False), (KNNImputer(n_neighbors=3), True)])
def test_an_imputer_that_mixes_features_is_not_read(imputer, mixes):
    frame, y = loans()
    frame = frame.assign(home=(frame["home"] == "own").astype(float), debt=frame["debt"].where(frame.index % 3 > 0))
    kind = make_pipeline(imputer, StandardScaler(), HistGradientBoostingClassifier(max_iter=10))
    problem = Problem(kind, frame, y, 2, rows=8)
    assert np.isnan(problem.inputs).any()
    assert (problem.table() is None) == mixes


def test_columns_that_mix_features_are_not_read():
    def mixed(X):
        X = np.asarray(X, dtype=float)
        return np.column_stack([X, X[:, 0] * X[:, 3]])

    frame, y = loans()
    frame["home"] = (frame["home"] == "own").astype(int)
    problem = Problem(
        make_pipeline(FunctionTransformer(mixed), GradientBoostingClassifier(n_estimators=3)), frame, y, 2
    )
    assert problem.table() is None


def test_a_table_that_differs_from_its_models_is_not_used(monkeypatch):
    problem = Problem(behind_encoder(GradientBoostingClassifier(n_estimators=5)), *loans(), 2)
    read = type(apas.as_model(problem.estimator[-1])).trees

    def wrong(self):
        trees = read(self)
        trees.value[:] = -trees.value
        return trees

    assert problem.table() is not None
    monkeypatch.setattr(type(apas.as_model(problem.estimator[-1])), "trees", wrong)
    problem.refits = [apas.as_model(m.estimator) for m in problem.refits]
    assert problem.table() is None


def test_the_grid_of_a_row_does_not_depend_on_other_rows():
    problem = Problem(behind_encoder(GradientBoostingClassifier(n_estimators=5)), *loans(), 2)
    alone = LeafTable.of(problem.task, list(problem.refits), problem.inputs[1:2])
    assert alone is not None
    grids = [RowGrid(Search(problem.task, 1, problem.inputs[1], 1), t.grid) for t in (problem.table(), alone)]
    np.testing.assert_array_equal(grids[0].values, grids[1].values)
