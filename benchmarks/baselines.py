"""`python -m benchmarks.baselines`: the paper's competitors as published, and why some figures differ.

Needs the datasets. ``python -m benchmarks.baselines why`` measures the reasons only (``docs/results/table1-why.csv``).
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree

from apas import Feature, FeatureSpace
from apas._typing import Floats
from apas.counterfactuals.sources.base import CandidateSource, Search, Task
from apas.counterfactuals.sources.roar import Roar
from apas.experiments import Preparation, prepare
from apas.metrics.api import delta_validity
from apas.metrics.distance import lof
from apas.paper.published import PROTOTYPES, WACHTERS, WANTED, baseline_table, later_network, run_baseline, run_recourse

__all__ = ["compare", "confident", "free_bits", "plausible", "recourse"]

DATASETS = ("diabetes", "no2", "sba", "credit")
#: How confident prototypes are asked to be, to see how many survive.
CONFIDENCES = (0.05, 0.25, 0.45)
#: Seeds of robust recourse, which draws at random.
SEEDS = 10


def compare(prepared: dict[str, Preparation]) -> None:
    """Wachter's descents and prototypes, plain and robust, and the processor time of 50 inputs."""
    runs = []
    for name, preparation in prepared.items():
        for known in (WACHTERS, PROTOTYPES):
            if name not in known:
                continue
            for robust in (False, True):
                began = time.perf_counter()
                word = type(known[name]).__name__ + ("-R" if robust else "")
                runs.append(run_baseline(preparation, known[name], robust=robust, method=word))
                print(f"{name} {word}: {time.perf_counter() - began:.1f} s", flush=True)
    print(baseline_table(runs).to_string(float_format="{:.4f}".format))


def recourse(preparation: Preparation, source: Roar, seed: int = 0) -> tuple[float, float, float]:
    """l1, VM1 and VM2 of robust recourse."""
    found = run_recourse(preparation, source, seed=seed)
    valid = preparation.network.margin(found, 1) >= 0
    later = valid & (later_network(preparation).margin(found, 1) >= 0)
    moved = np.abs(found - preparation.inputs).mean(axis=1)
    return float(moved[valid].mean()), float(valid.mean()), float(later.mean())


def confident(preparation: Preparation) -> None:
    """Which share of prototypes survives, by how confident they are."""
    for confidence in CONFIDENCES:
        run = run_baseline(preparation, replace(PROTOTYPES[preparation.name], confidence=confidence))
        print(f"{preparation.name} Proto, confidence {confidence}: VM2 {run.summary()['vm2']:.2f}", flush=True)


#: Of sba: how likely descents are asked to find the wanted class, and by how much prototypes are to exceed the other.
LIKELY, EXCEEDING = (0.95, 0.98, 0.99, 0.995, 0.999), (0.9, 0.95, 0.97, 0.98, 0.99)
#: Of sba: how many inputs the printed runs found a row for, Wachter's and the prototypes'.
FOUND = {"Wacht": 46, "Proto": 45}


def plausible(preparation: Preparation) -> list[dict[str, Any]]:
    """Their lof by how confident rows must be: of all inputs, and of as many as the printed runs found rows for.

    Which ones these were was not printed; taken are those with the largest margins, since the others are so far from
    the boundary that their probability does not change in floating point.
    """
    nearest = np.argsort(-preparation.network.margin(preparation.inputs, WANTED), kind="stable")
    known: dict[str, tuple[CandidateSource, bool]] = {
        f"{word}{end}": (sources["sba"], end == "-R")
        for word, sources in (("Wacht", WACHTERS), ("Proto", PROTOTYPES))
        for end in ("", "-R")
    }
    for asked in LIKELY:
        source = replace(WACHTERS["sba"], target_probability=asked, tolerance=0.0, last=1.0)
        known[f"Wacht, at least {asked}"] = (source, False)
    for asked in EXCEEDING:
        known[f"Proto, confidence {asked}"] = (replace(PROTOTYPES["sba"], confidence=asked, last=1.0), False)
    lines = []
    for name, (asking, robust) in known.items():
        run = run_baseline(preparation, asking, robust=robust)
        points = preparation.tables.space.coding.encode(run.counterfactuals.numbers)
        for count in (len(points), FOUND[name[:5]]):
            rows = nearest[:count]
            lines.append({"dataset": "sba", "method": name} | _figures(preparation, points[rows], rows))
    return lines


def free_bits(preparation: Preparation) -> list[dict[str, Any]]:
    """Prototypes on credit, level by level, and with every bit free to move by itself, as the authors had it."""
    coding, names = preparation.tables.space.coding, preparation.network.feature_names or ()
    numbers = [part.start for part in coding.slices if part.stop - part.start == 1]
    features = [
        Feature(name, low=0, high=1) if i in numbers else Feature(name, kind="ordinal", values=(0, 1))
        for i, name in enumerate(names)
    ]
    space, source = FeatureSpace(features), PROTOTYPES["credit"]
    run = run_baseline(preparation, source)
    levels = np.full(preparation.inputs.shape, np.nan)
    levels[run.counterfactuals.found] = coding.encode(run.counterfactuals.numbers[run.counterfactuals.found])
    task = Task(space.bind(preparation.network), space, background=preparation.d1.X)
    rows, places = np.unique(preparation.inputs, axis=0, return_inverse=True)
    bits = np.full(rows.shape, np.nan)
    for i, row in enumerate(rows):
        found = next((c.point for c in source.candidates(Search(task, i, row, WANTED)) if c.final), None)
        bits[i] = np.nan if found is None else found
    known = {"Proto": levels, "Proto, bits": bits[places.ravel()], "prototype": _prototypes(preparation, numbers)}
    everything = np.arange(len(levels))
    return [
        {"dataset": "credit", "method": name} | _figures(preparation, points, everything)
        for name, points in known.items()
    ]


def _prototypes(preparation: Preparation, numbers: list[int]) -> Floats:
    """The prototypes themselves, their bits rounded: what attracts can hardly lead farther."""
    X = preparation.d1.X
    accepted = X[preparation.network.margin(X, WANTED) >= 0]
    nearest = cKDTree(accepted).query(preparation.inputs, k=PROTOTYPES["credit"].neighbours)[1]
    means = accepted[nearest].mean(axis=1)
    found = np.rint(means)
    found[:, numbers] = means[:, numbers]
    return np.asarray(found)


def _figures(preparation: Preparation, points: Floats, rows: Any) -> dict[str, Any]:
    """Those of explanations of some of the inputs."""
    network, X = preparation.network, preparation.inputs[rows]
    valid = np.asarray(np.isfinite(points).all(axis=1))
    valid[valid] = network.margin(points[valid], WANTED) >= 0
    kept, moved = points[valid], np.abs(points[valid] - X[valid])
    return {
        "inputs": len(points),
        "valid": int(valid.sum()),
        "l1": moved.mean(),
        "columns moved": (moved >= 1e-4).sum(axis=1).mean(),
        "lof": lof(preparation.d1.X, kept).mean(),
        "delta-validity": delta_validity(network, points, preparation.delta, target=WANTED).mean(),
    }


if __name__ == "__main__" and sys.argv[1:] == ["why"]:
    table = pd.DataFrame([*plausible(prepare("sba")), *free_bits(prepare("credit"))])
    table.to_csv(Path(__file__).parents[1] / "docs" / "results" / "table1-why.csv", index=False, float_format="%.6g")
    print(table.to_string(float_format="{:.4f}".format))
elif __name__ == "__main__":
    prepared = {name: prepare(name) for name in DATASETS}
    for name, preparation in prepared.items():
        figures = " ".join(f"{x:.4f}" for x in recourse(preparation, Roar(surrogate="published")))
        print(f"{name} ROAR as published: l1, VM1, VM2 {figures}", flush=True)
    for name in ("diabetes", "no2"):
        figures = " ".join(f"{x:.4f}" for x in recourse(prepared[name], Roar(surrogate="local")))
        print(f"{name} ROAR with a local line: l1, VM1, VM2 {figures}", flush=True)
    several = np.array([recourse(prepared["diabetes"], Roar(surrogate="published"), seed) for seed in range(SEEDS)])
    print(f"diabetes ROAR, {SEEDS} seeds: from", several.min(axis=0).round(3), "to", several.max(axis=0).round(3))
    confident(prepared["diabetes"])
    compare(prepared)
