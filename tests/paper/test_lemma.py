"""Lemma 3 as an experiment: exact expectations, what draws tell of them, and shifts without bound."""

from __future__ import annotations

from fractions import Fraction

import pytest

from apas.paper import lemma
from apas.paper.experiment import Store, run_units


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with Store(tmp_path_factory.mktemp("lemma") / "results.sqlite") as store:
        return run_units(lemma.units({"quick": True}), store)


@pytest.fixture(scope="module")
def tables(results):
    return lemma.tables(results)


def test_expectations(tables):
    found = tables["lemma"].set_index(["activation", "delta"])
    assert found.loc[("relu", "3/10"), "as a fraction"] == "4159/8000"
    assert found.loc[("relu", "3/10"), "expected output"] == "0.519875"
    assert found["paper"].tolist().count("> 0.52") == 1
    assert found.loc[("relu", "3/10"), "paper"] == "> 0.52"
    assert found.loc[("tanh", "3/10"), "difference"] == "0.001109"
    assert found.loc[("sigmoid", "3/10"), "difference"] == "-0.000862"
    # no digits of a rounding error, which other processors would not show
    assert set(found["how"]) == {"exact", "quadrature, half the nodes change it by less than 1e-12"}


def test_relu_units_that_keep_their_sign_are_linear(results):
    """Up to delta = 4/15 no shift turns a unit off, and the expectation is the output itself."""
    for found in results:
        if found.get("exact") is not None:
            assert (found["difference"] == 0) is (Fraction(found["delta"]) <= Fraction(4, 15))


def test_draws_alone_show_nothing_here(tables):
    found = tables["lemma-draws"]
    assert found["draws"].tolist() == [20_000] * 3
    assert set(found["verdict"]) == {"UNKNOWN"}
    exact = tables["lemma"][tables["lemma"]["delta"] == lemma.PAPER]["expected output"].astype(float).to_numpy()
    # five standard errors
    off = abs(found["mean output"].astype(float).to_numpy() - exact)
    assert (off <= 5 * (found["variance"].astype(float).to_numpy() / 20_000) ** 0.5).all()


def test_shifts_without_bound(tables):
    found = tables["lemma-unbounded"]
    assert found["measured delta"].tolist() == found["shift of the bias"].tolist() == ["1", "1000", "1e+06", "1e+09"]
    assert set(found["largest change of an output"]) == {"0"}
    assert (found["Lipschitz at most"].astype(float) <= 1.0001).all()


def test_a_million_draws_unless_quick():
    draws = {unit.settings["draws"] for unit in lemma.units({}) if "draws" in unit.settings}
    assert draws == {1_000_000}


def test_figure(results, tmp_path):
    pytest.importorskip("matplotlib").use("agg")
    paths = lemma.figures(results, tmp_path)
    assert [path.name for path in paths] == ["lemma.png", "lemma.svg"]
    assert all(path.stat().st_size > 0 for path in paths)
