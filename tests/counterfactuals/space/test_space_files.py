"""Spaces as TOML files and JSON values: they come back as they were, and mistakes are named."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from random_spaces import random_space

from apas.counterfactuals.space.feature import Feature
from apas.counterfactuals.space.space import FeatureSpace
from apas.errors import InputError

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
levels = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.booleans(),
)


def read_again(space: FeatureSpace, path) -> FeatureSpace:
    text = space.to_toml(path)
    assert path.read_text(encoding="utf-8") == text
    return FeatureSpace.from_toml(path)


def test_random_spaces_come_back(tmp_path) -> None:
    for seed in range(200):
        space = random_space(np.random.default_rng(seed))
        assert read_again(space, tmp_path / "space.toml") == space
        assert FeatureSpace.from_dict(json.loads(json.dumps(space.to_dict()))) == space


@given(st.lists(names, min_size=1, max_size=4, unique=True), st.lists(levels, min_size=2, max_size=5, unique=True))
@settings(max_examples=200, deadline=None)
def test_odd_names_and_levels_come_back(columns: list, values: list) -> None:
    import tomllib

    space = FeatureSpace([Feature(n, "categorical", values=tuple(values)) for n in columns])
    again = FeatureSpace.from_dict(tomllib.loads(space.to_toml()))
    assert again == space
    assert [[type(v) for v in f.values] for f in again] == [[type(v) for v in f.values] for f in space]


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=100, deadline=None)
def test_every_number_comes_back(a: float, b: float) -> None:
    import tomllib

    space = FeatureSpace([Feature("f", low=min(a, b), high=max(a, b)), Feature("g", high=a), Feature("h", values=[b])])
    assert FeatureSpace.from_dict(tomllib.loads(space.to_toml())) == space


def test_a_file_is_short_and_readable() -> None:
    space = FeatureSpace(
        [
            Feature("net income", "integer", low=0, high=20000, step=100, direction="increase"),
            Feature("age", "integer", low=18, mutable=False),
            Feature("grade", "ordinal", values=("C", "B", "A"), code="thermometer"),
            Feature("home", "categorical", values=("own", "rent")),
        ]
    )
    assert space.to_toml() == (
        '[features."net income"]\nkind = "integer"\nrange = [0, 20000]\nstep = 100\ndirection = "increase"\n\n'
        '[features.age]\nkind = "integer"\nlow = 18\nmutable = false\n\n'
        '[features.grade]\nkind = "ordinal"\nvalues = ["C", "B", "A"]\ncode = "thermometer"\n\n'
        '[features.home]\nkind = "categorical"\nvalues = ["own", "rent"]\n'
    )
    assert FeatureSpace(space.features[3:], "minmax").to_toml().startswith('scale = "minmax"\n\n[features.home]')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"a space needs a table \[features.NAME\] for each column, got none"),
        ("features = 3", "a space needs a table"),
        (
            '[age]\nkind = "integer"',
            r"a space has the entries `scale` and `features`, got 'age'; put it under \[features\]",
        ),
        ("[features]\nage = 3", "feature 'age' of a space must be a table such as {kind = \"integer\"}, got 3"),
        ("[features.age]\nrnge = [0, 1]", "feature 'age' has the unknown entry 'rnge'; it may have kind, range"),
        ("[features.age]\nrange = [0]", r"`range` of feature 'age' must be \[low, high\] and stand alone, got \[0\]"),
        ("[features.age]\nrange = [0, 1]\nlow = 0", r"`range` of feature 'age' must be \[low, high\] and stand alone"),
        ('[features.age]\nkind = "whole"', "`kind` of feature 'age' must be one of"),
        ('scale = "log"\n[features.age]', "`scale` of FeatureSpace must be \"minmax\" or None, got 'log'"),
        ('scale = "minmax"\n[features.age]', "`scale` \"minmax\" needs a range of feature 'age'"),
        ("[features.age", "the space .* is not TOML: "),
    ],
)
def test_mistakes_in_a_file(tmp_path, text: str, message: str) -> None:
    path = tmp_path / "space.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        FeatureSpace.from_toml(path)


def test_files_that_cannot_be_read_or_written(tmp_path) -> None:
    with pytest.raises(InputError, match="the space .*none.toml' cannot be read: No such file"):
        FeatureSpace.from_toml(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="bytes.toml' is not TOML"):
        FeatureSpace.from_toml(tmp_path / "bytes.toml")
    with pytest.raises(InputError, match="a space is made from what `to_dict` gives, got list"):
        FeatureSpace.from_dict([1])  # type: ignore[arg-type]
    strange = FeatureSpace([Feature("f", "categorical", values=(1, Fraction(1, 3)))])
    with pytest.raises(InputError, match=r"can be written with texts, numbers and true or false, got Fraction"):
        strange.to_toml()
