"""Finished work in a file: kept as it was, known by everything it depends on, and in no file of others."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from threadpoolctl import threadpool_info

import apas
from apas import InputError
from apas.datasets import data_from
from apas.paper import experiment
from apas.paper.experiment import (
    COMPUTING,
    Store,
    blas,
    code_version,
    data_version,
    made_with,
    processor,
    source_digest,
    unit_key,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "results.sqlite"


def test_results_are_kept(path):
    result = {"share": 0.1 + 0.2, "rows": [1, 2.5, None], "name": "Δ"}
    with Store(path) as store:
        assert store.get("a") is None
        store.put("a", "toy", {"depth": 6}, result, seconds=1.5)
        assert store.get("a") == result
    with Store(path) as store:
        assert store.get("a") == result
        assert store.get("b") is None
        assert len(store) == 1
        store.put("a", "toy", {"depth": 6}, {"share": 1}, seconds=1.5)
        assert (store.get("a"), len(store)) == ({"share": 1}, 1)


def test_there_is_one_file(path):
    with Store(path) as store:
        store.put("a", "toy", {}, {}, seconds=0.0)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_two_runs_share_a_file(path):
    with Store(path) as one, Store(path) as other:
        one.put("a", "toy", {}, {"from": 1}, seconds=0.0)
        other.put("b", "toy", {}, {"from": 2}, seconds=0.0)
        assert one.get("b") == {"from": 2}
        assert other.get("a") == {"from": 1}


def test_an_empty_file_is_taken(path):
    path.parent.mkdir()
    path.touch()
    with Store(path) as store:
        assert len(store) == 0


def foreign_table(path):
    with closing(sqlite3.connect(path)) as base:
        base.execute("create table photos (name text)")
        base.commit()


def foreign_mark(path):
    with closing(sqlite3.connect(path)) as base:
        base.execute("pragma application_id = 77")


def foreign_results(path):
    with closing(sqlite3.connect(path)) as base:
        base.execute("create table results (key text, winner text)")
        base.commit()


def ledger(path):
    apas.Ledger(path).close()


def text(path):
    path.write_text("not a database, but long enough to be looked at by SQLite" * 3)


@pytest.mark.parametrize("make", [foreign_table, foreign_mark, foreign_results, ledger, text])
def test_files_of_others_are_refused_and_left_alone(path, make):
    path.parent.mkdir()
    make(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"must be a file of results .* or a new one, got .*; name another"):
        Store(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", [".", "file/results.sqlite"])
def test_places_that_cannot_be_written(tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="name another"):
        Store(tmp_path / name)


def overwritten(path):
    """All but the first page, which says whose file it is."""
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))


def cut(path):
    with closing(sqlite3.connect(path)) as base:
        base.execute("update results set result = substr(result, 1, 3)")
        base.commit()


def other_columns(path):
    with closing(sqlite3.connect(path)) as base:
        base.execute("drop table results")
        base.execute("create table results (key text)")
        base.commit()


@pytest.mark.parametrize("damage", [overwritten, cut, other_columns])
def test_a_damaged_file_is_refused_in_one_sentence(path, damage):
    with Store(path) as store:
        for i in range(40):
            store.put(f"key {i}", "toy", {}, {"share": "x" * 500}, seconds=0.0)
    damage(path)
    with Store(path) as store, pytest.raises(InputError, match=r"must be a file of results .*; name another"):
        store.get("key 7")


def test_what_cannot_be_written_is_refused_in_one_sentence(path, monkeypatch):
    monkeypatch.setattr(experiment, "PATIENCE", 0.05)
    with Store(path) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin exclusive")
        with pytest.raises(InputError, match="must be a file of results .* got database is locked; name another"):
            store.put("a", "toy", {}, {}, seconds=0.0)


# What a unit is known by


def test_every_part_of_a_key_counts():
    parts = ("toy", {"depth": 6}, "data", "code")
    others = [
        ("toi", *parts[1:]),
        ("toy", {"depth": 7}, *parts[2:]),
        (*parts[:2], "other", "code"),
        (*parts[:3], "new"),
    ]
    keys = {unit_key(*some) for some in (parts, *others)}
    assert len(keys) == 5
    assert unit_key("toy", {"a": 1, "b": [1]}, "", "") == unit_key("toy", {"b": [1], "a": 1}, "", "")


def test_settings_must_be_json():
    for value in (float("nan"), object()):
        with pytest.raises((TypeError, ValueError)):
            unit_key("toy", {"x": value}, "", "")


def test_data_are_known_by_their_bytes(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder / "no2").mkdir(parents=True)
        (tmp_path / folder / "no2" / "no2.csv").write_text("1,2\n")
    versions = []
    for folder in ("a", "b"):
        with data_from(tmp_path / folder):
            versions.append(data_version(("no2",)))
    assert versions[0] == versions[1]
    file = tmp_path / "a" / "no2" / "no2.csv"
    file.write_text("1,3\n")
    os.utime(file, ns=(1, 1))  # as if long ago: a changed file is seen at once, not by the clock
    with data_from(tmp_path / "a"):
        assert data_version(("no2",)) != versions[0]
    assert data_version(()) not in versions


def test_code_is_known_by_its_files(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.py").write_text("one = 1\n")
    (tmp_path / "sub" / "b.py").write_text("two = 2\n")
    first = source_digest(tmp_path)
    (tmp_path / "a.pyc").write_text("compiled")
    assert source_digest(tmp_path) == first
    (tmp_path / "sub" / "b.py").write_text("two = 3\n")
    second = source_digest(tmp_path)
    (tmp_path / "sub" / "b.py").rename(tmp_path / "b.py")
    third = source_digest(tmp_path)
    (tmp_path / "sub" / "figures.csv").write_text("one,1\n")  # of which a result may be made, too
    assert len({first, second, third, source_digest(tmp_path)}) == 4
    assert code_version() == code_version()
    assert code_version().startswith(f"{apas.__version__}+")


def test_libraries_are_known_by_their_versions(monkeypatch):
    assert made_with().startswith(f"apas {code_version()}, Python ")
    found = {made_with()}
    for changed in COMPUTING:
        monkeypatch.setattr(experiment, "version", lambda name, changed=changed: "0" if name == changed else "1")
        found.add(made_with.__wrapped__())
    assert len(found) == 1 + len(COMPUTING)


def test_processors_and_the_kernels_of_their_blas_are_known(monkeypatch):
    assert f"BLAS {blas()}, processor {processor()}" in made_with()
    kernels = [lib["architecture"] for lib in threadpool_info() if lib["user_api"] == "blas" and "architecture" in lib]
    assert all(kernel in blas() for kernel in kernels)
    found = {made_with()}
    for changed in ("blas", "processor"):
        with monkeypatch.context() as patch:
            patch.setattr(experiment, changed, lambda: "another")
            found.add(made_with.__wrapped__())
    assert len(found) == 3


def test_another_kernel_is_another_key():
    """OpenBLAS takes the kernel that a variable of the environment names, if it can."""
    if "openblas" not in blas() or platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("needs OpenBLAS on x86, whose kernels these are")
    program = "from apas.paper.experiment import made_with; print(made_with())"
    given = {**os.environ, "PYTHONPATH": str(Path(apas.__file__).parents[1])}
    words = {
        subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for environment in (given | {"OPENBLAS_CORETYPE": core} for core in ("Haswell", "Prescott"))
    }
    assert len(words) == 2
