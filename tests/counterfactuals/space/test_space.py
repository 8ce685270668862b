"""Feature spaces: what is snapped is allowed, tables come back as they were, and tables describe themselves."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from random_spaces import random_rows, random_space

from apas.counterfactuals.space.feature import Feature
from apas.counterfactuals.space.space import FeatureSpace
from apas.errors import InputError

seeds = st.integers(0, 2**32)


@given(seeds)
@settings(max_examples=200, deadline=None)
def test_snapped_rows_are_allowed_and_stay(seed: int) -> None:
    rng = np.random.default_rng(seed)
    space = random_space(rng)
    inputs, wanted = random_rows(rng, space, 12), random_rows(rng, space, 12)
    found = space.snapped(wanted, inputs)
    assert space.allowed(found, inputs).all()
    assert (space.snapped(found, inputs) == found).all()
    assert (space.snapped(inputs, inputs) == inputs).all()
    one_by_one = [f.snapped(wanted[:, i], inputs[:, i]) for i, f in enumerate(space)]
    assert (found == np.stack(one_by_one, axis=1)).all()
    # nothing allowed that was drawn is nearer
    others = random_rows(rng, space, 12)
    fine = space.allowed(others, inputs)
    numeric = np.array([f.kind != "categorical" for f in space])
    assert (np.abs(found - wanted)[fine & numeric] <= np.abs(others - wanted)[fine & numeric]).all()


@given(seeds)
@settings(max_examples=100, deadline=None)
def test_tables_come_back_as_they_were(seed: int) -> None:
    rng = np.random.default_rng(seed)
    space = random_space(rng)
    numbers = random_rows(rng, space, 9)
    table = space.table(numbers, index=range(5, 14))
    assert tuple(table.columns) == space.names
    assert (space.numbers(table) == numbers).all()
    assert (space.numbers(table[list(reversed(space.names))]) == numbers).all()  # by name, not by position
    again = space.like(numbers, table)
    pd.testing.assert_frame_equal(again, table)
    cells = table.to_numpy(dtype=object)
    assert (space.numbers(cells) == numbers).all()
    assert space.like(numbers, cells).tolist() == cells.tolist()


@given(seeds)
@settings(max_examples=100, deadline=None)
def test_costs_are_the_mean_or_largest_difference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    space = random_space(rng)
    a, b = random_rows(rng, space, 5), random_rows(rng, space, 5)
    apart = np.empty_like(a)
    for i, f in enumerate(space):
        apart[:, i] = a[:, i] != b[:, i] if f.kind == "categorical" else np.abs(a[:, i] - b[:, i]) / f.span
    np.testing.assert_allclose(space.costs(a, b), apart.mean(axis=1))
    np.testing.assert_allclose(space.costs(a, b, "linf"), apart.max(axis=1))
    assert (space.costs(a, a) == 0).all()


def test_whole_numbers_come_back_as_integers() -> None:
    space = FeatureSpace([Feature("age", "integer"), Feature("rate"), Feature("flag", "binary", values=(False, True))])
    table = space.table(np.array([[40.0, 2.0, 1.0]]))
    assert [d.kind for d in table.dtypes] == ["i", "f", "b"]
    assert space.like(np.array([[40.5, 2.0, 1.0]]), np.zeros((1, 3))).tolist() == [[40.5, 2.0, True]]


def test_rows_without_names_are_taken_by_position() -> None:
    frame = pd.DataFrame(np.arange(6.0).reshape(2, 3) / 4)  # columns 0, 1, 2
    space = FeatureSpace.from_frame(frame)
    assert space.names == ("0", "1", "2")
    assert (space.numbers(frame) == frame.to_numpy()).all()
    assert space.numbers(np.empty((0, 3))).shape == (0, 3)
    assert space.numbers(frame[:0]).shape == (0, 3)


def test_a_space_is_a_collection_of_features() -> None:
    a, b = Feature("a"), Feature("b", "integer")
    space = FeatureSpace([a, b])
    assert (len(space), list(space), space["b"]) == (2, [a, b], b)
    with pytest.raises(KeyError):
        space["c"]


# --- from_frame ---


@pytest.fixture
def loans() -> pd.DataFrame:
    grade = pd.Categorical(["C", "A", "B", "A"], categories=["C", "B", "A"], ordered=True)
    return pd.DataFrame(
        {
            "income": [1800.5, 2500.0, 900.0, 1200.0],
            "age": [25, 61, 33, 40],
            "housing": ["rent", "own", "free", "rent"],
            "sex": ["f", "m", "m", "f"],
            "married": [True, False, True, True],
            "guarantor": [0, 1, 0, 0],
            "grade": grade,
            "region": pd.Categorical(["n", "s", "n", "s"], categories=["s", "n", "w"]),
            "paid": [0, 1, 1, 0],
        }
    )


def test_a_table_describes_itself(loans) -> None:
    space = FeatureSpace.from_frame(loans, label="paid", immutable=["sex"], increase=["age", "grade"])
    assert space.names == tuple(loans.columns[:-1])
    assert [f.kind for f in space] == [
        "continuous", "integer", "categorical", "binary", "binary", "binary", "ordinal", "categorical"
    ]  # fmt: skip
    assert (space["income"].low, space["income"].high, space["age"].step) == (900.0, 2500.5 - 0.5, 1.0)
    assert space["housing"].values == ("free", "own", "rent")
    assert space["grade"].values == ("C", "B", "A")
    assert space["region"].values == ("s", "n", "w")  # also the one that does not occur
    assert (space["sex"].mutable, space["age"].direction, space["income"].direction) == (False, "increase", None)
    numbers = space.numbers(loans.drop(columns="paid"))
    assert space.allowed(numbers, np.roll(numbers, 1, axis=0))[:, 0].all()


def test_what_is_said_goes_before_what_is_seen(loans) -> None:
    space = FeatureSpace.from_frame(
        loans,
        kinds={"age": "continuous", "guarantor": "integer"},
        ranges={"income": (0, 5000), "guarantor": (0, 3)},
        steps={"income": 100},
        values={"housing": ["free", "rent", "own", "other"], "age": [20, 40, 60]},
        codes={"grade": "thermometer"},
        decrease=["paid"],
        scale="minmax",
    )
    income = space["income"]
    assert (income.low, income.high, income.step) == (0.0, 5000.0, 100.0)
    assert space["housing"].values == ("free", "rent", "own", "other")
    assert space["age"].values == (20.0, 40.0, 60.0)
    assert (space["guarantor"].kind, space["guarantor"].high) == ("integer", 3.0)
    assert (space["grade"].code, space["paid"].direction, space.scale) == ("thermometer", "decrease", "minmax")
    ordinal = FeatureSpace.from_frame(loans, kinds={"age": "ordinal"})["age"]
    assert ordinal.values == (25, 33, 40, 61)


def test_columns_of_many_types() -> None:
    frame = pd.DataFrame(
        {
            "nullable": pd.array([1, 5, 9], dtype="Int64"),
            "text": pd.array(["x", "y", "z"], dtype="string"),
            "small": np.array([1, 2, 3], dtype=np.uint8),
            "single": np.array([0.5, 0.25, 3.0], dtype=np.float32),
            "mixed": ["a", 1, 2.5],
            "constant": [7, 7, 7],
        }
    )
    space = FeatureSpace.from_frame(frame)
    kinds = ["integer", "categorical", "integer", "continuous", "categorical", "integer"]
    assert [f.kind for f in space] == kinds
    assert space["mixed"].values == ("a", 1, 2.5)
    assert (
        space.numbers(frame)[:, [0, 2, 3, 5]] == frame[["nullable", "small", "single", "constant"]].to_numpy(float)
    ).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"immutable": ["sx"]}, "`immutable` of .* names column 'sx', which the frame does not have; its columns are"),
        ({"increase": "age"}, "`increase` of FeatureSpace.from_frame must be a list of columns, got 'age'"),
        ({"ranges": {"salary": (0, 1)}}, "`ranges` of FeatureSpace.from_frame names column 'salary'"),
        (
            {"increase": ["age"], "decrease": ["age"]},
            "'age' must not only increase and only decrease; make it immutable",
        ),
        ({"immutable": ["age"], "increase": ["age"]}, "'age' is immutable and so cannot increase"),
        ({"increase": ["housing"]}, "`direction` of feature 'housing' needs an order"),
        ({"ranges": {"age": 3}}, "`ranges` must give column 'age' its lowest and highest value, got 3"),
        ({"ranges": {"age": (50, 20)}}, "`low` of feature 'age' must not exceed `high`"),
        ({"kinds": {"housing": "integer"}}, "column 'housing' of `frame` must hold numbers to be one, got 'rent'"),
        ({"label": "outcome"}, "`label` of FeatureSpace.from_frame must be a column of the frame, got 'outcome'"),
        ({"scale": "standard"}, "`scale` of FeatureSpace must be \"minmax\" or None, got 'standard'"),
    ],
)
def test_bad_descriptions_of_a_table(loans, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        FeatureSpace.from_frame(loans, **options)


def test_bad_tables(loans) -> None:
    with pytest.raises(InputError, match="must be a pandas data frame, got ndarray"):
        FeatureSpace.from_frame(np.zeros((2, 2)))
    with pytest.raises(InputError, match="must have rows to read ranges and levels from, got none"):
        FeatureSpace.from_frame(loans[:0])
    with pytest.raises(
        InputError, match="`frame` must have a value in every column, but 'income' has none; fill or drop it"
    ):
        FeatureSpace.from_frame(loans.assign(income=[np.nan] * 4))
    assert FeatureSpace.from_frame(loans.assign(income=[1.0, np.nan, 2.0, 3.0]))["income"].ends == (1.0, 3.0)
    with pytest.raises(InputError, match="must have each column once, got 'age' twice"):
        FeatureSpace.from_frame(loans[["age", "income", "age"]])


# --- errors about spaces and rows ---


@pytest.mark.parametrize(
    ("features", "scale", "message"),
    [
        ([], None, "`features` of FeatureSpace must be apas.Feature objects, one per column, got none"),
        (["age"], None, "`features` of FeatureSpace must be apas.Feature objects, one per column, got 'age'"),
        ([Feature("a"), Feature("a")], None, "must have different names, got 'a' twice"),
        ([Feature("a", low=0)], "minmax", "`scale` \"minmax\" needs a range of feature 'a' .*, got 0 to inf; give it"),
        ([Feature("a", low=1, high=1)], "minmax", "needs a range of feature 'a' with high above low, got 1 to 1"),
        ([Feature("a", low=0, high=1)], "maxmin", "`scale` of FeatureSpace must be \"minmax\" or None, got 'maxmin'"),
    ],
)
def test_bad_spaces(features: list, scale: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        FeatureSpace(features, scale)


HOUSE = FeatureSpace(
    [Feature("age", "integer", low=0, high=99), Feature("home", "categorical", values=("own", "rent"))]
)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pd.DataFrame({"age": [1]}), "`background` must have exactly the space's columns, but it lacks 'home'"),
        (pd.DataFrame({"age": [1], "home": ["own"], "y": 1}), "it has 'y' besides; give exactly these columns"),
        (np.zeros((2, 3)), "`background` must have 2 columns, as the space has features, got 3"),
        (np.zeros(2), r"`background` must be 2-D .* for one row pass x\[None, :\]"),
        (pd.DataFrame({"age": [1, 2], "home": ["own", "lent"]}), "has 'lent' in row 1 of column 'home', whose levels are 'own', 'rent'; add it to the space, or correct the row"),
        (pd.DataFrame({"age": [1, 2], "home": ["own", None]}), "has .* in row 1 of column 'home', whose levels are"),
        (pd.DataFrame({"age": [1], "home": pd.array([pd.NA], dtype=object)}), "has <NA> in row 0 of column 'home'"),
        (pd.DataFrame({"age": [1], "home": [["own"]]}), r"has \['own'\] in row 0 of column 'home'"),
        (pd.DataFrame({"age": ["old"], "home": ["own"]}), "must hold finite numbers in column 'age', which is integer, but row 0 is 'old'"),
        (pd.DataFrame({"age": [np.inf], "home": ["own"]}), "must hold finite numbers in column 'age'"),
        (pd.DataFrame({"age": pd.array([None], dtype="Int64"), "home": ["own"]}), "must hold finite numbers in column 'age'"),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit(rows, message: str) -> None:
    with pytest.raises(InputError, match=message):
        HOUSE.numbers(rows, "background")


def test_many_levels_are_not_all_listed() -> None:
    space = FeatureSpace([Feature("n", "categorical", values=tuple(range(20)))])
    with pytest.raises(InputError, match="whose levels are 0, 1, 2, 3, 4, 5, 6, 7, ...; add it"):
        space.numbers([[31]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        # what is said about a column is never passed over in silence
        ({"ranges": {"home": (0, 1)}}, "`low` of feature 'home' is for numbers, but it is categorical"),
        ({"steps": {"home": 1}}, "`step` of feature 'home' is for numbers, but it is categorical"),
        ({"values": {"pay": [1, 2]}, "ranges": {"pay": (0, 5)}}, "'pay' has both `values` and a range or step"),
        ({"values": {"pay": [1, 2]}, "steps": {"pay": 1}}, "'pay' has both `values` and a range or step"),
        ({"values": {"home": "own"}}, "`values` of feature 'home' must be a list of values, got 'own'"),
        ({"values": {"pay": 3}}, "`values` of feature 'pay' must be a list of values, got 3"),
        ({"kinds": ["pay"]}, r"`kinds` of FeatureSpace.from_frame must be a mapping from columns, got \['pay'\]"),
        ({"immutable": 3}, "`immutable` of FeatureSpace.from_frame must be a list of columns, got 3"),
        ({"immutable": None}, "`immutable` of FeatureSpace.from_frame must be a list of columns, got None"),
    ],
)
def test_what_is_said_of_columns_is_heard_or_refused(options, message: str) -> None:
    table = pd.DataFrame({"pay": [1, 2, 3], "home": ["own", "rent", "free"]})
    with pytest.raises(InputError, match=message):
        FeatureSpace.from_frame(table, **options)


def test_misuse_of_a_space_is_one_sentence(tmp_path) -> None:
    space = FeatureSpace([Feature("pay", low=0, high=9), Feature("home", "categorical", values=("own", "rent"))])
    for features in (None, Feature("pay"), []):
        with pytest.raises(InputError, match="`features` of FeatureSpace must be apas.Feature objects, one per column"):
            FeatureSpace(features)
    with pytest.raises(InputError, match="`Z` must have 3 columns, as the space has features, got 2"):
        space.decode([[1.0, 0.0]])
    with pytest.raises(InputError, match="`Z` must hold the numbers that `encode` gives"):
        space.decode([["a", "b", "c"]])
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        space.to_toml(tmp_path / "none" / "space.toml")
    with pytest.raises(InputError, match="`path` of FeatureSpace.from_toml must be the name of a file, got None"):
        FeatureSpace.from_toml(None)
