"""Units are done once: nothing finished is done again, whatever ends a run, and nothing outlives what it came from."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import killed_experiments
import pytest

from apas.datasets import data_from
from apas.paper.experiment import Store, Unit, data_version, made_with, run_units, unit_key


@pytest.fixture
def notes(tmp_path, monkeypatch):
    monkeypatch.setenv("UNIT_NOTES", str(tmp_path / "notes"))
    return tmp_path / "notes"


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:
        yield store


def squares(numbers, **settings):
    return [Unit("squares", killed_experiments.square, {"number": number, **settings}) for number in numbers]


def test_order_and_once(store, notes):
    assert run_units(squares([3, 1, 2]), store) == [{"square": 9}, {"square": 1}, {"square": 4}]
    assert run_units(squares([1, 5, 3, 5]), store) == [{"square": s} for s in (1, 25, 9, 25)]
    assert killed_experiments.noted(notes) == [3, 1, 2, 5]
    assert len(store) == 4
    assert run_units([], store) == []


def test_processes_give_the_same(store, tmp_path):
    with Store(tmp_path / "other.sqlite") as other:
        assert run_units(killed_experiments.units(12, 0.0), store, n_jobs=2) == run_units(
            killed_experiments.units(12, 0.0), other
        )
        assert len(store) == len(other) == 12


def test_another_number_of_processes_goes_on(store, notes):
    run_units(killed_experiments.units(4, 0.0), store, n_jobs=2)
    notes.unlink(missing_ok=True)  # what the processes wrote
    run_units(killed_experiments.units(6, 0.0), store, n_jobs=1)
    assert killed_experiments.noted(notes) == [4, 5]


def test_changed_settings_are_done_again(store, notes):
    run_units(squares([1, 2]), store)
    run_units(squares([1, 2], pause=0.001), store)
    assert killed_experiments.noted(notes) == [1, 2, 1, 2]


def test_another_experiment_or_function_is_another_unit(store):
    keys = {
        Unit(experiment, work, {"number": 1}).key
        for experiment in ("squares", "others")
        for work in (killed_experiments.square, killed_experiments.failing)
    }
    assert len(keys) == 4


def test_a_key_holds_data_and_code(tmp_path):
    (tmp_path / "no2").mkdir()
    (tmp_path / "no2" / "no2.csv").write_text("1\n")
    unit = Unit("sizes", killed_experiments.size, {"name": "no2"}, ("no2",))
    with data_from(tmp_path):
        data = data_version(("no2",))
        assert unit.key == unit_key("sizes/killed_experiments.size", {"name": "no2"}, data, made_with())
        assert unit.key != unit_key("sizes/killed_experiments.size", {"name": "no2"}, data, "0.1.0+000000000000")


@pytest.mark.parametrize("jobs", [1, 2])
def test_changed_data_are_done_again_and_workers_read_the_folder_named(store, tmp_path, monkeypatch, jobs):
    monkeypatch.setenv("APAS_DATA", str(tmp_path / "nowhere"))
    units = [Unit("sizes", killed_experiments.size, {"name": "no2"}, ("no2",))]
    for folder, content in (("a", "1"), ("b", "1"), ("a", "123")):
        (tmp_path / folder / "no2").mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "no2" / "no2.csv").write_text(content)
        with data_from(tmp_path / folder):
            (result,) = run_units(units, store, n_jobs=jobs)
        # the same bytes elsewhere are the same data
        assert result == {"size": len(content), "folder": str(tmp_path / "a")}
    assert len(store) == 2


def test_every_worker_reads_the_folder_named(store, tmp_path, monkeypatch):
    """Most of many units are handed out by threads that know nothing of `data_from`."""
    monkeypatch.setenv("APAS_DATA", str(tmp_path / "nowhere"))
    (tmp_path / "data" / "no2").mkdir(parents=True)
    (tmp_path / "data" / "no2" / "no2.csv").write_text("1")
    expected = [{"size": 1, "folder": str(tmp_path / "data")}] * 30
    with data_from(tmp_path / "data"):
        assert run_units(sizes("named"), store, n_jobs=2) == expected
    monkeypatch.setenv("APAS_DATA", str(tmp_path / "data"))  # the workers were started before
    assert run_units(sizes("set"), store, n_jobs=2) == expected


def sizes(word):
    return [Unit(f"{word} {i}", killed_experiments.size, {"name": "no2"}, ("no2",)) for i in range(30)]


def test_a_unit_that_fails_leaves_the_others(store, notes):
    units = [Unit("squares", killed_experiments.failing, {"number": number}) for number in range(4)]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="number 2"):
            run_units(units, store)
    assert len(store) == 2
    assert killed_experiments.noted(notes) == [0, 1]


@pytest.mark.parametrize("jobs", [1, 2])
def test_killed_runs_go_on(tmp_path, jobs):
    done = set()
    for attempt, rows in enumerate((3, 20)):
        notes = tmp_path / f"notes-{attempt}"
        killed_experiments.killed_after(tmp_path, notes, rows, jobs)
        assert rows <= len(killed_experiments.finished(tmp_path)) < killed_experiments.COUNT, (
            "it was to be killed in the middle"
        )
        assert not done & set(killed_experiments.noted(notes))
        done = killed_experiments.finished(tmp_path)
    last = killed_experiments.start(tmp_path, tmp_path / "notes", jobs)
    assert last.wait(timeout=120) == 0
    assert sorted(killed_experiments.noted(tmp_path / "notes")) == sorted(set(range(killed_experiments.COUNT)) - done)
    with closing(sqlite3.connect(tmp_path / "results.sqlite")) as base:
        assert base.execute("pragma integrity_check").fetchone() == ("ok",)
    with Store(tmp_path / "results.sqlite") as store:
        assert [store.get(unit.key) for unit in killed_experiments.units()] == [
            {"square": n**2} for n in range(killed_experiments.COUNT)
        ]
