"""Models that hide something: their derivatives, or what their preprocessing does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd


class BlackBox:
    """A model with the five members, one more if it takes raw rows, and a count of how often it was asked."""

    def __init__(self, net: Any) -> None:
        self._net, self.asked = net, 0
        self.classes, self.n_features, self.parameters = net.classes, net.n_features, net.parameters
        if hasattr(net, "encode"):
            self.encode, self.n_raw_features = net.encode, net.n_raw_features

    def margin(self, X, target):
        self.asked += 1
        return self._net.margin(X, target)

    def shifted_margins(self, X, target, directions, delta):
        return self._net.shifted_margins(X, target, directions, delta)


def loans() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "income": np.exp(rng.normal(8, 0.5, 200)).round(),
            "debt": rng.uniform(0, 1, 200),
            "home": rng.choice(["own", "rent", "free"], 200),
        }
    )


def pipeline(table: pd.DataFrame):
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

    columns = ColumnTransformer(
        [
            ("logs", FunctionTransformer(np.log, feature_names_out="one-to-one"), ["income"]),
            ("levels", OneHotEncoder(), ["home"]),
            ("rest", "passthrough", ["debt"]),
        ]
    )
    y = np.log(table["income"]) - 2 * table["debt"] + (table["home"] == "own") > 7.4
    return make_pipeline(columns, LogisticRegression()).fit(table, y)
