"""`python -m benchmarks.price`: what robust counterfactuals cost, against coverage, delta and retraining."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

import apas
from apas.datasets import NUMERIC, make_loans

__all__ = ["price"]

ROWS, NAMES = 20, list(NUMERIC)
#: Retrained models that are searched.
SEARCHED = 61


def price(folder: Path) -> None:
    """Print the mean distances, and save the picture."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    loans = make_loans(1000)
    space = apas.FeatureSpace.from_frame(loans[NAMES], kinds=dict.fromkeys(NAMES, "continuous"), scale="minmax")
    Z, y = space.encode(loans[NAMES]), loans["approved"].to_numpy()
    network = MLPClassifier((8,), max_iter=1000, random_state=0).fit(Z, y)
    model = space.bind(network)
    rows = loans.loc[network.predict(Z) == 0, NAMES].head(ROWS)

    def mean(**options: Any) -> float:
        found = apas.generate(model, rows, space=space, rng=0, **options)
        return float(np.mean([item.cost for item in found if item.is_found]))

    shares, deltas = (0.5, 0.8, 0.9, 0.95, 0.99, 0.995, 0.999), (0.01, 0.02, 0.05, 0.1, 0.15)
    by_share = [mean(delta=0.05, method=apas.Sampling(coverage=share)) for share in shares]
    by_delta = [mean(delta=delta) for delta in deltas]
    proved = [mean(delta=delta, method="interval") for delta in deltas]
    _print("coverage, delta 0.05", shares, by_share)
    _print("delta, 99.5 %", deltas, by_delta)
    _print("delta, every shift", deltas, proved)
    shares_kept, distances = _retraining(space, loans[NAMES], y)
    figure, (left, right, last) = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    left.plot([1 - share for share in shares], by_share, "o-", color="#1b5e9b")
    left.set(xscale="log", xlabel="share of shifts that may fail", ylabel="mean distance")
    left.invert_xaxis()
    left.set_title("Coverage, delta 0.05", loc="left")
    right.plot(deltas, by_delta, "o-", color="#1b5e9b", label="99.5 % of the shifts")
    right.plot(deltas, proved, "s--", color="#b3261e", label="every shift")
    right.set(xlabel="delta", ylim=(0, None))
    right.set_title("Delta", loc="left")
    right.legend(frameon=False)
    last.plot(shares_kept, distances, "o-", color="#1b5e9b")
    last.set(xlabel="share of retrained models asked for (0: none)", ylim=(0, None))
    last.set_title("Retraining", loc="left")
    figure.savefig(folder / "price.png", dpi=110)


def _retraining(space: apas.FeatureSpace, table: Any, y: Any) -> tuple[list[float], list[float]]:
    """The same for models trained anew on bootstrap samples: logistic regressions, which are trained in no time."""
    Z = space.encode(table)
    base = LogisticRegression(max_iter=1000).fit(Z, y)
    models = apas.retrain(base, Z, y, n_models=300, rng=0)
    rows = table.loc[base.predict(Z) == 0].head(ROWS)
    plain = apas.generate(base, rows, 1e-9, space=space, source="milp", rng=0)
    results = {0.0: plain}
    for share in (0.5, 0.8, 0.9, 0.95):
        method = apas.Sampling(coverage=share, confidence=0.95)
        certifying = apas.sample_size(coverage=share, confidence=0.95)
        shifts = apas.ObservedShifts(models[: SEARCHED + certifying])
        results[share] = apas.generate(base, rows, None, space=space, shifts=shifts, method=method, rng=0)
    costs = []
    print("share of retrained models, 95 % confidence")
    for share, found in results.items():
        encoded = space.encode(found.points[found.found])
        valid = np.mean([apas.as_model(m).margin(encoded, 1) >= 0 for m in models[120:]])
        costs.append(float(np.mean([item.cost for item in found if item.is_found])))
        got = found.found.mean()
        print(f"  {share:<6g} {costs[-1]:.4f}, {got:.0%} found, valid on {valid:.1%} of 180 further models")
    return list(results), costs


def _print(title: str, values: Iterable[float], costs: Iterable[float]) -> None:
    print(title)
    for value, cost in zip(values, costs, strict=True):
        print(f"  {value:<6g} {cost:.4f}")


if __name__ == "__main__":
    price(Path(__file__).parents[1] / "docs" / "results")
