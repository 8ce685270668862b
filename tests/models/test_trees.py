"""What is read of trees: the sums of the leaves are the library's own scores."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import library
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.tree import DecisionTreeClassifier

import apas
from apas.models.base import Leaves, encoded_rows, offers
from apas.models.trees import Trees


def made(name: str, **options: Any) -> Any:
    """A classifier of a library that users bring."""
    package, kind = name.split(".")
    return getattr(library(package), kind)(**options)


def table(texts: bool, missing: bool) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.normal(size=300), "c": rng.integers(0, 9, 300) * 1.0, "d": 100 * rng.normal(size=300)}
    )
    if texts:
        frame["b"] = pd.Categorical(rng.choice(list("uvwxyz"), 300))
    if missing:
        frame.loc[::7, "a"] = np.nan
        frame.iloc[::11, -1] = np.nan
    return frame


def labels(frame: pd.DataFrame, classes: int) -> np.ndarray:
    score = frame["a"].fillna(0) - 0.1 * frame["c"] + (frame["b"].isin(["u", "x"]) * 1.5 if "b" in frame else 0)
    return (score > 0).astype(int).to_numpy() + (0 if classes == 2 else (frame["d"].fillna(0) > 60).to_numpy())


def sums(trees: Trees, rows: np.ndarray) -> np.ndarray:
    """Follow every row through every tree."""
    found = np.tile(trees.base, (len(rows), 1))
    for i, row in enumerate(rows):
        for node in trees.roots:
            while trees.left[node] >= 0:
                left = trees.goes_left(int(node), row[[trees.column[node]]])[0]
                node = trees.left[node] if left else trees.right[node]
            found[i] += trees.value[node]
    return found


LIGHTGBM = {"n_estimators": 6, "verbose": -1, "n_jobs": 1, "min_data_per_group": 5, "cat_smooth": 1}
KINDS = {  # what it is, and whether it takes categories and missing cells
    "forest": (partial(RandomForestClassifier, 5, random_state=0), False, True),
    "extra trees": (partial(ExtraTreesClassifier, 5, random_state=0), False, True),
    "tree": (partial(DecisionTreeClassifier, random_state=0), False, True),
    "gradient boosting": (partial(GradientBoostingClassifier, n_estimators=6), False, False),
    "histograms": (partial(HistGradientBoostingClassifier, max_iter=6, categorical_features="from_dtype"), True, True),
    "xgboost": (partial(made, "xgboost.XGBClassifier", n_estimators=6, n_jobs=1, enable_categorical=True, max_cat_to_onehot=2), True, True),
    "lightgbm": (partial(made, "lightgbm.LGBMClassifier", max_cat_to_onehot=2, **LIGHTGBM), True, True),
    "catboost": (partial(made, "catboost.CatBoostClassifier", iterations=6, depth=3, verbose=0, thread_count=1, allow_writing_files=False), False, True),
}  # fmt: skip


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", KINDS)
def test_leaves_add_up_to_the_library_s_scores(name, classes):
    kind, texts, missing = KINDS[name]
    for holes in {False, missing}:
        frame = table(texts, holes)
        estimator = kind().fit(frame, labels(frame, classes))
        for threshold in (0.5, 0.3) if classes == 2 else (0.5,):
            model = apas.as_model(estimator, threshold=threshold)
            assert offers(model, Leaves)
            rows = encoded_rows(model, frame.iloc[:40])[1]
            trees = model.trees()
            found = sums(trees, trees.read(rows))
            said = model.margin(rows, classes - 1)
            told = found[:, 0] if classes == 2 else found[:, -1] - found[:, :-1].max(axis=1)
            if trees.probability:  # the margin is a logit
                clear = np.abs(told) > 1e-9
                assert (np.sign(told) == np.sign(said))[clear].all()
                assert clear.any()
            else:
                np.testing.assert_allclose(told, said, rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize(
    "kind",
    [
        partial(made, "xgboost.XGBClassifier", n_estimators=3, booster="dart", rate_drop=0.5),
        partial(made, "lightgbm.LGBMClassifier", n_estimators=3, verbose=-1, linear_tree=True),
        partial(made, "lightgbm.LGBMClassifier", n_estimators=3, verbose=-1, boosting_type="rf", bagging_freq=1, bagging_fraction=0.5),
        partial(GradientBoostingClassifier, n_estimators=3, init=DecisionTreeClassifier(max_depth=1)),
    ],
)  # fmt: skip
def test_what_is_more_than_trees_is_not_read(kind):
    frame = table(False, False)
    assert apas.as_model(kind().fit(frame, labels(frame, 2))).trees() is None


def test_early_stopping_counts_the_best_trees_alone():
    frame = table(False, False)
    y = labels(frame, 2)
    estimator = made("xgboost.XGBClassifier", n_estimators=40, n_jobs=1, early_stopping_rounds=1, learning_rate=1.0)
    estimator.fit(frame, y, eval_set=[(frame[::3], 1 - y[::3])], verbose=False)
    trees = apas.as_model(estimator).trees()
    assert len(trees.roots) == estimator.best_iteration + 1 < 40
