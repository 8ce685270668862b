"""`python -m benchmarks.calibration`: how often a calibrated delta holds, and how many rows it certifies.

`resplits` makes 120 updates of each model and divides them many times into some that calibrate and the others, which
judge: a calibration holds on an update that breaks no certified row. `backtest` goes through 40 months of loan
applications in three worlds (no drift, steady drift, sudden drift): each month the last steps calibrate, and the step
that follows judges; with `--draw` it writes the picture of the documentation. `speed` compares with `max_shift`. With
`--seed` other divisions, updates, loans and banks are drawn than those of the documentation, whose seed is 0.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import apas
from apas._typing import Bools, Floats
from apas.datasets import NUMERIC, dataset_path, make_loans
from apas.paper.data_folder import data_folder

__all__ = ["DATA", "PROCESSES", "Pool", "backtest", "resplit", "speed"]

UPDATES, ROWS, COVERAGE = 120, 250, 0.9
#: Of so many divisions of the rows into those that train and those that are explained.
SPLITS = {"logistic regression": 10, "warm network": 4, "network from scratch": 2}


def diabetes(_: int = 0) -> tuple[pd.DataFrame, Any]:
    """Rows and classes of the diabetes data, 1 for those without."""
    table = pd.read_csv(dataset_path("diabetes"))
    return table.drop(columns="Outcome"), 1 - table["Outcome"].to_numpy()


def german(_: int = 0) -> tuple[pd.DataFrame, Any]:
    """Rows and classes of the German credit data, categories as columns of 0 and 1."""
    table = pd.read_csv(dataset_path("credit"), header=None)
    return pd.get_dummies(table.iloc[:, :-1], dtype=float), (table.iloc[:, -1] == 1).astype(int).to_numpy()


def heloc(_: int = 0) -> tuple[pd.DataFrame, Any]:
    """Rows and classes of HELOC."""
    table = pd.read_csv(data_folder() / "heloc" / "heloc.csv")
    return table.drop(columns="RiskPerformance"), table["RiskPerformance"].astype(int).to_numpy()


def loans(seed: int = 0) -> tuple[pd.DataFrame, Any]:
    """Generated loan applications, the first half of this year, the second of a quarter later."""
    table = pd.concat([make_loans(2000, rng=seed + 1), make_loans(2000, drift=0.25, rng=seed + 2)], ignore_index=True)
    return table[list(NUMERIC)], table["approved"].to_numpy()


DATA: dict[str, Callable[[int], tuple[pd.DataFrame, Any]]] = {
    "diabetes": diabetes, "german": german, "heloc": heloc, "loans": loans,
}  # fmt: skip
PROCESSES = ("logistic regression", "warm network", "network from scratch")
MOST = 4000  # rows that a model is trained on


class Pool:
    """A model, updates of it, rows that it accepts, their scores, and which update breaks which."""

    def __init__(self, data: str, process: str, updates: int = UPDATES, seed: int = 0, first: int = 0) -> None:
        X, y = DATA[data](first)
        rows, classes, rng = X.to_numpy(dtype=np.float64), y, np.random.default_rng(seed)
        order = np.arange(len(X)) if data == "loans" else rng.permutation(len(X))  # loans come in their order
        train, kept = order[: 4 * len(order) // 5], order[4 * len(order) // 5 :]
        train = train if process == "logistic regression" else train[-MOST:]
        # a warm network is trained on half of the rows, and further on the others
        old, new = (train[: len(train) // 2], train[len(train) // 2 :]) if process == "warm network" else (train, train)
        numbers = [i for i in range(rows.shape[1]) if len(np.unique(rows[train, i])) > 2]
        make = partial(self._train, process, numbers)
        self.base, self.updates = make(rows[old], classes[old], seed), []
        for i in range(updates):
            some = rng.choice(new, len(new), replace=True)
            if process == "warm network":
                model = copy.deepcopy(self.base)
                for _ in range(3):
                    model[-1].partial_fit(model[:-1].transform(rows[some]), classes[some])
            else:
                model = make(rows[some], classes[some], seed + 1 + i)
            self.updates.append(model)
        accepted = rows[kept][self.base.predict(rows[kept]) == 1]
        self.rows = accepted[:ROWS]
        self.scores = apas.max_shift(self.base, self.rows, target=1, rng=0).deltas
        self.breaks: Bools = np.array([model.predict(self.rows) != 1 for model in self.updates])
        self.worst: Floats = np.array([self.scores[broken].max(initial=-np.inf) for broken in self.breaks])

    @staticmethod
    def _train(process: str, numbers: list[int], X: Floats, y: Any, seed: int) -> Any:
        last: Any = LogisticRegression(max_iter=1000)
        if process != "logistic regression":
            last = MLPClassifier((8,), alpha=0.1, learning_rate_init=0.01, max_iter=60, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            scaled = ColumnTransformer([("numbers", StandardScaler(), numbers)], remainder="passthrough")
            return make_pipeline(scaled, last).fit(X, y)


def resplit(pool: Pool, updates: int, confidence: float | None, repeats: int, seed: int = 0) -> dict[str, float]:
    """Certified share of the rows and share of held-out updates that keep all of them, on average over divisions.

    With a confidence also in what share of the calibrations at least the coverage is kept, of updates drawn with
    replacement: the pool is then the process itself, whose share is known.
    """
    rng, found, reached = np.random.default_rng(seed), [], []
    for _ in range(repeats):
        order = rng.permutation(len(pool.worst))
        limit = _threshold(pool.worst[order[:updates]], confidence)
        found.append((np.mean(pool.scores > limit), np.mean(pool.worst[order[updates:]] <= limit)))
        if confidence is not None:
            limit = _threshold(pool.worst[rng.integers(0, len(pool.worst), updates)], confidence)
            reached.append(np.mean(pool.worst <= limit) >= COVERAGE)
    certified, kept = np.mean(found, axis=0)
    return {"certified": certified, "kept": kept, "reached": np.mean(reached) if reached else np.nan}


def _threshold(worst: Floats, confidence: float | None) -> float:
    return apas.NextUpdate(COVERAGE, confidence, "", 0, {"kind": "max_shift"}, tuple(worst.tolist())).threshold


def resplits(repeats: int, data: list[str], processes: list[str], first: int = 0) -> None:
    """Print a line per data set and process, on average over several divisions of the rows."""
    print(f"coverage {COVERAGE}, {repeats} divisions of {UPDATES} updates; certified share / kept by held-out updates")
    print(f"{'data':9} {'process':22} {'survive':>8} {'advice':>7}  {'19, marginal':>13} {'59, marginal':>13}", end="")
    print(f" {'29, conf. 0.95':>15} {'59, conf. 0.95':>15}  share reached")
    for name in data:
        for process in processes:
            pools = [Pool(name, process, seed=first + i, first=first) for i in range(SPLITS[process])]
            whole = apas.calibrate_delta(pools[0].base, pools[0].updates[:59], pools[0].rows, target=1, rng=0)
            assert whole.claim.threshold == _threshold(pools[0].worst[:59], 0.95), "the call and this must agree"
            forms = []
            for m, level in ((19, None), (59, None), (29, 0.95), (59, 0.95)):
                some = [resplit(pool, m, level, repeats // len(pools), first + i) for i, pool in enumerate(pools)]
                forms.append({key: np.mean([found[key] for found in some]) for key in some[0]})
            cells = [f"{f['certified']:.3f} / {f['kept']:.3f}" for f in forms]
            survive, old = np.mean([(1 - pool.breaks.mean(), advice(pool)) for pool in pools], axis=0)
            print(f"{name:9} {process:22} {survive:8.3f} {old:7.3f}  ", end="")
            print(f"{cells[0]:>13} {cells[1]:>13} {cells[2]:>15} {cells[3]:>15}  ", end="")
            print(f"{forms[2]['reached']:.3f} {forms[3]['reached']:.3f}", flush=True)


def advice(pool: Pool) -> float:
    """The share of rows certified at the largest change of a parameter in three updates, as was once advised."""
    largest = float(apas.measure_shift(pool.base, *pool.updates[:3], p=np.inf)) if _comparable(pool) else np.inf
    return float(np.mean(pool.scores >= largest))


def _comparable(pool: Pool) -> bool:
    warnings.simplefilter("ignore", apas.GuaranteeWarning)  # each refit has a scaler of its own
    return len({apas.as_model(m).parameters.shapes for m in (pool.base, *pool.updates[:3])}) == 1


#: Drift per month before and from the break on.
WORLDS = {"no drift": (0.0, 0.0), "steady drift": (1 / 24, 1 / 24), "sudden drift": (1 / 24, 5 / 24)}
MONTHS, WINDOW, BREAK = 40, 19, 30


def backtest(world: str, seed: int) -> Iterator[tuple[int, bool, bool, float]]:
    """Per month whether the next model keeps what the last 19 steps certify at 0.90 and 0.95, and the share certified.

    The bank refits a logistic regression every month to the applications of the last three; the list of rows is drawn
    anew for each step from the applications of its month.
    """
    slow, fast = WORLDS[world]
    drift, tables, models, steps = 0.0, [], [], list[float]()
    for month in range(WINDOW + MONTHS + 3):
        tables.append(make_loans(600, drift=min(drift, 5.0), rng=1000 * seed + month))
        # step s leads to the model of month s + 3, and the step that judges month number BREAK is WINDOW + BREAK - 1
        drift += slow if month <= WINDOW + BREAK else fast
        if month < 2:
            continue
        some = pd.concat(tables[-3:])
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        models.append(model.fit(some[list(NUMERIC)].to_numpy(), some["approved"]))
        if len(models) < 2:
            continue
        base, successor = models[-2:]
        rows = tables[-2][list(NUMERIC)].to_numpy()[:250]
        rows = rows[base.predict(rows) == 1]
        scores = apas.max_shift(base, rows, target=1, method=apas.Sampling(n_samples=1379), rng=0).deltas
        worst = float(scores[successor.predict(rows) != 1].max(initial=-np.inf))
        if len(steps) >= WINDOW:
            last = sorted(steps[-WINDOW:])
            yield len(steps) - WINDOW, worst <= last[17], worst <= last[18], float(np.mean(scores > last[17]))
        steps.append(worst)


def backtests(seeds: int, folder: Path | None, first: int = 0) -> None:
    """Print, and draw, how often the claim held."""
    kept: dict[str, Floats] = {}
    for world in WORLDS:
        months = [list(backtest(world, seed)) for seed in range(first, first + seeds)]
        kept[world] = np.array([[held for _, held, _, _ in run] for run in months], dtype=np.float64)
        higher = np.mean([held for run in months for _, _, held, _ in run])
        share = np.mean([certified for run in months for *_, certified in run])
        after = kept[world][:, BREAK - 1 :].mean()
        print(
            f"{world:13} {kept[world].size} steps: kept {kept[world].mean():.3f} at 0.90, {higher:.3f} at 0.95, ",
            end="",
        )
        print(f"certified {share:.3f}; from month {BREAK} on {after:.3f}", flush=True)
    if folder is not None:
        draw(kept, folder)


def draw(kept: dict[str, Floats], folder: Path) -> None:
    """The share of banks that kept everything they had certified, each month with the four before it."""
    import matplotlib.pyplot as plt

    from apas.display.plots import save_figure

    figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for world, colour in zip(kept, ("#1b7f4d", "#1b4f7f", "#b3261e"), strict=True):
        share = np.convolve(kept[world].mean(axis=0), np.full(5, 0.2), mode="valid")
        ax.plot(np.arange(len(share)) + 5, share, color=colour, label=f"{world}: {kept[world].mean():.3f}")
    ax.axhline(COVERAGE, color="black", linewidth=1, linestyle="--", label="nominal: 0.9")
    ax.axvline(
        BREAK, color="#8a8a8a", linewidth=1, linestyle=":", label="from here on five times\nas fast (sudden drift)"
    )
    ax.set(xlabel="month", ylabel="updates that kept every certified row", ylim=(0.5, 1.02))
    ax.legend(loc="lower left", frameon=False)
    print(*save_figure(figure, folder, "backtest"))


def speed() -> None:
    """CPU time of a calibration with 59 updates over that of `max_shift` of its 250 rows."""
    for process in ("logistic regression", "warm network"):
        pool, ratios = Pool("loans", process, updates=59), []
        for i in range(5):
            begin = time.process_time()
            apas.max_shift(pool.base, pool.rows, target=1, rng=i)
            middle = time.process_time()
            apas.calibrate_delta(pool.base, pool.updates, pool.rows, target=1, rng=i)
            ratios.append((time.process_time() - middle) / (middle - begin))
        print(f"{process}: {len(pool.rows)} rows, 59 updates: {np.median(ratios):.2f} times max_shift of the rows")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("resplits", "backtest", "speed"))
    parser.add_argument("--repeats", type=int, help="divisions (200 unless given), or banks of the backtest (10)")
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--processes", nargs="+", default=list(PROCESSES), choices=PROCESSES)
    parser.add_argument("--seed", type=int, default=0, help="of divisions, updates, loans and banks")
    parser.add_argument("--draw", type=Path, help="folder for the picture of the backtest")
    given = parser.parse_args()
    with threadpool_limits(1):
        if given.what == "resplits":
            resplits(given.repeats or 200, given.data, given.processes, given.seed)
        elif given.what == "backtest":
            backtests(given.repeats or 10, given.draw, given.seed)
        else:
            speed()
