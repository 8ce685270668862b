"""`apas paper`: the data are found or fetched, and a table comes out as text and as files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from command import run
from conftest import shared_folder

from apas.datasets import DATASETS


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
    assert f"9 of 9 files are in {folder}." in out
    assert out.count("was there") == 9


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("option", [True, False])
def test_offline_it_says_what_to_put_where(capsys, tmp_path, monkeypatch, option):
    monkeypatch.setenv("APAS_DATA", str(tmp_path / ("other" if option else "new")))
    code, out, err = run(capsys, "paper", "data", *(("--data", str(tmp_path / "new")) if option else ()))
    assert code == 1
    assert "0 of 9 files are in" in out
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
    monkeypatch.setenv("APAS_DATA", str(tmp_path))  # the option goes before the variable
    words = ["paper", "table2", "--data", str(shared_folder("datasets")), "--output", str(tmp_path / "out"), "--quick"]
    code, out, _ = run(capsys, *words)
    assert code == 0
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
    assert "Made by `apas paper table2 --quick` with apas 0.1.0+" in (tmp_path / "out" / "table2.md").read_text()
    before = (tmp_path / "out" / "table2.csv").read_bytes()
    assert run(capsys, *words)[0] == 0
    assert (tmp_path / "out" / "table2.csv").read_bytes() == before
