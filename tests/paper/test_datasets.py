"""The four tables are cut, coded and scaled as the published experiments did."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from conftest import shared_folder

from apas import InputError
from apas.datasets import DATASETS, data_from
from apas.experiments import TABLES, read_tables
from apas.paper.datasets import LABEL, LEVELS, NUMBERS, files_of, new_credit, old_credit


@pytest.fixture(autouse=True)
def _data(monkeypatch):
    monkeypatch.setenv("APAS_DATA", str(shared_folder("datasets")))


#: Columns, inputs, rows of D1, different ones among them, rows of D2.
SIZES = {
    "diabetes": (8, 8, 384, 301, 467),
    "no2": (7, 7, 250, 199, 301),
    "sba": (9, 9, 1159, 1126, 943),
    "credit": (20, 72, 1000, 1000, 799),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name):
    tables = read_tables(name)
    found = (tables.d1.raw.shape[1], tables.d1.X.shape[1], len(tables.d1), tables.d1.n_distinct, len(tables.d2))
    assert found == SIZES[name]
    for part in (tables.d1, tables.d2):
        assert len(tables.inputs) == part.X.shape[1]
        assert list(tables.space.names) == list(part.raw.columns)
        assert 0 <= part.X.min() < part.X.max() <= 1
        assert set(part.y) == {0, 1}
        np.testing.assert_array_equal(tables.space.encode(part.raw), part.X)
    with pytest.raises(ValueError, match="read-only"):
        tables.d1.X[0, 0] = 1


@pytest.mark.parametrize("name", ["diabetes", "no2"])
def test_drawn_parts_have_the_scale_of_the_file(name):
    tables = read_tables(name)
    both = np.vstack([tables.d1.X, tables.d2.X])
    np.testing.assert_array_equal(both.min(axis=0), 0)
    np.testing.assert_array_equal(both.max(axis=0), 1)


def test_sba_is_cut_by_year_and_labelled_by_repayment():
    tables = read_tables("sba")
    assert tables.d1.y.sum() + tables.d2.y.sum() == 1416
    np.testing.assert_array_equal(tables.d1.raw["daysterm"], 30 * tables.d1.raw["Term"])


def test_credit_codes_lie_within_their_levels_and_make_72_inputs():
    sizes = {**LEVELS["ordinal"], **LEVELS["categorical"]}
    assert sum(LEVELS["ordinal"].values()) == 42
    assert sum(LEVELS["categorical"].values()) == 27
    for frame in (old_credit(), new_credit(), new_credit(aligned=True)):
        for column, levels in sizes.items():
            assert frame[column].min() >= 0
            assert frame[column].max() < levels
    tables = read_tables("credit")
    order = "checking-status>=0 checking-status>=1 checking-status>=2 checking-status>=3 duration credit-history_0"
    assert tables.inputs[:6] == tuple(order.split())
    assert tables.inputs[-2:] == ("foreign_0", "foreign_1")


def test_old_and_new_credit_numbers_have_the_same_ranges():
    for frame in (old_credit(), new_credit(), new_credit(aligned=True)):
        ranges = {c: (int(frame[c].min()), int(frame[c].max())) for c in NUMBERS}
        assert ranges == {"duration": (4, 72), "amount": (250, 18424), "age": (19, 75)}


def test_published_new_credit_rows_are_made_of_two_records():
    right, published = new_credit(aligned=True), new_credit()
    assert (len(right), len(published)) == (800, 799)
    moved = [*NUMBERS, LABEL]
    pd.testing.assert_frame_equal(published[moved], right[moved].iloc[:-1])
    levels = right.columns.drop(moved)
    pd.testing.assert_frame_equal(published[levels], right[levels].iloc[1:].reset_index(drop=True))
    assert len(read_tables("credit", aligned=True).d2) == 800
    assert read_tables("credit", aligned=True).aligned
    assert not read_tables("credit").aligned


def test_bad_arguments():
    assert list(TABLES) == list(SIZES)
    with pytest.raises(InputError, match="`name` of read_tables must be one of diabetes, no2, sba, credit, got 'news'"):
        read_tables("news")
    with pytest.raises(InputError, match="aligned"):
        read_tables("credit", aligned=1)


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"", b"\x00\xff\xfe", b"x" * 100])
@pytest.mark.parametrize("name", ["diabetes", "no2", "sba", "credit"])
def test_another_file_in_the_place_of_a_dataset(tmp_path, name, content):
    for file in files_of(name):
        place = tmp_path / DATASETS[file]
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(content)
    with data_from(tmp_path), pytest.raises(InputError, match="apas paper data --data") as caught:
        read_tables(name)
    said = str(caught.value)
    assert said.startswith(f"the files of the dataset {name!r} must be those of the paper, but {tmp_path}")
    assert "\n" not in said
