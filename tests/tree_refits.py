"""Small problems with refits of trees: tables with categories and missing cells, and what a search needs of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import apas
from apas.counterfactuals.search.leaf_table import LeafSweeps, LeafTable, RowGrid
from apas.counterfactuals.sources.base import Search, Task
from apas.models.base import encoded_rows


def loans(count: int = 300) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "income": rng.normal(3000, 900, count).round(-1).clip(500),
        "cards": rng.integers(0, 6, count),
        "home": rng.choice(["own", "rent", "other"], count),
        "debt": rng.exponential(500, count),
        "age": rng.integers(20, 70, count),
    })  # fmt: skip
    score = frame["income"] / 3000 + 0.5 * (frame["home"] == "own") - frame["debt"] / 1500 - 0.1 * frame["cards"]
    return frame, (score + 0.2 * rng.normal(size=count) > 0.75).astype(int).to_numpy()


def behind_encoder(classifier: Any) -> Any:
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["home"]),
        (StandardScaler(), ["income", "cards", "debt", "age"]),
    )
    return make_pipeline(columns, classifier)


class Problem:
    """A fitted model, its refits, rejected rows, and the table of the refits' leaves."""

    def __init__(self, estimator: Any, frame: pd.DataFrame, y: np.ndarray, refits: int, rows: int = 4) -> None:
        self.estimator, self.frame = estimator.fit(frame, y), frame
        self.refits = apas.retrain(estimator, frame, y, n_models=refits, rng=0)
        self.space = apas.FeatureSpace.from_frame(frame, immutable=["age"], increase=["income"], decrease=["debt"])
        self.rejected = frame[estimator.predict(frame) == 0].iloc[:rows]
        model = self.space.bind(apas.as_model(self.estimator))
        for known in (model, *self.refits):  # from the first table a model learns which columns hold categories
            known._cells = type(known._cells)() if hasattr(known, "_cells") else None
            encoded_rows(known, frame)
        self.inputs = self.space.numbers_for(model, self.rejected)
        self.task = Task(model, self.space, "l1", self.space.numbers_for(model, frame), inputs=self.inputs)

    def table(self, count: int | None = None) -> LeafTable | None:
        return LeafTable.of(self.task, list(self.refits)[:count], self.inputs)

    def sweeps(self, table: LeafTable, row: int) -> tuple[RowGrid, LeafSweeps]:
        grid = RowGrid(Search(self.task, row, self.inputs[row], 1), table.grid)
        return grid, LeafSweeps(table, grid, 1)
