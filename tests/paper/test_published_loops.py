"""The published loops with `MilpSource`: l1 of MILP, MILP-R and APΔS on the paper's four datasets, without Gurobi."""

from __future__ import annotations

import pytest
from conftest import shared_folder

from apas.paper.networks import prepare
from apas.paper.published import PublishedSampling, published_loops

#: Mean l1 over the network's inputs: MILP, MILP-R and APΔS with 10,000 and with 1378 draws.
FIGURES = {
    "diabetes": (0.04859, 0.21184, 0.07658, 0.07194),
    "no2": (0.03231, 0.05878, 0.04219, 0.04125),
    "sba": (0.00712, 0.01840, 0.00892, 0.00861),
    "credit": (0.02424, 0.03143, 0.02825, 0.02825),
}
TESTS = {"MILP": None, "MILP-R": "interval", "APΔS": PublishedSampling(), "1378": PublishedSampling(n_samples=1378)}


def check(name: str) -> None:
    shared_folder("datasets")
    loops = published_loops(prepare(name), TESTS)
    assert int(loops.times.sum()) == 50
    assert [loops.l1(test) for test in TESTS] == pytest.approx(FIGURES[name], abs=1e-5)


@pytest.mark.parametrize("name", ["diabetes", "no2"])
def test_small_networks(name: str) -> None:
    check(name)


@pytest.mark.validity
@pytest.mark.parametrize("name", ["sba", "credit"])
def test_large_networks(name: str) -> None:
    check(name)
