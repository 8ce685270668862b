"""The league table: the ground all methods share, what is counted, and what is made of the counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import shared_folder

from apas.datasets import data_from
from apas.paper import league
from apas.paper.experiment import BEYOND, EXPERIMENTS
from apas.paper.league import (
    LATER,
    OURS,
    PROCESSES,
    SAME,
    TREES,
    Ground,
    accepted_by,
    figures,
    read_league_table,
    row_table,
    tables,
)

LINES = league.LINES


@pytest.fixture(autouse=True)
def data():
    with data_from(shared_folder("datasets")):
        yield


def test_it_is_no_part_of_the_papers_page():
    assert [entry.name for entry in BEYOND] == ["league"]
    assert "league" not in [entry.name for entry in EXPERIMENTS]


def test_units():
    whole, quick = (league.units({"quick": quick}) for quick in (False, True))
    assert len(whole) == 7 * 3 * 3
    assert {unit.settings["table"] for unit in whole} == {*league.TUNED, *league.HELD_OUT}
    assert all(unit.settings["inputs"] == 25 and unit.settings["judges"] == 100 for unit in whole)
    assert len(quick) == 3
    assert len({unit.key for unit in whole}) == len(whole)


@pytest.mark.parametrize("name", [*league.TUNED, *league.HELD_OUT])
def test_tables_are_cut_in_two_parts(name):
    tables_ = read_league_table(name, 0)
    sizes = len(tables_.d1), len(tables_.d2)
    assert max(sizes) <= 2000
    assert sum(sizes) <= league.MOST_ROWS
    assert {0, 1} == set(tables_.d1.y.tolist()) == set(tables_.d2.y.tolist())
    assert tables_.d1.X.min() >= 0
    assert tables_.d1.X.max() <= 1
    again, other = read_league_table(name, 0), read_league_table(name, 1)
    assert (again.d1.X == tables_.d1.X).all()
    if name not in ("sba", "credit"):  # of these the parts are the periods
        assert (other.d1.X != tables_.d1.X).any()
    else:
        assert {*map(bytes, np.unique(other.d1.X, axis=0))} == {*map(bytes, np.unique(tables_.d1.X, axis=0))}


def test_halves_share_no_row_number():
    tables_ = read_league_table("diabetes", 3)
    assert len(tables_.d1) + len(tables_.d2) == 768
    rows = np.vstack([tables_.d1.X, tables_.d2.X])
    import pandas as pd

    from apas.datasets import dataset_path

    frame = pd.read_csv(dataset_path("diabetes"))
    assert sorted(map(tuple, rows.round(9))) == sorted(
        map(tuple, tables_.space.encode(frame.drop(columns="Outcome")).round(9))
    )
    assert int(tables_.d1.y.sum() + tables_.d2.y.sum()) == int(frame["Outcome"].sum())


@pytest.mark.parametrize("kind", league.MODELS)
def test_refits_are_different_models_of_the_process(kind):
    if kind == TREES:
        pytest.importorskip("xgboost")
    ground = Ground.of("diabetes", kind, 0, 5)
    assert (ground.base.margin(ground.tables.d1.X[ground.inputs], 1) < 0).all()
    margins = []
    for process in PROCESSES:
        known, judges = ground.refits(process, 4, known=5)
        assert (len(known), len(judges)) == (5, 4)
        margins += [m.margin(ground.tables.d1.X[:50], 1) for m in (*known, *judges)]
    assert len({row.tobytes() for row in np.array(margins)}) == 18
    assert ground.accuracy[1] > 0.65


def test_later_refits_know_d2(monkeypatch):
    seen = []
    real = league._fit_logistic

    def watch(X, y, rows, **more):
        seen.append((len(X), rows.shape))
        return real(X, y, rows, **more)

    monkeypatch.setattr(league, "MODELS", {LINES: watch})
    ground = Ground.of("diabetes", LINES, 0, 3)
    for process in PROCESSES:
        ground.refits(process, 1, known=2)
    assert seen == [(384, (1, 384)), (384, (3, 384)), (768, (3, 768))]


def test_a_unit_counts_what_the_judges_say():
    result = league.explain("diabetes", LINES, 0, 2, 20, False)
    methods = {line["method"] for line in result["lines"]}
    assert methods == set(league.METHODS)
    ground = Ground.of("diabetes", LINES, 0, 2)
    judges = {p: ground.refits(p, 20)[1] for p in PROCESSES}
    known = league._generated(ground, league.METHODS["RNCE"].make(ground.base, []), {"delta": 0})[0]
    points = ground.tables.space.coding.encode(known.numbers)
    line = next(line for line in result["lines"] if line["method"] == "RNCE")
    for process in PROCESSES:
        counts = [sum(bool(m.margin(p[None], 1)[0] >= 0) for m in judges[process]) for p in points]
        assert line["accepted"][process] == counts
        assert accepted_by(judges[process], points).tolist() == counts
    assert line["l1"] == pytest.approx(np.abs(points - ground.tables.d1.X[ground.inputs]).mean(axis=1).tolist())
    on_refits = [line["processes"] for line in result["lines"] if line["method"] == OURS]
    assert on_refits == [[SAME], [LATER]]


def line_of(method: str, accepted: list[int], cost: list[float], **more: Any) -> dict[str, Any]:
    found = list(range(len(accepted)))
    figures_ = dict.fromkeys(("l1", "cost", "l0"), cost) | {"lof": [1.0] * len(found)}
    told = {"knob": "", "processes": list(PROCESSES), "certified": False, "seconds": 0.5} | more
    judged = {SAME: accepted, LATER: [a - 1 for a in accepted]}
    return {"method": method, "rows": found, "accepted": judged, **figures_, **told}


def results() -> list[dict[str, Any]]:
    ours = {"certified": True}
    lines = [
        line_of("nearest", [50, 60, 70, 52], [0.1, 0.1, 0.1, 0.1]),
        line_of("PROPLACE", [99, 98, 100, 97], [0.3, 0.3, 0.3, 0.3]),
        line_of("PROPLACE", [99, 99], [0.5, 0.5], knob="delta = 0.1"),
        line_of(OURS, [98, 97, 96], [0.2, 0.2, 0.2], processes=[SAME], **ours),
        line_of(OURS, [98, 85, 96], [0.2, 0.2, 0.2], processes=[LATER], **ours),
    ]
    about = {"table": "diabetes", "kind": LINES, "seed": 0, "judges": 100, "inputs": 4, "accuracy": (0.8, 0.7)}
    return [about | {"lines": lines}, about | {"table": "no2", "lines": lines}]


def test_rows_are_judged_by_the_process_they_were_made_for_and_by_the_later_one():
    rows = row_table(results())
    ours = rows[(rows["method"] == OURS) & (rows["table"] == "no2")]
    counts = {key: part["accepted"].tolist() for key, part in ours.groupby(["made for", "process"])}
    assert counts == {(SAME, SAME): [98, 97, 96], (SAME, LATER): [97, 96, 95], (LATER, LATER): [97, 84, 95]}
    assert ours["safe"].tolist() == (ours["accepted"] >= 95).tolist()


def test_tables():
    found = tables(results())
    cells = found["league-cells"].set_index(["table", "process", "method"])
    own = cells.loc[("diabetes", SAME, OURS)]
    assert own["found"] == 0.75
    assert own["valid"] == pytest.approx(0.97)
    assert own["rows >= 95 %"] == 1
    assert own["valid, from"] <= 0.97 <= own["valid, to"]
    assert cells.loc[("no2", LATER, "nearest")]["valid"] == pytest.approx(0.57)
    table = found["league"].set_index(["process", "method"])
    assert table.loc[(SAME, "PROPLACE")]["cost / ours"] == pytest.approx(1.5)
    assert table.loc[(SAME, "nearest")]["cost / ours"] == pytest.approx(0.5)
    claims = found["league-claims"].set_index(["table", "process"])
    assert claims.loc[("diabetes", SAME)]["accepted by >= 95 %"] == 3
    assert claims.loc[("diabetes", LATER)]["shown to be false"] == 1  # 84 of 100
    duels = found["league-duels"].set_index(["process", "rival"])
    nearest, rival = duels.loc[(SAME, "nearest")], duels.loc[(SAME, "PROPLACE")]
    assert (nearest["cheaper"], nearest["less valid"], nearest["both better"]) == (2, 2, 0)
    assert (rival["more valid"], rival["dearer"], rival["both worse"]) == (2, 2, 0)
    assert found["league-knobs"].query("knob != ''")["cost"].tolist() == [0.5, 0.5]
    surprises = found["league-surprises"].set_index(["table", "method"])
    assert surprises.loc[("no2", OURS)]["valid, surprised"] == pytest.approx(0.96)


def test_figures(tmp_path):
    pytest.importorskip("matplotlib")
    names = {path.name for path in figures(results(), tmp_path)}
    assert names == {f"league-{table}.{kind}" for table in ("diabetes", "no2") for kind in ("png", "svg")}
