"""Single features: nearest allowed values, and one sentence for whatever contradicts itself."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from random_spaces import KINDS, random_feature

from apas.counterfactuals.space.feature import Feature
from apas.errors import InputError


def reachable(feature: Feature, original: float) -> np.ndarray | None:
    """All values a feature may take, by enumeration; None where there are too many."""
    if not feature.mutable:
        return np.array([original])
    low, high = feature.ends
    if feature.listed is not None:
        values = feature.listed
    elif feature.step is not None:
        first = -9000 if np.isinf(low) else 0
        steps = np.arange(first, 9000, dtype=float)
        values = np.round(feature.anchor + feature.step * steps, feature.decimals)
    else:
        return None
    values = values[(values >= low) & (values <= high)]
    if feature.direction == "increase":
        values = values[values >= original]
    if feature.direction == "decrease":
        values = values[values <= original]
    return np.append(values, original)


@given(st.integers(0, 2**32), st.sampled_from(KINDS))
@settings(max_examples=300, deadline=None)
def test_snapping_gives_the_nearest_allowed_value(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    feature = random_feature(rng, "f", kind)
    wanted, original = rng.normal(0, 12, 20), rng.normal(0, 12, 20)
    if feature.is_level:
        original = rng.integers(0, len(feature.values), 20).astype(float)
        wanted = rng.integers(0, len(feature.values), 20).astype(float) if kind == "categorical" else wanted
    found = feature.snapped(wanted, original)
    assert feature.allows(found, original).all()
    assert (feature.snapped(found, original) == found).all()
    for w, o, f in zip(wanted, original, found, strict=True):
        options = reachable(feature, float(o))
        if options is not None:
            assert f in options
            assert abs(f - w) <= np.abs(options - w).min() * (1 + 1e-9) + 1e-12
        else:
            low, high = feature.ends
            low = max(low, o) if feature.direction == "increase" else low
            high = min(high, o) if feature.direction == "decrease" else high
            nearest = min(max(w, low), high) if low <= high else o
            assert abs(f - w) <= min(abs(nearest - w), abs(o - w))


@given(st.integers(0, 2**32), st.sampled_from(KINDS))
@settings(max_examples=100, deadline=None)
def test_an_unchanged_value_is_always_allowed(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    feature = random_feature(rng, "f", kind)
    values = rng.normal(0, 100, 9) if not feature.is_level else np.zeros(9)
    assert feature.allows(values, values).all()
    assert (feature.snapped(values, values) == values).all()


def test_decimal_steps_have_no_binary_dust() -> None:
    rate = Feature("rate", low=0.0, high=1.0, step=0.1)
    snapped = rate.snapped(np.array([0.31, 0.69, 2.0]), np.zeros(3))
    assert snapped.tolist() == [0.3, 0.7, 1.0]
    assert rate.allows(np.array([0.1 + 0.2]), np.zeros(1)).all()


def test_the_tolerance_does_not_grow_to_a_step() -> None:
    large = Feature("income", "integer", low=0, high=10**13)
    assert large.allows(np.array([2e12]), np.zeros(1)).all()
    assert not large.allows(np.array([2e12 + 0.5]), np.zeros(1)).any()
    cents = Feature("price", low=0, high=1e12, step=0.25)
    assert not cents.allows(np.array([1e11 + 0.125]), np.zeros(1)).any()


def test_a_step_just_outside_the_range_is_outside() -> None:
    feature = Feature("f", low=0.0, high=0.3 - 1e-11, step=0.1)
    found = feature.snapped(np.array([0.3]), np.array([0.0]))
    assert found.tolist() == [0.2]
    assert feature.allows(found, np.array([0.0])).all()
    up = Feature("f", step=0.1, direction="increase")
    start = np.array([0.3 + 1e-11])
    found = up.snapped(np.array([0.33]), start)
    assert up.allows(found, start).all()
    assert found >= start


def test_an_input_outside_the_range_may_stay_or_come_in() -> None:
    age = Feature("age", "integer", low=18, high=99)
    assert age.snapped(np.array([13.0, 16.9, 20.2]), np.array([12.0, 12.0, 12.0])).tolist() == [12.0, 18.0, 20.0]
    older = Feature("age", "integer", low=18, high=99, direction="increase")
    assert older.snapped(np.array([50.0]), np.array([120.0])).tolist() == [120.0]


def test_differences_are_in_units_of_the_range() -> None:
    zero, two = np.array([0.0]), np.array([2.0])
    assert Feature("a", low=0, high=8).differences(two, zero) == [0.25]
    assert Feature("a").differences(two, zero) == [2.0]
    assert Feature("a", "ordinal", values=tuple("abcde")).differences(two, zero) == [0.5]
    assert Feature("a", "categorical", values=tuple("abcde")).differences(two, zero) == [1.0]
    assert Feature("a", low=3, high=3).span == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": 3}, "`name` of a feature must be a text, got 3"),
        ({"name": ""}, "`name` of a feature must be a text"),
        ({"kind": "number"}, "`kind` of feature 'f' must be one of continuous, .*, got 'number'"),
        ({"direction": "up"}, '`direction` of feature \'f\' must be "increase", "decrease" or None, got \'up\''),
        ({"mutable": "no"}, "`mutable` of feature 'f' must be True or False, got 'no'"),
        ({"kind": "categorical", "values": ["a", "b"], "direction": "increase"}, "`direction` of .* needs an order"),
        ({"mutable": False, "direction": "increase"}, "'f' is immutable and so cannot increase; drop one"),
        ({"code": "hash"}, "`code` of feature 'f' must be one of number, onehot, thermometer, got 'hash'"),
        ({"code": "onehot"}, '`code` of feature \'f\' must be "number", since it is continuous, got \'onehot\''),
        ({"kind": "categorical", "values": [1, 2], "code": "number"}, 'must be "onehot", since its levels have no order'),
        ({"kind": "categorical", "values": [1, 2], "code": "thermometer"}, 'must be "onehot", since its levels'),
        ({"kind": "ordinal"}, "`values` of feature 'f' must list its levels, since it is ordinal"),
        ({"kind": "ordinal", "values": [1, 2], "low": 1}, "`low` of feature 'f' is for numbers, but it is ordinal"),
        ({"kind": "ordinal", "values": "ab"}, "`values` of feature 'f' must be a list of values, got 'ab'"),
        ({"kind": "binary", "values": [1, 2, 3]}, "must be two, since it is binary, got 3"),
        ({"kind": "categorical", "values": []}, "`values` of feature 'f' must not be empty; nothing would be allowed"),
        ({"values": ()}, "must not be empty"),
        ({"kind": "categorical", "values": ["a", "a"]}, "must differ from each other, got \\['a', 'a'\\]"),
        ({"kind": "categorical", "values": ["a", None, float("nan")]}, "must differ from each other"),
        ({"kind": "ordinal", "values": ["a", float("nan")]}, "must not hold missing ones, .* make it categorical"),
        ({"kind": "continuous", "values": [1.0, None]}, "must not hold missing ones, since it is continuous"),
        ({"kind": "categorical", "values": ["a", ["b"]]}, "must be texts, numbers or booleans"),
        ({"low": 2, "high": 1}, "`low` of feature 'f' must not exceed `high`, got 2 and 1"),
        ({"low": "0"}, "`low` of feature 'f' must be a finite number, got '0'"),
        ({"high": float("inf")}, "`high` of feature 'f' must be a finite number, got inf"),
        ({"low": True}, "`low` of feature 'f' must be a finite number, got True"),
        ({"step": 0}, "`step` of feature 'f' must be positive, got 0"),
        ({"values": [1, "two"]}, "`values` of feature 'f' must be finite numbers, since it is continuous"),
        ({"values": [1, 2], "low": 0}, "'f' has both `values` and a range or step; list the allowed values alone"),
        ({"kind": "integer", "low": 0.5}, "'f' is an integer, but 0.5 in its description is not; round it"),
        ({"kind": "integer", "values": [1, 2.5]}, "'f' is an integer, but 2.5"),
        ({"kind": "integer", "step": 0.5}, "'f' is an integer, but 0.5"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Feature(**{"name": "f", **options})


@pytest.mark.parametrize("level", [date(2020, 1, 1), (1, 2), 1j, frozenset()])
def test_levels_are_texts_numbers_or_booleans(level) -> None:
    with pytest.raises(
        InputError, match="`values` of feature 'f' must be texts, numbers or booleans, got .*; turn dates"
    ):
        Feature("f", "categorical", values=("a", level))


@pytest.mark.parametrize("step", [None, 0.25])
def test_the_sign_of_a_zero_does_not_depend_on_the_length_of_a_batch(step: float | None) -> None:
    feature = Feature("x", "continuous", low=-0.0, high=3.0, step=step)
    for length in range(1, 20):
        wanted = np.full(length, -2.0)
        assert not np.signbit(feature.snapped(wanted, np.full(length, 1.5))).any()
