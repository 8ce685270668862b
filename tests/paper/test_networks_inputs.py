"""Inputs to explain: those of the published experiments, and different ones."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import shared_folder

from apas import FeedForward, InputError
from apas.experiments import prepare
from apas.paper.networks import choose_inputs

NET = FeedForward([[[1.0], [1.0]]], [[-1.0]])
X = np.random.default_rng(3).uniform(size=(400, 2)).round(1)


def test_different_rows_of_class_0():
    chosen = choose_inputs(NET, X, 0.1, seed=4, count=30)
    rows = X[chosen.rows]
    assert len(np.unique(rows, axis=0)) == 30
    assert (rows.sum(axis=1) < 1).all()
    assert chosen.n_class_0 == len(np.unique(X[X.sum(axis=1) < 1], axis=0))
    # a row keeps class 0 if its largest output, x1 + x2 - 1 + 0.1 (x1 + x2 + 1), is below 0
    assert chosen.n_certified == np.count_nonzero(1.1 * rows.sum(axis=1) - 0.9 < 0)
    assert 0 < chosen.n_certified < 30
    other = choose_inputs(NET, X, 0.1, seed=5, count=30)
    assert set(other.rows.tolist()) != set(chosen.rows.tolist())


def test_as_many_as_there_are():
    chosen = choose_inputs(NET, X, 0.1, seed=4, count=10_000)
    assert len(chosen.rows) == chosen.n_class_0


def test_published_inputs_keep_their_class():
    chosen = choose_inputs(NET, X, 0.1, most=40, seed=1)
    sums = X[chosen.rows].sum(axis=1)
    assert (1.1 * sums - 0.9 < 0).all()
    assert len(chosen.rows) == chosen.n_certified <= 40
    assert chosen.n_class_0 == np.count_nonzero(X.sum(axis=1) < 1)
    assert len(set(chosen.rows.tolist())) < len(chosen.rows)


@pytest.fixture
def data(monkeypatch):
    monkeypatch.setenv("APAS_DATA", str(shared_folder("datasets")))


@pytest.mark.usefixtures("data")
def test_seeds_draw_everything_anew():
    first, again, other = (prepare("no2", seed=seed, distinct=True) for seed in (2, 2, 3))
    np.testing.assert_array_equal(first.network.weights[0], again.network.weights[0])
    np.testing.assert_array_equal(first.rows, again.rows)
    assert first.delta == again.delta
    assert first.d1.raw.shape == other.d1.raw.shape
    assert not first.d1.raw.equals(other.d1.raw)
    assert first.delta != other.delta
    assert first.n_distinct == len(first.rows) == other.n_distinct == 50


@pytest.mark.usefixtures("data")
def test_published_and_different_inputs_have_the_same_networks():
    published, distinct = prepare("diabetes"), prepare("diabetes", distinct=True)
    np.testing.assert_array_equal(published.retrained.weights[0], distinct.retrained.weights[0])
    assert published.delta == distinct.delta
    assert (published.n_distinct, distinct.n_distinct) == (29, 50)
    assert distinct.n_certified < 50  # rows near the boundary are not left out


@pytest.mark.parametrize(("options", "match"), [({"seed": -1}, "`seed` of read_tables"), ({"distinct": 1}, "distinct")])
def test_bad_settings(options, match):
    with pytest.raises(InputError, match=match):
        prepare("diabetes", **options)
