"""Wachter's descents, prototypes and Roar under the published protocol, against the figures its authors printed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from conftest import shared_folder, spread

import apas
from apas import InputError, MilpSource, Roar, Unsupported
from apas.experiments import Preparation, prepare
from apas.paper.published import (
    PROTOTYPES,
    WACHTERS,
    BaselineRun,
    baseline_table,
    later_network,
    run_baseline,
    run_recourse,
)

#: Printed l1, VM1 and VM2, plain and robust.
WACHTER = {
    "diabetes": ((0.05066, 1.00, 0.00), (0.12208, 1.00, 1.00)),
    "no2": ((0.03474, 1.00, 0.32), (0.08416, 1.00, 1.00)),
    "sba": ((0.01818, 0.92, 0.92), (0.02254, 0.92, 0.92)),
}
PROTOTYPE = {
    "diabetes": ((0.06319, 1.00, 0.18), (0.10387, 1.00, 0.96)),
    "no2": ((0.03641, 1.00, 0.32), (0.06865, 1.00, 1.00)),
    "sba": ((0.00812, 0.90, 0.06), (0.01096, 0.90, 0.88)),
}
ROAR = {
    "diabetes": (0.07763, 0.82, 0.14),
    "no2": (0.07430, 0.88, 0.34),
    "sba": (0.03097, 0.82, 0.78),
    "credit": (0.04683, 0.62, 0.60),
}
#: How far l1 may be off, as a part of what was printed, and shares.
PART, POINTS = 0.25, 0.15


@cache
def _prepared(name: str) -> Preparation:
    return prepare(name)


@pytest.fixture
def prepared(monkeypatch):
    monkeypatch.setenv("APAS_DATA", str(shared_folder("datasets")))
    return _prepared


def small(preparation: Preparation, rows: int) -> Preparation:
    return replace(preparation, rows=preparation.rows[:rows])


@cache
def ran(name: str, source, robust: bool) -> BaselineRun:
    return run_baseline(_prepared(name), source, robust=robust)


def figures(name: str, source, robust: bool) -> tuple[float, float, float]:
    found = ran(name, source, robust).summary()
    return found["l1"], found["vm1"], found["vm2"]


def roar_figures(preparation: Preparation) -> tuple[float, float, float]:
    """Those of rows in the columns of the network, which need not be rows of the space."""
    found = run_recourse(preparation, Roar(surrogate="published"))
    valid = preparation.network.margin(found, 1) >= 0
    later = valid & (later_network(preparation).margin(found, 1) >= 0)
    moved = np.abs(found - preparation.inputs).mean(axis=1)
    return float(moved[valid].mean()), float(valid.mean()), float(later.mean())


def check(measured: tuple[float, float, float], printed: tuple[float, float, float], *, vm2: bool = True) -> None:
    assert measured[0] == pytest.approx(printed[0], rel=PART)
    assert measured[1] == pytest.approx(printed[1], abs=POINTS)
    if vm2:
        assert measured[2] == pytest.approx(printed[2], abs=POINTS)


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("robust", [False, True], ids=["plain", "robust"])
@pytest.mark.parametrize("name", spread(["diabetes", "no2", "sba"], 3))
def test_wachter(name: str, robust: bool) -> None:
    check(figures(name, WACHTERS[name], robust), WACHTER[name][robust])


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("robust", [False, True], ids=["plain", "robust"])
@pytest.mark.parametrize("name", spread(["diabetes", "no2", "sba"], 3))
def test_prototypes(name: str, robust: bool) -> None:
    # the one figure that is further off: see test_why_diabetes_prototypes_do_not_survive
    strict = (name, robust) != ("diabetes", False)
    check(figures(name, PROTOTYPES[name], robust), PROTOTYPE[name][robust], vm2=strict)


@pytest.mark.parametrize("name", spread(["diabetes", "no2", "sba", "credit"], 4))
def test_roar(prepared, name: str) -> None:
    check(roar_figures(prepared(name)), ROAR[name])


def test_why_diabetes_prototypes_do_not_survive(prepared) -> None:
    """How many rows survive M2 is a matter of how confident they are, and ours are no more so than they must be."""
    preparation, source = prepared("diabetes"), PROTOTYPES["diabetes"]
    shares = []
    for confidence in (0.05, 0.45):
        run = ran("diabetes", replace(source, confidence=confidence), False)
        encoded = preparation.tables.space.encode(run.counterfactuals.points)
        excess = np.tanh(preparation.network.margin(encoded, 1) / 2)
        assert (excess >= confidence).all()
        assert np.median(excess) < confidence + 0.01
        shares.append(run.summary()["vm2"])
    assert shares[0] <= PROTOTYPE["diabetes"][0][2] <= shares[1]


@pytest.mark.validity
@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("robust", [False, True], ids=["plain", "robust"])
def test_credit_prototypes_are_better_than_printed(robust: bool) -> None:
    """Printed: VM1 0.24 and 0.32, l1 0.31279 and 0.29973, from bits that need not belong to any level."""
    l1, vm1, vm2 = figures("credit", PROTOTYPES["credit"], robust)
    assert l1 < 0.12
    assert vm1 >= 0.75
    assert vm2 >= 0.65


def test_what_a_run_says(prepared) -> None:
    preparation = small(prepared("no2"), 6)
    quick = replace(WACHTERS["no2"], iterations=200)
    plain = run_baseline(preparation, quick, method="Wachter")
    robust = run_baseline(preparation, quick, robust=True, method="Wacht-R")
    assert plain.summary().index.tolist() == [
        "found", "vm1", "vm2", "l1", "l0", "lof", "delta_validity", "seconds"
    ]  # fmt: skip
    assert not plain.certified.any()
    assert robust.certified.all()
    points = preparation.tables.space.encode(robust.counterfactuals.points)
    proved = apas.certify(preparation.network, points, preparation.delta, target=1, method="interval")
    np.testing.assert_array_equal(robust.certified, proved.certified)
    table = baseline_table([plain, robust])
    assert table["method"].tolist() == ["Wachter", "Wacht-R"]
    assert table["dataset"].tolist() == ["no2", "no2"]
    assert (table["l1"].diff()[1:] > 0).all()


def test_equal_inputs_get_equal_rows(prepared) -> None:
    preparation = prepared("no2")
    twice = replace(preparation, rows=np.concatenate([preparation.rows[:2], preparation.rows[:2]]))
    found = run_baseline(twice, replace(PROTOTYPES["no2"], iterations=50)).counterfactuals
    np.testing.assert_array_equal(found.numbers[:2], found.numbers[2:])


def test_any_source_can_run_plain_and_only_levels_robustly(prepared) -> None:
    preparation = small(prepared("no2"), 3)
    run = run_baseline(preparation, MilpSource(step=0.2), retrained=[preparation.retrained, preparation.most_shifted])
    assert {"vm2_0", "vm2_1", "vm2"} <= set(run.summary().index)
    assert run.method == "MilpSource"
    with pytest.raises(InputError, match="`source` must have levels for a robust loop"):
        run_baseline(preparation, MilpSource(), robust=True)


def test_which_network_the_printed_shares_are_of(prepared) -> None:
    assert later_network(prepared("diabetes")) is prepared("diabetes").retrained
    assert later_network(prepared("no2")) is prepared("no2").most_shifted


def test_what_was_not_found_counts_as_a_failure(prepared) -> None:
    preparation = small(prepared("diabetes"), 3)
    run = run_baseline(preparation, replace(WACHTERS["diabetes"], iterations=1, rounds=1, penalties=()), robust=True)
    assert run.summary()["found"] == 0
    assert run.summary()["vm1"] == 0
    assert not run.certified.any()


def test_a_source_that_cannot_work_says_so(prepared) -> None:
    class Never(type(WACHTERS["no2"])):
        def unsupported(self, task):
            return "not today"

    with pytest.raises(Unsupported, match="not today"):
        run_baseline(small(prepared("no2"), 2), Never())
