"""Everyday calls: one row, a linear model, a report, the command line; beside an older tree if one is named.

`python -m benchmarks.everyday --against ../older/src` prints ratios of processor time; each tree runs in processes of
its own, in turn, and the least time of each call counts.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import apas
from benchmarks.plain import random_network

__all__ = ["compare"]

#: Rows of the report and of the command line.
REPORTED, LISTED = 2000, 20_000
HERE = Path(apas.__file__).parents[1]


def compare(against: Path | None = None, rounds: int = 3) -> None:
    """Print milliseconds of each call, and how many times as long the other tree takes."""
    trees = [HERE] if against is None else [HERE, against.resolve()]
    found: list[dict[str, float]] = [{} for _ in trees]
    for _ in range(rounds):
        for times, tree in zip(found, trees, strict=True):
            for name, seconds in _measured(tree).items():
                times[name] = min(seconds, times.get(name, seconds))
    print(f"Everyday calls, processor time, least of {rounds} processes")
    for name, seconds in found[0].items():
        older = "" if against is None else f"{1e3 * found[1][name]:10.2f} ms before, {found[1][name] / seconds:5.2f} x"
        print(f"{name:48} {1e3 * seconds:10.2f} ms {older}".rstrip())


def _measured(tree: Path) -> dict[str, float]:
    """The times of one process with the package of a source tree, and of the command line in another one."""
    paths = os.pathsep.join([str(tree), str(Path(__file__).parents[1])])
    with tempfile.TemporaryDirectory() as folder:
        run = [sys.executable, "-m", "benchmarks.everyday", "--measure", folder]
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        output = subprocess.run(run, env=environment, check=True, capture_output=True, text=True).stdout
        times: dict[str, float] = json.loads(output.splitlines()[-1])
        asked = ["certify", "model.json", "rows.csv", "--target", "1", "--delta", "0.01", "--seed", "0"]
        before = _children()
        run = [sys.executable, "-m", "apas", *asked]
        subprocess.run(run, env=environment, check=True, cwd=folder, stdout=subprocess.DEVNULL)
        return {**times, f"apas certify of {LISTED:,} rows": _children() - before}


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _measure(folder: Path) -> dict[str, float]:
    """Seconds of each call, and the files for the command line."""
    from sklearn.datasets import make_classification
    from sklearn.linear_model import LogisticRegression

    weights, biases = random_network((8, 8, 1), seed=0)
    net, rng = apas.FeedForward(weights, biases), np.random.default_rng(6)
    rows = rng.normal(size=(LISTED, 8))
    apas.save_model(net, folder / "model.json")
    with (folder / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[f"x{i}" for i in range(8)], *rows.tolist()])
    sure = rows[np.argsort(-net.margin(rows, 1))[:REPORTED]]
    fixed = apas.Sampling(n_samples=1379)
    X, y = make_classification(500, 8, random_state=0)
    logistic = LogisticRegression().fit(X, y)
    offer = X[logistic.predict_proba(X)[:, 1] > 0.9][:1]
    linear = apas.FeedForward([logistic.coef_.T], [logistic.intercept_])
    # of one row intervals prove that no shift breaks it; of the other they do not, and it is drawn for
    proved = apas.certify(net, rows, 0.02, target="predicted", method="interval").certified
    good = rows[~proved & (net.margin(rows, 1) > 0)]
    drawn = good[[np.argsort(net.margin(good, 1))[-1]]]
    times = {
        f"one row, 8-8-1, n = 1379, {what}": _least(partial(_certify_fixed, net, row, fixed))
        for what, row in (("proved", sure[:1]), ("drawn for", drawn))
    }
    for delta, what in ((0.1, "far"), (0.42, "near")):
        for model, kind in ((logistic, "scikit-learn"), (linear, "FeedForward")):
            name = f"one row, logistic regression, {what} ({kind})"
            times[name] = _least(partial(_certify, model, offer, delta))
    certificates = apas.certify(net, sure, 0.02, target=1, rng=0)
    page = lambda i: apas.write_report(certificates, folder / "report.html", model=net, rng=i)  # noqa: E731
    return {**times, f"report of {REPORTED:,} rows": _least(page, 1, 3)}


def _certify(model: Any, row: Any, delta: float, seed: int) -> object:
    return apas.certify(model, row, delta, target=1, rng=seed)


def _certify_fixed(net: Any, row: Any, method: Any, seed: int) -> object:
    return apas.certify(net, row, 0.02, target=1, method=method, rng=seed)


def _least(call: Callable[[int], object], repeats: int = 20, rounds: int = 25) -> float:
    times = []
    for number in range(rounds):
        begin = time.process_time()
        for i in range(repeats):
            call(1000 * number + i)
        times.append((time.process_time() - begin) / repeats)
    return min(times)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="folder `src` of another checkout")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure is not None:
        print(json.dumps(_measure(asked.measure)))
    else:
        compare(asked.against)
