"""`python -m benchmarks.retraining`: which explanations survive training from scratch, and what that costs.

Needs the datasets; `--repetitions 1` takes about three minutes, the 20 of the long tests about 17 on a busy machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

import apas
from apas._typing import Floats, Integers
from apas.counterfactuals.api import generate
from apas.counterfactuals.result import Counterfactuals, Status
from apas.experiments import prepare
from apas.models.feedforward import FeedForward
from apas.paper.networks import Preparation, refitted_networks
from apas.paper.published import PublishedSampling, published_loops
from apas.paper.table1 import CERTIFYING, CLAIM, SEARCHED
from apas.shifts.observed import ObservedShifts

__all__ = ["Survival", "curve", "survival_table", "survive"]

#: Repetitions on the large datasets are one whatever is asked for.
DATASETS = {"diabetes": None, "no2": None, "sba": 1, "credit": 1}
COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 1.0)
#: Of these the others lie too close to have a label.
LABELLED = (0.5, 0.9, 0.995, 0.999, 0.9995, 1.0)

#: How many networks judge. A claim counts as false if fewer than the second number accept, which one true claim in
#: 2,000 would at a share of exactly 0.95.
JUDGES, LEAST = 200, 179
#: Seeds of the networks of repetition r are these plus r: no two repetitions share one.
CERTIFY, SEARCH, JUDGE = 1000, 2000, 3000


@dataclass(frozen=True, eq=False)
class Survivors:
    """How the explanations of one method fare."""

    dataset: str
    method: str
    inputs: int
    infeasible: int
    l1: Floats
    accepted: Integers

    @property
    def n_false(self) -> int:
        """For how many "at least 95 % of the networks trained anew accept it" is false, claimed or not."""
        return int(np.count_nonzero(self.accepted < LEAST))


@dataclass(frozen=True, eq=False)
class Survival:
    """Explanations of one dataset before networks trained from scratch, all of which a repetition has to itself."""

    preparation: Preparation
    repetition: int = 0

    @cached_property
    def searched(self) -> list[FeedForward]:
        """Networks that a search may look at."""
        return refitted_networks(self.preparation, SEARCHED, seed=SEARCH + self.repetition)

    @cached_property
    def judges(self) -> list[FeedForward]:
        """Networks that no search and no certificate has seen."""
        return refitted_networks(self.preparation, JUDGES, seed=JUDGE + self.repetition)

    @property
    def inputs(self) -> pd.DataFrame:
        """The inputs that differ, in raw units."""
        return self.preparation.raw_inputs.drop_duplicates()

    def of_a_box(self) -> Iterator[Survivors]:
        """MILP, MILP-R and APΔS as published and `RobustOptimum`, all for the shifts of the paper's delta."""
        tests = {"MILP": None, "MILP-R": "interval", "APΔS": PublishedSampling()}
        loops = published_loops(self.preparation, tests)
        for method, points in loops.points.items():
            yield self._survivors(method, points, loops.inputs, len(points), 0)
        yield self._judged("RobustOptimum", self._generated(self.preparation.delta, rng=0))

    def of_retraining(self) -> Survivors:
        """`RobustOptimum` with 40 networks to search and 59 others to certify, at (0.95, 0.95)."""
        certifying = refitted_networks(self.preparation, CERTIFYING, seed=CERTIFY + self.repetition)
        shifts = ObservedShifts([*self.searched, *certifying], process="training from scratch on a bootstrap sample")
        found = self._generated(None, shifts=shifts, method=CLAIM, rng=self.repetition)
        return self._judged("RobustOptimum, retrained", found)

    def _generated(self, delta: float | None, **options: object) -> Counterfactuals:
        source, space = self.preparation, self.preparation.tables.space
        return generate(
            source.network,
            self.inputs,
            delta,
            target=1,
            space=space,
            background=source.d1.raw,
            **options,  # type: ignore[arg-type]
        )

    def _judged(self, method: str, found: Counterfactuals) -> Survivors:
        coding, kept = self.preparation.tables.space.coding, found.found
        points, inputs = coding.encode(found.numbers[kept]), coding.encode(found.origins[kept])
        infeasible = sum(answer.status is Status.INFEASIBLE for answer in found)
        return self._survivors(method, points, inputs, len(found), infeasible)

    def _survivors(self, method: str, points: Floats, inputs: Floats, asked: int, infeasible: int) -> Survivors:
        l1 = np.abs(points - inputs).mean(axis=1)
        accepted = accepted_by(self.judges, points)
        return Survivors(self.preparation.name, method, asked, infeasible, l1, accepted)


def survival_table(results: Iterable[Survivors]) -> pd.DataFrame:
    """One line per dataset and method, repetitions taken together."""
    import pandas as pd

    lines = pd.DataFrame(
        {
            "dataset": r.dataset,
            "method": r.method,
            "inputs": r.inputs,
            "found": len(r.l1),
            "infeasible": r.infeasible,
            "l1": r.l1.sum(),
            "accepted": r.accepted.sum(),
            "false": r.n_false,
        }
        for r in results
    )
    groups = lines.groupby(["dataset", "method"], sort=False)
    sums = groups.sum()
    return pd.DataFrame(
        {
            "repetitions": groups.size(),
            "found": sums["found"] / sums["inputs"],
            "infeasible": sums["infeasible"] / sums["inputs"],
            "l1": sums["l1"] / sums["found"],
            "valid": sums["accepted"] / sums["found"] / JUDGES,
            "shown below 95 %": sums["false"] / sums["found"],
        }
    )


def accepted_by(networks: Sequence[FeedForward], points: Floats) -> Integers:
    """How many networks put each point into class 1; points as the networks see them."""
    counts = np.zeros(len(points), dtype=np.int64)
    for network in networks:
        counts += network.margin(points, 1) >= 0
    return counts


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
