"""What the league table stands on: tables in two parts, a base model of each kind, and refits of two processes.

The base model is fitted to D1. Its refits are models of the same recipe with seeds of their own, each on a bootstrap
sample: of D1 (`SAME`, nothing new is known), or of D1 and D2 together (`LATER`). D2 is the later period where a table
has one, else the other half of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from apas._typing import Bools, Floats, Integers
from apas.counterfactuals.space.space import FeatureSpace
from apas.models.as_model import as_model
from apas.models.feedforward import FeedForward
from apas.paper.data_folder import dataset_path, reading
from apas.paper.datasets import Part, Tables, files_of, make_part, read_tables
from apas.paper.networks import Recipe, fit_together

MOST_ROWS = 4000  # of a table
SAME, LATER = "bootstrap of D1", "bootstrap of D1 and D2"
PROCESSES: Final = (SAME, LATER)
#: The column of the label, and its value that is wanted, of tables that are cut into halves.
HALVED: Final[Mapping[str, tuple[str, Any]]] = MappingProxyType(
    {
        "diabetes": ("Outcome", 1),
        "no2": ("binaryClass", "P"),
        "heloc": ("RiskPerformance", 1),
        "adult": ("income", 1),
        "compas": ("score", 1),
    }
)
#: Tables on which methods may be tuned, and those that are run once.
TUNED, HELD_OUT = ("diabetes", "no2", "heloc"), ("adult", "compas", "credit", "sba")
NETWORK: Final = Recipe(12, 0.01, 32, 40, 0.0, 0)
LINES, TREES, TOGETHER = "logistic regression", "XGBoost", 100


def read_league_table(name: str, seed: int) -> Tables:
    """A table in two parts: of sba and credit the earlier and the later period, of others random halves."""
    if name not in HALVED:
        tables = read_tables(name, aligned=True)
        return Tables(name, tables.space, _cut(tables.d1, seed), _cut(tables.d2, seed))
    import pandas as pd

    (label, wanted), rng = HALVED[name], np.random.default_rng([seed, 1])
    with reading(name):
        frame = pd.read_csv(dataset_path(name))
    y, frame = (frame[label] == wanted).to_numpy(), frame.drop(columns=label)
    numbers = [c for c in frame.columns if frame[c].dtype.kind in "iuf"]
    space = FeatureSpace.from_frame(frame, kinds=dict.fromkeys(numbers, "continuous"), scale="minmax")
    rows = rng.permutation(len(frame))[:MOST_ROWS]
    first, second = (make_part(frame, y, space, half) for half in np.array_split(rows, 2))
    return Tables(name, space, first, second)


def _cut(part: Part, seed: int) -> Part:
    """At most half of `MOST_ROWS` rows."""
    rows = np.random.default_rng([seed, 2]).permutation(len(part))[: MOST_ROWS // 2]
    return Part(part.raw.iloc[rows].reset_index(drop=True), part.X[rows].copy(), part.y[rows].copy())


def league_files(name: str) -> tuple[str, ...]:
    """Names of the datasets that a table is read from."""
    return (name,) if name in HALVED else files_of(name)


Fit = Callable[[Floats, Integers, Integers, Sequence[int], tuple[str, ...]], list[Any]]


def _fit_logistic(X: Floats, y: Integers, rows: Integers, seeds: Sequence[int], names: tuple[str, ...]) -> list[Any]:
    """Scikit-learn's logistic regression with its defaults, as a network without hidden units."""
    from sklearn.linear_model import LogisticRegression

    fitted = (LogisticRegression(max_iter=1000).fit(X[line], y[line]) for line in rows)
    return [FeedForward([m.coef_.T], [m.intercept_], feature_names=names) for m in fitted]


def _fit_networks(X: Floats, y: Integers, rows: Integers, seeds: Sequence[int], names: tuple[str, ...]) -> list[Any]:
    """Networks with one hidden layer of 12 units, 40 passes of Adam."""
    found: list[Any] = []
    for i in range(0, len(rows), TOGETHER):
        some = slice(i, i + TOGETHER)
        found += fit_together(NETWORK, X, y, rows[some], seeds=seeds[some], feature_names=names)
    return found


def _fit_trees(X: Floats, y: Integers, rows: Integers, seeds: Sequence[int], names: tuple[str, ...]) -> list[Any]:
    """XGBoost, 50 trees of depth 4, each on 80 % of the rows."""
    from xgboost import XGBClassifier

    how = {"n_estimators": 50, "max_depth": 4, "learning_rate": 0.2, "subsample": 0.8, "n_jobs": 1}
    kinds = (XGBClassifier(**how, random_state=int(seed)) for seed in seeds)
    return [as_model(model.fit(X[line], y[line])) for model, line in zip(kinds, rows, strict=True)]


MODELS: Final[Mapping[str, Fit]] = MappingProxyType({LINES: _fit_logistic, "network": _fit_networks, TREES: _fit_trees})


@dataclass(frozen=True, eq=False)
class Refits:
    """Models of one process: to search with, to certify on, and to judge, which nothing else sees."""

    search: list[Any]
    certify: list[Any]
    judge: list[Any]


@dataclass(frozen=True, eq=False)
class Ground:
    """A table, the model that is explained, and the inputs."""

    tables: Tables
    kind: str
    seed: int
    base: Any
    inputs: Integers  # rows of D1 that the base model refuses

    @classmethod
    def of(cls, table: str, kind: str, seed: int, count: int) -> Ground:
        """Fit the base model to D1, and draw different rows that it refuses."""
        tables = read_league_table(table, seed)
        d1, names = tables.d1, tables.inputs
        base = MODELS[kind](d1.X, d1.y, np.arange(len(d1))[None], [seed], names)[0]
        refused = np.flatnonzero(base.margin(d1.X, 1) < 0)
        different = refused[np.sort(np.unique(d1.X[refused], axis=0, return_index=True)[1])]
        return cls(tables, kind, seed, base, np.random.default_rng([seed, 3]).permutation(different)[:count])

    def refits(self, process: str, counts: tuple[int, int, int]) -> Refits:
        """Independent refits of a process."""
        parts = (self.tables.d1, self.tables.d2)[: 1 + PROCESSES.index(process)]
        X, y = np.vstack([p.X for p in parts]), np.concatenate([p.y for p in parts])
        rng, total = np.random.default_rng([self.seed, 4 + PROCESSES.index(process)]), sum(counts)
        rows, seeds = rng.integers(0, len(X), (total, len(X))), rng.integers(0, 2**31, total).tolist()
        models = MODELS[self.kind](X, y, rows, seeds, self.tables.inputs)
        a, b = counts[0], counts[0] + counts[1]
        return Refits(models[:a], models[a:b], models[b:])

    @property
    def accuracy(self) -> tuple[float, float]:
        """Of the base model on D1 and on D2."""
        parts = (self.tables.d1, self.tables.d2)
        first, second = (float(((self.base.margin(p.X, 1) >= 0) == p.y).mean()) for p in parts)
        return first, second


def accepted_by(models: Sequence[Any], points: Floats) -> Integers:
    """How many models put each point into class 1; points as the models see them."""
    counts = np.zeros(len(points), dtype=np.int64)
    for model in models:
        accepts: Bools = model.margin(points, 1) >= 0
        counts += accepts
    return counts
