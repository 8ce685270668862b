"""Figure 4 and Section 7.2 of the paper: how far the model may shift, in the worst case and for most shifts.

On each dataset, 50 inputs are explained by MILP-R, whose explanations are proved for the experiment's delta. Then the
largest delta of each explanation is asked for in several ways, and the network is retrained.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

import apas
from apas._typing import Floats
from apas.display.plots import save_figure
from apas.paper import Results, make_tables, new_figure, package_table
from apas.paper.datasets import TABLES, files_of
from apas.paper.experiment import Unit, data_version
from apas.paper.networks import Preparation, prepare
from apas.paper.published import Loops, PublishedSampling, published_delta, published_loops

#: Methods: the search of the test, the claim that its deltas carry, and the colour of its bar, if it has one.
_METHODS: Final = package_table("figure4-methods.csv")
METHODS: Final = {line["method"]: line["claim"] for line in _METHODS}
BARS: Final = {line["method"]: line["colour"] for line in _METHODS if line["colour"]}
WIDTH = 0.8 / len(BARS)


def figures(results: Results, folder: Path | str) -> list[Path]:
    """The mean deltas as bars."""
    figure, ax = new_figure(feature="Figure 4", figsize=(10, 5))
    shifts = {r["dataset"]: f"{r['shift']:.2f}" for r in results if "vm1" in r}
    results = [r for r in results if "method" in r]
    names = list(dict.fromkeys(r["dataset"] for r in results))
    for k, (method, colour) in enumerate(BARS.items()):
        shown = [r for r in results if r["method"] == method]
        places = [names.index(r["dataset"]) + (k - (len(BARS) - 1) / 2) * WIDTH for r in shown]
        means = [r["mean"] for r in shown]
        ends = [[r["mean"] - r["least"] for r in shown], [r["largest"] - r["mean"] for r in shown]]
        ax.bar(places, means, WIDTH * 0.92, color=colour, label=method)
        ax.errorbar(places, means, ends, fmt="none", ecolor="black", elinewidth=0.8, capsize=2.5)
        if method in ("worst case", "paper search, its draws"):
            theirs = [DELTAS[r["dataset"]][k] for r in shown]
            label = "as printed in the paper's notebooks" if k == 0 else None
            ax.plot(places, theirs, "D", color="white", markeredgecolor="black", markersize=5, zorder=4, label=label)
    ax.set_xticks(range(len(names)), [f"{name}\nretraining moves it by {shifts.get(name, '?')}" for name in names])
    ax.set_ylabel("largest delta: mean of 50 explanations\n(whiskers: least and largest)")
    ax.set_title("How far the model may shift: every shift against 99.5 % of the shifts", loc="left")
    ax.legend(frameon=False, fontsize=9, ncols=2)
    ax.margins(y=0.12)
    return save_figure(figure, folder, "figure4")


#: Those whose draws are repeated with other seeds, and how often.
RANDOM: Final = ("paper search, own draws", "rays, n = 1379", "rays, n = 20,000")
REPETITIONS, FEW = 10, 2
#: Mean deltas in the worst case and by sampling, as the authors' notebooks print them.
DELTAS: Final = {d["dataset"]: (float(d["worst"]), float(d["sampling"])) for d in package_table("figure4.csv")}
#: The measured shift as the paper states it; it is the largest change of a first-layer weight.
MEASURED: Final = {line["dataset"]: float(line["measured"]) for line in package_table("figure4.csv")}
MILP_R = "MILP-R"


def _case(dataset: str) -> tuple[Preparation, Loops, Floats]:
    """A dataset's networks, the loops over the inputs that differ, and their explanations."""
    preparation, loops = _make(dataset, data_version(files_of(dataset)))
    return preparation, loops, loops.points[MILP_R]


@lru_cache(maxsize=len(TABLES))
def _make(dataset: str, data: str) -> tuple[Preparation, Loops]:
    """Made once per process and state of the data: it takes longer than all that is asked about it."""
    preparation = prepare(dataset)
    return preparation, published_loops(preparation, {MILP_R: "interval"})


def units(settings: Mapping[str, Any]) -> list[Unit]:
    """One piece of work per dataset and method, and one per dataset for what the explanations are worth."""
    times, found = FEW if settings.get("quick") else REPETITIONS, []
    for name in settings.get("datasets", tuple(TABLES)):
        found.append(Unit("figure4", explain, {"dataset": name}, files_of(name)))
        for method in METHODS:
            asked = {"dataset": name, "method": method, "repetitions": times if method in RANDOM else 1}
            found.append(Unit("figure4", measure, asked, files_of(name)))
    return found


def explain(dataset: str) -> dict[str, Any]:
    """Explain the inputs by MILP-R, and see on which networks the explanations are valid."""
    preparation, loops, points = _case(dataset)
    weights = loops.times
    before, after = (model.margin(points, 1) >= 0 for model in (preparation.network, preparation.retrained))
    vm1, vm2 = (float(np.average(kept, weights=weights)) for kept in (before, before & after))
    moved = {name: getattr(preparation, name) for name in ("delta", "published_shift", "shift")}
    about = {"dataset": dataset, "inputs": int(weights.sum()), "different": len(weights), **moved}
    return {**about, "vm1": vm1, "vm2": vm2, "l1": loops.l1(MILP_R)}


def measure(dataset: str, method: str, repetitions: int) -> dict[str, Any]:
    """The largest deltas of the explanations by one of `METHODS`, with seeds 0, 1, ..."""
    preparation, loops, points = _case(dataset)
    found = np.stack([_deltas(preparation.network, points, method, seed) for seed in range(repetitions)])
    weights, each = loops.times, found.mean(axis=0)
    mean = float(np.average(each, weights=weights))
    spread = {"deviation": float(np.sqrt(np.average((each - mean) ** 2, weights=weights)))}
    spread |= {"least": float(each.min()), "largest": float(each.max())}
    means = np.average(found, axis=1, weights=weights).tolist()
    return {"dataset": dataset, "method": method, "means": means, "mean": mean, **spread}


def _deltas(network: apas.FeedForward, X: Floats, method: str, seed: int) -> Floats:
    if method == "worst case, as published":
        return published_delta(network, X, "interval")
    if method == "worst case":
        return apas.max_shift(network, X, target=1, method="exact").deltas
    if method == "paper search, its draws":
        return published_delta(network, X, PublishedSampling(n_samples=1378))
    search = "paper" if method.startswith("paper") else "rays"
    sampler = apas.Sampling(n_samples=20_000 if method.endswith("20,000") else 1379)
    return apas.max_shift(network, X, target=1, method=sampler, search=search, rng=seed).deltas


def tables(results: Results) -> dict[str, pd.DataFrame]:
    """Deltas and validity, ours beside the paper's."""
    validity = [{**r, "measured": MEASURED[r["dataset"]], "paper": 1.0} for r in results if "vm1" in r]
    deltas = [_line(r) for r in results if "method" in r]
    return make_tables({"figure4-deltas": deltas, "figure4-validity": validity})


def _line(result: Mapping[str, Any]) -> dict[str, Any]:
    means, paper = result["means"], DELTAS[result["dataset"]][0 if result["method"].startswith("worst") else 1]
    compared = {"claim": METHODS[result["method"]], "paper": paper, "ratio": result["mean"] / paper}
    return {**result, **compared, "seeds": len(means), "low": min(means), "high": max(means)}
