"""Figure 4 and Section 7.2 of the paper: how far the model may shift, in the worst case and for most shifts.

On each dataset, 50 inputs are explained by MILP-R, whose explanations are proved for the experiment's delta. Then the
largest delta of each explanation is asked for in several ways, and the network is retrained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from apas._optional import require
from apas._typing import Floats
from apas.certification.max_shift.api import max_shift
from apas.certification.methods.sampling import Sampling
from apas.display.plots import save_figure
from apas.models.feedforward import FeedForward
from apas.paper.datasets import TABLES, files_of
from apas.paper.networks import Preparation, prepare
from apas.paper.published import Loops, PublishedSampling, published_delta, published_loops
from apas.paper.store import Unit, data_version

if TYPE_CHECKING:
    import pandas as pd

#: Methods in the order of the bars, with their colours.
BARS: Final = {
    "worst case": "#8a8a8a",
    "paper search, its draws": "#c97b2e",
    "paper search, own draws": "#e8c08f",
    "rays, n = 1379": "#6fa8d6",
    "rays, n = 20,000": "#1b4f7f",
}
WIDTH = 0.8 / len(BARS)


def figures(results: Sequence[Mapping[str, Any]], folder: Path | str) -> list[Path]:
    """The mean deltas as bars."""
    plt = require("matplotlib.pyplot", feature="Figure 4", extra="plot")
    shifts = {r["dataset"]: f"{r['shift']:.2f}" for r in results if "vm1" in r}
    results = [r for r in results if "method" in r]
    figure, ax = plt.subplots(figsize=(10, 5), layout="constrained")
    names = list(dict.fromkeys(r["dataset"] for r in results))
    for k, (method, colour) in enumerate(BARS.items()):
        shown = [r for r in results if r["method"] == method]
        places = [names.index(r["dataset"]) + (k - (len(BARS) - 1) / 2) * WIDTH for r in shown]
        means = [r["mean"] for r in shown]
        below = [r["mean"] - r["least"] for r in shown]
        above = [r["largest"] - r["mean"] for r in shown]
        ax.bar(places, means, WIDTH * 0.92, color=colour, label=method)
        ax.errorbar(places, means, [below, above], fmt="none", ecolor="black", elinewidth=0.8, capsize=2.5)
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


#: The search of the test, and the claim that its deltas carry.
METHODS: Final[Mapping[str, str]] = {
    "worst case, as published": "every shift",
    "worst case": "every shift",
    "paper search, its draws": "99.4999 % of the shifts, confidence 0.999 per test only",
    "paper search, own draws": "99.5 % of the shifts, confidence 0.999 per test only",
    "rays, n = 1379": "99.5 % of the shifts, confidence 0.999",
    "rays, n = 20,000": "99.5 % of the shifts, confidence 0.999",
}
#: Those whose draws are repeated with other seeds, and how often.
RANDOM: Final = ("paper search, own draws", "rays, n = 1379", "rays, n = 20,000")
REPETITIONS, FEW = 10, 2
#: Mean deltas in the worst case and by sampling, as the authors' notebooks print them.
DELTAS: Final[Mapping[str, tuple[float, float]]] = {
    "diabetes": (0.108742, 0.274099),
    "no2": (0.022575, 0.076827),
    "sba": (0.109660, 0.317258),
    "credit": (0.069975, 0.203909),
}
#: The measured shift as the paper states it; it is the largest change of a first-layer weight.
MEASURED: Final[Mapping[str, float]] = {"diabetes": 0.27, "no2": 0.07, "sba": 0.25, "credit": 1.28}
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
    names = settings.get("datasets", tuple(TABLES))
    times = FEW if settings.get("quick") else REPETITIONS
    found = []
    for name in names:
        found.append(Unit("figure4", explain, {"dataset": name}, files_of(name)))
        for method in METHODS:
            asked = {"dataset": name, "method": method, "repetitions": times if method in RANDOM else 1}
            found.append(Unit("figure4", measure, asked, files_of(name)))
    return found


def explain(dataset: str) -> dict[str, Any]:
    """Explain the inputs by MILP-R, and see on which networks the explanations are valid."""
    preparation, loops, points = _case(dataset)
    weights = loops.times
    before = preparation.network.margin(points, 1) >= 0
    return {
        "dataset": dataset,
        "inputs": int(weights.sum()),
        "different": len(weights),
        **{name: getattr(preparation, name) for name in ("delta", "published_shift", "shift")},
        "vm1": float(np.average(before, weights=weights)),
        "vm2": float(np.average(before & (preparation.retrained.margin(points, 1) >= 0), weights=weights)),
        "l1": loops.l1(MILP_R),
    }


def measure(dataset: str, method: str, repetitions: int) -> dict[str, Any]:
    """The largest deltas of the explanations by one of `METHODS`, with seeds 0, 1, ..."""
    preparation, loops, points = _case(dataset)
    found = np.stack([_deltas(preparation.network, points, method, seed) for seed in range(repetitions)])
    weights, each = loops.times, found.mean(axis=0)
    mean = float(np.average(each, weights=weights))
    return {
        "dataset": dataset,
        "method": method,
        "means": np.average(found, axis=1, weights=weights).tolist(),
        "mean": mean,
        "deviation": float(np.sqrt(np.average((each - mean) ** 2, weights=weights))),
        "least": float(each.min()),
        "largest": float(each.max()),
    }


def _deltas(network: FeedForward, X: Floats, method: str, seed: int) -> Floats:
    if method == "worst case, as published":
        return published_delta(network, X, "interval")
    if method == "worst case":
        return max_shift(network, X, target=1, method="exact").deltas
    if method == "paper search, its draws":
        return published_delta(network, X, PublishedSampling(n_samples=1378))
    search = "paper" if method.startswith("paper") else "rays"
    sampler = Sampling(n_samples=20_000 if method.endswith("20,000") else 1379)
    return max_shift(network, X, target=1, method=sampler, search=search, rng=seed).deltas


def tables(results: Sequence[Mapping[str, Any]]) -> dict[str, pd.DataFrame]:
    """Deltas and validity, ours beside the paper's."""
    import pandas as pd

    deltas = pd.DataFrame([_line(r) for r in results if "method" in r])
    validity = pd.DataFrame(
        {
            **{name: r[name] for name in ("dataset", "inputs", "different")},
            "delta": _six(r["delta"]),
            "first-layer shift": _six(r["published_shift"]),
            "paper's delta_e": str(MEASURED[r["dataset"]]),
            "shift of all parameters": _six(r["shift"]),
            "VM1": r["vm1"],
            "VM2": r["vm2"],
            "paper's VM1 and VM2": 1.0,
            "l1": _six(r["l1"]),
        }
        for r in results
        if "vm1" in r
    )
    return {"figure4-deltas": deltas, "figure4-validity": validity}


def _six(value: float) -> str:
    return f"{value:.6f}"


def _line(result: Mapping[str, Any]) -> dict[str, Any]:
    method, means = result["method"], result["means"]
    printed = DELTAS[result["dataset"]][0 if method.startswith("worst") else 1]
    return {
        "dataset": result["dataset"],
        "method": method,
        "claim": METHODS[method],
        "mean": _six(result["mean"]),
        "paper": _six(printed),
        "ratio": result["mean"] / printed,
        **{name: _six(result[name]) for name in ("deviation", "least", "largest")},
        "seeds": len(means),
        "least mean": _six(min(means)),
        "largest mean": _six(max(means)),
    }
