"""Outliers as scikit-learn calls them, and the nearest known row."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.neighbors import LocalOutlierFactor

from apas import InputError
from apas.metrics import distance_to_data, lof

RNG = np.random.default_rng(5)
KNOWN = np.concatenate([RNG.normal(size=(60, 3)), 4 + 0.1 * RNG.normal(size=(40, 3))])
ROWS = 2.5 * RNG.normal(size=(50, 3))


@pytest.mark.parametrize("count", [20, 5])
def test_lof_is_that_of_scikit_learn(count):
    theirs = LocalOutlierFactor(n_neighbors=count, novelty=True).fit(KNOWN).predict(ROWS)
    assert {*theirs} == {-1, 1}
    assert lof(KNOWN, ROWS, n_neighbors=count).tolist() == theirs.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_all_background_rows_count(seed):
    rng = np.random.default_rng(seed)
    known, rows = rng.normal(size=(24, 2)), 2 * rng.normal(size=(300, 2))
    theirs = LocalOutlierFactor(n_neighbors=20, novelty=True).fit(known).predict(rows)
    assert lof(known, rows).tolist() == theirs.tolist()


def test_missing_rows_are_not_judged_and_change_nothing():
    rows = ROWS.copy()
    rows[::3] = np.nan
    for metric in (lof, distance_to_data):
        found, whole = metric(KNOWN, rows), metric(KNOWN, ROWS)
        assert np.isnan(found[::3]).all()
        there = ~np.isnan(rows[:, 0])
        assert found[there].tolist() == whole[there].tolist()
        assert np.isnan(metric(KNOWN, np.full((2, 3), np.nan))).all()
        assert metric(KNOWN, np.empty((0, 3))).shape == (0,)


def test_distance_to_data_naively():
    naive = [min(sum(abs(a - b) for a, b in zip(row, known, strict=True)) / 3 for known in KNOWN) for row in ROWS]
    assert distance_to_data(KNOWN, ROWS) == pytest.approx(naive)
    assert distance_to_data(KNOWN, KNOWN).tolist() == [0.0] * len(KNOWN)


def test_frames():
    known, rows = (pd.DataFrame(X, columns=list("abc")) for X in (KNOWN, ROWS))
    assert lof(known, rows[list("cab")]).tolist() == lof(KNOWN, ROWS).tolist()
    assert distance_to_data(known, rows[list("cab")]).tolist() == distance_to_data(KNOWN, ROWS).tolist()


def test_bad_background():
    with pytest.raises(
        InputError, match=r"`background` must have more rows than the 20 neighbours .* got 20; give more"
    ):
        lof(KNOWN[:20], ROWS)
    assert set(lof(KNOWN[:21], ROWS)) <= {-1.0, 1.0}
    with pytest.raises(InputError, match=r"`n_neighbors` of lof must be an integer of at least 1, got 0"):
        lof(KNOWN, ROWS, n_neighbors=0)
    with pytest.raises(InputError, match=r"`background` must have at least one row, got none"):
        distance_to_data(np.empty((0, 3)), ROWS)
    for metric in (lof, distance_to_data):
        with pytest.raises(InputError, match=r"`points` must have the 3 columns of `background`.*got 2"):
            metric(KNOWN, ROWS[:, :2])
        with pytest.raises(InputError, match=r"`background` must hold finite numbers, but row 1, column 0 is nan"):
            metric(np.where(np.arange(100)[:, None] == 1, np.nan, KNOWN), ROWS)
