"""`MilpSource` behind scikit-learn's preprocessing."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler

from apas.counterfactuals.sources.base import Search, Task
from apas.counterfactuals.sources.milp.source import MilpSource
from apas.counterfactuals.space.space import FeatureSpace


def pipeline() -> tuple[object, pd.DataFrame]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "income": rng.uniform(0, 9000, 300),
            "age": rng.integers(18, 90, 300),
            "grade": rng.choice(["low", "middle", "high"], 300),
            "housing": rng.choice(["own", "rent", "free"], 300),
        }
    )
    label = np.where(frame["income"] / 9000 + (frame["housing"] == "own") + 0.01 * frame["age"] > 1.3, "yes", "no")
    encoder = ColumnTransformer(
        [
            ("income", StandardScaler(), ["income"]),
            ("age", MinMaxScaler(), ["age"]),
            ("grade", OrdinalEncoder(categories=[["low", "middle", "high"]]), ["grade"]),
            ("housing", OneHotEncoder(), ["housing"]),
        ]
    )
    network = MLPClassifier((8, 6), random_state=0, max_iter=400, learning_rate_init=0.01)
    return make_pipeline(encoder, network).fit(frame, label), frame


def test_pipelines_with_text_columns() -> None:
    model, frame = pipeline()
    space = FeatureSpace.from_frame(
        frame, kinds={"grade": "ordinal"}, values={"grade": ("low", "middle", "high")}, steps={"income": 100.0},
        increase=["age"], immutable=["grade"],
    )  # fmt: skip
    task = Task(space.bind(model), space)
    assert MilpSource().unsupported(task) is None
    numbers = space.numbers(frame)
    refused = np.flatnonzero(model.predict(frame) == "no")[:8]
    for row in refused:
        points = [
            c.point for c in MilpSource(step=0.5, max_margin=2.0).candidates(Search(task, 0, numbers[row], "yes"))
        ]
        assert points
        origins = np.broadcast_to(numbers[row], (len(points), len(space)))
        assert space.allowed(np.array(points), origins).all()
        assert (model.predict(space.table(np.array(points))) == "yes").all()


def test_a_preprocessing_that_is_straight_in_the_range_but_not_at_the_input() -> None:
    frame = pd.DataFrame({"a": np.linspace(0, 1, 50), "b": np.linspace(1, 0, 50)})
    clip = FunctionTransformer(lambda X: np.minimum(X, 1.0))
    model = make_pipeline(clip, LogisticRegression()).fit(frame, np.arange(50) > 20)
    space = FeatureSpace.from_frame(frame)
    task = Task(space.bind(model), space)
    row = np.array([5.0, 0.5])  # beyond the range, where the model sees 1
    search = Search(task, 0, row, False)
    assert not search.is_valid(row)
    points = [c.point for c in MilpSource(step=0.2).candidates(search)]
    assert len(points) > 2
    np.testing.assert_allclose(
        task.margins(np.array(points), search.target), 0.01 + 0.2 * np.arange(len(points)), atol=1e-6
    )
    assert all(p[0] == 5.0 or p[0] <= 1.0 for p in points)
