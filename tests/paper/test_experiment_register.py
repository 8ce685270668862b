"""The register of experiments: what is offered exists, and data are asked for before the work."""

from __future__ import annotations

import sys

import pytest
from conftest import shared_folder

from apas import InputError
from apas.datasets import data_from
from apas.paper.experiment import EXPERIMENTS, Entry, Unit, datasets_of


def test_names():
    names = [entry.name for entry in EXPERIMENTS]
    assert len(set(names)) == len(names)
    assert {"drawings", "toy", "figure4", "table1", "table2", "lemma", "hardness"} == set(names)


@pytest.mark.parametrize("entry", EXPERIMENTS, ids=lambda entry: entry.name)
def test_what_is_offered_can_be_run(entry):
    experiment = entry.load()
    quick, whole = (experiment.units({"quick": quick}) for quick in (True, False))
    assert all(isinstance(unit, Unit) and unit.experiment == entry.name for unit in quick + whole)
    assert len(quick) <= len(whole)
    assert callable(experiment.tables)
    assert callable(experiment.figures)


def test_what_is_not_there_is_not_imported():
    entry = Entry("nothing", "Nothing")
    assert "apas.paper.nothing" not in sys.modules
    with pytest.raises(ModuleNotFoundError, match="nothing"):
        entry.load()


def test_datasets():
    with data_from(shared_folder("datasets")):
        assert datasets_of([Entry("figure4", "")]) == ("diabetes", "no2", "sba", "credit", "credit-new")
        assert datasets_of([Entry("table2", "")], quick=True) == ("credit", "spam", "news")


def test_missing_files_are_named_before_the_work(tmp_path):
    (tmp_path / "diabetes").mkdir()
    with data_from(tmp_path), pytest.raises(InputError, match=r"the file diabetes/diabetes.csv for the dataset"):
        datasets_of([Entry("toy", ""), Entry("figure4", "")])
