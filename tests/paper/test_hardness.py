"""Theorem 1 as an experiment: which formulas are asked about, and that answers are counted as they are."""

from __future__ import annotations

import pytest
from formulas import all_formulas

from apas.paper import hardness
from apas.theory import Answer, Formula, distinct_realizations


def test_all_small_formulas_are_asked_about():
    units = [unit for unit in hardness.units({}) if unit.work is hardness.decide_small]
    asked = [
        frozenset(formula.clauses)
        for unit in units
        for formula in list(hardness.small_formulas(unit.settings["clauses"]))[
            unit.settings["first"] :: unit.settings["step"]
        ]
    ]
    assert len(asked) == 3304
    assert set(asked) == {frozenset(formula.clauses) for formula in all_formulas()}


def test_random_formulas():
    formulas = list(hardness.random_formulas(5, 7, 20, seed=0))
    assert len({formula.clauses for formula in formulas}) == 20
    for formula in formulas:
        assert len(formula.clauses) == 7
        assert all(len({abs(literal) for literal in clause}) == 3 for clause in formula.clauses)
    assert [f.clauses for f in hardness.random_formulas(5, 7, 20, seed=0)] == [f.clauses for f in formulas]
    assert [f.clauses for f in hardness.random_formulas(5, 7, 20, seed=1)] != [f.clauses for f in formulas]


def test_answers_are_those_of_brute_force():
    parts = [hardness.decide_small(3, first, 120) for first in (0, 60)]
    results = [hardness.decide_small(1, 0, 1), *parts, hardness.decide_random(6, 30, 10, 0)]
    table = hardness.tables(results)["hardness"]
    assert table["which"].tolist() == ["all", "every 120th", "random"]
    assert table["formulas"].tolist() == [27, 25 + 24, 10]
    assert (table["yes"] == table["can be true"]).all()
    assert (table["yes"] == table["solutions from witnesses"]).all()
    assert (table["yes"] + table["no"] == table["formulas"]).all()
    assert (table[["unknown", "wrong"]] == 0).all(axis=None)
    assert 0 < table["yes"].iloc[2] < 10  # both answers occur


def test_wrong_answers_are_counted(monkeypatch):
    """Ask about another formula than brute force does, and the table says so."""
    other = hardness.reduction(Formula(3, [[]]))
    monkeypatch.setattr(hardness, "reduction", lambda formula: other)
    found = hardness.decide_small(1, 0, 1)
    assert (found["yes"], found["no"], found["wrong"], found["solutions"]) == (0, 27, 26, 0)


def test_unknown_answers_are_no_wrong_ones(monkeypatch):
    def undecided(model, x, delta, tau):
        return distinct_realizations(model, x, delta, tau, method="interval")

    monkeypatch.setattr(hardness, "distinct_realizations", undecided)
    found = hardness.decide_small(2, 0, 60)
    assert found["unknown"] > 0
    assert found["wrong"] == 0
    assert found["yes"] + found["no"] + found["unknown"] == found["formulas"]
    assert {str(answer) for answer in Answer} <= set(found)


def test_both_constructions_say_what_brute_force_says():
    results = [
        hardness.compare(built, clauses, step) for clauses, step in ((1, 13), (3, 650)) for built in ("paper's", "ours")
    ]
    table = hardness.tables(results)["hardness-constructions"]
    assert table["construction"].tolist() == ["paper's", "ours"] * 2
    assert (table["yes"] == table["can be true"]).all()
    assert (table["yes"] == table["solutions from witnesses"]).all()
    assert (table[["unknown", "wrong"]] == 0).all(axis=None)
    assert table["parameters that a tie pins"].tolist() == [3, 0, 3, 0]
    assert table["formulas"].tolist() == [2, 2, 4, 4]  # without those that have an empty clause


def test_wrong_answers_of_the_papers_construction_are_counted(monkeypatch):
    other = hardness.paper_reduction(Formula(3, [[1], [-1]]))
    monkeypatch.setattr(hardness, "paper_reduction", lambda formula: other)
    found = hardness.compare("paper's", 1, 9)
    assert (found["formulas"], found["yes"], found["no"], found["wrong"]) == (2, 0, 2, 2)


def test_lemmas_are_in_the_table():
    table = hardness.tables([hardness.check_lemmas(delta) for delta in hardness.DELTAS])["hardness-lemmas"]
    assert table["delta"].tolist() == ["1/16"] * 14 + ["79/1000"] * 14
    line = table[(table["gadget"] == "clause") & (table["delta"] == "79/1000")].iloc[1]
    assert line["verdict"] == "holds in one direction"
    assert line["against if"] == "none"
    assert line["against only if"].endswith("output 85241/125000")


def test_figures(tmp_path):
    pytest.importorskip("matplotlib").use("agg")
    names = [path.name for path in hardness.figures([], tmp_path)]
    assert names == ["gadgets.png", "gadgets.svg", "hardness-network.png", "hardness-network.svg"]
    assert "x1 or not x2 or x3" in str(hardness.EXAMPLE)
