"""What a model without preprocessing sees: scaled numbers, one-hot groups, thermometers; and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from random_spaces import random_rows, random_space

from apas.counterfactuals.space.feature import Feature
from apas.counterfactuals.space.space import FeatureSpace


@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=200, deadline=None)
def test_what_is_encoded_can_be_decoded(seed: int, scaled: bool) -> None:
    rng = np.random.default_rng(seed)
    space = random_space(rng)
    if scaled:
        fit = [f for f in space if f.code != "number" or (np.isfinite(f.ends).all() and f.ends[0] < f.ends[1])]
        space = FeatureSpace(fit or [Feature("f", low=0, high=3)], "minmax")
    rows = random_rows(rng, space, 9, allowed=True)
    coded = space.coding.encode(rows)
    assert coded.shape == (9, space.coding.n_columns) == (9, len(space.coding.names))
    back = space.coding.decode(coded)
    exact = np.array([f.listed is not None or f.step is not None or not scaled for f in space])
    assert (back[:, exact] == rows[:, exact]).all()
    np.testing.assert_allclose(back, rows, rtol=1e-12, atol=1e-12)
    if scaled:
        assert (coded >= -1e-12).all()
        assert (coded <= 1 + 1e-12).all()
    table = space.table(rows)
    assert (space.encode(table) == coded).all()
    assert (space.numbers(space.decode(coded)) == back).all()


@given(st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_groups_are_groups(seed: int) -> None:
    rng = np.random.default_rng(seed)
    space = random_space(rng)
    rows = random_rows(rng, space, 9)
    coded = space.coding.encode(rows)
    for i, (feature, part) in enumerate(zip(space, space.coding.slices, strict=True)):
        block = coded[:, part]
        if feature.code == "onehot":
            assert (block.sum(axis=1) == 1).all()
            assert (block.argmax(axis=1) == rows[:, i]).all()
        elif feature.code == "thermometer":
            assert (block[:, 0] == 1).all()
            assert (np.diff(block, axis=1) <= 0).all()
            assert (block.sum(axis=1) == rows[:, i] + 1).all()
        else:
            assert block.shape == (9, 1)


def test_columns_and_their_names() -> None:
    space = FeatureSpace(
        [
            Feature("income", low=1000, high=3000),
            Feature("grade", "ordinal", values=("low", "high"), code="thermometer"),
            Feature("home", "categorical", values=("own", "rent")),
            Feature("size", "ordinal", values=(2, 4, 8)),
            Feature("sex", "binary", values=("f", "m")),
        ],
        "minmax",
    )
    assert space.coding.names == ("income", "grade>=low", "grade>=high", "home_own", "home_rent", "size", "sex")
    row = space.numbers(np.array([[1500, "high", "rent", 4, "m"]], dtype=object))
    # ordinal numbers stand for themselves, other levels for their position
    assert space.coding.encode(row).tolist() == [[0.25, 1, 1, 0, 1, 2 / 6, 1]]


@pytest.mark.parametrize("columns", [[[0.4, 0.6, 0.9]], [[0.1, 0.7, 2.0]]])
def test_what_is_near_decodes_to_the_nearest_level(columns) -> None:
    space = FeatureSpace([Feature("a", "categorical", values=("x", "y")), Feature("b", "binary", values=(0, 1))])
    assert space.decode(columns).to_numpy().tolist() == [["y", 1]]


def test_numbers_between_steps_are_not_moved_by_decoding() -> None:
    space = FeatureSpace([Feature("n", "integer", low=0, high=10**12)], "minmax")
    rows = np.array([[2e9 + 0.5], [2e9 + 1]])
    np.testing.assert_allclose(space.coding.decode(space.coding.encode(rows)), rows, rtol=0, atol=1e-3)
    assert space.coding.decode(space.coding.encode(rows))[1, 0] == 2e9 + 1


def test_numbers_are_coded_together_as_one_by_one() -> None:
    features = [
        Feature("a", low=-3.0, high=0.7),
        Feature("b", "integer", low=10, high=37),
        Feature("c", low=0, high=1e9),
    ]
    rows = np.random.default_rng(0).normal(size=(50, 3)) * [1.0, 20.0, 1e9]
    for scale in (None, "minmax"):
        coding = FeatureSpace(features, scale).coding
        alone = np.hstack([coding._code_cells(i, f, rows[:, i]) for i, f in enumerate(features)])
        np.testing.assert_array_equal(coding.encode(rows), alone)
