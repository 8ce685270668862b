"""`python -m benchmarks.retraining`: which explanations survive training from scratch, and what that costs.

Needs the datasets; `--repetitions 1` takes about three minutes, the 20 of the long tests about 17 on a busy machine.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import apas
from apas.experiments import prepare
from apas.paper.table1_methods import Survival, survival_table

__all__ = ["curve", "survive"]

#: Repetitions on the large datasets are one whatever is asked for.
DATASETS = {"diabetes": None, "no2": None, "sba": 1, "credit": 1}
COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 1.0)
#: Of these the others lie too close to have a label.
LABELLED = (0.5, 0.9, 0.995, 0.999, 0.9995, 1.0)


def survive(repetitions: int) -> pd.DataFrame:
    """Print the table of every dataset, and return all of it."""
    results = []
    for name, most in DATASETS.items():
        prepared = prepare(name)
        first = Survival(prepared)
        here = [*first.of_a_box(), first.of_retraining()]
        here += [Survival(prepared, i).of_retraining() for i in range(1, most or repetitions)]
        print(survival_table(here).to_string(float_format="{:.4f}".format), flush=True)
        results += here
    return survival_table(results)


def curve(folder: Path) -> None:
    """l1 against VM2 over coverage on credit, where retraining moves the network 24 times as far as was certified."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    prepared = prepare("credit")
    space, network = prepared.tables.space, prepared.network
    inputs = prepared.raw_inputs.drop_duplicates()
    times = prepared.raw_inputs.value_counts(sort=False).reindex(pd.MultiIndex.from_frame(inputs)).to_numpy()
    figure, axes = plt.subplots(figsize=(5, 3.6), layout="constrained")
    costs, kept = [], []
    for coverage in COVERAGES:
        draws = int(min(20_000, max(2_000, 100 / (1.0000001 - coverage))))  # low shares need few
        method = apas.Sampling(coverage=coverage, n_samples=draws) if coverage < 1 else apas.IntervalBounds()
        found = apas.generate(network, inputs, prepared.delta, target=1, space=space, method=method, rng=0)
        points = space.coding.encode(found.numbers)
        l1 = np.abs(points - space.coding.encode(found.origins)).mean(axis=1)
        costs.append(float(np.average(l1[found.found], weights=times[found.found])))
        kept.append(float(np.average(prepared.retrained.margin(points, 1) >= 0, weights=times)))
        share = float(np.average(found.found, weights=times))
        print(f"coverage {coverage:<7g} l1 {costs[-1]:.4f}  VM2 {kept[-1]:.0%}  found {share:.0%}", flush=True)
    axes.plot(costs, [100 * k for k in kept], "o-", color="#1b5e9b")
    for cost, share, coverage in zip(costs, kept, COVERAGES, strict=True):
        if coverage in LABELLED:
            place = {"textcoords": "offset points", "xytext": (-6, 4), "fontsize": 8, "ha": "right"}
            axes.annotate(f"{100 * coverage:g} %", (cost, 100 * share), **place)
    axes.set(xlabel="mean l1 distance", ylabel="valid on M2, %")
    axes.margins(x=0.15, y=0.1)  # room for the labels
    axes.set_title("credit: distance against validity, by coverage", loc="left")
    figure.savefig(folder / "credit-coverage.png", dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--curve-only", action="store_true", help="only the curve over coverage on credit")
    results = Path(__file__).parents[1] / "docs" / "results"
    asked = parser.parse_args()
    curve(results)
    if not asked.curve_only:
        survive(asked.repetitions).to_csv(results / "retraining.csv", float_format="%.4f", lineterminator="\n")
