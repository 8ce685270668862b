"""Models with a preprocessing of their own, read as sums: the same margins as encoding every row."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import apas
from apas.counterfactuals.search.stacked import AdditiveModels
from apas.counterfactuals.sources.base import Task


def table(count=300):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "income": rng.normal(3000, 900, count).round(-1).clip(500),
        "cards": rng.integers(0, 6, count),
        "home": rng.choice(["own", "rent", "other"], count),
        "debt": rng.exponential(500, count),
    })  # fmt: skip
    score = frame["income"] / 3000 + 0.5 * (frame["home"] == "own") - frame["debt"] / 1500 - 0.1 * frame["cards"]
    return frame, (score + 0.2 * rng.normal(size=count) > 0.75).astype(int)


def classifier(numbers):
    columns = make_column_transformer((numbers, ["income", "cards", "debt"]), (OneHotEncoder(), ["home"]))
    return make_pipeline(columns, LogisticRegression())


def asked(numbers=None, count=8):
    frame, y = table()
    estimator = classifier(StandardScaler() if numbers is None else numbers).fit(frame, y)
    shifts = apas.ObservedShifts(apas.retrain(estimator, frame, y, n_models=count, rng=0))
    space = apas.FeatureSpace.from_frame(frame, kinds={"cards": "integer"}, immutable=["cards"])
    model = apas.as_model(estimator)
    known = space.numbers(frame)
    return frame, space, shifts, Task(model, space, background=known)


def test_the_margins_are_those_of_encoding():
    _, space, shifts, task = asked()
    read = AdditiveModels.of(shifts, task)
    assert read is not None
    rng = np.random.default_rng(1)
    for cards in (0.0, 3.0, 5.0, 3.0):  # one row each: what never changes is the same in all points
        points = task.background[rng.integers(0, len(task.background), 40)].copy()
        points[:, 1] = cards
        slowly = shifts.point_margins(task.model, space.table(points), 1, np.arange(8.0)[:, None], 1.0)
        np.testing.assert_allclose(read.margins(points, 1), slowly, rtol=1e-9, atol=1e-9)


def test_numbers_outside_what_was_looked_at_are_encoded():
    _, space, shifts, task = asked()
    read = AdditiveModels.of(shifts, task)
    point = task.background[:1].copy()
    point[0, 0] = 1e6
    slowly = shifts.point_margins(task.model, space.table(point), 1, np.arange(8.0)[:, None], 1.0)
    np.testing.assert_allclose(read.margins(point, 1), slowly, rtol=1e-12)


def test_points_of_different_rows_are_encoded():
    _, space, shifts, task = asked()
    points = task.background[:20]
    assert len(set(points[:, 1])) > 1  # what never changes differs
    slowly = shifts.point_margins(task.model, space.table(points), 1, np.arange(8.0)[:, None], 1.0)
    np.testing.assert_allclose(AdditiveModels.of(shifts, task).margins(points, 1), slowly, rtol=1e-12)


def test_what_bends_is_not_read_as_a_sum():
    _, _, shifts, task = asked(make_pipeline(FunctionTransformer(np.log1p), StandardScaler()))
    assert AdditiveModels.of(shifts, task) is None


def test_retrained_pipelines_are_searched():
    frame, space, shifts, task = asked(count=30)
    rejected = frame[task.model.margin(task.encoded(task.background), 1) < 0][:1]
    method = apas.Sampling(coverage=0.9, confidence=0.9)
    options = {"space": space, "background": frame, "shifts": shifts, "method": method, "rng": 0}
    found = apas.generate(task.model, rejected, None, **options)
    assert found.found.all()
    assert found.to_frame()["cost"].iloc[0] == pytest.approx(0.055, abs=0.02)
    judges = shifts.models[-22:]
    assert all(m.margin(m.encode(found.points), 1)[0] > 0 for m in judges)


def test_models_to_certify_on_must_not_be_searched():
    frame, space, shifts, task = asked(count=20)
    with pytest.warns(apas.GuaranteeWarning, match="only 20 of the 40 models"):
        twice = apas.ObservedShifts([*shifts.models, *shifts.models])
    method = apas.Sampling(coverage=0.9, confidence=0.9)
    rejected = frame[task.model.margin(task.encoded(task.background), 1) < 0][:1]
    with (
        pytest.warns(apas.GuaranteeWarning),
        pytest.raises(apas.InputError, match="certify on are among those to search"),
    ):
        apas.generate(task.model, rejected, None, target=1, space=space, shifts=twice, method=method, rng=0)


TRANSFORMED = []  # a line per table that went through a preprocessing


def noted(X):
    TRANSFORMED.append(len(X))
    return X


def slow(X):
    time.sleep(0.02)
    return X


def test_refits_read_tables_as_often_as_there_are_kinds_of_them():
    """Inputs with the library's opinion, then what features add or the paths of all rows; whatever the number of rows."""
    frame, space, shifts, task = asked(make_pipeline(StandardScaler(), FunctionTransformer(noted)), count=14)
    rejected = frame[task.model.margin(task.encoded(task.background), 1) < 0]
    method = apas.Sampling(coverage=0.8, confidence=0.8)
    options = {"space": space, "background": frame, "shifts": shifts, "method": method, "rng": 0, "target": 1}
    counts = []
    for rows in (1, 6):
        TRANSFORMED.clear()
        found = apas.generate(task.model, rejected[:rows], None, **options)
        counts.append(len(TRANSFORMED))
    assert found.found.any()
    assert counts[0] <= 2 * len(shifts) + 25
    assert counts[1] <= counts[0] + 5 * 8  # the model itself is asked about each row, the refits are not


def test_networks_that_know_different_columns_are_asked_together():
    """A level that a bootstrap sample lacks is a column less; behind the first layer all are alike."""
    frame, y = table()
    frame.loc[frame.index[:4], "home"] = "boat"
    encoder = OneHotEncoder(handle_unknown="ignore")
    columns = make_column_transformer((StandardScaler(), ["income", "cards", "debt"]), (encoder, ["home"]))
    shape = {"hidden_layer_sizes": (5, 3), "max_iter": 30, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = make_pipeline(columns, MLPClassifier(**shape)).fit(frame, y)
        models = [*apas.retrain(estimator, frame, y, n_models=6, rng=0), clone(estimator).fit(frame[4:], y[4:])]
    shifts = apas.ObservedShifts([apas.as_model(m) for m in models])
    assert len({m.n_features for m in shifts.models}) > 1
    space = apas.FeatureSpace.from_frame(frame, kinds={"cards": "integer"})
    task = Task(apas.as_model(estimator), space, background=space.numbers(frame))
    read = AdditiveModels.of(shifts, task)
    assert read.behind is not None
    points = task.background[:30]
    slowly = shifts.point_margins(task.model, space.table(points), 1, np.arange(7.0)[:, None], 1.0)
    np.testing.assert_allclose(read.margins(points, 1), slowly, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(read.take(np.array([1, 6])).margins(points, 1), slowly[[1, 6]], rtol=1e-9, atol=1e-9)


class Watch:
    """A source that only notes how much time it has."""

    ordered = True

    def __init__(self):
        self.left = []

    def unsupported(self, task):
        return None

    def candidates(self, search):
        self.left.append(search.task.deadline - time.monotonic())
        return iter(())


def test_the_time_limit_is_for_searching():
    frame, space, shifts, task = asked(make_pipeline(StandardScaler(), FunctionTransformer(slow)), count=25)
    rejected = frame[task.model.margin(task.encoded(task.background), 1) < 0][:1]
    method, source, began = apas.Sampling(coverage=0.9, confidence=0.9), Watch(), time.monotonic()
    options = {"space": space, "background": frame, "shifts": shifts, "method": method, "source": source, "target": 1}
    apas.generate(task.model, rejected, None, time_limit=100, rng=0, **options)
    spent = time.monotonic() - began
    assert spent > 25 * 0.02
    assert source.left[0] > 100 - spent / 2


def test_a_table_that_was_changed_is_read_again():
    frame, _, shifts, task = asked()
    rows = frame[:3].copy()
    numbers = np.arange(8.0)[:, None]
    first = shifts.point_margins(task.model, rows, 1, numbers, 1.0)
    rows["income"] += 1000.0
    assert (shifts.point_margins(task.model, rows, 1, numbers, 1.0) > first).all()
