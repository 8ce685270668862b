"""Finding the paper's datasets on disk."""

from __future__ import annotations

import os

import pytest

from apas.datasets import DATASETS, data_folder, data_from, dataset_path
from apas.errors import InputError

PAPER = ("diabetes", "no2", "sba", "credit", "spam", "news")


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A tree of empty files, `shared/datasets/...`, with nothing pointing to it."""
    monkeypatch.delenv("APAS_DATA", raising=False)
    (tmp_path / "project").mkdir()
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere" / "deep")
    for file in DATASETS.values():
        path = tmp_path / "shared" / "datasets" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "shared"


def test_names():
    assert set(PAPER) <= set(DATASETS)


@pytest.mark.parametrize("place", [".", "datasets"])
def test_variable_may_name_the_folder_or_its_parent(shared, monkeypatch, place):
    monkeypatch.setenv("APAS_DATA", str(shared / place))
    assert data_folder() == shared / "datasets"


def test_home_is_expanded(shared, monkeypatch):
    monkeypatch.setenv("HOME", str(shared))
    monkeypatch.setenv("USERPROFILE", str(shared))
    monkeypatch.setenv("APAS_DATA", "~/datasets")
    assert data_folder() == shared / "datasets"


@pytest.mark.parametrize("value", [None, "", " "])
def test_neighbouring_shared_folder_is_found(shared, monkeypatch, value):
    if value is not None:
        monkeypatch.setenv("APAS_DATA", value)
    monkeypatch.chdir(shared.parent / "project")
    assert data_folder() == shared / "datasets"


def test_variable_goes_first(shared, monkeypatch, tmp_path):
    (tmp_path / "mine" / "no2").mkdir(parents=True)
    monkeypatch.chdir(shared.parent / "project")
    monkeypatch.setenv("APAS_DATA", str(tmp_path / "mine"))
    assert data_folder() == tmp_path / "mine"


def test_what_is_named_goes_before_the_variable(shared, monkeypatch, tmp_path):
    for name in ("mine", "yours"):
        (tmp_path / name / "no2").mkdir(parents=True)
    monkeypatch.setenv("APAS_DATA", str(tmp_path / "mine"))
    assert data_folder(shared) == shared / "datasets"
    with data_from(shared):
        assert data_folder() == shared / "datasets"
        assert dataset_path("no2") == shared / "datasets" / "no2" / "no2.csv"
        assert data_folder(tmp_path / "yours") == tmp_path / "yours"
        with data_from(tmp_path / "yours"):
            assert data_folder() == tmp_path / "yours"
        with data_from(None):
            assert data_folder() == shared / "datasets"
    assert data_folder() == tmp_path / "mine"


def test_a_relative_folder_stays_where_it_was(shared, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with data_from("shared"):
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert data_folder() == shared / "datasets"


def test_a_wrong_folder_is_not_passed_over(shared, monkeypatch, tmp_path):
    monkeypatch.setenv("APAS_DATA", str(shared))
    wrong = tmp_path / "elsewhere"
    with pytest.raises(InputError, match=rf"the data folder must be .*got '{wrong}'.*apas paper data --data {wrong}"):
        data_folder(wrong)
    with pytest.raises(InputError, match="the data folder must be"), data_from(wrong):
        pass


@pytest.mark.usefixtures("shared")
def test_nowhere():
    with pytest.raises(InputError, match=r"APAS_DATA must be .* not set .*export APAS_DATA=/path/to/datasets"):
        data_folder()


def test_wrong_variable_is_not_passed_over(shared, monkeypatch):
    monkeypatch.chdir(shared.parent / "project")
    monkeypatch.setenv("APAS_DATA", "/no/such/folder")
    with pytest.raises(InputError, match=r"APAS_DATA must be .*diabetes.*got '/no/such/folder'.*export APAS_DATA="):
        data_folder()


@pytest.mark.parametrize("name", DATASETS)
def test_path(shared, monkeypatch, name):
    monkeypatch.setenv("APAS_DATA", str(shared))
    path = dataset_path(name)
    assert path == shared / "datasets" / DATASETS[name]
    path.unlink()
    with pytest.raises(InputError, match=f"the file {DATASETS[name]} for the dataset '{name}'.*Put it there"):
        dataset_path(name)


@pytest.mark.parametrize("name", ["iris", "Diabetes", "", None, 3, ["no2"]])
def test_unknown_name(shared, monkeypatch, name):
    monkeypatch.setenv("APAS_DATA", str(shared))
    with pytest.raises(InputError, match=r"name of dataset_path must be one of diabetes, .*, got .*Pick one"):
        dataset_path(name)


def test_real_files():
    try:
        data_folder()
    except InputError as error:
        if "data" in os.environ.get("APAS_REQUIRE", "").split(","):
            raise
        pytest.skip(str(error))
    for name in DATASETS:
        assert dataset_path(name).stat().st_size > 0
