"""`python -m benchmarks.refits`: offers that survive refits of trees, judged by refits that nobody has seen.

Three tables (German credit, HELOC, Adult, at most 4,000 rows each) times XGBoost, LightGBM and a random forest. Of 133
refits 40 are searched and 93 certify at (0.95, 0.95), which allows one failure; 200 further ones judge. Needs the
datasets and the extra `libraries`; `--cell german xgboost` runs one of the nine cells, `--black-box` asks the models
instead of reading their trees, and `--json` writes the figures.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

import apas
from apas._typing import Floats
from apas.counterfactuals.result import Counterfactuals
from apas.models.base import ModelWrapper, as_model
from apas.paper.data_folder import data_folder

ROWS, INPUTS, SEARCHED, CERTIFYING, JUDGES = 4000, 25, 40, 93, 200
#: Of 200 refits so many accept a row with probability 0.999 if 95 % of all refits do.
LEAST = 179
GERMAN = (
    "checking duration history purpose amount savings employment rate sex-status guarantors residence property age "
    "installment housing credits job liable phone foreign good"
)


@dataclass(frozen=True, eq=False)
class Table:
    """Rows, their classes, which class is wanted, and what may change."""

    X: pd.DataFrame
    y: Any
    space: apas.FeatureSpace


def german() -> Table:
    """German credit: seven numbers and 13 categories."""
    frame = pd.read_csv(data_folder() / "credit" / "german.data", header=None, names=GERMAN.split())
    X = frame.drop(columns="good")
    fixed = ["age", "sex-status", "foreign", "liable", "history"]
    space = apas.FeatureSpace.from_frame(X, immutable=fixed, increase=["residence"], steps={"amount": 50})
    return Table(X, (frame["good"] == 1).astype(int).to_numpy(), space)


def heloc() -> Table:
    """HELOC: 21 numbers."""
    frame = _some(pd.read_csv(data_folder() / "heloc" / "heloc.csv"))
    X = frame.drop(columns="RiskPerformance")
    space = apas.FeatureSpace.from_frame(X, steps=dict.fromkeys(X.columns, 1.0), increase=["MSinceOldestTradeOpen"])
    return Table(X, frame["RiskPerformance"].astype(int).to_numpy(), space)


def adult() -> Table:
    """Adult: six numbers and seven pairs of texts."""
    frame = _some(pd.read_csv(data_folder() / "adult" / "adult.csv"))
    X = frame.drop(columns=["income", "fnlwgt"])
    fixed = ["age", "sex", "race", "native-country", "marital-status", "relationship"]
    space = apas.FeatureSpace.from_frame(X, immutable=fixed, increase=["education-num"])
    return Table(X, frame["income"].to_numpy(), space)


def _some(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sample(min(ROWS, len(frame)), random_state=0).reset_index(drop=True)


TABLES = {"german": german, "heloc": heloc, "adult": adult}


def classifier(name: str) -> Any:
    """An unfitted classifier: 100 boosted trees of depth 4 or 15 leaves, or 50 trees of depth 8."""
    if name == "xgboost":
        from xgboost import XGBClassifier

        return XGBClassifier(n_estimators=100, max_depth=4, learning_rate=0.1, subsample=0.8, n_jobs=1)
    if name == "lightgbm":
        from lightgbm import LGBMClassifier

        return LGBMClassifier(n_estimators=100, num_leaves=15, learning_rate=0.1, verbose=-1, n_jobs=1)
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(n_estimators=50, max_depth=8, n_jobs=1)


CLASSIFIERS = ("xgboost", "lightgbm", "forest")


def pipeline(X: pd.DataFrame, name: str) -> Any:
    """The classifier behind one column per category."""
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder

    texts = [c for c in X.columns if X[c].dtype.kind not in "iuf"]
    coded = ColumnTransformer(
        [("levels", OneHotEncoder(handle_unknown="ignore", sparse_output=False), texts)],
        remainder="passthrough",
        verbose_feature_names_out=False,
    )
    return Pipeline([("coded", coded.set_output(transform="default")), ("trees", classifier(name))])


class Opaque(ModelWrapper):
    """A model that hides its trees."""

    def trees(self) -> None:
        """None, as if they could not be read."""


@dataclass(frozen=True, eq=False)
class Cell:
    """What came out for one table and one kind of model."""

    name: str
    found: int
    validity: float
    worst: int
    cost: float
    common: int
    cost_common: float
    base_found: int
    base_validity: float
    base_cost_common: float
    seconds: float
    base_seconds: float


def accepted(cfx: Counterfactuals, judges: list[Any]) -> Floats:
    """How many judges accept each row that was found."""
    rows = cfx.points[[c.is_found for c in cfx]]
    return np.asarray(np.sum([np.asarray(judge.library_classes(rows)) == 1 for judge in judges], axis=0))


def run(table_name: str, model_name: str, inputs: int = INPUTS, black_box: bool = False, seed: int = 1) -> Cell:
    """One cell; the seed decides on the refits and on the inputs."""
    table = TABLES[table_name]()
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        estimator = pipeline(table.X, model_name)
        count = SEARCHED + CERTIFYING + JUDGES
        refits = list(apas.retrain(estimator, table.X, table.y, n_models=count, rng=seed))
        estimator.set_params(trees__random_state=0).fit(table.X, table.y)
        model = as_model(estimator)
        rejected = table.X[np.asarray(estimator.predict(table.X)) == 0]
        rejected = rejected.iloc[seed - 1 :: max(1, len(table.X) // 300)][:inputs]
        judges = refits[-JUDGES:]
        known = [Opaque(m) for m in refits[:-JUDGES]] if black_box else refits[:-JUDGES]
        shifts = apas.ObservedShifts(known, process="the recipe of the benchmark")
        options: dict[str, Any] = {
            "space": table.space,
            "background": table.X,
            "method": apas.Sampling(coverage=0.95, confidence=0.95, n_samples=CERTIFYING),
            "rng": 0,
        }
        model = Opaque(model) if black_box else model
        began = time.process_time()
        found = apas.generate(model, rejected, None, shifts=shifts, **options)
        seconds = (time.process_time() - began) / len(rejected)
        certifying = apas.ObservedShifts(known[-CERTIFYING:], process="the recipe of the benchmark")
        began = time.process_time()
        alone = apas.RobustOptimum(alone=True)
        based = apas.generate(model, rejected, None, shifts=certifying, source=alone, **options)
        base_seconds = (time.process_time() - began) / len(rejected)
        one, two = accepted(found, judges), accepted(based, judges)
    both = [a.is_found and b.is_found for a, b in zip(found, based, strict=True)]
    costs, base_costs = (np.array([c.cost for c in cfx]) * len(table.space) for cfx in (found, based))
    return Cell(
        name=f"{table_name} {model_name}",
        found=len(one),
        validity=float(one.mean() / JUDGES),
        worst=int(one.min()),
        cost=float(np.nanmean(costs)),
        common=sum(both),
        cost_common=float(costs[both].mean()),
        base_found=len(two),
        base_validity=float(two.mean() / JUDGES),
        base_cost_common=float(base_costs[both].mean()),
        seconds=seconds,
        base_seconds=base_seconds,
    )


def main() -> None:
    """Run the cells that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cell", nargs=2, metavar=("TABLE", "MODEL"), action="append")
    parser.add_argument("--inputs", type=int, default=INPUTS)
    parser.add_argument("--black-box", action="store_true")
    parser.add_argument("--seed", type=int, default=1, help="of the refits; also which inputs are taken (1, 2, ...)")
    parser.add_argument("--json", metavar="FILE")
    asked = parser.parse_args()
    for table, model in asked.cell or [(t, m) for t in TABLES for m in CLASSIFIERS]:
        cell = run(table, model, asked.inputs, asked.black_box, asked.seed)
        print(json.dumps(vars(cell)), flush=True)
        if asked.json:
            with open(asked.json, "a", encoding="utf-8") as file:
                file.write(json.dumps(vars(cell)) + "\n")


if __name__ == "__main__":
    main()
