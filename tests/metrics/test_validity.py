"""Validity of rows by hand: on a model, and on every shifted one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import apas
from apas import FeedForward, InputError
from apas.metrics import delta_validity, validity

NAN = float("nan")
NET = FeedForward([[[1.0], [-1.0]]], [[0.0]], feature_names=("a", "b"))
POINTS = [[2.0, 0.5], [0.0, 0.0], [0.0, 1.0], [NAN, NAN]]


def test_on_the_model():
    assert validity(NET, POINTS, 1).tolist() == [True, True, False, False]
    assert validity(NET, POINTS, 0).tolist() == [False, False, True, False]  # on the boundary it is class 1
    assert validity(NET, POINTS, [1, 0, 0, 1]).tolist() == [True, False, True, False]
    frame = pd.DataFrame(POINTS, columns=["a", "b"])[["b", "a"]]
    assert validity(NET, frame, 1).tolist() == [True, True, False, False]
    assert validity(NET, np.empty((0, 2)), 1).shape == (0,)
    assert validity(NET, np.full((2, 2), NAN), 1).tolist() == [False, False]


def test_agrees_with_the_estimator():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.array(["no", "yes", "maybe"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)]
    estimator = LogisticRegression().fit(X, y)
    for label in ("no", "yes", "maybe"):
        assert validity(estimator, X, label).tolist() == (estimator.predict(X) == label).tolist()


def test_under_every_shift():
    """By hand: the margin falls by delta (|a| + |b| + 1)."""
    rows = [[2.0, 0.5], [1.0, 0.5], [0.0, 1.0], [NAN, NAN]]
    assert delta_validity(NET, rows, 0.4, target=1).tolist() == [True, False, False, False]
    assert delta_validity(NET, rows, 0.15, target=1).tolist() == [True, True, False, False]
    fixed = apas.LinfShifts(kinds=("bias",))
    assert delta_validity(NET, rows, 0.45, target=[1, 1, 0, 1], shifts=fixed).tolist() == [True, True, True, False]
    assert delta_validity(NET, np.empty((0, 2)), 0.4, target=1).shape == (0,)


def test_bad_input():
    with pytest.raises(InputError, match=r"`target` must be one of the model's classes \(0, 1\), got 2"):
        validity(NET, POINTS, 2)
    with pytest.raises(InputError, match=r"`target` must be one class or one per row \(4\), got 3"):
        validity(NET, POINTS, [1, 1, 1])
    for metric in (validity, lambda *a: delta_validity(*a[:2], 0.1, target=a[2])):
        with pytest.raises(InputError, match=r"`target` must be the wanted class, one of \[0, 1\], got 'predicted'"):
            metric(NET, POINTS, "predicted")
    with pytest.raises(InputError, match=r"`points` must be 2-D .* x\[None, :\]"):
        validity(NET, [1.0, 2.0], 1)
    with pytest.raises(InputError, match=r"`X` must hold finite numbers"):
        validity(NET, [[1.0, NAN]], 1)
    with pytest.raises(InputError, match=r"`delta` must be positive"):
        delta_validity(NET, POINTS, 0.0, target=1)
