"""The generated loan table: the same for everyone, plausible, learnable, and drifting smoothly."""

from __future__ import annotations

import copy
import hashlib
import io
import math
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from apas.datasets import CATEGORICAL, LOAN_FEATURES, NUMERIC, make_loans
from apas.errors import InputError

FEATURES = list(LOAN_FEATURES)
INTEGERS = [*(name for name in NUMERIC if name not in ("debt_ratio", "years_employed")), "approved"]


def as_csv(table: pd.DataFrame) -> str:
    return table.to_csv(index=False, lineterminator="\n")


def classifier(**options: object) -> Pipeline:
    encoder = OneHotEncoder(categories=[list(levels) for levels in CATEGORICAL.values()])
    columns = ColumnTransformer([("numbers", StandardScaler(), list(NUMERIC)), ("words", encoder, list(CATEGORICAL))])
    return Pipeline([("columns", columns), ("network", MLPClassifier(**options))])


# The same for everyone


@pytest.mark.parametrize(
    ("arguments", "digest"),
    [
        ({"n_rows": 50}, "096bb2484002f84f2f2c3a57b7f286686daf312dcb7f8705f1f1e96c16fefabe"),
        (
            {"n_rows": 50, "drift": 0.7, "rng": 2**127 + 5},
            "8017a60ed9dca3e661f6293b8ea773e412ee207cf071e29cf9a35f571063a625",
        ),
    ],
)
def test_table_never_changes(arguments, digest):
    """A failure means that every user's table has changed: do not just replace the digest."""
    assert hashlib.sha256(as_csv(make_loans(**arguments)).encode()).hexdigest() == digest


def test_same_arguments_give_same_table():
    pd.testing.assert_frame_equal(make_loans(300, drift=0.3, rng=5), make_loans(300, drift=0.3, rng=5))
    pd.testing.assert_frame_equal(
        make_loans(np.int64(30), drift=np.float32(0.5), rng=np.uint8(5)), make_loans(30, drift=0.5, rng=5)
    )


def test_another_seed_gives_another_sample_of_the_same_law():
    first, second = make_loans(4000), make_loans(4000, rng=1)
    assert not (first["income"] == second["income"]).mean() > 0.1
    for name in (*NUMERIC, "approved"):
        error = math.sqrt((first[name].var() + second[name].var()) / 4000)
        assert abs(first[name].mean() - second[name].mean()) < 4 * error, name


@pytest.mark.parametrize("n_rows", [1, 7, 100])
def test_shorter_table_is_a_prefix(n_rows):
    long = make_loans(1000, drift=0.4, rng=3)
    pd.testing.assert_frame_equal(make_loans(n_rows, drift=0.4, rng=3), long.head(n_rows))


# Plausible


@pytest.mark.parametrize("drift", [0.0, 1.0, 5.0])
def test_every_row_keeps_the_constraints(drift):
    table = make_loans(20_000, drift=drift)
    assert list(table.columns) == [*FEATURES, "approved"]
    assert len(table) == 20_000
    assert not table.isna().any(axis=None)
    assert (table[INTEGERS].dtypes == np.int64).all()
    assert table["income"].between(300, 30_000).all()
    assert (table["income"] % 10 == 0).all()
    assert table["loan_amount"].between(500, 60_000).all()
    assert (table["loan_amount"] % 100 == 0).all()
    assert table["duration_months"].between(6, 84).all()
    assert (table["duration_months"] % 6 == 0).all()
    assert table["debt_ratio"].between(0, 1.5).all()
    assert (table["debt_ratio"] == table["debt_ratio"].round(3)).all()
    assert table["age"].between(18, 80).all()
    assert (table["years_employed"] >= 0).all()
    assert (table["years_employed"] < table["age"] - 16).all()
    assert (table["years_employed"] == table["years_employed"].round(1)).all()
    assert table["dependants"].between(0, 5).all()
    assert table["existing_loans"].between(0, 5).all()
    assert set(table["approved"]) == {0, 1}
    for name, levels in CATEGORICAL.items():
        assert set(table[name]) == set(levels)


def test_groups_cover_the_features_once():
    assert sorted(FEATURES) == sorted([*NUMERIC, *CATEGORICAL])
    assert len(set(FEATURES)) == len(FEATURES)


def test_columns_depend_on_each_other():
    table = make_loans(10_000)
    income = table.groupby("employment")["income"].mean()
    assert income["employed"] > income["retired"] > income["student"]
    assert table["income"].corr(table["loan_amount"]) > 0.3
    assert table["income"].corr(table["debt_ratio"]) < -0.3
    assert table["existing_loans"].corr(table["debt_ratio"]) > 0.2
    assert table["age"].corr(table["years_employed"]) > 0.6
    assert table.loc[table["employment"] == "retired", "age"].median() > 60
    approved = table.groupby("credit_history")["approved"].mean()
    assert approved[list(CATEGORICAL["credit_history"])].is_monotonic_increasing


def test_csv_round_trip():
    table = make_loans(500, drift=0.5)
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(as_csv(table))), table)


def test_no_rows():
    empty = make_loans(0)
    assert len(empty) == 0
    pd.testing.assert_series_equal(empty.dtypes, make_loans(5).dtypes)


# Drifting


def test_drift_is_smooth_and_moves_one_way():
    tables = [make_loans(20_000, drift=drift) for drift in np.linspace(0.0, 1.0, 11)]
    income = np.array([table["income"].mean() for table in tables])
    approved = np.array([table["approved"].mean() for table in tables])
    debt = np.array([table["debt_ratio"].mean() for table in tables])
    for steps in (np.diff(income), np.diff(debt), -np.diff(approved)):
        assert (steps > 0).all()
        assert steps.max() < 2.5 * steps.min()
    assert 1.04 < income[-1] / income[0] < 1.10
    assert 0.55 <= approved[0] <= 0.65
    assert 0.48 <= approved[-1] <= 0.58


def test_small_drift_leaves_most_rows_alone():
    now, soon = make_loans(5000), make_loans(5000, drift=0.01)
    assert (now["age"] == soon["age"]).all()
    assert (now["employment"] == soon["employment"]).mean() > 0.99
    assert (now["approved"] == soon["approved"]).mean() > 0.99
    assert (now["income"] - soon["income"]).abs().median() <= 10


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer:sklearn.exceptions.ConvergenceWarning")
def test_small_network_learns_and_retraining_moves_it():
    train, unseen = make_loans(3000, rng=1), make_loans(4000, rng=2)
    later, unseen_later = make_loans(3000, drift=1.0, rng=3), make_loans(4000, drift=1.0, rng=4)
    options = {"hidden_layer_sizes": (16,), "max_iter": 40, "learning_rate_init": 0.005, "random_state": 0}
    model = classifier(**options).fit(train[FEATURES], train["approved"])
    accuracy = model.score(unseen[FEATURES], unseen["approved"])
    assert 0.85 <= accuracy <= 0.92

    # the rule itself has moved: the old model errs more often on next year's rows
    stale = model.score(unseen_later[FEATURES], unseen_later["approved"])
    assert stale < accuracy - 0.01

    retrained = classifier(**options).fit(later[FEATURES], later["approved"])
    assert retrained.score(unseen_later[FEATURES], unseen_later["approved"]) > stale + 0.005
    flips = model.predict(unseen[FEATURES]) != retrained.predict(unseen[FEATURES])
    assert 0.02 < flips.mean() < 0.2

    updated = copy.deepcopy(model["network"])
    updated.partial_fit(model["columns"].transform(later[FEATURES]), later["approved"])
    shift = max(np.abs(a - b).max() for a, b in zip(updated.coefs_, model["network"].coefs_, strict=True))
    assert 0.001 < shift < 1.0


# Wrong arguments


@pytest.mark.parametrize("value", [-1, 2**32, 10.0, "10", None, True, np.bool_(True), [3]])
def test_bad_n_rows(value):
    with pytest.raises(
        InputError, match=r"`n_rows` of make_loans must be an integer of at least 0 and below 2\*\*32, got "
    ):
        make_loans(value)


@pytest.mark.parametrize("value", [-1, 2**128, 0.0, "0", None, False, np.random.default_rng(0)])
def test_bad_rng(value):
    with pytest.raises(
        InputError, match=r"`rng` of make_loans must be an integer of at least 0 and below 2\*\*128, got "
    ):
        make_loans(3, rng=value)


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, 5.1, 10**400, "0", None, True, 1j, np.array(0.5)])
def test_bad_drift(value):
    with pytest.raises(InputError, match=r"`drift` of make_loans must be a number of at least 0 and at most 5, got "):
        make_loans(3, drift=value)


def test_import_is_light():
    code = "import sys, apas.datasets; print(sorted({'pandas', 'sklearn', 'scipy', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
