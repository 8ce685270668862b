"""Running an experiment: tables and figures from units, and what happens without matplotlib or a folder."""

from __future__ import annotations

import sys

import killed_experiments
import pandas as pd
import pytest

from apas import InputError
from apas._lazy import require
from apas.paper.experiment import Store, Unit, run_experiment


class Squares:
    @staticmethod
    def units(settings):
        return [Unit("squares", killed_experiments.square, {"number": n}) for n in range(2 if settings["quick"] else 4)]

    @staticmethod
    def tables(results):
        return {"squares": pd.DataFrame({"square": [r["square"] for r in results], "half": [0.5] * len(results)})}

    @staticmethod
    def figures(results, folder):
        require("matplotlib", feature="A figure of squares", extra="plot")
        (folder / "squares.png").write_bytes(b"picture")
        return [folder / "squares.png"]


@pytest.mark.parametrize("quick", [True, False])
def test_files(tmp_path, quick):
    outcome = run_experiment(Squares(), tmp_path / "out", quick=quick, label="squares")
    assert [file.name for file in outcome.files] == ["squares.csv", "squares.md", "squares.png"]
    assert outcome.files[0].read_text() == "square,half\n0,0.5\n1,0.5\n" + ("" if quick else "4,0.5\n9,0.5\n")
    text = outcome.files[1].read_text()
    assert "| 1 | 0.500 |" in text
    assert ("`apas paper squares --quick` with" in text) is quick
    assert "numpy" in text


def test_without_matplotlib_there_are_tables(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outcome = run_experiment(Squares(), tmp_path)
    assert [file.name for file in outcome.files] == ["squares.csv", "squares.md"]
    assert outcome.without_figures.startswith("A figure of squares needs the optional extra 'plot'")


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "squares.csv").mkdir()
    with pytest.raises(InputError, match="must be a folder to write to, got"):
        run_experiment(Squares(), tmp_path)


def test_tables_of_what_is_finished(tmp_path):
    with pytest.raises(InputError, match="must hold finished units of squares, got none"):
        run_experiment(Squares(), tmp_path, label="squares", finished=True)
    unit, text = Squares.units({"quick": False})[3], "Of 1 finished units of 4, which may be of another version"
    with Store(tmp_path / "results.sqlite") as store:
        store.put("of another version", "squares", unit.settings, {"square": 9}, seconds=1.0)
    outcome = run_experiment(Squares(), tmp_path, label="squares", finished=True)
    assert outcome.files[0].read_text() == "square,half\n9,0.5\n"
    assert f"{text}.\n\nMade by `apas paper squares --finished` with apas" in outcome.files[1].read_text()
    with Store(tmp_path / "results.sqlite") as store:
        store.put("of a third", "squares", unit.settings, {"square": 9}, seconds=1.0)
        assert len(store) == 2, "nothing was run"
    with pytest.raises(InputError, match="more than one version has computed {'number': 3}"):
        run_experiment(Squares(), tmp_path, label="squares", finished=True)
