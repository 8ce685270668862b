"""`python -m benchmarks.offers`: what offers cost in processor time, one row after the other on one core.

Four cases: boosted trees, a logistic regression behind one-hot columns and a network of 2,529 parameters, all on German
credit, and the network of the paper on diabetes. The first two must survive refits, the last two shifts in a box.
`--before FOLDER` names the `src` of another checkout, which does the same in the same run; then ratios are printed.
Needs the datasets. `--regions` needs none: on eight rejected rows of generated loans it prints what offers cost that
bear a tolerance of 2 % of each range, or may be exceeded, beside those that need not, and what is proved impossible.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["CASES", "compare", "measure", "regions"]

REFITS = 60  # of which 29 certify at (0.9, 0.95), and 31 are searched
LABEL = "good-credit"


def credit() -> tuple[Any, Any, Any]:
    """German credit as it is in the file, its labels, and what turns it into 61 columns."""
    import pandas as pd
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    from apas.paper.data_folder import dataset_path
    from apas.paper.datasets import COLUMNS

    table = pd.read_csv(dataset_path("credit"), header=None, names=list(COLUMNS))
    # a refit on rows that lack a level must know it all the same
    texts = make_column_selector(dtype_exclude="number")
    levels = [sorted(table[name].unique()) for name in texts(table)]
    columns = make_column_transformer(
        (OneHotEncoder(categories=levels, sparse_output=False), texts),
        (StandardScaler(), make_column_selector(dtype_include="number")),
    )
    return table.drop(columns=LABEL), 2 - table[LABEL], columns


def _pipeline(final: Any) -> tuple[Any, Any, Any, Any]:
    from sklearn.pipeline import make_pipeline

    X, y, columns = credit()
    model = make_pipeline(columns, final).fit(X, y)
    return model, X, y, X[model.predict(X) == 0]


def _refits(final: Any, rows: int) -> tuple[Any, dict[str, Any]]:
    import apas

    model, X, y, rejected = _pipeline(final)
    models = apas.retrain(model, X, y, n_models=REFITS, rng=0)
    method = apas.Sampling(coverage=0.9, confidence=0.95)
    options = {"shifts": apas.ObservedShifts(models), "method": method, "background": X, "delta": None}
    return (model, rejected.iloc[:rows]), options


def trees(rows: int) -> tuple[Any, dict[str, Any]]:
    """40 boosted trees behind one-hot columns, 60 refits."""
    from xgboost import XGBClassifier

    return _refits(XGBClassifier(n_estimators=40, max_depth=4, n_jobs=1, random_state=0), rows)


def linear(rows: int) -> tuple[Any, dict[str, Any]]:
    """A logistic regression behind one-hot columns, 60 refits."""
    from sklearn.linear_model import LogisticRegression

    return _refits(LogisticRegression(max_iter=1000), rows)


def network(rows: int) -> tuple[Any, dict[str, Any]]:
    """A network of 2,529 parameters behind one-hot columns, in a box."""
    from sklearn.neural_network import MLPClassifier

    model, X, _, rejected = _pipeline(MLPClassifier((32, 16), max_iter=60, random_state=0))
    return (model, rejected.iloc[:rows]), {"background": X, "delta": 0.01}


def diabetes(rows: int) -> tuple[Any, dict[str, Any]]:
    """The network of the paper, in a box."""
    import apas
    from apas.paper.networks import prepare

    prepared = prepare("diabetes")
    net = prepared.network
    space = apas.FeatureSpace([apas.Feature(n, low=0.0, high=1.0) for n in net.feature_names or ()])
    return (net, prepared.inputs[:rows]), {"space": space, "delta": prepared.delta}


#: What is measured, and on how many rows.
CASES: dict[str, tuple[Callable[[int], tuple[Any, dict[str, Any]]], int]] = {
    "trees": (trees, 2),
    "linear": (linear, 10),
    "network": (network, 4),
    "diabetes": (diabetes, 50),
}


def measure(case: str, rows: int | None = None, profile: str | None = None) -> dict[str, float]:
    """Processor seconds per row of one case with the package that is imported, rows found and their mean cost."""
    from threadpoolctl import threadpool_limits

    import apas

    make, usual = CASES[case]
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        (model, X), options = make(rows or usual)
        apas.generate(model, X[:1], target=1, rng=0, **options)  # libraries are imported, and the like
        if profile is not None:
            import cProfile

            watch = cProfile.Profile(time.process_time)
            watch.runcall(apas.generate, model, X, target=1, rng=0, **options)
            watch.dump_stats(profile)
        begin = time.process_time()
        found = apas.generate(model, X, target=1, rng=0, **options)
        seconds = time.process_time() - begin
    costs = [c.cost for c in found if c.is_found]
    mean = float(np.mean(costs)) if costs else float("nan")
    return {"rows": len(X), "seconds": seconds / len(X), "found": len(costs), "cost": mean}


def loans(hidden: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """A model of the numbers of generated loans (logistic without hidden layers), eight rejected rows, the space."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import apas
    from apas.paper.loans import NUMERIC, make_loans

    table = make_loans(1000, rng=0)
    X = table[list(NUMERIC)].astype(float)
    final = MLPClassifier(hidden, max_iter=2000, random_state=0) if hidden else LogisticRegression()
    model = make_pipeline(StandardScaler(), final).fit(X, table["approved"])
    return model, X[model.predict(X) == 0].iloc[:8], apas.FeatureSpace.from_frame(X)


def least_cost_with_tolerance(model: Any, X: Any, space: Any, offers: Any, share: float) -> Any:
    """Proved lower bounds on what offers cost of which every number may be off by a share of its range.

    A row of such an offer lies a tolerance nearer to rejection in every feature. So the offer costs at least as much as
    it takes to get to an accepted row from the input that has been moved by as much, and that is an exact program.
    """
    import apas
    from apas.models.base import encoded_rows

    low, high = np.array([feature.ends for feature in space]).T
    net, step = apas.as_model(model), 1e-4 * (high - low)
    up, down = (
        np.column_stack([net.margin(encoded_rows(net, offers.points + s * e)[1], 1) for e in np.diag(step)])
        for s in (1, -1)
    )
    moved = np.clip(X.to_numpy() - np.sign(up - down) * share * (high - low), low, high)
    inputs = X.assign(**dict(zip(X, moved.T, strict=True)))
    nearest = apas.generate(model, inputs, 0, target=1, space=space, source="milp")
    return np.array([item.lower_bound for item in nearest])


def regions(share: float = 0.02) -> None:
    """Print costs and processor time of offers that bear a region, beside those that need not."""
    import apas

    for hidden, delta in (((), 0.05), ((8,), 0.05)):
        model, X, space = loans(hidden)
        found, seconds = {}, {}
        asked: dict[str, Any] = {"plain": {}, "tolerance": {"tolerance": share}, "beyond": {"beyond": True}}
        for name, more in asked.items():
            begin = time.process_time()
            found[name] = apas.generate(model, X, delta, target=1, space=space, rng=0, **more)
            seconds[name] = (time.process_time() - begin) / len(X)
        plain = np.array([item.cost for item in found["plain"]])
        print(f"loans {'-'.join(map(str, (len(space), *hidden, 1)))}, delta {delta}")
        for name in ("tolerance", "beyond"):
            ratio = np.array([item.cost for item in found[name]]) / plain
            windows = sum("window" in item.reason for item in found[name])
            told = f"{int(found[name].found.sum())} of {len(X)} found, {windows} windows, times the cost"
            print(
                f"  {name:<9} {told} {np.round(ratio, 2)}, median {np.median(ratio):.2f}, {seconds[name]:.2f} s per row"
            )
        bound = least_cost_with_tolerance(model, X, space, found["tolerance"], share) / plain
        print(f"  no offer with that tolerance can cost less than, times the cost {np.round(bound, 2)}", flush=True)


def compare(cases: list[str], before: Path | None, rows: int | None = None) -> None:
    """Print what each case takes, each in a process of its own, here and in the other checkout."""
    head = f"{'case':<10} {'rows':>4} {'found':>5} {'mean cost':>9} {'s per row':>9}"
    print(f"{head}   before: found, cost, s per row, ratio")
    for case in cases:
        now, then = (None if f is None else _apart(case, f, rows) for f in (Path(__file__).parents[1] / "src", before))
        assert now is not None
        told = f"{case:<10} {now['rows']:>4} {now['found']:>5} {now['cost']:>9.5f} {now['seconds']:>9.3f}"
        if then is not None:
            ratio = then["seconds"] / now["seconds"]
            told += f"   {then['found']:>4} {then['cost']:>9.5f} {then['seconds']:>9.3f} {ratio:>7.1f}x"
        print(told, flush=True)


def _apart(case: str, folder: Path, rows: int | None) -> dict[str, float]:
    """The same in a new process, which imports the package from a folder."""
    here = Path(__file__).parents[1]
    paths = os.pathsep.join([str(folder.resolve()), str(here)])
    command = [sys.executable, "-m", "benchmarks.offers", "--measure", case, *(["--rows", str(rows)] if rows else [])]
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run(
        command, env={**os.environ, **one, "PYTHONPATH": paths}, cwd=here, check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="case", help=f"some of {', '.join(CASES)}; all unless given")
    parser.add_argument("--before", type=Path, help="the folder `src` of another checkout")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--regions", action="store_true", help="offers that bear a tolerance, or may be exceeded")
    parser.add_argument("--measure", choices=list(CASES), help="measure one case here, and print it as JSON")
    parser.add_argument("--profile", help="with --measure: write a profile of the call to this file first")
    asked = parser.parse_args()
    if asked.regions:
        regions()
    elif asked.measure:
        print(json.dumps(measure(asked.measure, asked.rows, asked.profile)))
    else:
        compare(asked.cases or list(CASES), asked.before, asked.rows)
