"""`python -m benchmarks.baselines`: the paper's competitors as published, and why some figures differ.

Needs the datasets.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from apas.counterfactuals.sources.roar import Roar
from apas.experiments import Preparation, prepare
from apas.paper.published import PROTOTYPES, WACHTERS, baseline_table, later_network, run_baseline, run_recourse

__all__ = ["compare", "confident", "recourse"]

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


if __name__ == "__main__":
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
