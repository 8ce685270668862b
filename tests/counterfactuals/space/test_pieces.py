"""What each feature adds to the columns of a model, for codings and for scikit-learn's preprocessing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from enumerable_problems import random_problem
from sklearn.compose import ColumnTransformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)

from apas import FeedForward
from apas.counterfactuals.sources.base import Task
from apas.counterfactuals.space.encoder import pieces_of
from apas.counterfactuals.space.feature import Feature
from apas.counterfactuals.space.space import FeatureSpace


def table(rows: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "income": rng.uniform(0, 9000, rows),
            "age": rng.integers(18, 90, rows),
            "rooms": rng.integers(1, 9, rows),
            "grade": rng.choice(["low", "middle", "high"], rows),
            "housing": rng.choice(["own", "rent", "free"], rows),
        }
    )


def space_of(frame: pd.DataFrame, **options) -> FeatureSpace:
    levels = {"grade": ("low", "middle", "high")} if "grade" in frame else {}
    kinds = {"grade": "ordinal"} if "grade" in frame else {}
    return FeatureSpace.from_frame(frame, kinds=kinds, values=levels, **options)


def task_of(frame: pd.DataFrame, *steps, **options) -> Task:
    labels = np.arange(len(frame)) % 2
    model = make_pipeline(*steps, LinearDiscriminantAnalysis()).fit(frame, labels)
    space = space_of(frame, **options)
    return Task(space.bind(model), space, background=space.numbers(frame))


def check_sums(task: Task) -> None:
    """Differences between any two rows are sums of the differences of their parts."""
    pieces = pieces_of(task)
    assert pieces.complaint is None
    numbers = task.background
    assert numbers is not None
    encoded = task.encoded(numbers)
    added = sum(piece.part(numbers[:, i]) for i, piece in enumerate(pieces.parts) if piece is not None)
    still = [i for i, piece in enumerate(pieces.parts) if piece is None]
    same = (numbers[:, still] == numbers[0, still]).all(axis=1)
    np.testing.assert_allclose((encoded - added)[same], np.tile((encoded - added)[0], (same.sum(), 1)), atol=1e-9)


NUMBERS, TEXTS = ["income", "age", "rooms"], ["grade", "housing"]


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler(), RobustScaler(), "passthrough"])
@pytest.mark.parametrize("drop", [None, "first"])
def test_scalers_and_one_hot_columns(scaler, drop) -> None:
    encoder = ColumnTransformer([("numbers", scaler, NUMBERS), ("texts", OneHotEncoder(drop=drop), TEXTS)])
    check_sums(task_of(table(), encoder))


def test_ordinal_columns_and_another_order_of_columns() -> None:
    ordinal = OrdinalEncoder(categories=[["low", "middle", "high"]])
    encoder = ColumnTransformer(
        [("housing", OneHotEncoder(), ["housing"]), ("grade", ordinal, ["grade"])], remainder=StandardScaler()
    )
    task = task_of(table(), encoder)
    check_sums(task)
    grade = pieces_of(task).parts[3]
    assert grade is not None
    assert grade.line is not None


def test_levels_in_an_order_of_their_own_are_a_table() -> None:
    encoder = ColumnTransformer(
        [("grade", OrdinalEncoder(), ["grade"]), ("housing", OneHotEncoder(), ["housing"])], remainder="passthrough"
    )
    task = task_of(table(), encoder)  # alphabetically: high, low, middle
    check_sums(task)
    grade = pieces_of(task).parts[3]
    assert grade is not None
    assert grade.line is None


def test_few_steps_may_enter_in_any_way() -> None:
    bins = KBinsDiscretizer(3, encode="onehot-dense", strategy="uniform")
    encoder = ColumnTransformer(
        [("bins", bins, ["rooms"]), ("log", FunctionTransformer(np.log1p), ["age"])], remainder="drop"
    )
    task = task_of(table()[NUMBERS], encoder, ranges={"age": (18, 60)})
    pieces = pieces_of(task)
    assert pieces.complaint is None
    assert [p is None or p.line is None for p in pieces.parts] == [False, True, True]


@pytest.mark.parametrize("column", ["income", "age"])
def test_what_bends_is_named(column: str) -> None:
    encoder = ColumnTransformer([("log", FunctionTransformer(np.log1p), [column])], remainder="passthrough")
    task = task_of(table()[NUMBERS], encoder)
    assert pieces_of(task).complaint == (
        "MilpSource needs numbers to enter the model along straight lines, but the preprocessing bends "
        f'{column!r}; use source="neighbours", or apas.Given with the rows of another tool.'
    )


def test_what_never_changes_may_bend() -> None:
    encoder = ColumnTransformer([("log", FunctionTransformer(np.log1p), ["income"])], remainder="passthrough")
    task = task_of(table()[NUMBERS], encoder, immutable=["income"])
    pieces = pieces_of(task)
    assert pieces.complaint is None
    assert pieces.parts[0] is None


def test_products_of_features_are_named() -> None:
    steps = (MinMaxScaler(), PolynomialFeatures(2, interaction_only=True, include_bias=False))
    task = task_of(table()[NUMBERS], *steps)
    assert pieces_of(task).complaint == (
        "MilpSource needs every feature to enter the model by itself, but what the preprocessing makes of 'income' "
        'depends on other features; use source="neighbours", or apas.Given with the rows of another tool.'
    )


def test_products_with_what_never_changes_are_found() -> None:
    steps = (MinMaxScaler(), PolynomialFeatures(2, interaction_only=True, include_bias=False))
    task = task_of(table()[["income", "age"]], *steps, immutable=["age"])
    complaint = pieces_of(task).complaint
    assert complaint is not None
    assert "'income' depends on other features" in complaint


@pytest.mark.parametrize("seed", range(40))
def test_codings_of_all_kinds(seed: int) -> None:
    task, row = random_problem(seed, "l1", continuous=seed % 3)
    pieces = pieces_of(task)
    assert pieces.complaint is None
    rng = np.random.default_rng(seed)
    rows = task.space.snapped(row + 3 * rng.normal(size=(50, len(row))), np.broadcast_to(row, (50, len(row))))
    covered = np.array([all(p is None or p.covers(v) for p, v in zip(pieces.parts, r, strict=True)) for r in rows])
    rows = rows[covered]
    added = sum(p.part(rows[:, i]) for i, p in enumerate(pieces.parts) if p is not None)
    rest = task.encoded(rows) - added
    np.testing.assert_allclose(rest, np.broadcast_to(rest[:1], rest.shape), atol=1e-9)


def test_ranges_that_only_a_direction_limits() -> None:
    space = FeatureSpace([Feature("debt", low=0.0, direction="decrease"), Feature("age", low=18, high=90)])
    task = Task(FeedForward([[[-1.0], [0.1]]], [[0.0]]), space)
    debt = pieces_of(task).parts[0]
    assert debt is not None
    assert debt.line is not None
    assert debt.line.tolist() == [1.0, 0.0]
