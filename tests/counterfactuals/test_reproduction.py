"""The published loops with `MilpSource`: l1 of MILP, MILP-R and APΔS on the paper's four datasets, without Gurobi."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import shared_folder

import apas
from apas.counterfactuals.milp import MilpSource
from apas.counterfactuals.source import Search, Task
from apas.experiments.networks import Preparation, prepare
from apas.experiments.published import PublishedSampling

#: Mean l1 over the network's inputs: MILP, MILP-R and APΔS with 10,000 and with 1378 draws.
FIGURES = {
    "diabetes": (0.04859, 0.21184, 0.07658, 0.07194),
    "no2": (0.03231, 0.05878, 0.04219, 0.04125),
    "sba": (0.00712, 0.01840, 0.00892, 0.00861),
    "credit": (0.02424, 0.03143, 0.02825, 0.02825),
}
TESTS = ("interval", PublishedSampling(), PublishedSampling(n_samples=1378))


def loops(preparation: Preparation) -> list[float]:
    """Mean l1 of the first candidates, and of the first that pass each test."""
    network, space = preparation.network, preparation.tables.space
    task = Task(space.bind(network), space)
    source = MilpSource(step=0.2)
    assert source.unsupported(task) is None
    rows, times = np.unique(space.numbers(preparation.raw_inputs), axis=0, return_counts=True)
    streams = [source.candidates(Search(task, i, row, 1)) for i, row in enumerate(rows)]
    inputs, l1 = task.encoded(rows), np.full((1 + len(TESTS), len(rows)), np.nan)
    while (waiting := np.flatnonzero(np.isnan(l1).any(axis=0))).size:
        points = task.encoded(np.array([next(streams[i]).point for i in waiting]))
        moved = np.abs(points - inputs[waiting]).mean(axis=1)
        l1[0, waiting] = np.where(np.isnan(l1[0, waiting]), moved, l1[0, waiting])
        for test, method in enumerate(TESTS, start=1):
            found = apas.certify(network, points.round(6), preparation.delta, target=1, method=method)
            now = found.certified & np.isnan(l1[test, waiting])
            l1[test, waiting[now]] = moved[now]
    return np.average(l1, axis=1, weights=times).tolist()


def check(name: str) -> None:
    shared_folder("datasets")
    assert loops(prepare(name)) == pytest.approx(FIGURES[name], abs=1e-5)


@pytest.mark.parametrize("name", ["diabetes", "no2"])
def test_small_networks(name: str) -> None:
    check(name)


@pytest.mark.validity
@pytest.mark.parametrize("name", ["sba", "credit"])
def test_large_networks(name: str) -> None:
    check(name)
