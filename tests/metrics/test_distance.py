"""Distances by hand: plain arrays, features of several columns, missing rows, constraints."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from apas import InputError
from apas.counterfactuals.space.feature import Feature
from apas.counterfactuals.space.space import FeatureSpace
from apas.metrics import cost, l0, l1, linf, violations

NAN = float("nan")
INPUTS = [[0.0, 0.5, 1.0, 0.0], [0.2, 0.2, 0.0, 1.0], [0.1, 0.1, 1.0, 0.0]]
POINTS = [[0.3, 0.5, 0.0, 1.0], [0.2, 0.20005, 0.0, 1.0], [NAN] * 4]

SPACE = FeatureSpace(
    [
        Feature("age", "integer", low=20, high=70, direction="increase"),
        Feature("income", low=0, high=1000, step=100),
        Feature("grade", "ordinal", values=("low", "middle", "high")),
        Feature("purpose", "categorical", values=("car", "house", "other"), mutable=False),
    ]
)
RAW = pd.DataFrame({"age": [30, 30, 30], "income": 500.0, "grade": "low", "purpose": "car"}, index=["a", "b", "c"])
CHANGED = pd.DataFrame(
    {
        "age": [40, 25, NAN],
        "income": [500.0, 550.0, NAN],
        "grade": ["middle", "high", None],
        "purpose": ["car", "other", None],
    },
    index=["a", "b", "c"],
)


def test_by_hand():
    assert l1(INPUTS, POINTS) == pytest.approx([2.3 / 4, 0.00005 / 4, NAN], nan_ok=True)
    assert linf(INPUTS, POINTS) == pytest.approx([1.0, 0.00005, NAN], nan_ok=True)
    assert l0(INPUTS, POINTS) == pytest.approx([0.75, 0.0, NAN], nan_ok=True)
    assert l0(INPUTS, POINTS, features=[0, 1, 2, 2]).tolist()[:2] == [0.667, 0.0]
    assert l0(INPUTS, POINTS, features=["a", "b", "a", "b"]).tolist()[:2] == [1.0, 0.0]


def test_a_change_counts_from_1e_4_on():
    assert l0([[0.0] * 3], [[1e-4, -1e-4, 0.99e-4]]).tolist() == [0.667]


@pytest.mark.parametrize("metric", [l1, l0, linf])
def test_frames_are_matched_by_name(metric):
    first = pd.DataFrame(INPUTS, columns=list("abcd"))
    second = pd.DataFrame(POINTS, columns=list("abcd"))[list("dbca")]
    assert metric(first, second) == pytest.approx(metric(INPUTS, POINTS), nan_ok=True)
    assert metric(first, POINTS) == pytest.approx(metric(INPUTS, POINTS), nan_ok=True)
    with pytest.raises(InputError, match=r"`points` must have the columns of `inputs`, but 'a' is in one of them only"):
        metric(first, second.rename(columns={"a": "z"}))


@pytest.mark.parametrize("metric", [l1, l0, linf])
def test_bad_arrays(metric):
    assert metric(np.empty((0, 3)), np.empty((0, 3))).shape == (0,)
    assert metric([], []).shape == (0,)
    with pytest.raises(InputError, match=r"`points` must have the shape \(1, 2\) of `inputs`.*got \(1, 3\)"):
        metric([[1.0, 2.0]], [[1.0, 2.0, 3.0]])
    with pytest.raises(InputError, match=r"`inputs` must be 2-D \(rows, columns\), got 1 dimensions; .* x\[None, :\]"):
        metric([1.0, 2.0], [[1.0, 2.0]])
    with pytest.raises(InputError, match=r"`points` must be 2-D \(rows, columns\), got 3 dimensions\.$"):
        metric([[1.0, 2.0]], [[[1.0, 2.0]]])
    with pytest.raises(
        InputError,
        match=r"`points` must hold finite numbers, or rows in which all is missing, but row 0, column 1 is nan",
    ):
        metric([[1.0, 2.0]], [[1.0, NAN]])
    with pytest.raises(
        InputError, match=r"`inputs` must hold finite numbers, but row 0, column 0 is nan; fill or drop it"
    ):
        metric([[NAN, NAN]], [[1.0, 2.0]])
    for wrong in ([["rent"]], [[1.0], [1.0, 2.0]], [[1j]]):
        with pytest.raises(InputError, match=r"`points` must hold rows of numbers of equal length; encode what is not"):
            metric([[1.0]], wrong)
    with pytest.raises(InputError, match=r"at least one column"):
        metric(np.empty((2, 0)), np.empty((2, 0)))


def test_features_must_match():
    with pytest.raises(InputError, match=r"`features` must name a feature for each of 4 columns, got 3"):
        l0(INPUTS, POINTS, features=[0, 1, 2])


def test_cost_by_feature():
    assert cost(SPACE, RAW, CHANGED) == pytest.approx([(0.2 + 0.5) / 4, (0.1 + 0.05 + 1 + 1) / 4, NAN], nan_ok=True)
    assert cost(SPACE, RAW, CHANGED, distance="linf") == pytest.approx([0.5, 1.0, NAN], nan_ok=True)
    with pytest.raises(InputError, match=r'`distance` of cost must be "l1" or "linf", got \'l2\''):
        cost(SPACE, RAW, CHANGED, distance="l2")


def test_violations_by_cell():
    found = violations(SPACE, RAW, CHANGED)  # younger, between two steps, another purpose
    assert found == pytest.approx([0.0, 3.0, NAN], nan_ok=True)
    assert violations(SPACE, RAW.to_numpy(), CHANGED.to_numpy(dtype=object)) == pytest.approx(found, nan_ok=True)
    assert violations(SPACE, RAW[:0], CHANGED[:0]).shape == (0,)
    with pytest.raises(InputError, match=r"`points` must have a row for each of the 3 inputs, got 2"):
        violations(SPACE, RAW, CHANGED[:2])


def test_a_space_is_needed():
    with pytest.raises(InputError, match="`space` must be an apas.FeatureSpace, got NoneType"):
        cost(None, [[1.0]], [[2.0]])
