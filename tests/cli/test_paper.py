"""`apas paper`: the data are found or fetched, and a table comes out as text and as files."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from command_line import run
from conftest import shared_folder

import apas
from apas.cli import research as paper
from apas.datasets import DATASETS
from apas.paper.experiment import EXPERIMENTS, code_version


@pytest.fixture
def offline(monkeypatch):
    """All requests go to a port of this machine that nobody listens at."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv(name.upper(), "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("offline")
def test_all_files_are_there(capsys):
    folder = shared_folder("datasets")
    code, out, err = run(capsys, "paper", "data", "--data", str(folder))
    assert (code, err) == (0, "")
    assert f"12 of 12 files are in {folder.resolve()}." in out
    assert out.count("was there") == 12


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("option", [True, False])
def test_offline_it_says_what_to_put_where(capsys, tmp_path, monkeypatch, option):
    monkeypatch.setenv("APAS_DATA", str(tmp_path / ("other" if option else "new")))
    code, out, err = run(capsys, "paper", "data", *(("--data", str(tmp_path / "new")) if option else ()))
    assert code == 1
    assert "0 of 12 files are in" in out
    lines = err.splitlines()
    assert len(lines) == len(DATASETS)
    for line, file in zip(lines, DATASETS.values(), strict=True):
        assert line.startswith(f"error: {tmp_path / 'new' / file} of the dataset ")
        assert ": get https://" in line
    assert not (tmp_path / "new").exists()


def test_data_without_a_folder(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("APAS_DATA", raising=False)
    code, out, err = run(capsys, "paper", "data")
    assert (code, out) == (2, "")
    assert "apas paper data --data DIR" in err


def test_table2_without_data(capsys, tmp_path):
    code, _, err = run(capsys, "paper", "table2", "--data", str(tmp_path), "--output", str(tmp_path / "out"))
    assert code == 2
    assert "the data folder must be a folder with the sub-folders" in err
    assert f"apas paper data --data {tmp_path}" in err
    assert not (tmp_path / "out").exists()


def test_table2_says_which_file_is_missing(capsys, tmp_path):
    (tmp_path / "spam").mkdir()
    code, _, err = run(capsys, "paper", "table2", "--data", str(tmp_path), "--output", str(tmp_path / "out"))
    assert code == 2
    assert "the file credit/german.data for the dataset 'credit'" in err


def test_table2_refuses_a_file_as_folder(capsys, tmp_path):
    (tmp_path / "out").write_text("mine")
    folder = str(shared_folder("datasets"))
    code, _, err = run(capsys, "paper", "table2", "--data", folder, "--output", str(tmp_path / "out"), "--quick")
    assert code == 2
    assert "must be a file of results" in err
    assert (tmp_path / "out").read_text() == "mine"


def test_table2(capsys, tmp_path, monkeypatch):
    data = shared_folder("datasets").resolve()
    monkeypatch.setenv("APAS_DATA", str(tmp_path))  # the option goes before the variable
    (tmp_path / "datasets").mkdir()  # the datasets without what the authors logged, which lies beside them
    for name in ("credit", "spam", "news"):
        (tmp_path / "datasets" / name).symlink_to(data / name)
    words = ["paper", "table2", "--data", str(tmp_path / "datasets"), "--output", str(tmp_path / "out"), "--quick"]
    code, out, err = run(capsys, *words)
    assert code == 0
    (note,) = (line for line in err.splitlines() if line.startswith("left out: "))
    assert note.endswith(f"the authors' networks and logs are not at {tmp_path / 'oracle' / 'table2.json'}.")
    assert not (tmp_path / "out" / "table2-published.csv").exists()
    assert "paper rejected" in out
    assert "table2-networks" in out
    table = pd.read_csv(tmp_path / "out" / "table2.csv")
    assert len(table) == 12
    assert (table["n"] == 1000).all()
    for name, part in table.groupby("dataset"):
        assert np.all(np.diff(part["difference"]) > 0), f"larger shifts change more on {name}"
        assert part["rejected"].iloc[-1] >= 0.9
    networks = pd.read_csv(tmp_path / "out" / "table2-networks.csv").set_index("dataset")
    assert networks["rows"].to_dict() == {"credit": 1000, "spam": 4600, "news": 39644}
    assert networks["features"].to_dict() == {"credit": 72, "spam": 57, "news": 58}
    assert (networks["accuracy"] > networks["majority"]).all()
    for name in ("table2.md", "table2-networks.md", "table2.png", "table2.svg", "results.sqlite"):
        assert (tmp_path / "out" / name).stat().st_size > 0
    assert (
        f"Made by `apas paper table2 --quick` with apas {apas.__version__}+"
        in (tmp_path / "out" / "table2.md").read_text()
    )
    before = (tmp_path / "out" / "table2.csv").read_bytes()
    assert run(capsys, *words)[0] == 0
    assert (tmp_path / "out" / "table2.csv").read_bytes() == before


EXAMPLES = {"drawings": "figure2", "toy": "toy-delta", "lemma": "lemma", "hardness": "hardness"}


@pytest.mark.parametrize("name", ["data", "all", *(entry.name for entry in EXPERIMENTS)])
def test_help_has_an_example(capsys, name):
    code, out, _ = run(capsys, "paper", name, "--help")
    assert code == 0
    assert f"Example:  apas paper {name} --data datasets" in out


def test_help_lists_every_experiment(capsys):
    _, out, _ = run(capsys, "paper", "--help")
    for entry in EXPERIMENTS:
        assert re.search(rf"^. {entry.name} +{entry.title.split()[0]}", out, re.MULTILINE), entry.name


def test_unknown_names(capsys):
    code, out, err = run(capsys, "paper", "table9")
    assert (code, out) == (2, "")
    assert "No such command 'table9'" in err


@pytest.mark.parametrize("name", ["drawings", "lemma"])
def test_experiments_without_data(capsys, tmp_path, monkeypatch, name):
    monkeypatch.setenv("APAS_DATA", str(tmp_path / "nowhere"))
    words = ["paper", name, "--output", str(tmp_path / "out"), "--quick"]
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    table = EXAMPLES[name]
    assert table in out
    text = (tmp_path / "out" / f"{table}.md").read_text()
    assert f"Made by `apas paper {name} --quick` with apas {apas.__version__}+" in text
    before = rows(tmp_path / "out")
    assert len(before) > 1
    assert run(capsys, *words)[0] == 0
    assert rows(tmp_path / "out") == before


@pytest.mark.parametrize("jobs", ["0", "two"])
def test_jobs_are_checked_first(capsys, tmp_path, jobs):
    code, out, err = run(capsys, "paper", "all", "--output", str(tmp_path / "out"), "--jobs", jobs)
    assert (code, out) == (2, "")
    assert "jobs" in err
    assert not (tmp_path / "out").exists()


def rows(folder):
    """Keys of finished units, and how long each took: one that is done again takes another time."""
    with contextlib.closing(sqlite3.connect(folder / "results.sqlite", timeout=60)) as base:
        return dict(base.execute("select key, seconds from results"))


def test_a_run_that_was_killed_goes_on(capsys, tmp_path):
    words = ["paper", "lemma", "--output", str(tmp_path / "out"), "--quick"]
    process = subprocess.Popen([sys.executable, "-m", "apas", *words], stdout=subprocess.DEVNULL)
    before = {}
    while process.poll() is None and len(before) < 3:
        time.sleep(0.005)
        with contextlib.suppress(sqlite3.OperationalError):  # no file or no table yet
            before = rows(tmp_path / "out")
    process.kill()
    process.wait()
    assert len(before) >= 3
    before = rows(tmp_path / "out")
    assert not (tmp_path / "out" / "lemma.csv").exists() or len(before) == 25
    assert run(capsys, *words)[0] == 0
    after = rows(tmp_path / "out")
    assert len(after) == 25
    assert before.items() <= after.items()
    table = pd.read_csv(tmp_path / "out" / "lemma.csv").set_index(["activation", "delta"])
    assert table.loc[("relu", "3/10"), "as a fraction"] == "4159/8000"


def test_all_says_what_is_missing_before_it_works(capsys, tmp_path):
    (tmp_path / "spam").mkdir()
    code, out, err = run(capsys, "paper", "all", "--data", str(tmp_path), "--output", str(tmp_path / "out"))
    assert (code, out) == (2, "")
    assert "must be a folder with the file" in err
    assert not (tmp_path / "out").exists()


def test_all_runs_what_is_registered(capsys, tmp_path, monkeypatch):
    chosen = tuple(entry for entry in EXPERIMENTS if entry.name in ("drawings", "lemma"))
    monkeypatch.setattr(paper, "EXPERIMENTS", chosen)
    words = ["paper", "all", "--output", str(tmp_path), "--quick", "--jobs", "2"]
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if " of 2: " in line] == [
        f"{number} of 2: {entry.title}" for number, entry in enumerate(chosen, start=1)
    ]
    assert out.splitlines()[-1] == f"page: {tmp_path / 'paper.html'}"
    page = (tmp_path / "paper.html").read_text()
    for word in ("4159/8000", "figure2", "apas paper lemma --quick", f">{code_version()}<"):
        assert word in page
    pictures = sorted(tmp_path.glob("*.png"))
    assert [picture.stem for picture in pictures] == ["appendix-network", "figure1", "figure2", "figure3", "lemma"]
    for picture in pictures:
        assert base64.b64encode(picture.read_bytes()).decode() in page
        assert picture.with_suffix(".svg").exists()
    assert str(tmp_path) not in page
    before = rows(tmp_path)
    code, out, err = run(capsys, *words, "--json")
    assert code == 0
    assert err.splitlines() == [f"{number} of 2: {entry.title}" for number, entry in enumerate(chosen, start=1)]
    content = json.loads(out)
    assert [part["name"] for part in content["experiments"]] == ["drawings", "lemma"]
    assert content["page"] == str(tmp_path / "paper.html")
    assert all((tmp_path / file).exists() for part in content["experiments"] for file in part["files"])
    assert rows(tmp_path) == before
    assert (tmp_path / "paper.html").read_text() == page
